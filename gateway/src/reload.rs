//! Trigger → load → build → swap → outcome.
/// How a reload ended.
#[derive(Debug)]
pub enum ReloadOutcome {
    /// The file says what is running.
    Unchanged,
    /// In force.
    Applied {
        /// The running version.
        version: u64,
    },
    /// A field that needs a restart was changed; nothing was.
    RestartRequired {
        /// Their names.
        fields: Vec<&'static str>,
    },
    /// The file cannot be used; nothing was changed.
    Rejected(Box<dyn std::error::Error + Send + Sync>),
}

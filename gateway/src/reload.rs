//! Trigger → load → build → swap → outcome.
//!
//! SIGHUP, a change of the file and the admin API all do the same thing: read the text, check it whole, compare it with
//! what runs, build a whole snapshot, swap once. What fails on the way changes nothing, so there is no way back to have.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use limiter_core::{Clock, Timestamp};

use crate::{
    config::{self, Config, ConfigError, Overrides, UsedFile},
    error::causes,
    metrics::ReloadKind,
    snapshot::{Shared, Snapshot},
};

#[cfg(test)]
mod tests;
mod watch;
mod write;

/// Warnings that are logged of a configuration at most.
const MAX_WARNINGS: usize = 20;

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

impl ReloadOutcome {
    /// The word for it.
    #[must_use]
    pub fn kind(&self) -> ReloadKind {
        match self {
            Self::Unchanged => ReloadKind::Unchanged,
            Self::Applied { .. } => ReloadKind::Applied,
            Self::RestartRequired { .. } => ReloadKind::RestartRequired,
            Self::Rejected(_) => ReloadKind::Rejected,
        }
    }

    /// Each thing that is wrong with the file: `FILE:LINE:COL: path: what is wrong`. Empty unless it was rejected.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let Self::Rejected(error) = self else { return Vec::new() };
        match error.downcast_ref::<ConfigError>() {
            Some(error) => error.to_lines(),
            None => vec![causes(error.as_ref())],
        }
    }

    /// Why the file was not taken; a line a problem.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Unchanged | Self::Applied { .. } => None,
            Self::RestartRequired { fields } => Some(format!("needs restart: {}", fields.join(", "))),
            Self::Rejected(error) => Some(causes(error.as_ref())),
        }
    }
}

/// What asked for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// The file has another content.
    FileChange,
    /// The admin API.
    Admin,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "SIGHUP",
            Self::FileChange => "file change",
            Self::Admin => "admin",
        })
    }
}

/// A configuration file, and what the command line puts in place of its words.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    overrides: Overrides,
}

/// A checked configuration, and the text that it was read from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration, with the overrides.
    pub config: Config,
    /// The text.
    pub text: Arc<str>,
}

impl Source {
    /// The file at `path`, with `overrides`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, overrides: Overrides) -> Self {
        Self {
            path: path.into(),
            overrides,
        }
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and checks the file.
    ///
    /// # Errors
    /// Every problem of the file at once.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let text = config::read(&self.path)?;
        let config = self.check(&text)?;
        Ok(Loaded { config, text })
    }

    fn check(&self, text: &str) -> Result<Config, ConfigError> {
        let mut config = config::parse(&self.path.display().to_string(), text)?;
        self.overrides.apply(&mut config);
        Ok(config)
    }
}

/// The last reload, for `/api/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReload {
    /// `applied`, `unchanged`, `rejected` or `restart_required`.
    pub outcome: &'static str,
    /// When it ended.
    pub at: Timestamp,
    /// Why the file was not taken.
    pub error: Option<String>,
}

/// Takes new configurations while the gateway runs. Belongs on the control runtime: loading blocks for milliseconds.
#[derive(Debug)]
pub struct Reloader {
    source: Source,
    current: Arc<ArcSwap<Snapshot>>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    /// Held for a whole reload: they run one at a time.
    texts: Mutex<Texts>,
    /// The parts of the configuration that stand in files of their own.
    parts: Mutex<Vec<PathBuf>>,
    last: Mutex<Option<LastReload>>,
}

#[derive(Debug)]
struct Texts {
    /// What the running configuration was read from.
    running: Arc<str>,
    /// What was last looked at, whatever came of it, or why it could not be: the same again is no change of the file.
    seen: Result<Arc<str>, String>,
    /// The parts that it named, as they were then.
    parts: Vec<UsedFile>,
}

impl Texts {
    fn is_seen(&self, read: &Result<Arc<str>, ConfigError>) -> bool {
        let is_same = match (&self.seen, read) {
            (Ok(seen), Ok(text)) => seen == text,
            (Err(seen), Err(error)) => *seen == error.to_string(),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        is_same && !self.parts.iter().any(UsedFile::is_changed)
    }
}

impl Reloader {
    /// A reloader of `source`, from which `current` was built with the text `text`.
    #[must_use]
    pub fn new(
        source: Source,
        text: Arc<str>,
        current: Arc<ArcSwap<Snapshot>>,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut texts = Texts {
            running: Arc::clone(&text),
            seen: Ok(text),
            parts: Vec::new(),
        };
        let parts = Mutex::default();
        see_parts(&mut texts, &parts, &current.load().config.files);
        Self {
            source,
            current,
            shared,
            clock,
            texts: Mutex::new(texts),
            parts,
            last: Mutex::default(),
        }
    }

    /// The files that are watched: the configuration and its parts.
    fn watched(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.source.path.clone()];
        paths.extend_from_slice(&self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        paths
    }

    /// Loads, compares, builds and swaps; one at a time. Logs and counts the outcome.
    ///
    /// Blocks for as long as reading and checking the file takes.
    pub fn reload(&self, trigger: Trigger) -> ReloadOutcome {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = self.take(&mut texts, config::read(&self.source.path));
        self.tell(trigger, &outcome);
        outcome
    }

    /// As [`Self::reload`], but only where the file has another content than when it was last looked at, or can no longer
    /// be read.
    fn reload_if_changed(&self) -> Option<ReloadOutcome> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let read = config::read(&self.source.path);
        if texts.is_seen(&read) {
            return None;
        }
        let outcome = self.take(&mut texts, read);
        self.tell(Trigger::FileChange, &outcome);
        Some(outcome)
    }

    /// Whether [`Self::reload_if_changed`] would do something.
    fn is_changed(&self) -> bool {
        let read = config::read(&self.source.path);
        !self.texts.lock().unwrap_or_else(PoisonError::into_inner).is_seen(&read)
    }

    /// As [`Self::reload`], with `bytes` in place of what the file holds: where they can run, they are written over it
    /// first. The file stays as it is where they cannot.
    ///
    /// # Errors
    /// The file cannot be written. Nothing was changed then.
    pub fn replace(&self, bytes: Vec<u8>) -> io::Result<ReloadOutcome> {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match config::decode(&self.source.path, bytes) {
            Ok(text) => self.put(&mut texts, text)?,
            Err(error) => ReloadOutcome::Rejected(error.into()),
        };
        self.tell(Trigger::Admin, &outcome);
        Ok(outcome)
    }

    fn put(&self, texts: &mut Texts, text: Arc<str>) -> io::Result<ReloadOutcome> {
        let prepared = self.prepare(texts, &text);
        if matches!(prepared, Ok(_) | Err(ReloadOutcome::Unchanged)) {
            if !config::read(&self.source.path).is_ok_and(|found| found == text) {
                write::over(&self.source.path, &text)?;
            }
            // The watch will find the file changed, which is no news.
            texts.seen = Ok(Arc::clone(&text));
        }
        Ok(self.swap(texts, text, prepared))
    }

    /// Takes what was `read` in place of the running configuration, or leaves that as it is.
    fn take(&self, texts: &mut Texts, read: Result<Arc<str>, ConfigError>) -> ReloadOutcome {
        texts.seen = read.as_ref().map(Arc::clone).map_err(ToString::to_string);
        match read {
            Ok(text) => {
                let prepared = self.prepare(texts, &text);
                self.swap(texts, text, prepared)
            }
            Err(error) => ReloadOutcome::Rejected(error.into()),
        }
    }

    /// What is to run, or how the reload ends without it. Changes nothing that runs.
    fn prepare(&self, texts: &mut Texts, text: &Arc<str>) -> Result<Snapshot, ReloadOutcome> {
        let running = self.current.load_full();
        // Certificates are renewed, and parts changed, without a word in the file.
        if *text == texts.running && !running.config.files.iter().any(UsedFile::is_changed) {
            see_parts(texts, &self.parts, &running.config.files);
            return Err(ReloadOutcome::Unchanged);
        }
        let checked = self.source.check(text);
        let files = checked.as_ref().map_or_else(ConfigError::files, |config| &config.files);
        see_parts(texts, &self.parts, files);
        let config = checked.map_err(|error| ReloadOutcome::Rejected(error.into()))?;
        let fields = needs_restart(&running.config, &config);
        if !fields.is_empty() {
            return Err(ReloadOutcome::RestartRequired { fields });
        }
        let built = Snapshot::build(running.version + 1, Arc::new(config), &self.shared);
        built.map_err(|error| ReloadOutcome::Rejected(error.into()))
    }

    fn swap(&self, texts: &mut Texts, text: Arc<str>, prepared: Result<Snapshot, ReloadOutcome>) -> ReloadOutcome {
        let snapshot = match prepared {
            Ok(snapshot) => Arc::new(snapshot),
            Err(outcome) => return outcome,
        };
        self.current.store(Arc::clone(&snapshot));
        self.shared.applied(&snapshot);
        texts.running = text;
        ReloadOutcome::Applied {
            version: snapshot.version,
        }
    }

    fn tell(&self, trigger: Trigger, outcome: &ReloadOutcome) {
        self.shared.metrics.reloaded(outcome.kind());
        let error = outcome.error();
        let file = self.source.path.display();
        // One line an outcome, also where a file has several problems.
        let problems = error.as_deref().unwrap_or_default().replace('\n', "; ");
        match outcome {
            ReloadOutcome::Applied { version } => {
                tracing::info!(%trigger, version, "configuration {file} applied");
                self.tell_warnings();
            }
            ReloadOutcome::Unchanged => tracing::info!(%trigger, "configuration {file} unchanged"),
            ReloadOutcome::RestartRequired { .. } => {
                tracing::error!(%trigger, "configuration {file} not applied, it {problems}");
            }
            ReloadOutcome::Rejected(_) => tracing::error!(%trigger, "configuration rejected: {problems}"),
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(LastReload {
            outcome: outcome.kind().as_str(),
            at: self.clock.now(),
            error,
        });
    }

    /// Logs what is doubtful in the running configuration.
    pub fn tell_warnings(&self) {
        let running = self.current.load();
        let (warnings, file) = (&running.config.warnings, self.source.path.display());
        for warning in warnings.iter().take(MAX_WARNINGS) {
            tracing::warn!("configuration {file}:{warning}");
        }
        if let Some(more @ 1..) = warnings.len().checked_sub(MAX_WARNINGS) {
            tracing::warn!("configuration {file}: {more} more warnings, which `gateway check` prints");
        }
    }

    /// The last reload; `None` before the first.
    #[must_use]
    pub fn last_reload(&self) -> Option<LastReload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reloads on SIGHUP, which is caught from this call on, and on every change of the file, for as long as it is polled.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn watch(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        let hangups = watch::hangups();
        async move {
            tokio::join!(watch::signals(&self, hangups), watch::files(&self));
        }
    }
}

/// Notes which of `files` are parts of the configuration, and how they are.
fn see_parts(texts: &mut Texts, paths: &Mutex<Vec<PathBuf>>, files: &[UsedFile]) {
    let found: Vec<UsedFile> = files.iter().filter(|file| file.is_watched()).cloned().collect();
    *paths.lock().unwrap_or_else(PoisonError::into_inner) = found.iter().map(|file| file.path().to_owned()).collect();
    texts.parts = found;
}

/// The fields in which the two differ and which a running process cannot change.
fn needs_restart(running: &Config, wanted: &Config) -> Vec<&'static str> {
    let differences = [
        ("listen", running.listen != wanted.listen),
        ("admin", running.admin.address != wanted.admin.address),
        ("server.workers", running.server.workers != wanted.server.workers),
    ];
    differences
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(name, _)| name)
        .collect()
}

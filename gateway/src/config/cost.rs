//! `cost` of a layer, checked.

use http::HeaderName;

/// Units that a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Each the same; 0 checks and takes nothing.
    Fixed(u64),
    /// What its header says.
    Header {
        /// The header's name.
        name: HeaderName,
        /// Without that header.
        default: u64,
        /// Who says more is told so: 400.
        max: Option<u64>,
    },
    /// What the header of its answer says.
    Response {
        /// The header's name.
        name: HeaderName,
        /// What it is charged before that is known, at least 1.
        estimate: u64,
    },
}

impl Cost {
    /// What is known of it when the configuration is loaded: what a request costs that says nothing.
    #[must_use]
    pub fn known(&self) -> u64 {
        match self {
            Self::Fixed(cost) | Self::Header { default: cost, .. } | Self::Response { estimate: cost, .. } => *cost,
        }
    }

    /// What a request is charged at most when it is decided; `None`: whatever it says.
    pub(crate) fn most(&self) -> Option<u64> {
        match self {
            Self::Header { default, max, .. } => max.map(|max| max.max(*default)),
            Self::Fixed(_) | Self::Response { .. } => Some(self.known()),
        }
    }
}

//! What may come of a call in place of an answer.

use fred::error::{Error, ErrorKind};

use super::config::Address;
use crate::store::StoreError;

/// Why a call has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No answer in time. It may have run, or may run later.
    #[error("no answer in time")]
    Timeout,
    /// It came too late, by the server's clock. It did not run.
    #[error("the call came too late")]
    Late,
    /// No connection, or it broke. It may have run.
    #[error("no connection: {0}")]
    Lost(String),
    /// The server does not know the script. It did not run.
    #[error("the script is not known, though it was just loaded")]
    NoScript,
    /// This server is not, or not yet, the one to ask: a replica, loading, without its primary. It did not run.
    #[error("not the server to ask: {0}")]
    Misdirected(String),
    /// Another server of the cluster has the slot now. It did not run.
    #[error("the slot is at {0} now")]
    Moved(Address),
    /// Another server of the cluster has what is not here of a slot that is being moved. It did not run.
    #[error("the key is at {0} while its slot is moved")]
    Ask(Address),
    /// Some keys are here and some at the server that their slot is being moved to. It did not run.
    #[error("the keys are apart while their slot is moved")]
    TryAgain,
    /// Any other error of the server.
    #[error("{0}")]
    Server(String),
    /// A reply that cannot be read.
    #[error("the reply cannot be read: {0}")]
    Unreadable(&'static str),
}

impl Failure {
    /// What a client of the store is told.
    pub(super) fn to_error(&self) -> StoreError {
        match self {
            Self::Timeout | Self::Late => StoreError::Timeout,
            Self::Lost(_) => StoreError::Unavailable,
            Self::NoScript => StoreError::Server("NOSCRIPT".into()),
            Self::Moved(_) | Self::Ask(_) | Self::TryAgain => StoreError::Server(self.to_string().into()),
            Self::Misdirected(text) | Self::Server(text) => StoreError::Server(text.as_str().into()),
            Self::Unreadable(why) => StoreError::Protocol(why),
        }
    }
}

impl Failure {
    /// Whether the server said that the call did not run.
    pub(super) fn is_harmless(&self) -> bool {
        matches!(
            self,
            Self::Late | Self::NoScript | Self::Misdirected(_) | Self::Moved(_) | Self::Ask(_) | Self::TryAgain
        )
    }
}

impl From<StoreError> for Failure {
    /// From what is said of a reply.
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Protocol(why) => Self::Unreadable(why),
            other => Self::Server(other.to_string()),
        }
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        let text = || error.details().to_owned();
        match error.kind() {
            ErrorKind::Timeout => return Self::Timeout,
            ErrorKind::IO | ErrorKind::Canceled => return Self::Lost(text()),
            _ => {}
        }
        let mut words = error.details().split(' ');
        match words.next() {
            Some("NOSCRIPT") => Self::NoScript,
            Some("READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN") => Self::Misdirected(text()),
            Some("TRYAGAIN") => Self::TryAgain,
            // `MOVED 3999 127.0.0.1:6381`
            Some(word @ ("MOVED" | "ASK")) => match (word, words.nth(1).and_then(|address| address.parse().ok())) {
                ("MOVED", Some(address)) => Self::Moved(address),
                (_, Some(address)) => Self::Ask(address),
                (_, None) => Self::Misdirected(text()),
            },
            // fred's words where its router task has ended.
            _ if error.details().starts_with("Failed to send command to router") => Self::Lost(text()),
            _ => Self::Server(text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: ErrorKind, details: &'static str) -> Failure {
        Failure::from(&Error::new(kind, details))
    }

    #[test]
    fn errors_are_told_apart_by_what_they_say() {
        use ErrorKind::{Canceled, Cluster, IO, Timeout, Unknown};
        assert!(matches!(failure(Timeout, "Request timed out."), Failure::Timeout));
        assert!(matches!(failure(IO, "Connection reset"), Failure::Lost(_)));
        assert!(matches!(
            failure(Canceled, "Connection closed unexpectedly."),
            Failure::Lost(_)
        ));
        assert!(matches!(
            failure(Unknown, "Failed to send command to router."),
            Failure::Lost(_)
        ));
        assert!(matches!(
            failure(Unknown, "NOSCRIPT No matching script."),
            Failure::NoScript
        ));
        for text in ["READONLY You can't", "LOADING Redis is", "MASTERDOWN Link"] {
            assert!(matches!(failure(Unknown, text), Failure::Misdirected(_)), "{text}");
        }
        assert!(matches!(
            failure(Cluster, "CLUSTERDOWN Hash slot"),
            Failure::Misdirected(_)
        ));
        let address: Address = "127.0.0.1:6381".parse().unwrap();
        assert!(matches!(failure(Cluster, "MOVED 3999 127.0.0.1:6381"), Failure::Moved(to) if to == address));
        assert!(matches!(failure(Cluster, "ASK 3999 127.0.0.1:6381"), Failure::Ask(to) if to == address));
        assert!(matches!(failure(Cluster, "MOVED 3999 ?"), Failure::Misdirected(_)));
        assert!(matches!(failure(Unknown, "TRYAGAIN Multiple keys"), Failure::TryAgain));
        assert!(matches!(
            failure(Unknown, "OOM command not allowed"),
            Failure::Server(_)
        ));
    }
}

//! How to reach Redis.

use std::{fmt, time::Duration};

/// How to reach Redis, and how long to wait for it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// `redis://[user:pass@]host[:port][/db]`, user and password percent-encoded. Port 6379 and database 0 where not
    /// said.
    pub url: String,
    /// Deadline of one decision, waiting included. Zero fails every decision.
    pub timeout: Duration,
    /// Connections; 0 counts as 1. More than one, so that a stuck one does not stop all.
    pub connections: usize,
    /// Begins every key, followed by a colon. Processes that share it, and a policy's name, share counters.
    pub prefix: String,
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("url", &without_credentials(&self.url))
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("prefix", &self.prefix)
            .finish()
    }
}

/// The URL, fit for a log.
fn without_credentials(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}…{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_printed() {
        assert_eq!(without_credentials("redis://u:p@ss@h:1/2"), "redis://…@h:1/2");
        assert_eq!(without_credentials("redis://h:1/2"), "redis://h:1/2");
        assert_eq!(without_credentials("p@h"), "p@h");
    }
}

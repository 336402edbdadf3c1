//! A real redis-server of the test's own, asked without blocking the test's runtime.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

pub(crate) use limiter_core::test_util::RedisReply as Reply;
use limiter_core::test_util::RedisServer;

use super::wait::{DEADLINE, wait_for};

/// The server; it ends with this guard.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    server: Arc<RedisServer>,
}

impl Redis {
    /// Starts a server on a free port, without persistence.
    ///
    /// # Panics
    ///
    /// If `redis-server` is missing: these tests do not pass without it.
    pub(crate) async fn start() -> Self {
        Self::start_as(RedisServer::start).await
    }

    /// Starts a server in one of the ways that the guard knows.
    pub(crate) async fn start_as(start: impl FnOnce() -> RedisServer + Send + 'static) -> Self {
        Self {
            server: Arc::new(aside(start).await),
        }
    }

    /// The guard below.
    pub(crate) fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Starts a replica of it that has all that it holds.
    pub(crate) async fn replica(&self) -> Self {
        let server = Arc::clone(&self.server);
        Self::start_as(move || RedisServer::start_replica_of(&server)).await
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.server.port()))
    }

    /// Ends the server at once: what it held is lost.
    pub(crate) fn kill(&self) {
        self.server.stop();
    }

    /// Starts it again after `kill`, empty, on the port that it had.
    pub(crate) async fn start_again(&self) {
        let server = Arc::clone(&self.server);
        aside(move || server.restart()).await;
    }

    /// Stops it as a hung host does: connections stay open, nothing answers.
    pub(crate) fn freeze(&self) {
        self.server.pause();
    }

    /// Lets it run on after `freeze`.
    pub(crate) fn thaw(&self) {
        self.server.resume();
    }

    /// Scripts that it ran: decisions, and the heartbeats of gateways.
    pub(crate) async fn script_calls(&self) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]).await.into_text();
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    /// Sends a command and reads its reply, over a connection of its own.
    pub(crate) async fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).await.unwrap()
    }

    /// As `command`, of a server that may be gone.
    pub(crate) async fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        let server = Arc::clone(&self.server);
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        aside(move || {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            server.try_command(&words)
        })
        .await
    }

    /// All keys that begin with `prefix`, in order.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let reply = self.command(&["KEYS", &format!("{prefix}*")]).await;
        assert!(matches!(reply, Reply::List(_)), "KEYS gave {reply:?}");
        let mut keys = reply.texts();
        keys.sort();
        keys
    }

    /// The keys of counters that begin with `prefix`: all but the gateways' own bookkeeping, which begins with `~`.
    pub(crate) async fn counters(&self, prefix: &str) -> Vec<String> {
        let bookkeeping = format!("{prefix}:~");
        let mut keys = self.keys(prefix).await;
        keys.retain(|key| !key.starts_with(&bookkeeping));
        keys
    }

    /// How long a key still lives: `Some(None)` is for ever, `None` is not there.
    pub(crate) async fn time_to_live(&self, key: &str) -> Option<Option<Duration>> {
        match self.command(&["PTTL", key]).await.int() {
            Some(-2) => None,
            Some(-1) => Some(None),
            Some(ms) => Some(Some(Duration::from_millis(u64::try_from(ms).unwrap()))),
            None => panic!("PTTL gave no number"),
        }
    }

    /// Everything it holds under `prefix`, to compare before and after.
    pub(crate) async fn dump(&self, prefix: &str) -> Vec<(String, Reply)> {
        let mut dump = Vec::new();
        for key in self.counters(prefix).await {
            let value = self.command(&["DUMP", &key]).await;
            dump.push((key, value));
        }
        dump
    }

    /// Waits until some counter begins with `prefix`.
    pub(crate) async fn sees_counters(&self, prefix: &str) {
        wait_for(DEADLINE, "a counter in Redis", || async {
            !self.counters(prefix).await.is_empty()
        })
        .await;
    }
}

/// Does what blocks on a thread of its own.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

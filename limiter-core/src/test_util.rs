//! For tests: a clock that is moved by hand, and guards for real Redis servers, which end with them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, Timestamp};

mod certificates;
mod redis_cluster;
mod redis_reply;
mod redis_sentinels;
mod redis_server;
mod wait;

#[cfg(feature = "redis")]
pub use crate::store::redis::script::testing as script;
pub use certificates::Certificates;
pub use redis_cluster::RedisCluster;
pub use redis_reply::{RedisReply, redis_command};
pub use redis_sentinels::RedisSentinels;
pub use redis_server::RedisServer;

/// A clock that shows what it was set to.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.as_micros()))
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Moves the time on.
    pub fn advance(&self, by: std::time::Duration) {
        self.set(self.now().plus(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

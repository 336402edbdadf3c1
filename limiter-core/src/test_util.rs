//! For tests: a clock that is moved by hand, and a real redis-server that ends with its guard.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, Timestamp};

mod redis_server;

#[cfg(feature = "redis")]
pub use crate::store::redis::script::testing as script;
pub use redis_server::{RedisReply, RedisServer};

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

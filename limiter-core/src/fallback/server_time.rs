//! The server's time, without the server.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use crate::clock::{Clock, Timestamp};

/// A clock of this process, moved by what the server's was last found ahead of it. While the server is away it runs on
/// by itself: windows keep their edges, and times of the server's counters need no conversion.
///
/// It steps, back too, where the server's clock does; counters are settled so that this frees and freezes nothing.
#[derive(Debug)]
pub(super) struct ServerTime {
    clock: Arc<dyn Clock>,
    /// In µs.
    ahead: AtomicI64,
}

impl ServerTime {
    /// Our own time, until the server's is known.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let ahead = AtomicI64::new(0);
        Self { clock, ahead }
    }

    /// It is `now` at the server.
    pub(super) fn set(&self, now: Timestamp) {
        // Both are below 2^53, so the difference fits.
        let ahead = now.as_micros().cast_signed() - self.clock.now().as_micros().cast_signed();
        self.ahead.store(ahead, Ordering::Relaxed);
    }
}

impl Clock for ServerTime {
    fn now(&self) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Timestamp::from_micros(self.clock.now().as_micros().saturating_add_signed(ahead))
    }
}

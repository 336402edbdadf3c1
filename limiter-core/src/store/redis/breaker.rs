//! Decides whether Redis is asked at all.
//!
//! fred detects a frozen server only once nothing more is written to it, and until then every call runs into its
//! deadline. So after few failures nobody asks, but for one probe at a time.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::store::Health;

/// Failed calls in a row after which the breaker opens.
const MAX_FAILURES: u32 = 2;

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const PROBING: u8 = 2;

/// Closed: calls go out. Open: none does. Probing: open, and one probe is on its way.
#[derive(Debug)]
pub(super) struct Breaker {
    state: AtomicU8,
    /// Failures since the last success.
    failures: AtomicU32,
    /// Whether the log has said that the store is away.
    announced: AtomicBool,
}

impl Breaker {
    /// An open breaker: nothing is connected yet.
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU8::new(OPEN),
            failures: AtomicU32::new(0),
            announced: AtomicBool::new(false),
        }
    }

    /// Whether a call may go out.
    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// A call was answered. Does not close an open breaker: an answer that was on its way for long proves nothing.
    pub(super) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 && self.is_closed() {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// A call failed or timed out. Whether that opened the breaker.
    pub(super) fn failed(&self) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_FAILURES && self.open()
    }

    /// Opens the breaker. Whether it was closed.
    pub(super) fn open(&self) -> bool {
        self.state
            .compare_exchange(CLOSED, OPEN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// A probe goes out; only a breaker that is open changes its state by that.
    pub(super) fn probe_began(&self) {
        self.exchange(OPEN, PROBING);
    }

    /// The probe was not answered.
    pub(super) fn probe_failed(&self) {
        self.exchange(PROBING, OPEN);
    }

    /// The probe was answered. Whether that closed the breaker.
    pub(super) fn probe_succeeded(&self) -> bool {
        // First: else a call that fails in between would be counted on top of those that opened it.
        self.failures.store(0, Ordering::Relaxed);
        self.exchange(PROBING, CLOSED)
    }

    /// Notes that the log says that the store is away. Whether it had not said so before.
    pub(super) fn announce_loss(&self) -> bool {
        !self.announced.swap(true, Ordering::Relaxed)
    }

    /// Notes that the log says that the store is back. Whether it had said that it was away.
    pub(super) fn announce_return(&self) -> bool {
        self.announced.swap(false, Ordering::Relaxed)
    }

    /// How the store is doing, as far as calls show.
    pub(super) fn health(&self) -> Health {
        match self.state.load(Ordering::Acquire) {
            CLOSED if self.failures.load(Ordering::Relaxed) == 0 => Health::Connected,
            CLOSED | PROBING => Health::Degraded,
            _ => Health::Down,
        }
    }

    fn exchange(&self, from: u8, to: u8) -> bool {
        self.state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> Breaker {
        let breaker = Breaker::new();
        breaker.probe_began();
        assert!(breaker.probe_succeeded());
        breaker
    }

    #[test]
    fn starts_open() {
        let breaker = Breaker::new();
        assert!(!breaker.is_closed());
        assert_eq!(breaker.health(), Health::Down);
    }

    #[test]
    fn opens_at_the_second_failure_in_a_row() {
        let breaker = closed();
        assert!(!breaker.failed());
        assert_eq!(breaker.health(), Health::Degraded);
        breaker.succeeded();
        assert_eq!(breaker.health(), Health::Connected);
        assert!(!breaker.failed());
        assert!(breaker.failed());
        assert!(!breaker.failed(), "it opens once");
        assert_eq!(breaker.health(), Health::Down);
    }

    #[test]
    fn only_a_probe_closes_it() {
        let breaker = closed();
        assert!(breaker.open());
        breaker.succeeded();
        assert!(!breaker.is_closed());
        breaker.probe_began();
        assert_eq!(breaker.health(), Health::Degraded);
        breaker.probe_failed();
        assert_eq!(breaker.health(), Health::Down);
        breaker.probe_began();
        assert!(breaker.probe_succeeded());
        assert_eq!(breaker.health(), Health::Connected);
    }

    #[test]
    fn an_idle_probe_leaves_a_closed_breaker_closed() {
        let breaker = closed();
        breaker.probe_began();
        assert!(breaker.is_closed());
        breaker.probe_failed();
        assert!(breaker.is_closed());
        assert!(!breaker.failed());
        assert!(!breaker.probe_succeeded());
        assert_eq!(breaker.health(), Health::Connected);
    }
}

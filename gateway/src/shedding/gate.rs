//! How many requests are at an upstream, and how many may be: shared by all workers, without a lock to wait for.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use limiter_core::Timestamp;

use super::gradient::{Bounds, Gradient, LogSum, Seen};

/// One upstream's. The limit is of the gateway, so all workers count in the same place; who does not shed has no gate.
#[derive(Debug)]
pub(super) struct Gate {
    in_flight: AtomicU64,
    limit: AtomicU64,
    requests: AtomicU64,
    sum: AtomicU64,
    peak: AtomicU64,
    /// µs: before that the controller wants to know nothing.
    due: AtomicU64,
    /// µs: the latency at ease.
    base: AtomicU64,
    gradient: Mutex<Gradient>,
}

/// How a request ends at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With an answer, or without one in time, that long after it was sent.
    Answered(Duration),
    /// The client left, that long after it was sent.
    Left(Duration),
    /// In a way that says nothing of how long the upstream takes.
    Untold,
}

impl Gate {
    /// Nothing was seen yet.
    pub(super) fn new(bounds: Bounds, now: Timestamp) -> Self {
        let gradient = Gradient::new(bounds, now);
        Self {
            in_flight: AtomicU64::new(0),
            limit: AtomicU64::new(gradient.limit()),
            requests: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            due: AtomicU64::new(gradient.due().as_micros()),
            base: AtomicU64::new(0),
            gradient: Mutex::new(gradient),
        }
    }

    /// Applies from now on; what was found is kept.
    pub(super) fn set_bounds(&self, bounds: Bounds) {
        let mut gradient = self.gradient.lock().unwrap_or_else(PoisonError::into_inner);
        gradient.set_bounds(bounds);
        self.limit.store(gradient.limit(), Relaxed);
    }

    /// How many requests may be at the upstream.
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Whether there is room for one more, of those that leave `spared` thousandths of the limit to others.
    pub(super) fn has_room(&self, spared: u64, now: Timestamp) -> bool {
        self.tick(now);
        let limit = self.limit();
        let open = limit - (limit * spared).div_ceil(1000).min(limit - 1);
        self.in_flight.load(Relaxed) < open
    }

    /// A request goes to the upstream, until [`Gate::leave`].
    pub(super) fn enter(&self) {
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        if in_flight > self.peak.load(Relaxed) {
            self.peak.fetch_max(in_flight, Relaxed);
        }
    }

    /// It is no longer there.
    pub(super) fn leave(&self, end: End, now: Timestamp) {
        self.in_flight.fetch_sub(1, Relaxed);
        let latency = match end {
            End::Answered(latency) => Some(latency),
            // Without those who lose patience, the slower an upstream is, the better it would look.
            End::Left(after) => Some(after).filter(|after| after.as_micros() > self.base.load(Relaxed).into()),
            End::Untold => None,
        };
        if let Some(latency) = latency {
            self.sum.fetch_add(LogSum::of(latency).0, Relaxed);
            self.requests.fetch_add(1, Relaxed);
        }
        self.tick(now);
    }

    /// Lets the controller go on, if it is time and no other worker is at it.
    fn tick(&self, now: Timestamp) {
        if now.as_micros() < self.due.load(Relaxed) {
            return;
        }
        let Ok(mut gradient) = self.gradient.try_lock() else {
            return;
        };
        let in_flight = self.in_flight.load(Relaxed);
        let seen = Seen {
            requests: self.requests.load(Relaxed),
            sum: LogSum(self.sum.load(Relaxed)),
            peak: self.peak.load(Relaxed),
        };
        if gradient.step(now, in_flight, &seen) {
            // What others add meanwhile belongs to the next reading.
            self.requests.fetch_sub(seen.requests, Relaxed);
            self.sum.fetch_sub(seen.sum.0, Relaxed);
            self.peak.store(in_flight, Relaxed);
        }
        self.limit.store(gradient.limit(), Relaxed);
        self.due.store(gradient.due().as_micros(), Relaxed);
        self.base.store(gradient.base().as_micros() as u64, Relaxed);
    }
}

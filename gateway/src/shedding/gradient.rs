//! Where the knee of an upstream is: beyond it more requests at once only wait for each other. Pure arithmetic, which is
//! told the time and what was seen.
//!
//! The limit follows a gradient: the latency of an upstream at ease, over the latency at present. While the two are alike
//! the limit grows, by its square root at a time; where the present one is longer the limit shrinks by as much. The idea,
//! and the formula `limit × gradient + √limit`, are those of Netflix's concurrency-limits (`Gradient2Limit`) and of Envoy's
//! adaptive concurrency filter (`gradient_controller`). What differs, and why:
//!
//! - The latency at ease is **measured**, with a lowered limit, as in Envoy; an average over a long time, as in Gradient2,
//!   follows an overload that lasts, and then calls it normal. But the limit is halved for it, not taken down to the least:
//!   half of the knee leaves no queue either, and half of the requests pass.
//! - It is measured at whole multiples of [`EVERY`] on the clock, so that gateways which share an upstream do it together:
//!   one alone would see the queue of the others.
//! - Latencies are averaged as logarithms. A few timeouts, or a few answers out of a cache, hardly move such a mean, while a
//!   queue, which makes all wait, moves it whole.

use std::time::Duration;

use limiter_core::Timestamp;

/// How often the latency at ease is measured again.
const EVERY: Duration = Duration::from_secs(30);

/// No reading is of a shorter time, or of fewer requests.
const SHORTEST: Duration = Duration::from_millis(100);
const FEWEST: u64 = 20;

/// A reading takes in as many latencies, that it may be of what the last change of the limit did.
const LATENCIES: u32 = 2;

/// The latency at present may be so many times that at ease, and so many µs more, before the limit shrinks: a millisecond
/// is no queue that anybody would be turned away for.
const TOLERANCE: f64 = 1.25;
const GRACE_US: f64 = 1000.0;

/// The limit shrinks to no less than this in one step.
const LEAST_GRADIENT: f64 = 0.5;

/// Octaves by which latency falls with half of the limit where there is a queue still: one, if there was nothing else, and
/// half of one from the limit that is kept to.
const STILL_WAITING: f64 = 0.75;

/// Measuring is given up after that long, and after so many latencies, where what is in flight does not become less.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_LATENCIES: u32 = 4;

/// How many requests may be at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// At least 1.
    pub(super) min: u64,
    /// At least `min`.
    pub(super) max: u64,
}

/// What was seen since the last reading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// Requests that came to an end.
    pub(super) requests: u64,
    /// The sum of their latencies' logarithms.
    pub(super) sum: LogSum,
    /// Requests in flight, at most.
    pub(super) peak: u64,
}

/// A sum of logarithms of latencies, to the base 2, in 2^-20.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogSum(pub(super) u64);

impl LogSum {
    /// Of one latency: the whole part is that of its logarithm, and between powers of two it is a straight line, which is
    /// less than 0.09 off and rises as the logarithm does.
    pub(super) fn of(latency: Duration) -> Self {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).clamp(1, 1 << 40);
        let whole = u64::from(micros.ilog2());
        Self((whole << 20) + ((micros << 20) >> whole) - (1 << 20))
    }
}

/// The controller of one upstream.
#[derive(Debug)]
pub(super) struct Gradient {
    bounds: Bounds,
    limit: f64,
    /// The latency at ease, in octaves above a microsecond. `None` before the first reading.
    base: Option<f64>,
    /// What the limit was when `base` was measured.
    anchor: f64,
    /// The last reading, at a higher limit than the one that is measured with.
    above: f64,
    /// Whether the limit has only grown so far.
    is_starting: bool,
    phase: Phase,
    /// When the next reading can end.
    due: Timestamp,
    /// When the latency at ease is measured next.
    next_measure: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Follow,
    /// The limit is lowered; more than that are in flight.
    Drain {
        limit: f64,
        until: Timestamp,
    },
    /// Those end that waited behind them.
    Settle {
        limit: f64,
    },
    Measure {
        limit: f64,
    },
}

impl Gradient {
    /// Begins at the least limit, with the upstream at ease.
    pub(super) fn new(bounds: Bounds, now: Timestamp) -> Self {
        let limit = bounds.min as f64;
        Self {
            bounds,
            limit,
            base: None,
            anchor: limit,
            above: 0.0,
            is_starting: true,
            phase: Phase::Follow,
            due: now.plus(SHORTEST),
            next_measure: next(now),
        }
    }

    /// Keeps what was found, as far as it is within the new bounds.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.limit = self.bounded(self.limit);
        self.anchor = self.bounded(self.anchor);
    }

    /// How many requests may be in flight. Within the bounds.
    pub(super) fn limit(&self) -> u64 {
        let limit = match self.phase {
            Phase::Follow => self.limit,
            Phase::Drain { limit, .. } | Phase::Settle { limit } | Phase::Measure { limit } => limit,
        };
        self.bounded(limit) as u64
    }

    /// Before that, nothing comes of a step.
    pub(super) fn due(&self) -> Timestamp {
        self.due
    }

    /// The latency at ease; zero before it is known.
    pub(super) fn base(&self) -> Duration {
        self.latencies(1)
    }

    /// Goes on from what was seen since the last reading, with so many in flight now. Whether it made a reading of it, so
    /// that the next one begins.
    pub(super) fn step(&mut self, now: Timestamp, in_flight: u64, seen: &Seen) -> bool {
        if now < self.due {
            return false;
        }
        match self.phase {
            Phase::Drain { limit, until } => {
                if in_flight as f64 <= limit {
                    self.phase = Phase::Settle { limit };
                    self.due = now.plus(self.latencies(LATENCIES));
                } else if now >= until {
                    self.phase = Phase::Follow;
                    self.due = now.plus(self.reading_time());
                    self.anchor = self.limit;
                    return true;
                }
                return false;
            }
            Phase::Settle { limit } => {
                self.phase = Phase::Measure { limit };
                self.due = now.plus(self.reading_time());
                return true;
            }
            Phase::Follow | Phase::Measure { .. } if seen.requests < FEWEST => return false,
            Phase::Measure { limit } => self.measure(now, octaves(seen), limit),
            Phase::Follow => self.read(now, octaves(seen), seen.peak as f64),
        }
        true
    }

    fn read(&mut self, now: Timestamp, reading: f64, peak: f64) {
        self.due = now.plus(self.reading_time().max(duration(reading) * LATENCIES));
        let Some(base) = self.base else {
            self.measured(reading);
            return;
        };
        // No queue makes an upstream faster, so this is no queue.
        if reading < base - 1.0 {
            self.base = Some(reading);
        }
        let is_busy = peak * 2.0 >= self.limit;
        self.adapt(base, reading, peak, is_busy);
        let has_collapsed = self.limit < self.anchor / 2.0;
        if now < self.next_measure && !has_collapsed {
            return;
        }
        self.next_measure = next(now);
        if !is_busy {
            self.measured(reading);
            return;
        }
        // A limit that fell by half may have done so because the upstream has become another one. It is low already.
        let limit = self.bounded(if has_collapsed { self.limit } else { self.limit / 2.0 });
        self.lower(now, reading, limit);
    }

    fn adapt(&mut self, base: f64, reading: f64, peak: f64, is_busy: bool) {
        let gradient = ((TOLERANCE * base.exp2() + GRACE_US) / reading.exp2()).max(LEAST_GRADIENT);
        let wanted = if gradient < 1.0 {
            self.is_starting = false;
            let wanted = self.limit * gradient + self.limit.sqrt();
            // Nobody meets a limit of twice what is in flight: what is slow then is not the doing of its height.
            if is_busy {
                wanted
            } else {
                wanted.max(peak * 2.0).min(self.limit)
            }
        } else if !is_busy {
            return;
        } else if self.is_starting {
            self.limit * 2.0
        } else {
            self.limit + self.limit.sqrt()
        };
        self.limit = self.bounded(wanted);
    }

    /// A reading with a lowered limit: at ease, unless latency fell as the limit did, for then all have been waiting still.
    fn measure(&mut self, now: Timestamp, reading: f64, limit: f64) {
        let half = self.bounded(limit / 2.0);
        if self.above - reading > STILL_WAITING && half < limit {
            self.lower(now, reading, half);
            return;
        }
        self.limit = self.limit.min(self.bounded(limit * 2.0));
        self.measured(reading);
        self.phase = Phase::Follow;
        self.due = now.plus(self.reading_time());
    }

    /// Lowers the limit, to measure; at the present one the reading was `above`.
    fn lower(&mut self, now: Timestamp, above: f64, limit: f64) {
        self.above = above;
        let until = now.plus(PATIENCE.max(self.latencies(PATIENCE_LATENCIES)));
        self.phase = Phase::Drain { limit, until };
        self.due = now;
    }

    /// A reading at ease. A single one is no better than its sample, so it goes half of the way; but not where it is another
    /// upstream altogether.
    fn measured(&mut self, reading: f64) {
        self.base = Some(match self.base {
            Some(base) if (base - reading).abs() < 1.0 => f64::midpoint(base, reading),
            _ => reading,
        });
        self.anchor = self.limit;
    }

    fn reading_time(&self) -> Duration {
        SHORTEST.max(self.latencies(LATENCIES))
    }

    /// So many latencies at ease.
    fn latencies(&self, count: u32) -> Duration {
        self.base.map_or(Duration::ZERO, duration) * count
    }

    fn bounded(&self, limit: f64) -> f64 {
        limit.clamp(self.bounds.min as f64, self.bounds.max as f64)
    }
}

/// The mean of the logarithms of what was seen.
fn octaves(seen: &Seen) -> f64 {
    seen.sum.0 as f64 / f64::from(1 << 20) / seen.requests.max(1) as f64
}

fn duration(octaves: f64) -> Duration {
    Duration::from_micros(octaves.exp2() as u64)
}

/// The next whole multiple of [`EVERY`].
fn next(now: Timestamp) -> Timestamp {
    let every = EVERY.as_micros() as u64;
    Timestamp::from_micros((now.as_micros() / every + 1) * every)
}

//! Sliding window counter: counts of sub-windows, of which the oldest, partly outside, weighs as much as it overlaps.
//!
//! With `b` sub-windows a window, `used = newer + ⌊oldest × overlap⌋`: the `b` newer counts in full, and that of the
//! sub-window that the window's begin lies in by the share of it that is still inside. A part of a unit counts as none,
//! so that nobody waits for longer than a window for a single unit. With one sub-window a window this is the
//! two-counter method that Cloudflare described in 2017; more of them come closer to the log, for 8 bytes each. What
//! passed can be wrong by what an uneven arrival within one sub-window makes of it and by less than a unit, never more.
//!
//! Time `t` lies in sub-window `⌊t / w⌋ × b + ⌊(t mod w) × b / w⌋`, so that sub-windows need not be whole microseconds.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::{AlgorithmError, EXACT_MAX, SPAN_MAX, check_window, micros};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

/// The most sub-windows a window.
pub const BUCKETS_MAX: u32 = 60;

/// The largest limit: the sum of all sub-windows, which can be more than the limit, has to be exact too.
pub const COUNTER_LIMIT_MAX: u64 = (1 << 50) - 1;

/// A debit makes the sum of all sub-windows at most this, which leaves room for what is taken after it: the sum stays
/// exact.
const DEBIT_SUM_MAX: u64 = 1 << 52;

/// `limit` units in any `window`, as well as `buckets` counts a window can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    limit: u64,
    window: Duration,
    grid: Grid,
}

/// How time is divided into sub-windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Length of a window, in µs.
    pub(crate) window: u64,
    /// Sub-windows a window.
    pub(crate) buckets: u64,
}

/// The state of one counter: the counts of `buckets + 1` sub-windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubWindows {
    pub(crate) grid: Grid,
    /// The newest sub-window.
    pub(crate) head: u64,
    /// Newest first.
    pub(crate) counts: SmallVec<[u64; 8]>,
    /// What they weigh together, at the moment that they were settled to: not part of what is stored.
    pub(crate) used: u64,
}

impl Grid {
    /// The sub-window that `time` lies in.
    pub(crate) fn index(self, time: u64) -> u64 {
        time / self.window * self.buckets + time % self.window * self.buckets / self.window
    }

    /// The first microsecond of a sub-window.
    fn start(self, index: u64) -> u64 {
        index / self.buckets * self.window + (index % self.buckets * self.window).div_ceil(self.buckets)
    }

    /// How far `time` is into its sub-window, in parts of which a sub-window has `window`.
    fn position(self, time: u64) -> u64 {
        time % self.window * self.buckets % self.window
    }
}

impl SubWindows {
    /// Moves on to sub-window `head`; what is older than `buckets` before it is dropped.
    ///
    /// If the newest is ahead of `head` (the clock stepped back), it becomes `head`, and all others move with it.
    fn move_to(&mut self, head: u64) {
        let len = self.counts.len();
        let by = usize::try_from(head.saturating_sub(self.head)).unwrap_or(len).min(len);
        self.counts.rotate_right(by);
        self.counts[..by].fill(0);
        self.head = head;
    }

    /// What the counts weigh at `now`, which lies in the newest sub-window.
    fn weigh(&self, now: u64) -> u64 {
        let Some((oldest, newer)) = self.counts.split_last() else {
            return 0;
        };
        let newer: u64 = newer.iter().sum();
        let Grid { window, .. } = self.grid;
        newer + mul_div(*oldest, window - self.grid.position(now), window)
    }

    /// The first moment at which every sub-window with a count has left the window.
    pub(super) fn empty_at(&self) -> Timestamp {
        let Some(newest) = self.counts.iter().position(|count| *count > 0) else {
            return Timestamp::from_micros(0);
        };
        let gone = (self.head + self.grid.buckets + 1).saturating_sub(newest as u64);
        Timestamp::from_micros(self.grid.start(gone))
    }
}

impl SlidingWindowCounter {
    /// `limit` units in any `window`, counted in `buckets` sub-windows.
    ///
    /// # Errors
    /// Zero; a limit above 2^50 − 1; more than 60 sub-windows; a window below 1 ms or above 3,000 days, or one of which
    /// `window × buckets` is not below 2^53 µs.
    pub fn new(limit: u64, window: Duration, buckets: u32) -> Result<Self, AlgorithmError> {
        super::check_limit(limit, COUNTER_LIMIT_MAX)?;
        if buckets == 0 {
            return Err(AlgorithmError::Zero { parameter: "buckets" });
        }
        if buckets > BUCKETS_MAX {
            let (parameter, max) = ("buckets", u64::from(BUCKETS_MAX));
            return Err(AlgorithmError::TooLarge { parameter, max });
        }
        let buckets = u64::from(buckets);
        let longest = Duration::from_secs(EXACT_MAX / buckets / 1_000_000);
        let window = check_window(window, longest.min(SPAN_MAX))?;
        let grid = Grid {
            window: micros(window),
            buckets,
        };
        Ok(Self { limit, window, grid })
    }

    /// Units a window.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Its length.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// How its window is divided.
    #[cfg(feature = "redis")]
    pub(crate) fn grid(&self) -> Grid {
        self.grid
    }

    /// Time from `at` to the end of its sub-window.
    #[cfg(feature = "redis")]
    pub(super) fn rest_of_sub_window(&self, at: Timestamp) -> Duration {
        let end = self.grid.start(self.grid.index(at.as_micros()) + 1);
        Timestamp::from_micros(end).since(at)
    }

    pub(super) fn load(&self, stored: Option<Box<SubWindows>>, now: u64) -> Box<SubWindows> {
        let head = self.grid.index(now);
        let mut counter = match stored {
            Some(mut stored) if stored.grid == self.grid => {
                stored.move_to(head);
                stored
            }
            stored => self.convert(stored, head, now),
        };
        counter.used = counter.weigh(now);
        counter
    }

    /// Counts of other sub-windows: each goes, in full, to the one of ours that holds its last instant, or now.
    fn convert(&self, stored: Option<Box<SubWindows>>, head: u64, now: u64) -> Box<SubWindows> {
        let mut counts: SmallVec<[u64; 8]> = smallvec![0; counts_len(self.grid)];
        if let Some(mut stored) = stored {
            stored.move_to(stored.grid.index(now));
            for (age, count) in (0..).zip(&stored.counts) {
                let Some(end) = (stored.head + 1).checked_sub(age) else {
                    break;
                };
                let last_instant = now.min(stored.grid.start(end).saturating_sub(1));
                let age = head.saturating_sub(self.grid.index(last_instant));
                if let Some(ours) = usize::try_from(age).ok().and_then(|age| counts.get_mut(age)) {
                    *ours += count;
                }
            }
        }
        Box::new(SubWindows {
            grid: self.grid,
            head,
            counts,
            used: 0,
        })
    }

    pub(super) fn free(&self, counter: &SubWindows) -> u64 {
        self.limit.saturating_sub(counter.used)
    }

    pub(super) fn save(counter: &mut SubWindows, used: u64) {
        if let Some(newest) = counter.counts.first_mut() {
            *newest += used;
            counter.used += used;
        }
    }

    /// Takes units without asking, or puts them back into the sub-window that they were taken in, if it still counts.
    pub(super) fn settle(counter: &mut SubWindows, change: Change, now: u64) {
        let sum: u64 = counter.counts.iter().sum();
        match change {
            Change::Debit(units) => {
                if let Some(newest) = counter.counts.first_mut() {
                    *newest += units.min(DEBIT_SUM_MAX.saturating_sub(sum));
                }
            }
            Change::LeaveQueue { .. } | Change::Hold(_) => {}
            Change::GiveBack { units, at } => {
                let age = counter.head.checked_sub(counter.grid.index(at.as_micros()));
                let age = age.and_then(|age| usize::try_from(age).ok());
                if let Some(count) = age.and_then(|age| counter.counts.get_mut(age)) {
                    *count = count.saturating_sub(units);
                }
            }
        }
        counter.used = counter.weigh(now);
    }

    /// Looks for the first sub-window in which `cost` fits beside the newer counts, and in it for the moment at which
    /// the oldest count has left far enough: `⌊oldest × (w − position) / w⌋ ≤ left`, so
    /// `position > w − (left + 1) × w / oldest`.
    pub(super) fn wait(&self, counter: &SubWindows, cost: u64, now: u64) -> Wait {
        let Some(room) = self.limit.checked_sub(cost) else {
            return Wait::Never;
        };
        if counter.used <= room {
            return Wait::For(Duration::ZERO);
        }
        let Grid { window, buckets } = self.grid;
        let mut newer: u64 = counter.counts.iter().sum();
        for (step, oldest) in (0..).zip(counter.counts.iter().rev()) {
            newer -= oldest;
            if newer <= room {
                let left = room - newer;
                let position = if *oldest <= left {
                    0
                } else {
                    window + 1 - mul_div_ceil(left + 1, window, *oldest)
                };
                let index = counter.head + step;
                let begin = index / buckets * window;
                let at = begin + (index % buckets * window + position).div_ceil(buckets);
                return Wait::For(Duration::from_micros(at.saturating_sub(now)));
            }
        }
        Wait::For(self.window)
    }

    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, counter: &SubWindows) -> f32 {
        counter.used as f32 / self.limit as f32
    }
}

/// Sub-windows that a window can touch.
pub(crate) fn counts_len(grid: Grid) -> usize {
    usize::try_from(grid.buckets + 1).unwrap_or(1)
}

/// `⌊x × y / z⌋`, where that fits.
fn mul_div(x: u64, y: u64, z: u64) -> u64 {
    let quotient = u128::from(x) * u128::from(y) / u128::from(z.max(1));
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

/// `⌈x × y / z⌉`, where that fits.
fn mul_div_ceil(x: u64, y: u64, z: u64) -> u64 {
    let quotient = (u128::from(x) * u128::from(y)).div_ceil(u128::from(z.max(1)));
    u64::try_from(quotient).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! Sliding window log: the time of every unit taken in the last window, so that no window, wherever it begins, sees
//! more than `limit`.
//!
//! A unit taken at `e` counts while `now < e + window`. Exact, and as large as its limit: 8 bytes a unit.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;

use super::{AlgorithmError, check_window, micros};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

/// The largest limit: a log of that many takes 1 MB a key in Redis.
pub const LOG_LIMIT_MAX: u64 = 100_000;

/// `limit` units in any `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowLog {
    limit: u64,
    window: Duration,
}

/// The state of one counter: when its units were taken, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// All of them.
    Times(VecDeque<u64>),
    /// What a store elsewhere tells of its log.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for stores elsewhere"))]
    Summary(Summary),
}

/// How many units count, and when those were taken that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Units that counted when it was made.
    told: u64,
    /// Units that count now: those taken since, too.
    live: u64,
    /// Index among those that count → time: the one that it came with first.
    known: SmallVec<[(u64, u64); 2]>,
    /// When all units after those told of were taken.
    since: u64,
}

#[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for stores elsewhere"))]
impl Summary {
    /// `live` units count; the one at `index` was taken at `time`.
    pub(crate) fn new(live: u64, index: u64, time: u64) -> Self {
        let mut summary = Self {
            told: live,
            live,
            ..Self::default()
        };
        summary.learn(index, time);
        summary
    }

    /// Whether the time of the unit at `index` neither came with the summary nor is that of the call.
    pub(crate) fn lacks(&self, index: u64) -> bool {
        index < self.told && self.known.first().is_none_or(|(known, _)| *known != index)
    }

    /// The unit at `index` was taken at `time`.
    pub(crate) fn learn(&mut self, index: u64, time: u64) {
        self.known.push((index, time));
    }

    fn taken_at(&self, index: u64) -> Option<u64> {
        if index < self.told {
            self.known
                .iter()
                .find(|(known, _)| *known == index)
                .map(|(_, time)| *time)
        } else {
            (index < self.live).then_some(self.since)
        }
    }
}

impl Log {
    /// Units that count.
    pub(crate) fn live(&self) -> u64 {
        match self {
            Self::Times(times) => times.len() as u64,
            Self::Summary(summary) => summary.live,
        }
    }

    /// When the unit at `index` was taken, if that is known.
    fn taken_at(&self, index: u64) -> Option<u64> {
        match self {
            Self::Times(times) => times.get(usize::try_from(index).ok()?).copied(),
            Self::Summary(summary) => summary.taken_at(index),
        }
    }

    fn push(&mut self, used: u64, now: u64) {
        match self {
            Self::Times(times) => times.extend((0..used).map(|_| now)),
            Self::Summary(summary) => {
                summary.live += used;
                summary.since = now;
            }
        }
    }

    /// Removes at most `units` that were taken at `time`. A summary does not know of them, and stays as it is.
    fn remove(&mut self, units: u64, time: u64) {
        if let Self::Times(times) = self {
            let first = times.partition_point(|other| *other < time);
            let last = times.partition_point(|other| *other <= time);
            let units = usize::try_from(units).unwrap_or(usize::MAX).min(last - first);
            times.drain(first..first + units);
        }
    }
}

impl SlidingWindowLog {
    /// `limit` units in any `window`.
    ///
    /// # Errors
    /// Zero; a limit above 100,000 ([`LOG_LIMIT_MAX`]); a window below 1 ms or above 3,000 days.
    pub fn new(limit: u64, window: Duration) -> Result<Self, AlgorithmError> {
        super::check_limit(limit, LOG_LIMIT_MAX)?;
        let window = check_window(window, super::SPAN_MAX)?;
        Ok(Self { limit, window })
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

    /// Drops what is older than the window; a time ahead of now (the clock stepped back) becomes now.
    pub(super) fn load(&self, stored: Option<Box<Log>>, now: u64) -> Box<Log> {
        let window = micros(self.window);
        let mut log = stored.unwrap_or_else(|| Box::new(Log::Times(VecDeque::new())));
        // A summary was made for this moment.
        if let Log::Times(times) = &mut *log {
            while times.front().is_some_and(|time| time + window <= now) {
                times.pop_front();
            }
            for time in times.iter_mut().rev().take_while(|time| **time > now) {
                *time = now;
            }
        }
        log
    }

    pub(super) fn free(&self, log: &Log) -> u64 {
        self.limit.saturating_sub(log.live())
    }

    pub(super) fn save(&self, log: &mut Log, used: u64, now: u64) {
        log.push(used, now);
    }

    /// Takes units without asking, or puts back those that were taken at exactly a time.
    pub(super) fn settle(&self, log: &mut Log, change: Change, now: u64) {
        match change {
            // Twice the limit, so that no log grows without a bound.
            Change::Debit(units) => log.push(units.min((2 * self.limit).saturating_sub(log.live())), now),
            Change::LeaveQueue { .. } | Change::Hold(_) => {}
            Change::GiveBack { units, at } => log.remove(units, at.as_micros()),
        }
    }

    /// The unit that has to age before `cost` fits, where that is more than waiting for none.
    pub(crate) fn awaited(&self, log: &Log, cost: u64) -> Option<u64> {
        (log.live() + cost.min(self.limit)).checked_sub(self.limit + 1)
    }

    pub(super) fn wait(&self, log: &Log, cost: u64, now: u64) -> Wait {
        if cost > self.limit {
            return Wait::Never;
        }
        let Some(index) = self.awaited(log, cost) else {
            return Wait::For(Duration::ZERO);
        };
        // A time that is not known is taken as now: the longest that it can be.
        let taken_at = log.taken_at(index).unwrap_or(now);
        Wait::For(Duration::from_micros(
            (taken_at + micros(self.window)).saturating_sub(now),
        ))
    }

    /// The moment at which the newest unit stops to count.
    pub(super) fn expires_at(&self, log: &Log) -> Timestamp {
        let newest = log.live().checked_sub(1).and_then(|newest| log.taken_at(newest));
        Timestamp::from_micros(newest.map_or(0, |time| time + micros(self.window)))
    }

    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, log: &Log) -> f32 {
        log.live() as f32 / self.limit as f32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_of_one_instant_are_as_many_as_they_are() {
        let policy = SlidingWindowLog::new(20, Duration::from_secs(10)).unwrap();
        let mut log = policy.load(None, 5);
        for left in (0..20).rev() {
            policy.save(&mut log, 1, 5);
            assert_eq!(policy.free(&log), left);
        }
        assert_eq!(policy.free(&policy.load(Some(log.clone()), 10_000_004)), 0);
        assert_eq!(policy.free(&policy.load(Some(log), 10_000_005)), 20);
    }

    #[test]
    fn a_clock_that_stepped_back_makes_times_ahead_now() {
        let policy = SlidingWindowLog::new(2, Duration::from_secs(10)).unwrap();
        let mut log = policy.load(None, 90_000_000);
        policy.save(&mut log, 2, 90_000_000);
        let log = policy.load(Some(log), 50_000_000);
        assert_eq!(policy.wait(&log, 1, 50_000_000), Wait::For(Duration::from_secs(10)));
        assert_eq!(policy.free(&policy.load(Some(log), 60_000_000)), 2);
    }

    #[test]
    fn a_limit_is_bounded() {
        let new = |limit| SlidingWindowLog::new(limit, Duration::from_secs(1));
        let (parameter, max) = ("limit", 100_000);
        assert_eq!(new(100_001), Err(AlgorithmError::TooLarge { parameter, max }));
        assert_eq!(new(0), Err(AlgorithmError::Zero { parameter }));
        assert!(new(100_000).is_ok());
    }

    proptest! {
        /// Whatever the arrivals, a request passes if and only if the units of the window that ends with it, its own
        /// among them, are at most the limit.
        #[test]
        fn no_window_holds_more_and_none_that_fits_is_refused(
            limit in 1_u64..30,
            window in 1_000_u64..50_000,
            arrivals in prop::collection::vec((0_u64..9_000, 1_u64..6), 1..200),
        ) {
            let policy = SlidingWindowLog::new(limit, Duration::from_micros(window)).unwrap();
            let (mut now, mut log, mut passed) = (0, None, Vec::new());
            for (gap, cost) in arrivals {
                now += gap;
                let mut loaded = policy.load(log.take(), now);
                let inside: u64 = passed.iter().filter(|(at, _)| at + window > now).map(|(_, cost)| cost).sum();
                prop_assert_eq!(policy.free(&loaded) >= cost, inside + cost <= limit);
                if inside + cost <= limit {
                    policy.save(&mut loaded, cost, now);
                    passed.push((now, cost));
                }
                log = Some(loaded);
            }
        }
    }
}

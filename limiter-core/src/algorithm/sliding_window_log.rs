//! Sliding window log: the time of every unit taken in the last window, so that no window, wherever it begins, sees more
//! than `limit`.
//!
//! A unit taken at `e` counts while `now < e + window`. Exact, and as large as its limit: 8 bytes a unit.

use std::{collections::VecDeque, time::Duration};

use smallvec::SmallVec;

use super::{AlgorithmError, check_window, micros};
use crate::{clock::Timestamp, decision::Wait};

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
    Summary(Summary),
}

/// How many units count, and when those were taken that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    live: u64,
    /// Index among those that count → time.
    known: SmallVec<[(u64, u64); 2]>,
    /// Units from this index on were taken since, at this time.
    taken: Option<(u64, u64)>,
}

impl Log {
    /// Nothing but a count: [`Log::learn`] adds what is known of the times.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for stores elsewhere"))]
    pub(crate) fn summary(live: u64) -> Self {
        Self::Summary(Summary {
            live,
            ..Summary::default()
        })
    }

    /// The unit at `index` was taken at `time`.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for stores elsewhere"))]
    pub(crate) fn learn(&mut self, index: u64, time: u64) {
        if let Self::Summary(summary) = self {
            summary.known.push((index, time));
        }
    }

    /// Units that count.
    pub(crate) fn live(&self) -> u64 {
        match self {
            Self::Times(times) => times.len() as u64,
            Self::Summary(summary) => summary.live,
        }
    }

    /// When the unit at `index` was taken, if that is known.
    pub(crate) fn taken_at(&self, index: u64) -> Option<u64> {
        match self {
            Self::Times(times) => times.get(usize::try_from(index).ok()?).copied(),
            Self::Summary(summary) => match summary.taken {
                Some((first, time)) if index >= first => Some(time),
                _ => summary.known.iter().find(|(at, _)| *at == index).map(|(_, time)| *time),
            },
        }
    }

    fn push(&mut self, used: u64, now: u64) {
        match self {
            Self::Times(times) => times.extend((0..used).map(|_| now)),
            Self::Summary(summary) => {
                summary.taken.get_or_insert((summary.live, now));
                summary.live += used;
            }
        }
    }

    fn last(&self) -> Option<u64> {
        match self {
            Self::Times(times) => times.back().copied(),
            Self::Summary(summary) => summary.taken.map(|(_, time)| time),
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
        let last = log.last().map_or(0, |time| time + micros(self.window));
        Timestamp::from_micros(last)
    }

    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, log: &Log) -> f32 {
        log.live() as f32 / self.limit as f32
    }
}

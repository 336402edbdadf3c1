//! Windows of a calendar: whole days, weeks and months, as a time zone has them.
//!
//! Such a window is as long as the calendar says: a day in which clocks are changed has 23 or 25 hours. So its edges are
//! looked up, and not computed from a length.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::{
    Span,
    civil::{Date, date},
    tz::{TimeZone, TimeZoneDatabase},
};

use super::{AlgorithmError, SPAN_MAX};
use crate::clock::Timestamp;

const SECOND: u64 = 1_000_000;
const DAY_SECS: u64 = 86_400;

/// The first day of the clock: windows of several days are counted from it.
const FIRST_DAY: Date = date(1970, 1, 1);
/// Its first Monday: windows of whole weeks are counted from it.
const FIRST_MONDAY: Date = date(1970, 1, 5);

/// A time zone of the IANA database, as this version of the library has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time: no day in it is longer than another.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// The zone of that name, such as `Europe/Berlin`; capitals do not matter. `None` where there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TimeZoneDatabase::bundled().get(name).ok().map(Self)
    }

    /// The names of all zones.
    #[must_use]
    pub fn names() -> Vec<String> {
        let zones = TimeZoneDatabase::bundled();
        zones.available().map(|name| name.as_str().to_owned()).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Windows that follow each other: each of so many days, or a month, in a time zone.
///
/// One begins with the first moment of its first day, even where clocks then show that moment again. Clones share what
/// was looked up.
#[derive(Clone)]
pub struct Calendar(Arc<Inner>);

struct Inner {
    zone: Zone,
    /// Of a window; `None` for a month.
    days: Option<u32>,
    /// Two windows that were asked for, and are nearly always asked for again.
    present: Found,
    next: Found,
}

impl Calendar {
    /// Windows of so many days. Those of whole weeks begin on a Monday; several weeks are counted from 5 January 1970,
    /// several days from 1 January 1970.
    ///
    /// # Errors
    /// Zero, or more than 3,000 days.
    pub fn days(zone: Zone, days: u32) -> Result<Self, AlgorithmError> {
        let parameter = "window";
        match u64::from(days) * DAY_SECS {
            0 => Err(AlgorithmError::Zero { parameter }),
            secs if secs > SPAN_MAX.as_secs() => Err(AlgorithmError::TooLong {
                parameter,
                max: SPAN_MAX,
            }),
            _ => Ok(Self::new(zone, Some(days))),
        }
    }

    /// Windows of a month.
    #[must_use]
    pub fn month(zone: Zone) -> Self {
        Self::new(zone, None)
    }

    fn new(zone: Zone, days: Option<u32>) -> Self {
        Self(Arc::new(Inner {
            zone,
            days,
            present: Found::default(),
            next: Found::default(),
        }))
    }

    /// Whose days they are.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.0.zone
    }

    /// The length of a window as it is spoken of: a day has 24 hours, a month 31 days.
    #[must_use]
    pub fn nominal(&self) -> Duration {
        Duration::from_secs(u64::from(self.0.days.unwrap_or(31)) * DAY_SECS)
    }

    /// Begin of the window that holds a moment, and of the one after it.
    #[must_use]
    pub fn window_at(&self, at: Timestamp) -> (Timestamp, Timestamp) {
        let window = self.window(at.as_micros());
        (Timestamp::from_micros(window.start), Timestamp::from_micros(window.end))
    }

    /// The window that holds a moment, in µs.
    pub(super) fn window(&self, at: u64) -> Range<u64> {
        let (present, next) = (&self.0.present, &self.0.next);
        let found = present.that_holds(at).or_else(|| next.that_holds(at));
        found.unwrap_or_else(|| present.keep(self.find(at)))
    }

    /// The edges of the window that holds a moment, and the end of the window after it, in µs.
    #[cfg(any(test, feature = "redis"))]
    pub(super) fn edges(&self, at: u64) -> [u64; 3] {
        let Range { start, end } = self.window(at);
        let next = &self.0.next;
        let after = next.that_holds(end).unwrap_or_else(|| next.keep(self.find(end)));
        [start, end, after.end]
    }

    fn find(&self, at: u64) -> Range<u64> {
        let secs = at / SECOND;
        // The calendar reaches from year -9999 to 9999, and our time only to 2255: it is always found.
        let Range { start, end } = self.look_up(secs).unwrap_or_else(|| {
            let length = self.nominal().as_secs();
            let start = secs - secs % length;
            start..start + length
        });
        start * SECOND..end * SECOND
    }

    /// The window that holds a moment, in seconds.
    fn look_up(&self, at: u64) -> Option<Range<u64>> {
        let moment = jiff::Timestamp::from_second(i64::try_from(at).ok()?).ok()?;
        let mut first = self.first_day(self.0.zone.0.to_datetime(moment).date())?;
        let mut start = self.begin_of(first)?;
        loop {
            let next = first.checked_add(self.span()?).ok()?;
            let end = self.begin_of(next)?;
            if at < end {
                return Some(start..end);
            }
            // Clocks that are set back over midnight show the former date again: the new day has begun.
            // A date that a place left out, to cross the date line, has no time at all.
            (first, start) = (next, end);
        }
    }

    /// The first day of the window that a day belongs to.
    fn first_day(&self, day: Date) -> Option<Date> {
        let Some(days) = self.0.days else {
            return Some(day.first_of_month());
        };
        let from = if days % 7 == 0 { FIRST_MONDAY } else { FIRST_DAY };
        let since = day.duration_since(from).as_hours().div_euclid(24);
        let into_window = since.rem_euclid(i64::from(days));
        day.checked_sub(Span::new().try_days(into_window).ok()?).ok()
    }

    fn span(&self) -> Option<Span> {
        match self.0.days {
            Some(days) => Span::new().try_days(days).ok(),
            None => Span::new().try_months(1).ok(),
        }
    }

    /// The first moment of a day, in seconds; 0 if it was before the epoch.
    fn begin_of(&self, day: Date) -> Option<u64> {
        let midnight = day.at(0, 0, 0, 0);
        // Where clocks leave midnight out, this is when they do; where they show it twice, it is the first time.
        let begin = self.0.zone.0.to_timestamp(midnight).ok()?;
        Some(u64::try_from(begin.as_second()).unwrap_or(0))
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.days == other.0.days && self.0.zone == other.0.zone)
    }
}

impl Eq for Calendar {}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut calendar = f.debug_struct("Calendar");
        calendar.field("zone", &self.0.zone);
        match &self.0.days {
            Some(days) => calendar.field("days", days),
            None => calendar.field("months", &1),
        };
        calendar.finish()
    }
}

/// A window that was looked up: begin and length, in seconds, as one number that is read and written without a lock.
#[derive(Debug, Default)]
struct Found(AtomicU64);

impl Found {
    /// 3,001 days in seconds are below that many bits; what is left is enough for begins far beyond the end of time.
    const LENGTH_BITS: u32 = 28;

    /// This window, in µs, if it holds a moment.
    fn that_holds(&self, at: u64) -> Option<Range<u64>> {
        let known = self.0.load(Ordering::Relaxed);
        let start = (known >> Self::LENGTH_BITS) * SECOND;
        let end = start + (known & ((1 << Self::LENGTH_BITS) - 1)) * SECOND;
        (start..end).contains(&at).then_some(start..end)
    }

    /// From now on, it is `window`.
    fn keep(&self, window: Range<u64>) -> Range<u64> {
        let (start, length) = (window.start / SECOND, (window.end - window.start) / SECOND);
        self.0.store(start << Self::LENGTH_BITS | length, Ordering::Relaxed);
        window
    }
}

#[cfg(test)]
mod tests;

use jiff::civil::DateTime;
use proptest::prelude::*;

use super::*;
use crate::{
    algorithm::{Algorithm, Align, FixedWindow},
    decision::Wait,
};

const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap()
}

fn days(name: &str, days: u32) -> Calendar {
    Calendar::days(zone(name), days).unwrap()
}

/// A moment, written with its offset, in µs.
fn at(text: &str) -> u64 {
    let moment: jiff::Timestamp = text.parse().unwrap();
    u64::try_from(moment.as_microsecond()).unwrap()
}

/// The window that holds a moment is this one, from its first microsecond to its last.
#[track_caller]
fn is(calendar: &Calendar, begin: &str, end: &str) {
    let (begin, end) = (at(begin), at(end));
    for moment in [begin, begin + 1, (begin + end) / 2, end - 1] {
        // As it is looked up, and as it is remembered.
        assert_eq!(calendar.find(moment), begin..end, "{calendar:?} at {moment}");
        assert_eq!(calendar.window(moment), begin..end, "{calendar:?} at {moment}");
    }
    assert_eq!(calendar.window(begin - 1).end, begin);
    assert_eq!(calendar.window(end).start, end);
}

#[test]
fn a_day_is_from_midnight_to_midnight_of_its_zone() {
    is(&days("UTC", 1), "2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z");
    is(
        &days("Asia/Kathmandu", 1),
        "2026-11-30T00:00:00+05:45",
        "2026-12-01T00:00:00+05:45",
    );
    is(
        &days("europe/berlin", 1),
        "2026-11-30T00:00:00+01:00",
        "2026-12-01T00:00:00+01:00",
    );
}

#[test]
fn a_day_of_a_change_of_clocks_is_shorter_or_longer() {
    let berlin = days("Europe/Berlin", 1);
    is(&berlin, "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00");
    assert_eq!(
        berlin.window(at("2026-03-29T12:00:00Z")),
        at("2026-03-28T23:00:00Z")..at("2026-03-29T22:00:00Z")
    );
    is(&berlin, "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00");
    let new_york = days("America/New_York", 1);
    is(&new_york, "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00");
    is(&new_york, "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00");
    let length = |calendar: &Calendar, moment| {
        let window = calendar.window(at(moment));
        (window.end - window.start) / HOUR
    };
    assert_eq!(length(&berlin, "2026-03-29T12:00:00Z"), 23);
    assert_eq!(length(&berlin, "2026-10-25T12:00:00Z"), 25);
    assert_eq!(length(&new_york, "2026-03-08T12:00:00Z"), 23);
    assert_eq!(length(&new_york, "2026-11-01T12:00:00Z"), 25);
}

#[test]
fn clocks_may_be_changed_at_midnight_too() {
    // Cairo leaves out the first hour of a Friday, and shows the last of a Thursday twice.
    let cairo = days("Africa/Cairo", 1);
    is(&cairo, "2024-04-25T00:00:00+02:00", "2024-04-26T01:00:00+03:00");
    is(&cairo, "2024-04-26T01:00:00+03:00", "2024-04-27T00:00:00+03:00");
    is(&cairo, "2024-10-31T00:00:00+03:00", "2024-11-01T00:00:00+02:00");
    // Havana shows the first hour of a Sunday twice.
    let havana = days("America/Havana", 1);
    is(&havana, "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00");
    // St John's went from a minute past midnight back to the day before: that day had ended already.
    let st_johns = days("America/St_Johns", 1);
    is(&st_johns, "2010-11-06T00:00:00-02:30", "2010-11-07T00:00:00-02:30");
    is(&st_johns, "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30");
    // Samoa had no 30 December 2011.
    let apia = days("Pacific/Apia", 1);
    is(&apia, "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00");
    assert_eq!(
        apia.edges(at("2011-12-29T12:00:00-10:00")),
        [
            at("2011-12-29T00:00:00-10:00"),
            at("2011-12-31T00:00:00+14:00"),
            at("2012-01-01T00:00:00+14:00")
        ]
    );
}

#[test]
fn a_week_begins_on_monday() {
    is(&days("UTC", 7), "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z");
    is(
        &days("Europe/Berlin", 7),
        "2026-10-19T00:00:00+02:00",
        "2026-10-26T00:00:00+01:00",
    );
    is(&days("UTC", 14), "2026-11-23T00:00:00Z", "2026-12-07T00:00:00Z");
}

#[test]
fn several_days_are_counted_from_the_first() {
    // In UTC, that is what plain windows do.
    let (plain, now) = (3 * DAY, at("2026-11-30T17:00:00Z"));
    assert_eq!(days("UTC", 3).window(now), now - now % plain..now - now % plain + plain);
    is(
        &days("Europe/Berlin", 2),
        "2026-03-28T00:00:00+01:00",
        "2026-03-30T00:00:00+02:00",
    );
}

#[test]
fn a_month_is_as_long_as_it_is() {
    let berlin = Calendar::month(zone("Europe/Berlin"));
    is(&berlin, "2026-01-01T00:00:00+01:00", "2026-02-01T00:00:00+01:00");
    is(&berlin, "2026-02-01T00:00:00+01:00", "2026-03-01T00:00:00+01:00");
    is(&berlin, "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00");
    is(&berlin, "2026-12-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00");
    let utc = Calendar::month(Zone::UTC);
    is(&utc, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z");
    assert_eq!(utc.window(at("2028-02-29T23:59:59Z")).end, at("2028-03-01T00:00:00Z"));
    is(&days("UTC", 1), "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z");
}

#[test]
fn zones_are_found_by_name() {
    assert_eq!(zone("EUROPE/berlin").name(), "Europe/Berlin");
    assert_eq!(zone("UTC"), Zone::UTC);
    assert!(Zone::named("Europe/Berlim").is_none() && Zone::named("").is_none());
    let names = Zone::names();
    assert!(names.len() > 400 && names.contains(&"America/New_York".to_owned()));
    assert!(names.iter().all(|name| Zone::named(name).is_some()));
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let parameter = "window";
    assert_eq!(Calendar::days(Zone::UTC, 0), Err(AlgorithmError::Zero { parameter }));
    let max = SPAN_MAX;
    assert_eq!(
        Calendar::days(Zone::UTC, 3_001),
        Err(AlgorithmError::TooLong { parameter, max })
    );
    assert!(Calendar::days(Zone::UTC, 3_000).is_ok());
}

#[test]
fn the_end_of_time_is_no_end() {
    for calendar in [days("Pacific/Auckland", 3_000), Calendar::month(zone("Asia/Tokyo"))] {
        let last = Timestamp::MAX.as_micros();
        let window = calendar.window(last);
        assert!(window.contains(&last) && calendar.window(last) == window, "{window:?}");
        assert!(calendar.window(0).contains(&0));
    }
}

#[test]
fn a_wait_is_to_the_edge_and_the_count_follows_to_another_zone() {
    let berlin = FixedWindow::of_calendar(2, days("Europe/Berlin", 1)).unwrap();
    let now = at("2026-10-25T02:30:00+02:00");
    let mut window = berlin.load(None, now);
    window.count = 2;
    // To midnight it is 21.5 hours by the clock, and the hour that comes twice.
    let wait = Duration::from_micros(22 * HOUR + HOUR / 2);
    assert_eq!(berlin.wait(&window, 1, now), Wait::For(wait));
    let tokyo = FixedWindow::of_calendar(5, days("Asia/Tokyo", 1)).unwrap();
    let moved = tokyo.load(Some(window.clone()), now + HOUR);
    assert_eq!((tokyo.free(&moved), moved.start), (3, at("2026-10-25T00:00:00+09:00")));
    let plain = FixedWindow::new(5, Duration::from_secs(3_600), Align::Clock).unwrap();
    assert_eq!(plain.free(&plain.load(Some(window.clone()), now + HOUR)), 3);
    let over = at("2026-10-26T00:00:00+01:00");
    assert_eq!(berlin.free(&berlin.load(Some(window.clone()), over - 1)), 0);
    assert_eq!(berlin.free(&berlin.load(Some(window), over)), 2);
}

#[cfg(feature = "redis")]
#[test]
fn a_share_has_the_same_windows() {
    let whole: Algorithm = FixedWindow::of_calendar(10, days("Europe/Berlin", 7)).unwrap().into();
    let share: Algorithm = FixedWindow::of_calendar(5, days("Europe/Berlin", 7)).unwrap().into();
    assert_eq!(whole.divided(2), share);
    assert_ne!(
        share,
        FixedWindow::of_calendar(5, days("Europe/Paris", 7)).unwrap().into()
    );
    assert_ne!(
        share,
        FixedWindow::of_calendar(5, days("Europe/Berlin", 14)).unwrap().into()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_048))]

    /// In every zone, windows follow each other without a gap, hold the moment that they were asked for, are about as long
    /// as is said, and begin where a clock shows the first moment of a day.
    #[test]
    fn windows_follow_each_other(
        zone in proptest::sample::select(Zone::names()),
        length in 0_u32..40,
        moment in 0..at("2060-01-01T00:00:00Z"),
    ) {
        let zone = Zone::named(&zone).unwrap();
        let calendar = match length {
            0 => Calendar::month(zone),
            days => Calendar::days(zone, days).unwrap(),
        };
        let window = calendar.find(moment);
        prop_assert!(window.contains(&moment), "{:?}", window);
        prop_assert_eq!(calendar.find(window.end - 1), window.clone());
        let next = calendar.find(window.end);
        prop_assert_eq!(next.start, window.end);
        // A day has 26 hours at most, but where a place went over the date line.
        prop_assert!(window.end - window.start <= u64::try_from(calendar.nominal().as_micros()).unwrap() + DAY);
        prop_assert_eq!(calendar.edges(moment), [window.start, window.end, next.end]);
        let shown = |at: u64| -> DateTime {
            let at = jiff::Timestamp::from_microsecond(i64::try_from(at).unwrap()).unwrap();
            calendar.zone().0.to_datetime(at)
        };
        // The date changes there: from one that is in the window to one that is not.
        prop_assert!(shown(window.end - 1).date() < shown(window.end).date());
    }
}

//! A fixed window, which may be one of a calendar.

use std::time::Duration;

use limiter_core::{
    Algorithm,
    algorithm::{Align, Calendar, FixedWindow, Zone},
};

use super::{
    super::{
        place::Place,
        raw::{Parameters, Scalar},
        suggest,
        units::{self, Length},
    },
    algorithm::{Made, limit},
    context::Context,
};

const DAY_SECS: u64 = 86_400;

/// The fixed window of the layer at `item`; `None` where what is wrong was told.
pub(super) fn fixed_window(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<Made> {
    let limit = limit(item, raw, cx);
    let length = cx.required(item, "window", &raw.window, units::length);
    let aligns = [("clock", Align::Clock), ("first_request", Align::FirstRequest)];
    let align = cx.word(&item.key("align"), &raw.align, &aligns).unwrap_or_default();
    let zone = match raw.timezone.is_present() {
        true => cx.read(&item.key("timezone"), &raw.timezone, zone),
        false => Some(Zone::UTC),
    };
    let (limit, length, zone) = (limit?, length?, zone?);
    let made = match (align, length) {
        (Align::Clock, Length::Month) => FixedWindow::of_calendar(limit, Calendar::month(zone)),
        (Align::Clock, Length::Time(time)) => match whole_days(time) {
            // These days are all of one length.
            Some(days) if zone == Zone::UTC && days % 7 != 0 => FixedWindow::new(limit, time, align),
            Some(days) => Calendar::days(zone, days).and_then(|calendar| FixedWindow::of_calendar(limit, calendar)),
            None if zone == Zone::UTC => FixedWindow::new(limit, time, align),
            None => {
                let message = format!(
                    "`{}` has no windows of such a length, expected whole days or weeks, or `1mo`, as the `window`",
                    zone.name()
                );
                cx.wrong(&item.key("timezone"), message);
                return None;
            }
        },
        (Align::FirstRequest, Length::Month) => {
            let message = "`1mo` is a month of the calendar, expected a duration such as `30d` with \
                           `align: first_request`";
            cx.wrong(&item.key("window"), message);
            return None;
        }
        (Align::FirstRequest, Length::Time(_)) if zone != Zone::UTC => {
            let message = format!(
                "`{}` says nothing with `align: first_request`, expected `align: clock`",
                zone.name()
            );
            cx.wrong(&item.key("timezone"), message);
            return None;
        }
        (Align::FirstRequest, Length::Time(time)) => FixedWindow::new(limit, time, align),
    };
    Some(made.map(Algorithm::from))
}

fn whole_days(time: Duration) -> Option<u32> {
    let is_whole = time.subsec_nanos() == 0 && time.as_secs().is_multiple_of(DAY_SECS);
    // More days than that are far too many.
    is_whole.then(|| u32::try_from(time.as_secs() / DAY_SECS).unwrap_or(u32::MAX))
}

fn zone(scalar: &Scalar) -> Result<Zone, String> {
    let name = units::text(scalar)?;
    Zone::named(name).ok_or_else(|| match nearest_zone(name) {
        Some(meant) => format!("`{name}` is no time zone, did you mean `{meant}`?"),
        None => format!("`{name}` is no time zone, expected a name of the IANA database such as `Europe/Berlin`"),
    })
}

/// The zone that was probably meant: many think of the city alone.
fn nearest_zone(name: &str) -> Option<String> {
    let zones = Zone::names();
    let is_city = !name.contains('/');
    // Abbreviations are all alike.
    if is_city && name.len() < 5 {
        return None;
    }
    let part_of = |zone: &String| match zone.rsplit_once('/') {
        Some((_, city)) if is_city => city.to_owned(),
        _ => zone.clone(),
    };
    let parts: Vec<String> = zones.iter().map(part_of).collect();
    let meant = suggest::nearest(name, parts.iter().map(String::as_str))?;
    let at = parts.iter().position(|part| part == meant)?;
    zones.into_iter().nth(at)
}

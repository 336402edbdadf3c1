//! `ban` of a layer.

use std::{sync::Arc, time::Duration};

use limiter_core::BanRule;

use super::{
    super::{
        place::Place,
        raw::{self, Field, Scalar},
        units,
    },
    context::{Context, within},
};

/// The rule that stands there; `None` where none does.
pub(super) fn ban(place: &Place<'_>, field: &Field<raw::Ban>, cx: &mut Context<'_>) -> Option<Arc<BanRule>> {
    let raw = cx.mapping(place, field)?;
    let after = cx.required(place, "after", &raw.after, within(1, BanRule::AFTER_MAX));
    let time = cx.required(place, "within", &raw.within, time);
    if !raw.r#for.is_present() {
        cx.missing(place, "for", "a duration such as `10m`, or a list of these");
    }
    let place = place.key("for");
    let ladder = cx.read_each(&place, &raw.r#for, "at least one duration", self::time);
    if ladder.len() > BanRule::RUNGS_MAX {
        let message = format!("{} durations, expected at most {}", ladder.len(), BanRule::RUNGS_MAX);
        cx.wrong(&place, message);
    }
    BanRule::new(after?, time?, ladder).ok().map(Arc::new)
}

fn time(scalar: &Scalar) -> Result<Duration, String> {
    match units::positive_duration(scalar)? {
        time if time > BanRule::LONGEST => {
            let days = BanRule::LONGEST.as_secs() / 86_400;
            Err(format!("{scalar} is too long, expected at most {days}d"))
        }
        time => Ok(time),
    }
}

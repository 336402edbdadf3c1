//! Numbers, durations, rates and sizes, as the file writes them.

use std::time::Duration;

use limiter_core::Rate;

use super::raw::Scalar;

/// The largest number that the limiter can work with: Lua holds whole numbers below 2^53 exactly.
pub(super) const MAX_WHOLE: u64 = (1 << 53) - 1;

const DURATION_FORM: &str = "expected a whole number and a unit (ms, s, m, h, d or w) such as `250ms` or `1h`";
const RATE_FORM: &str = "expected a whole number and a time such as `100/s`, `5/h` or `3/10s`";
const SIZE_FORM: &str = "expected a whole number and a unit (B, KiB, MiB or GiB) such as `64KiB`";

/// A whole number from 0 to [`MAX_WHOLE`]; a text of digits is one too, so that variables can give numbers.
pub(super) fn whole(scalar: &Scalar) -> Result<u64, String> {
    let too_large = || format!("{scalar} is too large, expected at most {MAX_WHOLE} (2^53 - 1)");
    match scalar {
        Scalar::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(value), ..) if value <= MAX_WHOLE => Ok(value),
            (Some(_), ..) => Err(too_large()),
            (None, Some(_), _) => Err(format!("{scalar} is negative, expected a whole number of 0 or more")),
            #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exact as a double")]
            (None, None, Some(value)) if value > MAX_WHOLE as f64 => Err(too_large()),
            _ => Err(format!("{scalar} is not a whole number, expected one such as `10`")),
        },
        Scalar::Text(text) => match digits(text) {
            Ok(value) if value <= MAX_WHOLE => Ok(value),
            Ok(_) | Err(NotDigits::TooLarge) => Err(too_large()),
            Err(NotDigits::LeadingZero) => Err(leading_zero(text)),
            Err(NotDigits::Other) => Err(format!("`{text}` is not a whole number, expected digits only")),
        },
        Scalar::Flag(value) => Err(format!("{value} is not a whole number, expected one such as `10`")),
    }
}

/// A whole number from -1000 to 1000.
pub(super) fn rank(scalar: &Scalar) -> Result<i32, String> {
    let given = match scalar {
        Scalar::Number(number) => number.as_i64(),
        Scalar::Text(text) => text.parse().ok().filter(|value: &i64| value.to_string() == *text),
        Scalar::Flag(_) => None,
    };
    match given.map(i32::try_from) {
        Some(Ok(rank)) if (-1000..=1000).contains(&rank) => Ok(rank),
        Some(_) => Err(format!("{scalar} is out of range, expected -1000 to 1000")),
        None => Err(format!(
            "`{scalar}` is not a whole number, expected one from -1000 to 1000"
        )),
    }
}

/// As [`whole`], but more than 0.
pub(super) fn positive(scalar: &Scalar) -> Result<u64, String> {
    match whole(scalar)? {
        0 => Err("must be more than 0".into()),
        value => Ok(value),
    }
}

/// A duration, also zero.
pub(super) fn duration(scalar: &Scalar) -> Result<Duration, String> {
    match scalar {
        Scalar::Number(number) => Err(format!("{number} has no unit, expected a duration such as `{number}s`")),
        Scalar::Flag(value) => Err(format!("{value} is not a duration, {DURATION_FORM}")),
        Scalar::Text(text) => match digits(text) {
            Ok(_) => Err(format!("`{text}` has no unit, expected a duration such as `{text}s`")),
            Err(_) => duration_text(text),
        },
    }
}

/// A duration of more than 0.
pub(super) fn positive_duration(scalar: &Scalar) -> Result<Duration, String> {
    match duration(scalar)? {
        Duration::ZERO => Err("must be more than 0".into()),
        value => Ok(value),
    }
}

/// How long windows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Always the same time.
    Time(Duration),
    /// A month, whichever it is.
    Month,
}

/// A duration of more than 0, or `1mo`.
pub(super) fn length(scalar: &Scalar) -> Result<Length, String> {
    match scalar {
        Scalar::Text(text) if text == "1mo" => Ok(Length::Month),
        Scalar::Text(text) if text.strip_suffix("mo").is_some_and(|months| digits(months).is_ok()) => {
            Err(format!("`{text}`: windows are one month long, expected `1mo`"))
        }
        _ => positive_duration(scalar).map(Length::Time),
    }
}

fn duration_text(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    if unit == "mo" && !number.is_empty() {
        return Err(format!("`{text}`: only a `window` of `fixed_window` can be a month"));
    }
    let Some(unit_ms) = unit_ms(unit) else {
        return Err(format!("`{text}` is not a duration, {DURATION_FORM}"));
    };
    let too_long = || format!("`{text}` is too long, expected at most {}d", MAX_WHOLE / 86_400_000_000);
    let value = match digits(number) {
        Ok(value) => value,
        Err(NotDigits::TooLarge) => return Err(too_long()),
        Err(NotDigits::LeadingZero) => return Err(leading_zero(text)),
        Err(NotDigits::Other) => return Err(format!("`{text}` is not a duration, {DURATION_FORM}")),
    };
    // All times are kept in microseconds below 2^53.
    value
        .checked_mul(unit_ms)
        .filter(|ms| *ms <= MAX_WHOLE / 1000)
        .map(Duration::from_millis)
        .ok_or_else(too_long)
}

fn unit_ms(unit: &str) -> Option<u64> {
    Some(match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return None,
    })
}

/// `N/unit` or `N/duration`; neither may be 0.
pub(super) fn rate(scalar: &Scalar) -> Result<Rate, String> {
    let Scalar::Text(text) = scalar else {
        return Err(format!("{scalar} has no time, expected a rate such as `{scalar}/s`"));
    };
    let Some((units, per)) = text.split_once('/') else {
        return Err(match digits(text) {
            Ok(_) => format!("`{text}` has no time, expected a rate such as `{text}/s`"),
            Err(_) => format!("`{text}` is not a rate, {RATE_FORM}"),
        });
    };
    let not_a_rate = || format!("`{text}` is not a rate, {RATE_FORM}");
    let units = match digits(units) {
        Ok(units) if units <= MAX_WHOLE => units,
        Ok(_) | Err(NotDigits::TooLarge) => {
            return Err(format!(
                "`{text}` is too large, expected at most {MAX_WHOLE} (2^53 - 1) units"
            ));
        }
        Err(NotDigits::LeadingZero) => return Err(leading_zero(text)),
        Err(NotDigits::Other) => return Err(not_a_rate()),
    };
    let per = match unit_ms(per) {
        Some(ms) => Duration::from_millis(ms),
        None if per.starts_with(|c: char| c.is_ascii_digit()) => duration_text(per)?,
        None => return Err(not_a_rate()),
    };
    if units == 0 || per.is_zero() {
        return Err(format!("`{text}` is nothing, expected a rate of more than 0"));
    }
    Ok(Rate { units, per })
}

/// Bytes: `64KiB`, or a bare number.
pub(super) fn size(scalar: &Scalar) -> Result<u64, String> {
    let Scalar::Text(text) = scalar else {
        return whole(scalar);
    };
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(format!("`{text}` is not a size, {SIZE_FORM}")),
    };
    match digits(number) {
        Ok(value) if value <= MAX_WHOLE >> shift => Ok(value << shift),
        Ok(_) | Err(NotDigits::TooLarge) => Err(format!("`{text}` is too large")),
        Err(NotDigits::LeadingZero) => Err(leading_zero(text)),
        Err(NotDigits::Other) => Err(format!("`{text}` is not a size, {SIZE_FORM}")),
    }
}

/// `true` or `false`; also as texts, so that variables can give them.
pub(super) fn flag(scalar: &Scalar) -> Result<bool, String> {
    match scalar {
        Scalar::Flag(value) => Ok(*value),
        Scalar::Text(text) if text == "true" => Ok(true),
        Scalar::Text(text) if text == "false" => Ok(false),
        _ => Err(format!("`{scalar}` is neither, expected `true` or `false`")),
    }
}

/// A text. Numbers are not taken for texts: `1.10` and `1.1` would be the same.
pub(super) fn text(scalar: &Scalar) -> Result<&str, String> {
    match scalar {
        Scalar::Text(text) => Ok(text),
        Scalar::Number(_) => Err(format!("{scalar} is a number, expected a text; put it in quotes")),
        Scalar::Flag(_) => Err(format!("{scalar} is a truth value, expected a text; put it in quotes")),
    }
}

enum NotDigits {
    TooLarge,
    LeadingZero,
    Other,
}

fn digits(text: &str) -> Result<u64, NotDigits> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NotDigits::Other);
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(NotDigits::LeadingZero);
    }
    text.parse().map_err(|_| NotDigits::TooLarge)
}

fn leading_zero(text: &str) -> String {
    let plain = text.trim_start_matches('0');
    let plain = if plain.starts_with(|c: char| c.is_ascii_digit()) {
        plain.to_owned()
    } else {
        format!("0{plain}")
    };
    format!("`{text}` begins with a zero, expected `{plain}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Scalar {
        Scalar::Text(text.to_owned())
    }

    #[test]
    fn durations() {
        for (given, ms) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(duration(&text(given)), Ok(Duration::from_millis(ms)), "{given}");
        }
        assert_eq!(duration(&text("1w")), Ok(Duration::from_secs(604_800)));
        assert_eq!(duration(&text("0s")), Ok(Duration::ZERO));
        for bad in [
            "",
            "s",
            "1.5s",
            "-1s",
            "1 s",
            "1S",
            "1sec",
            "010s",
            "1mo",
            "99999999999999999999s",
            "300000d",
            "60",
        ] {
            assert!(duration(&text(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(length(&text("1mo")), Ok(Length::Month));
        assert_eq!(length(&text("2d")), Ok(Length::Time(Duration::from_secs(172_800))));
        for (bad, why) in [
            ("2mo", "expected `1mo`"),
            ("mo", "is not a duration"),
            ("1mon", "is not a duration"),
            ("0s", "more than 0"),
        ] {
            assert!(length(&text(bad)).unwrap_err().contains(why), "{bad}");
        }
    }

    #[test]
    fn rates() {
        let rate_of = |given: &str| rate(&text(given)).map(|rate| (rate.units, rate.per.as_millis()));
        assert_eq!(rate_of("100/s"), Ok((100, 1000)));
        assert_eq!(rate_of("6000/m"), Ok((6000, 60_000)));
        assert_eq!(rate_of("3/10s"), Ok((3, 10_000)));
        assert_eq!(rate_of("20/1h"), Ok((20, 3_600_000)));
        for bad in [
            "0/s",
            "1/0s",
            "100",
            "100/",
            "/s",
            "100/sec",
            "1.5/s",
            "-1/s",
            "1/1/s",
            "9007199254740992/s",
        ] {
            assert!(rate(&text(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_and_numbers() {
        assert_eq!(size(&text("64KiB")), Ok(65_536));
        assert_eq!(size(&text("10MiB")), Ok(10 << 20));
        assert_eq!(size(&Scalar::Number(512.into())), Ok(512));
        assert!(size(&text("64kb")).is_err());
        assert_eq!(whole(&text("10")), Ok(10));
        assert_eq!(whole(&Scalar::Number(MAX_WHOLE.into())), Ok(MAX_WHOLE));
        assert!(
            whole(&Scalar::Number((MAX_WHOLE + 1).into()))
                .unwrap_err()
                .contains("2^53")
        );
        assert!(whole(&Scalar::Number(1e30.into())).unwrap_err().contains("2^53"));
        assert!(whole(&Scalar::Number((-1).into())).unwrap_err().contains("negative"));
        assert!(
            whole(&Scalar::Number(1.5.into()))
                .unwrap_err()
                .contains("not a whole number")
        );
        assert_eq!(
            whole(&text("010")),
            Err("`010` begins with a zero, expected `10`".into())
        );
    }
}

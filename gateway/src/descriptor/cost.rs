//! Reads the cost of a request where a header says it.

use http::{HeaderMap, HeaderName};

use super::Layers;
use crate::config;

/// What a layer's requests cost, as far as a request tells.
#[derive(Debug)]
pub(super) enum Cost {
    Fixed(u64),
    Header { name: HeaderName, default: u64, max: u64 },
}

/// Why a header is no cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostProblem {
    /// It comes on several lines.
    #[error("comes on several lines")]
    Repeated,
    /// It is below 0.
    #[error("is negative, expected a whole number of 0 or more")]
    Negative,
    /// It is no whole number.
    #[error("is not a whole number")]
    Unreadable,
    /// It is more than a request may cost.
    #[error("is more than {0}")]
    AboveMax(u64),
}

impl Layers {
    /// The header of requests that says what they cost a layer.
    pub(crate) fn cost_header(&self, layer: usize) -> Option<&HeaderName> {
        match &self.layers.get(layer)?.cost {
            Cost::Header { name, .. } => Some(name),
            Cost::Fixed(_) => None,
        }
    }
}

impl Cost {
    pub(super) fn new(cost: &config::Cost) -> Self {
        match cost {
            config::Cost::Fixed(cost) => Self::Fixed(*cost),
            config::Cost::Response { estimate, .. } => Self::Fixed(*estimate),
            config::Cost::Header { name, default, max } => Self::Header {
                name: name.clone(),
                default: *default,
                max: max.unwrap_or(u64::MAX),
            },
        }
    }

    /// Units of a request with these headers.
    pub(super) fn of(&self, headers: &HeaderMap) -> Result<u64, CostProblem> {
        match self {
            Self::Fixed(cost) => Ok(*cost),
            Self::Header { name, default, max } => match read(headers, name)?.unwrap_or(*default) {
                cost if cost > *max => Err(CostProblem::AboveMax(*max)),
                cost => Ok(cost),
            },
        }
    }
}

/// The whole number in a header: digits only. One that is too large to be counted is the largest that there is, which
/// never fits. `None` where the header is absent.
///
/// # Errors
/// It is there and no such number, or there twice.
pub(crate) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<u64>, CostProblem> {
    let mut lines = headers.get_all(name).iter();
    let Some(value) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(CostProblem::Repeated);
    }
    let value = value.as_bytes().trim_ascii();
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    match value {
        [b'-', rest @ ..] if digits(rest) => Err(CostProblem::Negative),
        value if digits(value) => {
            let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
            Ok(Some(value.iter().fold(0, add)))
        }
        _ => Err(CostProblem::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-cost");

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let values = values.iter().map(|value| HeaderValue::from_bytes(value).unwrap());
        values.map(|value| (NAME, value)).collect()
    }

    #[test]
    fn a_cost_is_a_whole_number() {
        use CostProblem::{Negative, Repeated, Unreadable};
        let largest = Ok(Some(u64::MAX));
        type Case = (&'static [&'static [u8]], Result<Option<u64>, CostProblem>);
        let cases: [Case; 17] = [
            (&[], Ok(None)),
            (&[b"0"], Ok(Some(0))),
            (&[b"17"], Ok(Some(17))),
            (&[b" 007\t"], Ok(Some(7))),
            (&[b"18446744073709551615"], largest),
            (&[b"18446744073709551616"], largest),
            (&[b"999999999999999999999999999999999999"], largest),
            (&[b"-1"], Err(Negative)),
            (&[b"-0"], Err(Negative)),
            (&[b"2.5"], Err(Unreadable)),
            (&[b"1e3"], Err(Unreadable)),
            (&[b"+1"], Err(Unreadable)),
            (&[b"-"], Err(Unreadable)),
            (&[b""], Err(Unreadable)),
            (&[b"\xff"], Err(Unreadable)),
            (&[b"1, 2"], Err(Unreadable)),
            (&[b"1", b"1"], Err(Repeated)),
        ];
        for (values, expected) in cases {
            assert_eq!(read(&headers(values), &NAME), expected, "{values:?}");
        }
    }

    #[test]
    fn what_is_absent_is_the_default_and_the_most_is_the_most() {
        let cost = Cost::new(&config::Cost::Header {
            name: NAME,
            default: 3,
            max: Some(9),
        });
        assert_eq!(cost.of(&HeaderMap::new()), Ok(3));
        assert_eq!(cost.of(&headers(&[b"9"])), Ok(9));
        assert_eq!(cost.of(&headers(&[b"10"])), Err(CostProblem::AboveMax(9)));
    }
}

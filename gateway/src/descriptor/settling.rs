//! What a request turns out to cost in a layer that is settled once its answer is there.

use http::{HeaderMap, HeaderName, StatusCode};

use super::{
    LayerId, Layers,
    cost::{self, CostProblem},
};
use crate::config;

/// How a layer's charges are settled.
#[derive(Debug)]
pub(crate) struct Settling {
    /// Only these answers stay charged; empty: all.
    statuses: Box<[StatusCode]>,
    /// The header of the answer that says the cost.
    header: Option<HeaderName>,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reached {
    /// No upstream has seen it.
    #[default]
    Nobody,
    /// Its upstream may have seen it. Or it was refused, so that what it was charged for that stands.
    Perhaps,
    /// The answer is its upstream's, or its route's.
    Answer,
}

impl Layers {
    /// How the charges of a layer are settled, once a request's answer is there; `None` where they stand.
    pub(crate) fn settling(&self, layer: LayerId) -> Option<&Settling> {
        self.layers.get(layer.index())?.settling.as_deref()
    }
}

impl Settling {
    /// Of a layer; `None` where its charges stand.
    pub(super) fn new(layer: &config::Layer) -> Option<Box<Self>> {
        let header = match &layer.cost {
            config::Cost::Response { name, .. } => Some(name.clone()),
            config::Cost::Fixed(_) | config::Cost::Header { .. } => None,
        };
        let statuses = layer.charged_statuses.clone().into();
        (layer.policy.gives_back()).then(|| Box::new(Self { statuses, header }))
    }

    /// Units that a request costs which was charged `units`, came so far, and was answered so; `None`: its client left.
    ///
    /// # Errors
    /// The header that says the cost, and why it does not: then it is `units`.
    pub(crate) fn cost(
        &self,
        units: u64,
        reached: Reached,
        answer: Option<(StatusCode, &HeaderMap)>,
    ) -> Result<u64, (&HeaderName, CostProblem)> {
        let stays = |(status, _): (StatusCode, _)| self.statuses.contains(&status);
        if !self.statuses.is_empty() && !answer.is_some_and(stays) {
            return Ok(0);
        }
        let Some(name) = &self.header else {
            return Ok(units);
        };
        match (reached, answer) {
            (Reached::Answer, Some((_, headers))) => match cost::read(headers, name) {
                Ok(cost) => Ok(cost.unwrap_or(units)),
                Err(problem) => Err((name, problem)),
            },
            // Whoever names a status means the gateway's own answers too.
            (Reached::Nobody, _) if self.statuses.is_empty() => Ok(0),
            _ => Ok(units),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-used");

    fn settling(statuses: &[u16], header: bool) -> Settling {
        let statuses = statuses.iter().map(|code| StatusCode::from_u16(*code).unwrap());
        Settling {
            statuses: statuses.collect(),
            header: header.then_some(NAME),
        }
    }

    /// What a request costs that was charged 5 and answered with this status and header.
    fn cost(settling: &Settling, reached: Reached, answer: Option<(u16, Option<&str>)>) -> Option<u64> {
        let headers: HeaderMap = (answer.and_then(|(_, value)| value).into_iter())
            .map(|value| (NAME, HeaderValue::from_str(value).unwrap()))
            .collect();
        let answer = answer.map(|(status, _)| (StatusCode::from_u16(status).unwrap(), &headers));
        settling.cost(5, reached, answer).ok()
    }

    #[test]
    fn the_answer_says_the_cost_where_it_does() {
        use Reached::{Answer, Nobody, Perhaps};
        let settling = settling(&[], true);
        for (reached, answer, expected) in [
            (Answer, Some((200, Some("7"))), Some(7)),
            (Answer, Some((500, Some("0"))), Some(0)),
            (Answer, Some((200, None)), Some(5)),
            (Answer, Some((200, Some("many"))), None),
            (Perhaps, Some((504, Some("7"))), Some(5)),
            (Nobody, Some((502, None)), Some(0)),
            (Perhaps, None, Some(5)),
            (Nobody, None, Some(0)),
        ] {
            assert_eq!(cost(&settling, reached, answer), expected, "{reached:?} {answer:?}");
        }
    }

    #[test]
    fn only_some_answers_stay_charged() {
        use Reached::{Answer, Nobody};
        let only = settling(&[401, 502], false);
        for (reached, answer, expected) in [
            (Answer, Some((401, None)), Some(5)),
            (Answer, Some((200, None)), Some(0)),
            (Nobody, Some((502, None)), Some(5)),
            (Nobody, Some((503, None)), Some(0)),
            (Nobody, None, Some(0)),
        ] {
            assert_eq!(cost(&only, reached, answer), expected, "{reached:?} {answer:?}");
        }
        let both = settling(&[401, 502], true);
        assert_eq!(cost(&both, Answer, Some((401, Some("7")))), Some(7));
        assert_eq!(cost(&both, Answer, Some((200, Some("7")))), Some(0));
        assert_eq!(cost(&both, Nobody, Some((502, None))), Some(5));
    }
}

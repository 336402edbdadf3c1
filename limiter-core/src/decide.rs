//! One request over all its layers: all are charged, or none.

use smallvec::SmallVec;

use crate::{
    algorithm::{Algorithm, Counter},
    clock::Timestamp,
    decision::{Decision, Reading, Verdict, Wait},
};

/// One layer of a request: how it counts, and what the request costs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer<'a> {
    pub(crate) algorithm: &'a Algorithm,
    pub(crate) cost: u64,
}

/// Decides one request over counters that were loaded for `now`, one a layer, in the same order.
///
/// If every layer has room, all are charged; else none is, and the first without room is named, with the longest wait
/// of all that have none. A cost of 0 always has room and takes nothing.
pub(crate) fn decide(layers: &[Layer<'_>], counters: &mut [Counter], now: Timestamp) -> Decision {
    let denied_by = layers
        .iter()
        .zip(&*counters)
        .position(|(layer, counter)| !fits(layer, counter));
    if denied_by.is_none() {
        for (layer, counter) in layers.iter().zip(&mut *counters) {
            layer.algorithm.save(counter, layer.cost, now);
        }
    }
    let mut wait = Wait::For(std::time::Duration::ZERO);
    let readings: SmallVec<_> = (layers.iter().zip(&*counters))
        .map(|(layer, counter)| {
            let fits = denied_by.is_none() || fits(layer, counter);
            let reading = read(layer, counter, fits, now);
            if !fits {
                wait = wait.max(reading.wait);
            }
            reading
        })
        .collect();
    let verdict = match denied_by {
        None => Verdict::Allowed,
        Some(by) => Verdict::Denied { by, wait },
    };
    Decision { verdict, readings }
}

fn fits(layer: &Layer<'_>, counter: &Counter) -> bool {
    layer.cost <= layer.algorithm.free(counter)
}

fn read(layer: &Layer<'_>, counter: &Counter, fits: bool, now: Timestamp) -> Reading {
    let remaining = layer.algorithm.free(counter);
    let awaited = match fits {
        false => layer.cost,
        true if remaining < layer.algorithm.limit() => remaining + 1,
        true => 0,
    };
    let wait = layer.algorithm.wait(counter, awaited, now);
    Reading { fits, remaining, wait }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Align, FixedWindow};

    const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);

    /// Windows of these limits and seconds, asked for these costs, one request after the other.
    fn windows<const N: usize>(limits: [(u64, u64); N], requests: &[[u64; N]]) -> Vec<Decision> {
        let algorithms: Vec<Algorithm> = (limits.iter())
            .map(|(limit, secs)| {
                FixedWindow::new(*limit, Duration::from_secs(*secs), Align::FirstRequest)
                    .unwrap()
                    .into()
            })
            .collect();
        let mut counters: Vec<Counter> = algorithms.iter().map(|algorithm| algorithm.load(None, NOW)).collect();
        let mut decide_one = |costs: &[u64; N]| {
            let layers: Vec<Layer<'_>> = algorithms
                .iter()
                .zip(costs)
                .map(|(algorithm, &cost)| Layer { algorithm, cost })
                .collect();
            decide(&layers, &mut counters, NOW)
        };
        requests.iter().map(&mut decide_one).collect()
    }

    fn secs(secs: u64) -> Wait {
        Wait::For(Duration::from_secs(secs))
    }

    fn denied(by: usize, wait: Wait) -> Verdict {
        Verdict::Denied { by, wait }
    }

    #[test]
    fn a_refusal_charges_no_layer() {
        let decisions = windows([(5, 9), (1, 9)], &[[1, 1], [1, 1], [1, 0]]);
        assert_eq!(decisions[0].verdict, Verdict::Allowed);
        assert_eq!(decisions[1].verdict, denied(1, secs(9)));
        assert_eq!(decisions[2].verdict, Verdict::Allowed);
        let remaining: Vec<u64> = decisions
            .iter()
            .map(|decision| decision.readings[0].remaining)
            .collect();
        assert_eq!(remaining, [4, 4, 3]);
    }

    #[test]
    fn the_first_is_named_with_the_longest_wait() {
        let decisions = windows([(9, 1), (1, 10), (1, 60), (1, 30)], &[[1; 4], [1; 4]]);
        assert_eq!(decisions[1].verdict, denied(1, secs(60)));
        let fits: Vec<bool> = decisions[1].readings.iter().map(|reading| reading.fits).collect();
        assert_eq!(fits, [true, false, false, false]);
    }

    #[test]
    fn never_is_the_longest_wait() {
        let decisions = windows([(1, 10), (5, 60)], &[[1, 1], [1, 6]]);
        assert_eq!(decisions[1].verdict, denied(0, Wait::Never));
    }

    #[test]
    fn a_cost_of_nothing_passes_an_empty_counter_and_takes_nothing() {
        let decisions = windows([(2, 10)], &[[2], [0], [1]]);
        assert_eq!(decisions[1].verdict, Verdict::Allowed);
        assert_eq!(decisions[2].verdict, denied(0, secs(10)));
    }

    #[test]
    fn a_reading_says_when_more_is_free() {
        let decisions = windows([(2, 10)], &[[0], [1], [2]]);
        let readings: Vec<Reading> = decisions.iter().map(|decision| decision.readings[0]).collect();
        let reading = |fits, remaining, wait| Reading { fits, remaining, wait };
        assert_eq!(readings[0], reading(true, 2, secs(0)), "full: nothing to wait for");
        assert_eq!(readings[1], reading(true, 1, secs(10)));
        assert_eq!(readings[2], reading(false, 1, secs(10)));
    }

    #[test]
    fn without_layers_everything_passes() {
        assert_eq!(windows([], &[[]])[0].verdict, Verdict::Allowed);
    }
}

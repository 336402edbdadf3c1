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
/// If every layer has room, all are charged; else none is, and the first without room is named, with the longest wait of
/// all that have none. A cost of 0 always has room and takes nothing.
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

//! The requests: four layers, and limits that all of them fit.

use std::{sync::Arc, time::Duration};

use limiter_core::{AlgorithmError, Answer, Ask, OnFailure, Policy, Rate, Store, Verdict, algorithm::TokenBucket};

/// Counters of each layer: everybody's, the users', the paths', and that of the one address.
const COUNTERS: [(&str, usize); 4] = [("global", 1), ("user", 10_000), ("path", 20), ("ip", 1)];

/// The layers, and the keys of each.
#[derive(Debug)]
pub(crate) struct Layers([(Arc<Policy>, Vec<String>); 4]);

impl Layers {
    pub(crate) fn new() -> Result<Self, AlgorithmError> {
        // Its counters live for 100 s: they are there when they are asked for again.
        let rate = Rate {
            units: 1_000_000,
            per: Duration::from_secs(1),
        };
        let bucket = TokenBucket::new(rate, 100_000_000)?;
        Ok(Self(COUNTERS.map(|(name, count)| {
            let policy = Policy::new(name, bucket.clone(), OnFailure::Closed);
            (
                Arc::new(policy),
                (0..count).map(|key| format!("{name}-{key}")).collect(),
            )
        })))
    }

    /// Asks for a random user on a random path. Whether it was answered.
    ///
    /// # Panics
    /// Where it is refused.
    pub(crate) async fn decide(&self, store: &dyn Store) -> bool {
        let answer = {
            let asks = self.0.each_ref().map(|(policy, keys)| Ask {
                policy,
                key: &keys[fastrand::usize(..keys.len())],
                cost: 1,
            });
            store.decide(&asks)
        };
        let result = match answer {
            Answer::Ready(result) => result,
            Answer::Pending(result) => result.await,
        };
        match result {
            Ok(decision) => {
                assert_eq!(decision.verdict, Verdict::Allowed, "the limits admit all");
                true
            }
            Err(_) => false,
        }
    }
}

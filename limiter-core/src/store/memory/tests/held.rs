//! Counters of slots that are held.

use super::*;
use crate::{algorithm::Concurrency, held::give_back};

fn slots(limit: u64) -> Arc<Policy> {
    policy("slots", Concurrency::new(limit, SECOND).unwrap().into())
}

#[test]
fn what_is_held_is_not_evicted_and_goes_beyond_the_bound_if_it_must() {
    let (_, store) = store(20);
    let (slots, other) = (slots(1), policy("other", algorithms(5, DAY)[0].clone()));
    let keys: Vec<String> = (0..30).map(|key| format!("k{key}")).collect();
    for key in &keys {
        assert_eq!(store.decide_now(&[ask(&slots, key, 1)]).verdict, Verdict::Allowed);
    }
    for key in 0..1_000 {
        store.decide_now(&[ask(&other, &key.to_string(), 5)]);
    }
    for key in &keys {
        let refused = store.decide_now(&[ask(&slots, key, 1)]);
        assert!(matches!(refused.verdict, Verdict::Denied { .. }), "{key}");
    }
    // Nor where the bound is lowered.
    store.set_max_keys(5);
    assert!(store.len() >= 30);
    store.settle(keys.iter().map(|key| give_back(&slots, key, 1)).collect());
    store.sweep(1_000);
    store.sweep(1_000);
    store.set_max_keys(5);
    assert!(store.len() <= 5);
    for key in &keys {
        assert_eq!(store.decide_now(&[ask(&slots, key, 1)]).verdict, Verdict::Allowed);
        store.settle(vec![give_back(&slots, key, 1)]);
    }
}

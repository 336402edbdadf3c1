//! Settlements.

use super::*;
use crate::settlement::{Change, Settlement};

fn settle(store: &MemoryStore, policy: &Arc<Policy>, change: Change) {
    store.settle(vec![Settlement::new(Arc::clone(policy), "alice", change)]);
}

fn remaining(store: &MemoryStore, policy: &Arc<Policy>) -> u64 {
    store.decide_now(&[ask(policy, "alice", 0)]).readings[0].remaining
}

#[test]
fn a_counter_is_debited_and_given_back_to() {
    for algorithm in algorithms(10, DAY) {
        let (clock, store) = store(1_000);
        let policy = policy("user", algorithm);
        store.decide_now(&[ask(&policy, "alice", 4)]);
        let taken = clock.now();
        clock.advance(Duration::from_micros(1));
        settle(&store, &policy, Change::Debit(3));
        assert_eq!(remaining(&store, &policy), 3, "{policy:?}");
        let units = 2;
        settle(&store, &policy, Change::GiveBack { units, at: taken });
        assert_eq!(remaining(&store, &policy), 5, "{policy:?}");
        settle(&store, &policy, Change::Debit(9));
        assert!(!passes(&store, &policy, "alice"), "{policy:?}");
    }
}

#[test]
fn a_counter_of_which_nothing_is_left_is_not_kept() {
    for algorithm in algorithms(10, DAY) {
        let (clock, store) = store(1_000);
        let policy = policy("user", algorithm);
        let (units, at) = (5, clock.now());
        settle(&store, &policy, Change::GiveBack { units, at });
        assert!(store.is_empty(), "nothing was there: {policy:?}");
        store.decide_now(&[ask(&policy, "alice", 4)]);
        settle(&store, &policy, Change::GiveBack { units, at });
        assert_eq!(store.sweep(1_000), 1, "{policy:?}");
        assert!(store.is_empty(), "{policy:?}");
    }
}

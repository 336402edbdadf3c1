//! What was charged here and costs something else after all.

use super::*;
use crate::{
    settlement::{Change, Settlement},
    turn::Home,
};

/// A request for `units`, in a layer that is settled afterwards.
fn charged(fallback: &Fallback, policy: &Arc<Policy>, units: u64) -> crate::Receipt {
    let asks = [Ask {
        policy,
        key: "alice",
        cost: units,
    }];
    let mut receipt = fallback.decide_now(&asks).receipt.unwrap();
    receipt.claim(&asks, Home::Fallback);
    *receipt
}

/// Makes it cost `units`. What the server has to be told of.
fn settle(fallback: &Fallback, receipt: crate::Receipt, units: u64) -> Vec<Settlement> {
    let corrections = receipt.corrections(|_, _| units);
    fallback.settle_charged(corrections.map(|one| (one.at, one.settlement)).collect())
}

fn settled(algorithm: Algorithm) -> Arc<Policy> {
    Arc::new(Policy::new("user", algorithm, OnFailure::Local).giving_back())
}

fn owed(fallback: &Fallback) -> u64 {
    debts(fallback).iter().map(|(_, units)| units).sum()
}

#[test]
fn what_is_owed_is_what_it_cost() {
    for algorithm in algorithms(1_000, DAY) {
        for (charge, cost) in [(3, 8), (3, 1), (3, 0), (3, 3), (990, 2_000)] {
            let (clock, fallback) = fallback(1);
            let policy = settled(algorithm.clone());
            charged(&fallback, &policy, 5);
            let receipt = charged(&fallback, &policy, charge);
            clock.advance(Duration::from_micros(1));
            assert!(settle(&fallback, receipt, cost).is_empty(), "the ledger has it");
            let asks = [Ask {
                policy: &policy,
                key: "alice",
                cost: 0,
            }];
            let remaining = fallback.decide_now(&asks).readings[0].remaining;
            assert_eq!(remaining, 995_u64.saturating_sub(cost), "{policy:?}");
            let bound = if matches!(algorithm, Algorithm::SlidingWindowLog(_)) {
                2_000
            } else {
                u64::MAX
            };
            assert_eq!(owed(&fallback), (5 + cost).min(bound), "{policy:?}");
        }
    }
}

#[test]
fn nothing_is_owed_of_what_was_given_back_as_a_whole() {
    for algorithm in algorithms(100, DAY) {
        let (_, fallback) = fallback(1);
        let policy = settled(algorithm);
        let receipt = charged(&fallback, &policy, 3);
        settle(&fallback, receipt, 0);
        assert_eq!(debts(&fallback), [], "{policy:?}");
    }
}

#[test]
fn what_the_server_was_told_of_is_settled_there() {
    for algorithm in algorithms(100, DAY) {
        let (clock, fallback) = fallback(1);
        let policy = settled(algorithm);
        let (more, less) = (charged(&fallback, &policy, 3), charged(&fallback, &policy, 3));
        assert_eq!(owed(&fallback), 6);
        clock.advance(SECOND);
        // A new account, of what came after.
        charged(&fallback, &policy, 2);
        let told = [settle(&fallback, more, 5), settle(&fallback, less, 1)].concat();
        let changes: Vec<Change> = told.iter().map(|one| one.change).collect();
        let (units, at) = (2, NOON);
        assert_eq!(
            changes,
            [Change::Debit(2), Change::GiveBack { units, at }],
            "{policy:?}"
        );
        assert_eq!(owed(&fallback), 2, "{policy:?}");
        let asks = [Ask {
            policy: &policy,
            key: "alice",
            cost: 0,
        }];
        let remaining = fallback.decide_now(&asks).readings[0].remaining;
        assert_eq!(remaining, 100 - 8, "our own counters stay: {policy:?}");
    }
}

/// While others may not have found the server, shares are charged beside it, and owed to nobody.
#[test]
fn what_a_share_was_charged_beside_the_server_is_settled_too() {
    for algorithm in algorithms(100, DAY) {
        let (_, fallback) = fallback(2);
        let (plain, policy) = (policy("plain", window(100, DAY)), settled(algorithm));
        fallback.returned(SECOND);
        let asks = [(&plain, 1), (&policy, 7)].map(|(policy, cost)| Ask {
            policy,
            key: "alice",
            cost,
        });
        let mut receipt = None;
        assert!(fallback.hold_back(&asks, &mut receipt).is_none());
        let mut layers = Vec::new();
        let corrections = receipt.unwrap().corrections(|layer, units| {
            layers.push((layer, units));
            2
        });
        for correction in corrections {
            assert_eq!(correction.home, Home::Share);
            fallback.settle(vec![correction.settlement]);
        }
        assert_eq!(layers, [(1, 7)]);
        let left = fallback.decide_now(&[Ask {
            cost: 0,
            ..asks[1].clone()
        }]);
        assert_eq!(left.readings[0].remaining, 48, "{policy:?}");
        assert_eq!(debts(&fallback), []);
    }
}

#[test]
fn what_nobody_may_have_been_told_of_is_not_given_back_there() {
    let ledger = Ledger::new(1);
    let policy = settled(window(10, DAY).into());
    let name = |key| policy.fingerprint(key);
    for key in ["alice", "bob"] {
        let charge = Charge {
            fingerprint: name(key),
            policy: &policy,
            key,
            units: 3,
            seed: None,
            expires_at: NOON.plus(DAY),
        };
        ledger.charge(std::iter::once(charge), NOON);
    }
    assert_eq!(ledger.unrecorded(), 1);
    let correct = |key, change| ledger.correct(name(key), NOON, change, NOON.plus(DAY), NOON);
    let give_back = Change::GiveBack { units: 1, at: NOON };
    assert!(correct("alice", Change::Debit(1)) && correct("alice", give_back));
    assert!(correct("bob", give_back), "bob's charge never gets there");
    assert!(!correct("bob", Change::Debit(1)));
}

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    algorithm::{Align, Concurrency, FixedWindow, LEASE_DEFAULT},
    held::give_back,
    policy::{OnFailure, Policy},
    settlement::Change,
};

type Answered = oneshot::Receiver<Decided>;

/// A request for these counters, and what keeps it wanted.
fn waiter(counters: impl IntoIterator<Item = u64>) -> (Waiter, Answered) {
    let (answer, answered) = oneshot::channel();
    let waiter = Waiter {
        request: OwnedAsks::default(),
        counters: counters.into_iter().collect(),
        slot: 0,
        holds: false,
        deadline: Timestamp::MAX,
        answer: Some(answer),
        home: None,
    };
    (waiter, answered)
}

/// Adds a request with which no other comes. Gives the call that leaves, if one does.
fn push_one(group: &Group, waiter: Waiter) -> Option<Batch> {
    let begins = group.push(waiter).unwrap();
    begins.then(|| group.gathered().remove(0))
}

/// Adds `count` requests, each with a key of its own; gives the sizes of the calls that left, each with the number
/// of requests added before.
fn push(group: &Group, wanted: &mut Vec<Answered>, count: u64) -> Vec<(u64, usize)> {
    let mut left = Vec::new();
    for i in 1..=count {
        let (waiter, answered) = waiter([i]);
        wanted.push(answered);
        if let Some(batch) = push_one(group, waiter) {
            left.push((i, batch.waiters.len()));
        }
    }
    left
}

#[test]
fn the_next_call_leaves_when_enough_wait_for_those_on_their_way() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    let left = push(&group, &mut wanted, 300);
    assert_eq!(
        left,
        [
            (1, 1),
            (3, 2),
            (7, 4),
            (15, 8),
            (31, 16),
            (63, 32),
            (127, 64),
            (255, 128)
        ]
    );
    let next = group.returned();
    assert!(next.is_empty(), "45 wait, 7 calls are on their way, 128 are needed");
    push(&group, &mut wanted, 82);
    let (waiter, answered) = waiter([7]);
    assert_eq!(push_one(&group, waiter).unwrap().waiters.len(), 128);
    drop(answered);
}

#[test]
fn those_who_come_together_leave_together() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    let begins: Vec<bool> = (0..200)
        .map(|i| {
            let (waiter, answered) = waiter([i]);
            wanted.push(answered);
            group.push(waiter).unwrap()
        })
        .collect();
    assert_eq!(begins.iter().filter(|begins| **begins).count(), 1);
    assert!(begins[0], "the first does not wait for others");
    let left: Vec<_> = group.gathered().iter().map(|batch| batch.waiters.len()).collect();
    assert_eq!(left, [128, 72]);
}

#[test]
fn the_last_call_that_returns_takes_whoever_waits() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    assert_eq!(push(&group, &mut wanted, 2), [(1, 1)]);
    let next = group.returned();
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].waiters.len(), 1);
    assert!(group.returned().is_empty());
    assert_eq!(push(&group, &mut wanted, 1), [(1, 1)]);
}

#[test]
fn who_has_left_is_not_sent_and_does_not_count() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    push(&group, &mut wanted, 1);
    let mut gone = Vec::new();
    push(&group, &mut gone, 1);
    gone.clear();
    assert!(group.returned().is_empty(), "the only one that waited has left");
    assert_eq!(push(&group, &mut wanted, 1), [(1, 1)], "no call was counted for it");
}

#[test]
fn a_call_names_a_bounded_number_of_distinct_keys() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    let mut first = None;
    for i in 0..100 {
        // A shared key, three that are new.
        let (waiter, answered) = waiter([0, 3 * i + 1, 3 * i + 2, 3 * i + 3]);
        wanted.push(answered);
        if i == 0 {
            first = push_one(&group, waiter);
        } else {
            group.lock().waiting.push_back(waiter);
        }
    }
    assert_eq!(first.unwrap().waiters.len(), 1);
    let next = group.returned();
    let keys = |batch: &Batch| {
        batch
            .waiters
            .iter()
            .flat_map(|waiter| &waiter.counters)
            .collect::<HashSet<_>>()
            .len()
    };
    assert_eq!(next[0].waiters.len(), 85);
    assert_eq!(keys(&next[0]), 256);
    assert_eq!(
        group.lock().waiting.len(),
        14 - next.get(1).map_or(0, |batch| batch.waiters.len())
    );
}

#[test]
fn a_request_with_more_keys_than_a_call_may_name_goes_alone() {
    let group = Group::default();
    let (one, _wanted) = waiter(0..300);
    assert_eq!(push_one(&group, one).unwrap().waiters.len(), 1);
}

#[test]
fn a_bounded_number_waits() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    group.lock().calls = MAX_CALLS;
    assert!(push(&group, &mut wanted, MAX_WAITING as u64).is_empty());
    let (waiter, _answered) = waiter([1]);
    assert!(group.push(waiter).is_err());
    assert_eq!(group.drain().len(), MAX_WAITING);
}

/// A debit of the counter `key` in `slot`.
fn settlement(slot: u16, key: &str) -> (u16, Settlement) {
    let window = FixedWindow::new(1, Duration::from_secs(1), Align::Clock).unwrap();
    let policy = Arc::new(Policy::new("p", window, OnFailure::Local));
    (slot, Settlement::new(policy, key, Change::Debit(1)))
}

#[test]
fn settlements_leave_by_themselves_or_with_requests_and_leave_those_room() {
    let group = Group::default();
    assert_eq!(group.settle((0..100).map(|i| settlement(0, &i.to_string()))), 0);
    let batch = group.next().unwrap();
    assert_eq!((batch.settlements.len(), batch.waiters.len()), (64, 0));
    let mut wanted = Vec::new();
    for i in 0..70 {
        let (waiter, answered) = waiter((0..4).map(|key| i * 4 + key));
        wanted.push(answered);
        group.lock().waiting.push_back(waiter);
    }
    let batch = group.returned().remove(0);
    assert_eq!((batch.settlements.len(), batch.waiters.len()), (36, 55));
    assert!(group.take_settlements().is_empty());
}

#[test]
fn all_that_goes_back_to_one_counter_leaves_together() {
    let slots = Concurrency::new(9, LEASE_DEFAULT).unwrap();
    let policy = Arc::new(Policy::new("p", slots, OnFailure::Local));
    let slot = |key: &str| (0, give_back(&policy, key, 1));
    let group = Group::default();
    group.settle((0..60).map(|i| slot(&i.to_string())));
    group.settle((0..500).map(|_| slot("hot")));
    group.settle((0..3).map(|_| slot("other")));
    assert_eq!(group.next().unwrap().settlements.len(), 560);
    assert_eq!(group.returned()[0].settlements.len(), 3);
}

#[test]
fn too_many_settlements_are_not_kept() {
    let group = Group::default();
    let many = std::iter::repeat_n(settlement(0, "k"), MAX_SETTLEMENTS + 3);
    assert_eq!(group.settle(many), 3);
}

#[test]
fn every_slot_has_a_part_of_its_own_in_the_order_of_arrival() {
    let mut batch = Batch::default();
    let mut wanted = Vec::new();
    for (slot, key) in [(5, 1), (9, 2), (5, 3)] {
        let (mut waiter, answered) = waiter([key]);
        waiter.slot = slot;
        wanted.push(answered);
        batch.waiters.push(waiter);
    }
    batch.settlements = vec![settlement(9, "a"), settlement(7, "b")];
    let parts: Vec<_> = (batch.by_slot().iter())
        .map(|part| {
            let keys: Vec<u64> = part.waiters.iter().flat_map(|waiter| waiter.counters.clone()).collect();
            (keys, part.settlements.len())
        })
        .collect();
    assert_eq!(parts, [(vec![1, 3], 0), (vec![2], 1), (vec![], 1)]);
}

#[test]
fn a_call_that_is_alone_waits_for_the_others_and_they_for_it() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    assert_eq!(push(&group, &mut wanted, 3), [(1, 1), (3, 2)]);
    group.want_alone(true);
    assert!(group.next().is_none(), "two are on their way");
    assert!(push(&group, &mut wanted, 10).is_empty());
    assert!(group.returned().is_empty(), "one still is");
    let alone = group.returned();
    assert_eq!(alone.len(), 1);
    assert!(alone[0].is_alone);
    assert_eq!(alone[0].waiters.len(), 10, "requests go along");
    assert!(push(&group, &mut wanted, 20).is_empty());
    group.want_alone(false);
    assert!(group.next().is_none(), "it has left");
    let others = group.returned();
    assert!(!others[0].is_alone);
    assert_eq!(others[0].waiters.len(), 20);
}

#[test]
fn a_call_that_is_alone_may_be_empty_and_may_be_given_up() {
    let (group, mut wanted) = (Group::default(), Vec::new());
    group.want_alone(true);
    let alone = group.next().unwrap();
    assert!(alone.is_alone && alone.is_empty());
    assert!(group.returned().is_empty());
    assert_eq!(push(&group, &mut wanted, 1), [(1, 1)]);
    group.want_alone(true);
    assert!(push(&group, &mut wanted, 4).is_empty());
    group.want_alone(false);
    assert_eq!(group.next().unwrap().waiters.len(), 4);
}

//! Slots go back to the store that gave them, once.

use super::*;
use crate::algorithm::{Concurrency, LEASE_DEFAULT};

/// What the stores are told to give back, before and after the decision of a request over slots and a window is dropped.
async fn given_back(store: &Arc<Fake>, fallback: &Arc<Fake>) -> [(usize, usize); 2] {
    let slots = Policy::new("slots", Concurrency::new(5, LEASE_DEFAULT).unwrap(), OnFailure::Local);
    let window = FixedWindow::new(5, std::time::Duration::from_secs(1), Align::Clock).unwrap();
    let (slots, window) = (
        Arc::new(slots),
        Arc::new(Policy::new("window", window, OnFailure::Local)),
    );
    let asks = [("a", &slots), ("b", &window)].map(|(key, policy)| Ask { policy, key, cost: 1 });
    let limiter = Limiter::new(Arc::<Fake>::clone(store), Arc::<Fake>::clone(fallback));
    let outcome = match limiter.check(&asks) {
        Checking::Ready(outcome) => outcome,
        Checking::Pending(outcome) => outcome.await,
    };
    let told = || (store.settled().len(), fallback.settled().len());
    let before = told();
    let copy = outcome.clone();
    drop(outcome);
    assert_eq!(told(), before, "it is held");
    drop(copy);
    [before, told()]
}

#[tokio::test]
async fn slots_go_back_when_the_decision_is_dropped() {
    for waits in [false, true] {
        let (store, fallback) = (Fake::new(ALLOWED, waits), Fake::new(ALLOWED, false));
        assert_eq!(given_back(&store, &fallback).await, [(0, 0), (1, 0)]);
        assert!(store.settled()[0].starts_with("a: GiveBack { units: 1"));
        let (store, fallback) = (Fake::new(AWAY, waits), Fake::new(ALLOWED, waits));
        assert_eq!(given_back(&store, &fallback).await, [(0, 0), (0, 1)]);
    }
}

#[tokio::test]
async fn who_is_refused_holds_nothing() {
    let denied = Verdict::Denied {
        by: 1,
        wait: Wait::For(std::time::Duration::ZERO),
    };
    for waits in [false, true] {
        // A store says that it took something all the same.
        let (store, fallback) = (Fake::new(Ok(denied), waits), Fake::new(ALLOWED, false));
        assert_eq!(given_back(&store, &fallback).await, [(1, 0), (1, 0)]);
    }
}

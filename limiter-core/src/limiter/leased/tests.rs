//! While the store has not answered yet.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, task::yield_now};

use super::*;
use crate::{
    algorithm::{Align, FixedWindow, Rate, TokenBucket},
    clock::Timestamp,
    policy::{LotSize, LotTerms, OnFailure, Policy},
    receipt::Receipt as OfFallback,
    store::{Health, MemoryStore},
    test_util::ManualClock,
};

const SECOND: Duration = Duration::from_secs(1);

/// A store that charges at once, and answers when it is let.
#[derive(Debug)]
struct Slow {
    store: MemoryStore,
    answers: watch::Sender<bool>,
    /// The costs of what it was asked, of the first layer of each request.
    asked: Mutex<Vec<u64>>,
}

impl Store for Slow {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        self.asked.lock().unwrap().push(asks[0].cost);
        let (decision, mut answers) = (self.store.decide_now(asks), self.answers.subscribe());
        Answer::Pending(Box::pin(async move {
            let gone = answers.wait_for(|answers| *answers).await.is_err();
            assert!(!gone, "nobody lets it answer");
            Ok(decision)
        }))
    }

    fn settle(&self, settlements: Vec<Settlement>) {
        self.store.settle(settlements);
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

/// A fallback that can hold everything back.
#[derive(Debug, Default)]
struct Cautious(AtomicBool);

impl Store for Cautious {
    fn decide(&self, _asks: &[Ask<'_>]) -> Answer {
        Answer::Ready(Ok(Decision::unlimited()))
    }

    fn settle(&self, _settlements: Vec<Settlement>) {}

    fn hold_back(&self, _asks: &[Ask<'_>], _receipt: &mut Option<Box<OfFallback>>) -> Option<(Layers, Decision)> {
        let holds = self.0.load(Ordering::Relaxed);
        holds.then(|| (Layers::new(), Decision::unlimited()))
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

struct World {
    clock: Arc<ManualClock>,
    store: Arc<Slow>,
    fallback: Arc<Cautious>,
    lots: Arc<Lots>,
    limiter: Limiter,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_000_000_000_000)));
        let store = Arc::new(Slow {
            store: MemoryStore::new(Arc::clone(&clock) as _, 100),
            answers: watch::Sender::new(true),
            asked: Mutex::default(),
        });
        let fallback = Arc::new(Cautious::default());
        let lots = Arc::new(Lots::new(Arc::clone(&clock) as _, Handle::current()));
        let limiter = Limiter::new(Arc::clone(&store) as _, Arc::clone(&fallback) as _);
        let limiter = limiter.with_lots(Arc::clone(&lots));
        Self {
            clock,
            store,
            fallback,
            lots,
            limiter,
        }
    }

    async fn passes(&self, asks: &[Ask<'_>]) -> bool {
        let outcome = match self.limiter.check(asks) {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(outcome) => outcome.await,
        };
        // Lots come in tasks of their own.
        for _ in 0..4 {
            yield_now().await;
        }
        matches!(outcome, Outcome::Decided(decision) if decision.verdict == crate::Verdict::Allowed)
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut *self.store.asked.lock().unwrap())
    }

    fn left(&self, policy: &Arc<Policy>) -> u64 {
        self.store.store.decide_now(&[ask(policy, 0)]).readings[0].remaining
    }
}

fn hot() -> Arc<Policy> {
    let rate = Rate {
        units: 1_000,
        per: SECOND,
    };
    let terms = LotTerms {
        size: LotSize::Percent(10),
        ttl: SECOND,
    };
    Arc::new(Policy::new("hot", TokenBucket::new(rate, 1_000).unwrap(), OnFailure::Local).leased(terms))
}

fn window(limit: u64) -> Arc<Policy> {
    let window = FixedWindow::new(limit, 3_600 * SECOND, Align::Clock).unwrap();
    Arc::new(Policy::new("window", window, OnFailure::Local))
}

fn ask(policy: &Arc<Policy>, cost: u64) -> Ask<'_> {
    Ask { policy, key: "k", cost }
}

#[tokio::test]
async fn who_leaves_while_another_layer_is_asked_gives_back() {
    let (world, hot, window) = (World::new(), hot(), window(100));
    for _ in 0..20 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    let in_hand = world.lots.in_hand();
    assert!(in_hand > 1);
    world.store.answers.send_replace(false);
    let Checking::Pending(outcome) = world.limiter.check(&[ask(&hot, 1), ask(&window, 1)]) else {
        panic!("decided without the store");
    };
    assert_eq!(world.lots.in_hand(), in_hand - 1);
    drop(outcome);
    assert_eq!(world.lots.in_hand(), in_hand);
}

#[tokio::test]
async fn who_leaves_after_the_lot_has_ended_gives_back_to_the_store() {
    let (world, hot, window) = (World::new(), hot(), window(100));
    for _ in 0..20 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    world.store.answers.send_replace(false);
    let checking = world.limiter.check(&[ask(&hot, 1), ask(&window, 1)]);
    assert!(matches!(checking, Checking::Pending(_)));
    // Short of what the bucket needs to be full again by itself.
    world.clock.advance(SECOND);
    world.store.settle(world.lots.sweep());
    assert_eq!(world.lots.in_hand(), 0);
    let before = world.left(&hot);
    drop(checking);
    assert_eq!((world.lots.in_hand(), world.left(&hot)), (0, (before + 1).min(1_000)));
}

#[tokio::test]
async fn what_comes_back_late_is_not_used_in_the_next_window() {
    let (world, wide) = (World::new(), window(100));
    let window = FixedWindow::new(1_000, SECOND, Align::Clock).unwrap();
    let terms = *hot().lots().unwrap();
    let hot = Arc::new(Policy::new("hot", window, OnFailure::Local).leased(terms));
    for _ in 0..20 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    world.store.answers.send_replace(false);
    let checking = world.limiter.check(&[ask(&hot, 1), ask(&wide, 1)]);
    world.store.answers.send_replace(true);
    world.clock.advance(SECOND);
    for _ in 0..20 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    let in_hand = world.lots.in_hand();
    assert!(in_hand > 0);
    drop(checking);
    assert_eq!(world.lots.in_hand(), in_hand);
}

#[tokio::test]
async fn what_comes_back_makes_no_more_in_hand_than_one_lot() {
    let (world, hot, window) = (World::new(), hot(), window(1_000));
    for _ in 0..300 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    world.store.answers.send_replace(false);
    let waiting: Vec<_> = (0..90)
        .map(|_| world.limiter.check(&[ask(&hot, 1), ask(&window, 1)]))
        .collect();
    world.store.answers.send_replace(true);
    for _ in 0..100 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    assert!(world.lots.in_hand() > 10);
    let sum = world.lots.in_hand() + world.left(&hot);
    drop(waiting);
    assert!(world.lots.in_hand() <= 100, "{} in hand", world.lots.in_hand());
    assert!(
        world.lots.in_hand() + world.left(&hot) > sum,
        "the rest goes to the store"
    );
}

#[tokio::test]
async fn of_many_that_wait_one_brings_a_lot() {
    let (world, hot) = (World::new(), hot());
    for _ in 0..3 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    world.store.settle(world.lots.take_all());
    world.asked();
    world.store.answers.send_replace(false);
    let waiting: Vec<_> = (0..50).map(|_| world.limiter.check(&[ask(&hot, 1)])).collect();
    let asked = world.asked();
    assert_eq!(asked.iter().filter(|cost| **cost > 1).count(), 1, "{asked:?}");
    assert_eq!(asked.len(), 51, "each of the others asks for itself");
    world.store.answers.send_replace(true);
    for checking in waiting {
        let Checking::Pending(outcome) = checking else {
            panic!("decided without the store");
        };
        assert!(matches!(outcome.await, Outcome::Decided(_)));
    }
}

#[tokio::test]
async fn nothing_is_taken_ahead_while_the_fallback_holds_back() {
    let (world, hot) = (World::new(), hot());
    for _ in 0..20 {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    world.fallback.0.store(true, Ordering::Relaxed);
    world.asked();
    for _ in 0..world.lots.in_hand() {
        assert!(world.passes(&[ask(&hot, 1)]).await);
    }
    assert!(!world.passes(&[ask(&hot, 1)]).await, "held back");
    assert_eq!((world.asked(), world.lots.in_hand()), (Vec::new(), 0));
}

#[tokio::test]
async fn a_flood_that_another_layer_refuses_takes_nothing_ahead() {
    let (mut world, hot, window) = (World::new(), hot(), window(1));
    world.limiter = world.limiter.repeating_refusals(Arc::clone(&world.clock) as _);
    let asks = [ask(&hot, 1), ask(&window, 1)];
    assert!(world.passes(&asks).await);
    assert!(!world.passes(&asks).await);
    world.store.settle(world.lots.take_all());
    world.asked();
    for _ in 0..20 {
        assert!(!world.passes(&asks).await);
        world.clock.advance(Duration::from_millis(1));
    }
    assert_eq!((world.asked(), world.lots.in_hand()), (Vec::new(), 0));
    assert_eq!(world.left(&hot), 1_000, "the one that was used has come back by now");
}

#[tokio::test]
async fn a_charge_of_its_own_leaves_no_receipt() {
    let (world, hot) = (World::new(), hot());
    let Checking::Pending(outcome) = world.limiter.check(&[ask(&hot, 1)]) else {
        panic!("decided without the store");
    };
    let Outcome::Decided(decision) = outcome.await else {
        panic!("the store answers");
    };
    assert_eq!((decision.readings[0].taken, decision.receipt), (1, None));
}

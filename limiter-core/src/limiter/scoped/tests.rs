use std::time::Duration;

use super::*;
use crate::{
    algorithm::{Align, Concurrency, FixedWindow, LeakyBucket, Rate},
    decision::Wait,
    limiter::FallbackDecision,
    policy::{OnFailure, Policy},
    store::{Answer, Health, Store, StoreError},
    test_util::ManualClock,
};

const DAY: Duration = Duration::from_secs(86_400);
const NOON: Timestamp = Timestamp::from_micros((20_000 * 86_400 + 43_200) * 1_000_000);

/// A store in memory that answers later, if it does.
#[derive(Debug)]
struct Remote {
    store: MemoryStore,
    is_away: bool,
}

impl Store for Remote {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        let result = match self.is_away {
            true => Err(StoreError::Unavailable),
            false => Ok(self.store.decide_now(asks)),
        };
        Answer::Pending(Box::pin(async { result }))
    }

    fn settle(&self, settlements: Vec<Settlement>) {
        assert!(settlements.iter().all(|told| told.policy.scope() == Scope::Cluster));
        self.store.settle(settlements);
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

struct World {
    limiter: Limiter,
    own: Arc<MemoryStore>,
    remote: Arc<Remote>,
    fallback: Arc<MemoryStore>,
}

fn world(is_away: bool) -> World {
    let clock = Arc::new(ManualClock::new(NOON));
    let store = || MemoryStore::new(Arc::clone(&clock) as _, 1_000);
    let (own, fallback) = (Arc::new(store()), Arc::new(store()));
    let store = store();
    let remote = Arc::new(Remote { store, is_away });
    let limiter = Limiter::new(Arc::clone(&remote) as _, Arc::clone(&fallback) as _).with_own(Arc::clone(&own));
    World {
        limiter,
        own,
        remote,
        fallback,
    }
}

fn window(name: &str, limit: u64) -> Policy {
    let window = FixedWindow::new(limit, DAY, Align::Clock).unwrap();
    Policy::new(name, window, OnFailure::Local)
}

fn ours(name: &str, limit: u64) -> Arc<Policy> {
    Arc::new(window(name, limit).with_scope(Scope::Instance))
}

fn shared(name: &str, limit: u64) -> Arc<Policy> {
    Arc::new(window(name, limit))
}

fn asks(policies: &[Arc<Policy>]) -> Asks<'_> {
    let ask = |policy| Ask {
        policy,
        key: "k",
        cost: 1,
    };
    policies.iter().map(ask).collect()
}

impl World {
    async fn ask(&self, policies: &[Arc<Policy>]) -> Outcome {
        match self.limiter.check(&asks(policies)) {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(outcome) => outcome.await,
        }
    }

    async fn decided(&self, policies: &[Arc<Policy>]) -> Decision {
        match self.ask(policies).await {
            Outcome::Decided(decision) => decision,
            other => panic!("{other:?}"),
        }
    }
}

/// What is left of each where it is counted.
fn left(store: &MemoryStore, policy: &Arc<Policy>) -> u64 {
    let cost = 0;
    store.decide_now(&[Ask { policy, key: "k", cost }]).readings[0].remaining
}

fn remaining(decision: &Decision) -> Vec<u64> {
    decision.readings.iter().map(|reading| reading.remaining).collect()
}

#[tokio::test]
async fn both_are_charged_and_read_in_order() {
    let world = world(false);
    let layers = [shared("a", 5), ours("b", 4), shared("c", 3), ours("d", 2)];
    let decision = world.decided(&layers).await;
    assert_eq!(
        (decision.verdict, remaining(&decision)),
        (Verdict::Allowed, vec![4, 3, 2, 1])
    );
    assert_eq!((left(&world.own, &layers[1]), left(&world.own, &layers[0])), (3, 5));
    assert_eq!(
        (
            left(&world.remote.store, &layers[0]),
            left(&world.remote.store, &layers[1])
        ),
        (4, 4)
    );
}

#[tokio::test]
async fn where_the_store_refuses_ours_get_back_what_they_were_charged() {
    let world = world(false);
    let layers = [ours("a", 5), shared("b", 1), ours("c", 5)];
    world.decided(&layers).await;
    for _ in 0..9 {
        let decision = world.decided(&layers).await;
        assert!(
            matches!(decision.verdict, Verdict::Denied { by: 1, .. }),
            "{decision:?}"
        );
        assert_eq!(remaining(&decision), [4, 0, 4]);
        let fits: Vec<bool> = decision.readings.iter().map(|reading| reading.fits).collect();
        assert_eq!(fits, [true, false, true]);
    }
    assert_eq!((left(&world.own, &layers[0]), left(&world.own, &layers[2])), (4, 4));
}

#[tokio::test]
async fn where_ours_refuse_the_store_is_not_asked() {
    let world = world(false);
    let layers = [shared("a", 5), ours("b", 1), ours("c", 5)];
    world.decided(&layers).await;
    let Outcome::Refused { layers: told, decision } = world.ask(&layers).await else {
        panic!()
    };
    assert_eq!(told[..], [1, 2]);
    assert!(matches!(decision.verdict, Verdict::Denied { by: 0, .. }));
    assert_eq!(remaining(&decision), [0, 4]);
    assert_eq!(left(&world.remote.store, &layers[0]), 4);
}

#[tokio::test]
async fn what_refusals_are_charged_too_stays_charged_as_far_as_it_was_asked() {
    let world = world(false);
    let always = |policy: &Arc<Policy>| Arc::new((**policy).clone().with_role(Role::ChargedAlways));
    let layers = [
        always(&ours("a", 9)),
        shared("b", 1),
        always(&ours("c", 9)),
        always(&shared("d", 9)),
    ];
    for _ in 0..3 {
        world.decided(&layers).await;
    }
    // Once all of them, and twice those before the one that refused.
    assert_eq!((left(&world.own, &layers[0]), left(&world.own, &layers[2])), (6, 8));
    assert_eq!(left(&world.remote.store, &layers[3]), 8);

    // One of the store's, before ours that refuses.
    let layers = [always(&shared("e", 2)), ours("f", 1), always(&shared("g", 9))];
    world.decided(&layers).await;
    for (by, left_of_e) in [(1, 0), (0, 0)] {
        let Outcome::Refused { layers: told, decision } = world.ask(&layers).await else {
            panic!()
        };
        assert_eq!(told[..], [0, 1]);
        assert!(matches!(decision.verdict, Verdict::Denied { by: found, .. } if found == by));
        assert_eq!(left(&world.remote.store, &layers[0]), left_of_e);
    }
    assert_eq!(left(&world.remote.store, &layers[2]), 8);
}

#[tokio::test]
async fn without_the_store_ours_count_on_and_the_fallback_has_no_part_in_them() {
    let world = world(true);
    let layers = [shared("a", 2), ours("b", 5)];
    for passes in [true, true, false] {
        let Outcome::Fallback { decision, .. } = world.ask(&layers).await else {
            panic!()
        };
        let FallbackDecision::Local {
            layers: told,
            shared,
            decision,
        } = decision
        else {
            panic!()
        };
        assert_eq!((&told[..], shared), (&[1, 0][..], 1));
        match passes {
            true => assert_eq!(decision.verdict, Verdict::Allowed),
            false => assert!(matches!(decision.verdict, Verdict::Denied { by: 1, .. })),
        }
    }
    assert_eq!(
        (left(&world.own, &layers[1]), left(&world.fallback, &layers[1])),
        (3, 5)
    );
    let closed = Arc::new(Policy::new("c", window("c", 1).algorithm().clone(), OnFailure::Closed));
    let layers = [layers[1].clone(), closed];
    assert!(matches!(
        world.ask(&layers).await,
        Outcome::Fallback {
            decision: FallbackDecision::Closed { by: 1 },
            ..
        }
    ));
    assert_eq!(left(&world.own, &layers[0]), 3);
}

#[tokio::test]
async fn ours_alone_need_no_store() {
    let world = world(true);
    let layers = [ours("a", 1)];
    assert_eq!(world.decided(&layers).await.verdict, Verdict::Allowed);
    let decision = world.decided(&layers).await;
    let wait = Wait::For(DAY / 2);
    assert_eq!(decision.verdict, Verdict::Denied { by: 0, wait });
}

#[tokio::test]
async fn who_gives_up_meanwhile_has_taken_nothing_of_ours() {
    let world = world(false);
    let layers = [ours("a", 5), shared("b", 5)];
    let checking = world.limiter.check(&asks(&layers));
    assert_eq!(left(&world.own, &layers[0]), 4);
    drop(checking);
    assert_eq!(left(&world.own, &layers[0]), 5);
}

#[tokio::test]
async fn slots_and_turns_go_back_as_everywhere() {
    let world = world(false);
    let own = |algorithm: crate::Algorithm| {
        Arc::new(Policy::new("a", algorithm, OnFailure::Local).with_scope(Scope::Instance))
    };
    let layers = [
        own(Concurrency::new(2, Duration::from_secs(1)).unwrap().into()),
        shared("b", 1),
    ];
    let first = world.decided(&layers).await;
    assert_eq!(left(&world.own, &layers[0]), 1);
    world.decided(&layers).await;
    assert_eq!(left(&world.own, &layers[0]), 1, "who was refused holds nothing");
    drop(first);
    assert_eq!(left(&world.own, &layers[0]), 2);

    let rate = Rate { units: 1, per: DAY };
    let queue = own(LeakyBucket::queue(rate, 3, 9 * DAY).unwrap().into());
    let layers = [queue, shared("c", 2)];
    world.decided(&layers).await;
    let turn = world.decided(&layers).await.turn.expect("it waits for the first");
    assert_eq!((turn.delay(), left(&world.own, &layers[0])), (DAY, 1));
    world.decided(&layers).await;
    assert_eq!(left(&world.own, &layers[0]), 1, "the last place was given back");
    world.limiter.leave(*turn);
    assert_eq!(left(&world.own, &layers[0]), 2);
}

#[tokio::test]
async fn what_a_request_costs_after_all_is_settled_where_it_was_charged() {
    let world = world(false);
    let gives_back = |policy: &Arc<Policy>| Arc::new((**policy).clone().giving_back());
    let layers = [gives_back(&ours("a", 9)), shared("b", 9), gives_back(&shared("c", 9))];
    let receipt = world.decided(&layers).await.receipt.expect("two give back");
    let mut told = Vec::new();
    world.limiter.settle(*receipt, |layer, units| {
        told.push((layer, units));
        3
    });
    told.sort_unstable();
    assert_eq!(told, [(0, 1), (2, 1)]);
    assert_eq!(
        (left(&world.own, &layers[0]), left(&world.remote.store, &layers[2])),
        (6, 6)
    );
}

#[tokio::test]
async fn a_refusal_that_is_repeated_costs_ours_nothing_either() {
    let world = world(false);
    let clock = Arc::new(ManualClock::new(NOON));
    let limiter = world.limiter.clone().repeating_refusals(clock);
    let world = World { limiter, ..world };
    let layers = [ours("a", 5), shared("b", 1), ours("c", 5)];
    world.decided(&layers).await;
    world.decided(&layers).await;
    let Outcome::Repeated { layers: told, decision } = world.ask(&layers).await else {
        panic!()
    };
    assert_eq!(told[..], [0, 2, 1]);
    assert!(matches!(decision.verdict, Verdict::Denied { by: 2, .. }));
    assert_eq!(remaining(&decision), [4, 4, 0]);
    assert_eq!((left(&world.own, &layers[0]), left(&world.own, &layers[2])), (4, 4));
}

use std::sync::Mutex;

use super::*;
use crate::{
    algorithm::{Align, FixedWindow},
    clock::Timestamp,
    decision::{Reading, Verdict, Wait},
    policy::{OnFailure, Policy},
    settlement::{Change, Settlement},
    store::{Health, Partly},
    test_util::ManualClock,
};

mod held;

/// Gives every request the same answer, and notes the keys asked.
#[derive(Debug)]
struct Fake {
    answer: Result<Verdict, StoreError>,
    waits: bool,
    /// Whether its decisions have a receipt, over all layers.
    charges: bool,
    asked: Mutex<Vec<String>>,
    settled: Mutex<Vec<String>>,
}

impl Fake {
    fn new(answer: Result<Verdict, StoreError>, waits: bool) -> Arc<Self> {
        Arc::new(Self {
            answer,
            waits,
            charges: false,
            asked: Mutex::default(),
            settled: Mutex::default(),
        })
    }

    fn charging(answer: Result<Verdict, StoreError>, waits: bool) -> Arc<Self> {
        Arc::new(Self {
            charges: true,
            ..Arc::into_inner(Self::new(answer, waits)).unwrap()
        })
    }

    fn settled(&self) -> Vec<String> {
        self.settled.lock().unwrap().clone()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Store for Fake {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        self.asked
            .lock()
            .unwrap()
            .extend(asks.iter().map(|ask| format!("{}={}", ask.key, ask.cost)));
        let reading = Reading {
            fits: true,
            remaining: 1,
            taken: 1,
            wait: Wait::For(std::time::Duration::ZERO),
        };
        let readings = asks.iter().map(|_| reading).collect();
        let result = self.answer.clone().map(|verdict| Decision {
            verdict,
            readings,
            turn: None,
            receipt: receipt(if self.charges { asks.len() } else { 0 }, 3),
            held: None,
        });
        if self.waits {
            Answer::Pending(Box::pin(async { result }))
        } else {
            Answer::Ready(result)
        }
    }

    fn settle(&self, settlements: Vec<Settlement>) {
        let told = |settlement: &Settlement| format!("{}: {:?}", settlement.key, settlement.change);
        self.settled.lock().unwrap().extend(settlements.iter().map(told));
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

const AWAY: Result<Verdict, StoreError> = Err(StoreError::Unavailable);
const ALLOWED: Result<Verdict, StoreError> = Ok(Verdict::Allowed);

async fn check<F: Store>(store: &Arc<Fake>, fallback: &Arc<F>, layers: &[(OnFailure, &str, u64)]) -> Outcome {
    let policy = |&(on_failure, name, _): &(OnFailure, &str, u64)| {
        let window = std::time::Duration::from_secs(1);
        let algorithm = FixedWindow::new(5, window, Align::Clock).unwrap();
        Arc::new(Policy::new(name, algorithm, on_failure))
    };
    let policies: Vec<_> = layers.iter().map(policy).collect();
    let asks: Vec<_> = policies
        .iter()
        .zip(layers)
        .map(|(policy, &(_, key, cost))| Ask { policy, key, cost })
        .collect();
    let limiter = Limiter::new(Arc::<Fake>::clone(store), Arc::<F>::clone(fallback));
    match limiter.check(&asks) {
        Checking::Ready(outcome) => outcome,
        Checking::Pending(outcome) => outcome.await,
    }
}

#[tokio::test]
async fn without_layers_nobody_is_asked() {
    let store = Fake::new(AWAY, false);
    let outcome = check(&store, &store, &[]).await;
    assert!(matches!(outcome, Outcome::Decided(d) if d == Decision::unlimited()));
    assert!(store.asked().is_empty());
}

#[tokio::test]
async fn the_store_decides_where_it_can() {
    for waits in [false, true] {
        let (store, fallback) = (Fake::new(ALLOWED, waits), Fake::new(AWAY, false));
        let outcome = check(
            &store,
            &fallback,
            &[(OnFailure::Closed, "a", 1), (OnFailure::Local, "b", 2)],
        )
        .await;
        assert!(matches!(outcome, Outcome::Decided(d) if d.readings.len() == 2));
        assert_eq!(store.asked(), ["a=1", "b=2"]);
        assert!(fallback.asked().is_empty());
    }
}

#[tokio::test]
async fn a_closed_layer_refuses_and_nothing_is_charged() {
    for waits in [false, true] {
        let (store, fallback) = (Fake::new(AWAY, waits), Fake::new(ALLOWED, false));
        let layers = [
            (OnFailure::Local, "a", 1),
            (OnFailure::Open, "b", 1),
            (OnFailure::Closed, "c", 1),
        ];
        let outcome = check(&store, &fallback, &layers).await;
        let Outcome::Fallback { decision, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(matches!(decision, FallbackDecision::Closed { by: 2 }));
        assert!(fallback.asked().is_empty());
    }
}

#[tokio::test]
async fn local_layers_are_decided_in_the_fallback_store_and_open_ones_pass() {
    for (waits, fallback_waits) in [(false, false), (true, false), (false, true), (true, true)] {
        let denied = Verdict::Denied {
            by: 1,
            wait: Wait::Never,
        };
        let (store, fallback) = (Fake::new(AWAY, waits), Fake::new(Ok(denied), fallback_waits));
        let layers = [
            (OnFailure::Open, "a", 1),
            (OnFailure::Local, "b", 2),
            (OnFailure::Local, "c", 3),
        ];
        let outcome = check(&store, &fallback, &layers).await;
        let Outcome::Fallback { decision, error } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(matches!(error, StoreError::Unavailable));
        let FallbackDecision::Local {
            layers,
            shared: 0,
            decision,
        } = decision
        else {
            panic!("{decision:?}")
        };
        assert_eq!(&layers[..], [1, 2]);
        assert_eq!(decision.verdict, denied);
        assert_eq!(fallback.asked(), ["b=2", "c=3"]);
    }
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn one_request_meets_all_three_failure_policies() {
    use FallbackDecision::{Closed, Local};

    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(0)));
    let fallback = Arc::new(crate::Fallback::with_clock(100, clock));
    // 2 of 5 units are ours.
    fallback.set_live(2);
    let (a, b, c) = (
        (OnFailure::Local, "a", 1),
        (OnFailure::Open, "b", 9),
        (OnFailure::Local, "c", 1),
    );
    for waits in [false, true] {
        let store = Fake::new(AWAY, waits);
        // The open layer lets pass what is above any limit.
        let outcome = check(&store, &fallback, &[a, b, c]).await;
        assert!(
            matches!(&outcome, Outcome::Fallback { decision: Local { layers, shared: 0, decision }, .. }
                if layers[..] == [0, 2] && decision.verdict == Verdict::Allowed),
            "{outcome:?}"
        );
        assert_eq!(fallback.debtors(), 2);
        // A closed layer refuses, wherever it stands, and nobody is charged.
        for at in 0..=3 {
            let mut layers = vec![a, b, (OnFailure::Local, "new", 1)];
            layers.insert(at, (OnFailure::Closed, "d", 1));
            let outcome = check(&store, &fallback, &layers).await;
            assert!(
                matches!(outcome, Outcome::Fallback { decision: Closed { by }, .. } if by == at),
                "{outcome:?}"
            );
        }
        assert_eq!(fallback.debtors(), 2);
    }
    // `a` was charged twice, and has no room. No other local layer is charged then.
    let layers = [b, (OnFailure::Local, "new", 1), a];
    let outcome = check(&Fake::new(AWAY, false), &fallback, &layers).await;
    assert!(
        matches!(&outcome, Outcome::Fallback { decision: Local { layers, shared: 0, decision }, .. }
            if layers[..] == [1, 2] && matches!(decision.verdict, Verdict::Denied { by: 1, .. })),
        "{outcome:?}"
    );
    assert_eq!(fallback.debtors(), 2);
}

#[tokio::test]
async fn with_open_layers_only_nothing_is_asked() {
    let (store, fallback) = (Fake::new(AWAY, true), Fake::new(AWAY, false));
    let outcome = check(&store, &fallback, &[(OnFailure::Open, "a", 1)]).await;
    let Outcome::Fallback { decision, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        matches!(decision, FallbackDecision::Local { layers, shared: 0, decision }
        if layers.is_empty() && decision == Decision::unlimited())
    );
    assert!(fallback.asked().is_empty());
}

/// A store that answers for the first layer only, whose key is `a`.
fn partly(verdict: Verdict) -> Result<Verdict, StoreError> {
    let window = FixedWindow::new(5, std::time::Duration::from_secs(1), Align::Clock).unwrap();
    let reading = Reading {
        fits: verdict == Verdict::Allowed,
        remaining: 4,
        taken: 1,
        wait: Wait::For(std::time::Duration::ZERO),
    };
    let at = crate::clock::Timestamp::from_micros(7);
    let policy = Arc::new(Policy::new("p", window, OnFailure::Local));
    let taken = Settlement::new(policy, "a", Change::GiveBack { units: 1, at });
    Err(StoreError::Partly(Arc::new(Partly {
        layers: smallvec::smallvec![0],
        decision: Decision {
            verdict,
            readings: smallvec::smallvec![reading],
            turn: None,
            receipt: None,
            held: None,
        },
        // Of a refusal everything is given back already.
        taken: if verdict == Verdict::Allowed {
            vec![taken]
        } else {
            Vec::new()
        },
        error: StoreError::Timeout,
    })))
}

#[tokio::test]
async fn what_a_part_of_the_store_decides_stands() {
    for waits in [false, true] {
        let (store, fallback) = (Fake::new(partly(Verdict::Allowed), waits), Fake::new(ALLOWED, false));
        let layers = [
            (OnFailure::Closed, "a", 1),
            (OnFailure::Local, "b", 2),
            (OnFailure::Open, "c", 1),
        ];
        let outcome = check(&store, &fallback, &layers).await;
        let Outcome::Fallback { decision, error } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(matches!(error, StoreError::Timeout), "{error:?}");
        let FallbackDecision::Local {
            layers,
            shared,
            decision,
        } = decision
        else {
            panic!("{decision:?}")
        };
        assert_eq!(
            (&layers[..], shared, decision.verdict),
            (&[0, 1][..], 1, Verdict::Allowed)
        );
        assert_eq!(fallback.asked(), ["b=2"]);
        assert!(store.settled.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn what_a_part_of_the_store_took_is_given_back_where_another_layer_refuses() {
    let denied = Verdict::Denied {
        by: 0,
        wait: Wait::For(std::time::Duration::from_secs(9)),
    };
    let closed = [
        (OnFailure::Local, "a", 1),
        (OnFailure::Local, "b", 1),
        (OnFailure::Closed, "c", 1),
    ];
    for (answer, layers) in [(Ok(denied), &closed[..2]), (ALLOWED, &closed[..])] {
        let (store, fallback) = (Fake::new(partly(Verdict::Allowed), true), Fake::new(answer, false));
        let outcome = check(&store, &fallback, layers).await;
        let Outcome::Fallback { decision, .. } = outcome else {
            panic!("{outcome:?}")
        };
        match decision {
            FallbackDecision::Local { decision, .. } => {
                assert!(
                    matches!(decision.verdict, Verdict::Denied { by: 1, .. }),
                    "{decision:?}"
                );
            }
            FallbackDecision::Closed { by } => assert_eq!(by, 2),
        }
        let settled = store.settled.lock().unwrap().clone();
        assert_eq!(settled, ["a: GiveBack { units: 1, at: Timestamp(7) }"]);
    }
}

#[tokio::test]
async fn a_refusal_of_a_part_of_the_store_is_one() {
    let denied = Verdict::Denied {
        by: 0,
        wait: Wait::For(std::time::Duration::from_secs(9)),
    };
    let (store, fallback) = (Fake::new(partly(denied), true), Fake::new(ALLOWED, false));
    let outcome = check(
        &store,
        &fallback,
        &[(OnFailure::Local, "a", 1), (OnFailure::Local, "b", 1)],
    )
    .await;
    let Outcome::Fallback { decision, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(matches!(
        decision,
        FallbackDecision::Local { shared: 1, decision: Decision { verdict, .. }, .. } if verdict == denied
    ));
    assert!(fallback.asked().is_empty(), "nobody else is charged");
}

/// A receipt of `units` in each of so many layers, as a store makes it.
fn receipt(layers: usize, units: u64) -> Option<Box<Receipt>> {
    let mut receipt = None;
    for layer in 0..layers {
        Receipt::add(&mut receipt, layer, units, crate::clock::Timestamp::from_micros(7));
    }
    receipt
}

#[tokio::test]
async fn charges_are_settled_where_they_were_made() {
    for waits in [false, true] {
        let (store, fallback) = (Fake::charging(ALLOWED, waits), Fake::charging(ALLOWED, waits));
        let limiter = Limiter::new(Arc::<Fake>::clone(&store), Arc::<Fake>::clone(&fallback));
        let layers = [(OnFailure::Local, "a", 3), (OnFailure::Local, "b", 3)];
        let Outcome::Decided(decision) = check(&store, &fallback, &layers).await else {
            panic!("the store decides");
        };
        limiter.settle(*decision.receipt.unwrap(), |layer, units| units + layer as u64);
        assert_eq!(store.settled(), ["b: Debit(1)"]);
        limiter.settle(*receipt(1, 3).unwrap(), |_, _| 0);
        assert_eq!(store.settled(), ["b: Debit(1)"], "nobody claimed it");
    }
    for (waits, fallback_waits) in [(false, false), (true, true)] {
        let (store, fallback) = (Fake::charging(AWAY, waits), Fake::charging(ALLOWED, fallback_waits));
        let limiter = Limiter::new(Arc::<Fake>::clone(&store), Arc::<Fake>::clone(&fallback));
        let layers = [
            (OnFailure::Open, "a", 3),
            (OnFailure::Local, "b", 3),
            (OnFailure::Local, "c", 3),
        ];
        let Outcome::Fallback {
            decision: FallbackDecision::Local { decision, .. },
            ..
        } = check(&store, &fallback, &layers).await
        else {
            panic!("the fallback decides");
        };
        let mut asked = Vec::new();
        limiter.settle(*decision.receipt.unwrap(), |layer, units| {
            asked.push((layer, units));
            if layer == 1 { 0 } else { units }
        });
        assert_eq!(asked, [(1, 3), (2, 3)], "as the request has them");
        assert_eq!(fallback.settled().len(), 1);
        assert!(fallback.settled()[0].starts_with("b: GiveBack { units: 3"));
        assert!(store.settled().is_empty());
    }
}

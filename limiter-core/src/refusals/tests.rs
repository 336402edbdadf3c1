use proptest::prelude::*;

use crate::{
    algorithm::{
        Algorithm, Align, FixedWindow, LeakyBucket, Rate, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    },
    limiter::{Checking, Limiter, Outcome},
    policy::OnFailure,
    store::MemoryStore,
    test_util::ManualClock,
};

use super::*;
use crate::{fingerprint::Secret, policy::Policy};

const START: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);
const WINDOW: Duration = Duration::from_millis(700);

/// Each algorithm, each role, and a queue.
fn policies() -> Vec<Arc<Policy>> {
    let rate = Rate { units: 5, per: WINDOW };
    let algorithms: [Algorithm; 6] = [
        TokenBucket::new(rate, 4).unwrap().into(),
        LeakyBucket::new(rate, 4).unwrap().into(),
        FixedWindow::new(4, WINDOW, Align::Clock).unwrap().into(),
        SlidingWindowLog::new(4, WINDOW).unwrap().into(),
        SlidingWindowCounter::new(4, WINDOW, 3).unwrap().into(),
        LeakyBucket::queue(rate, 4, WINDOW).unwrap().into(),
    ];
    let enforced = algorithms.into_iter().enumerate();
    let enforced = enforced.map(|(at, algorithm)| Policy::new(format!("p{at}"), algorithm, OnFailure::Local));
    let enforced: Vec<Policy> = enforced.collect();
    let others = [Role::ChargedAlways, Role::Shadow].map(|role| {
        let window = FixedWindow::new(4, WINDOW, Align::Clock).unwrap();
        Policy::new(format!("{role:?}"), window, OnFailure::Local).with_role(role)
    });
    enforced.into_iter().chain(others).map(Arc::new).collect()
}

fn outcome(limiter: &Limiter, asks: &[Ask<'_>]) -> Outcome {
    match limiter.check(asks) {
        Checking::Ready(outcome) => outcome,
        Checking::Pending(_) => panic!("memory answers at once"),
    }
}

/// A request: how long after the last, which layers it meets, which of their keys, what it costs.
type Request = (u64, Vec<usize>, usize, u64);

fn requests(costs: std::ops::Range<u64>) -> impl Strategy<Value = Vec<Request>> {
    let layers = proptest::sample::subsequence((0..8).collect::<Vec<_>>(), 1..=4);
    let pause = prop_oneof![0..1_000_u64, 0..200_000_u64];
    proptest::collection::vec((pause, layers, 0..2_usize, costs), 1..200)
}

/// Two limiters over stores of their own, at one time: one of them repeats refusals.
struct Both {
    clock: Arc<ManualClock>,
    policies: Vec<Arc<Policy>>,
    repeats: Limiter,
    asks: Limiter,
}

impl Both {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store = || Arc::new(MemoryStore::new(Arc::<ManualClock>::clone(&clock), 1_000));
        Self {
            repeats: Limiter::new(store(), store()).repeating_refusals(Arc::<ManualClock>::clone(&clock)),
            asks: Limiter::new(store(), store()),
            policies: policies(),
            clock,
        }
    }

    /// What both say of a request.
    fn say(&self, (pause, layers, key, cost): &Request) -> (Outcome, Decision) {
        self.clock.advance(Duration::from_micros(*pause));
        let key = ["a", "b"][*key];
        let ask = |&at: &usize| Ask {
            policy: &self.policies[at],
            key,
            cost: *cost,
        };
        let asks: Vec<Ask<'_>> = layers.iter().map(ask).collect();
        let Outcome::Decided(decision) = outcome(&self.asks, &asks) else {
            panic!("it asks");
        };
        (outcome(&self.repeats, &asks), decision)
    }
}

/// Where a refusal is repeated, each layer would say the same; `exact`: also how long to wait.
fn judge(requests: &[Request], exact: bool) -> Result<(), TestCaseError> {
    let both = Both::new();
    for request in requests {
        let (said, asked) = both.say(request);
        match said {
            Outcome::Decided(decision) => prop_assert_eq!(decision, asked),
            Outcome::Repeated { layers, decision } => {
                prop_assert_ne!(asked.verdict, Verdict::Allowed);
                for (layer, reading) in layers.iter().zip(&decision.readings) {
                    let asked = asked.readings[*layer];
                    prop_assert!(!asked.fits);
                    let is_true = if exact {
                        reading.wait == asked.wait
                    } else {
                        reading.wait <= asked.wait
                    };
                    prop_assert!(is_true, "{reading:?}, {asked:?}");
                }
            }
            Outcome::Fallback { .. } | Outcome::Refused { .. } => {
                return Err(TestCaseError::fail("the store is there, and all of it"));
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_repeated_refusal_is_what_the_store_would_say(requests in requests(0..6)) {
        // Who asks for less may be let through meanwhile, and then it takes longer.
        judge(&requests, false)?;
    }

    #[test]
    fn a_repeated_wait_is_what_the_store_would_say(requests in requests(1..2)) {
        judge(&requests, true)?;
    }
}

#[test]
fn a_flood_is_answered_from_memory_until_there_may_be_room() {
    let both = Both::new();
    let mut asked = Vec::new();
    // A log of 4 in 700 ms, 10 ms apart.
    for at in 0..200 {
        let (said, _) = both.say(&(10_000, vec![3], 0, 1));
        if matches!(said, Outcome::Decided(_)) {
            asked.push(at);
        }
    }
    // Four pass and one is refused, for 50 ms, 100, 200 and then as long as the first of the four counts. (The thousandth
    // that clocks may differ by comes to less than 10 ms.)
    assert_eq!(asked[..9], [0, 1, 2, 3, 4, 9, 19, 39, 70]);
    assert!(asked.len() < 40, "{asked:?}");
}

#[test]
fn a_lasting_flood_is_asked_about_once_a_second() {
    let both = Both::new();
    let day = FixedWindow::new(1, Duration::from_secs(86_400), Align::Clock).unwrap();
    let policy = Arc::new(Policy::new("day", day, OnFailure::Local));
    let asked = |seconds: u64| {
        let decided = (0..seconds * 1_000).filter(|_| {
            both.clock.advance(Duration::from_millis(1));
            let ask = Ask {
                policy: &policy,
                key: "a",
                cost: 1,
            };
            matches!(outcome(&both.repeats, &[ask]), Outcome::Decided(_))
        });
        decided.count()
    };
    // One passes; then after 50, 100, 200, 400 and 800 ms.
    assert_eq!(asked(2), 7);
    assert_eq!(asked(60), 60);
    // Quiet for longer than it was remembered: from the beginning.
    both.clock.advance(Duration::from_secs(3));
    assert_eq!(asked(2), 6);
}

#[test]
fn a_layer_that_counts_what_is_refused_is_always_asked() {
    for other in [6, 7] {
        let both = Both::new();
        for _ in 0..20 {
            let (said, _) = both.say(&(0, vec![0, other], 0, 1));
            assert!(matches!(said, Outcome::Decided(_)), "{said:?}");
        }
    }
}

#[test]
fn a_queue_that_may_be_left_is_always_asked() {
    let both = Both::new();
    for _ in 0..20 {
        let (said, _) = both.say(&(0, vec![5], 0, 1));
        assert!(matches!(said, Outcome::Decided(_)), "{said:?}");
    }
}

#[test]
fn a_bounded_number_is_remembered() {
    let both = Both::new();
    let refusals = both.repeats.refusals().unwrap();
    let refusal = |units: u64, until: Timestamp| Refusal {
        units: Secret::of_prefix("p:tb:").fingerprint_of("a", units),
        span: FIRST,
        until,
        fits_at: until,
        remaining: 0,
    };
    let later = START.plus(LONGEST);
    (0..200_000).for_each(|units| refusals.keep(START, |_| refusal(units, later)));
    let held = || -> usize { refusals.shards.iter().map(|shard| shard.lock().unwrap().len()).sum() };
    assert_eq!(held(), REFUSALS_MAX);
    // Those that are over make room.
    both.clock.advance(LONGEST);
    (0..200_000).for_each(|units| refusals.keep(later, |_| refusal(units, later.plus(LONGEST))));
    assert_eq!(held(), REFUSALS_MAX);
    let known = |units: u64| {
        let name = refusal(units, later).units;
        refusals
            .shard(name)
            .find(name.hash(), |known| known.units == name)
            .is_some()
    };
    assert!(known(0), "the first of the second round has a place");
}

use std::{collections::HashMap, sync::Mutex};

use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::*;
use crate::{
    Checking, Limiter, Outcome, Rate,
    algorithm::{Align, FixedWindow, LeakyBucket, SlidingWindowCounter, TokenBucket},
    policy::{LotSize, LotTerms, OnFailure},
    store::{Answer, Health, MemoryStore, Store},
    test_util::ManualClock,
};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(1);
const NOON: Timestamp = Timestamp::from_micros((20_000 * 86_400 + 43_200) * 1_000_000);

/// The store that gateways share, and how often it was asked.
#[derive(Debug)]
struct Remote {
    store: MemoryStore,
    asked: Mutex<Vec<u64>>,
    is_away: AtomicBool,
}

impl Store for Remote {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        if self.is_away.load(Ordering::Relaxed) {
            return Answer::Ready(Err(StoreError::Unavailable));
        }
        self.asked.lock().unwrap().push(asks[0].cost);
        Answer::Ready(Ok(self.store.decide_now(asks)))
    }

    fn settle(&self, settlements: Vec<Settlement>) {
        self.store.settle(settlements);
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

/// Gateways that share a store.
struct World {
    clock: Arc<ManualClock>,
    remote: Arc<Remote>,
    gateways: Vec<(Limiter, Arc<Lots>)>,
    runtime: Runtime,
}

impl World {
    fn new(gateways: usize) -> Self {
        let clock = Arc::new(ManualClock::new(NOON));
        let remote = Arc::new(Remote {
            store: MemoryStore::new(Arc::clone(&clock) as _, 100),
            asked: Mutex::default(),
            is_away: AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut world = Self {
            clock,
            remote,
            gateways: Vec::new(),
            runtime,
        };
        world.gateways = (0..gateways).map(|_| world.gateway()).collect();
        world
    }

    /// One that has nothing in hand yet.
    fn gateway(&self) -> (Limiter, Arc<Lots>) {
        let clock = || Arc::clone(&self.clock) as Arc<dyn Clock>;
        let lots = Arc::new(Lots::new(clock(), self.runtime.handle().clone()));
        let fallback = Arc::new(MemoryStore::new(clock(), 100));
        let limiter = Limiter::new(Arc::clone(&self.remote) as _, fallback);
        (limiter.with_lots(Arc::clone(&lots)), lots)
    }

    fn check(&self, gateway: usize, asks: &[Ask<'_>]) -> Outcome {
        match self.gateways[gateway].0.check(asks) {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(_) => panic!("this store answers at once"),
        }
    }

    fn passes(&self, gateway: usize, policy: &Arc<Policy>, key: &str, cost: u64) -> bool {
        match self.check(gateway, &[Ask { policy, key, cost }]) {
            Outcome::Decided(decision) => decision.verdict == Verdict::Allowed,
            other => panic!("{other:?}"),
        }
    }

    /// Gives back what is left of lots that have ended, as the store's task does.
    fn sweep(&self) {
        for (_, lots) in &self.gateways {
            self.remote.settle(lots.sweep());
        }
    }

    fn in_hand(&self) -> u64 {
        self.gateways.iter().map(|(_, lots)| lots.in_hand()).sum()
    }

    /// What is left of a counter in the store.
    fn left(&self, policy: &Arc<Policy>, key: &str) -> u64 {
        let cost = 0;
        self.remote.store.decide_now(&[Ask { policy, key, cost }]).readings[0].remaining
    }

    /// How often the store was asked since the last time.
    fn asked(&self) -> usize {
        std::mem::take(&mut *self.remote.asked.lock().unwrap()).len()
    }
}

fn leased(algorithm: impl Into<Algorithm>, size: LotSize) -> Arc<Policy> {
    let terms = LotTerms { size, ttl: TTL };
    Arc::new(Policy::new("user", algorithm, OnFailure::Local).leased(terms))
}

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    let rate = Rate {
        units: rate,
        per: SECOND,
    };
    TokenBucket::new(rate, burst).unwrap()
}

#[test]
fn a_key_that_is_asked_for_once_takes_one_unit() {
    let world = World::new(1);
    let policy = leased(bucket(1_000, 1_000), LotSize::Percent(10));
    assert!(world.passes(0, &policy, "alice", 1));
    assert_eq!((world.left(&policy, "alice"), world.in_hand()), (999, 0));
    world.clock.advance(2 * TTL);
    assert!(world.passes(0, &policy, "alice", 1), "seldom, one by one");
    assert_eq!(world.in_hand(), 0);
}

#[test]
fn lots_grow_with_use_up_to_their_size_and_a_hot_key_asks_seldom() {
    let world = World::new(1);
    let policy = leased(bucket(100_000, 100_000), LotSize::Percent(1));
    for _ in 0..2_000 {
        assert!(world.passes(0, &policy, "alice", 1));
        assert!(world.in_hand() <= 1_000);
        world.clock.advance(Duration::from_micros(100));
    }
    let costs: Vec<u64> = std::mem::take(&mut *world.remote.asked.lock().unwrap());
    assert!(costs.len() < 40, "{costs:?}");
    for _ in 0..10_000 {
        assert!(world.passes(0, &policy, "alice", 1));
        world.clock.advance(Duration::from_micros(100));
    }
    let asked = world.asked();
    assert!(asked <= 30, "{asked} calls for 10,000 requests");
}

#[test]
fn a_key_that_was_quiet_gets_lots_again() {
    let world = World::new(1);
    let policy = leased(bucket(10_000, 10_000), LotSize::Percent(10));
    for quiet in [TTL - Duration::from_millis(1), TTL, 3 * TTL, Duration::ZERO] {
        // Hot, and then asked for now and then: lots are left over.
        for _ in 0..1_000 {
            assert!(world.passes(0, &policy, "alice", 1));
            world.clock.advance(Duration::from_micros(200));
        }
        for _ in 0..20 {
            world.clock.advance(quiet);
            world.sweep();
            assert!(world.passes(0, &policy, "alice", 1));
        }
        world.asked();
        for _ in 0..1_000 {
            assert!(world.passes(0, &policy, "alice", 1));
            world.clock.advance(Duration::from_micros(200));
        }
        let asked = world.asked();
        assert!(asked < 40, "{asked} calls after {quiet:?}");
    }
}

#[test]
fn a_flood_of_keys_is_bounded_and_leaves_a_hot_one_its_lot() {
    let world = World::new(1);
    let policy = leased(bucket(1_000, 1_000), LotSize::Percent(10));
    for _ in 0..20 {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    let in_hand = world.in_hand();
    assert!(in_hand > 0);
    for number in 0..100_000 {
        assert!(world.passes(0, &policy, &number.to_string(), 1));
    }
    let lots = &world.gateways[0].1;
    assert!(lots.len.load(Ordering::Relaxed) <= LOTS_MAX);
    assert_eq!(world.in_hand(), in_hand);
    world.asked();
    assert!(world.passes(0, &policy, "alice", 1));
    assert_eq!(world.asked(), 0);
}

#[test]
fn keys_beyond_those_that_have_lots_ask_for_themselves() {
    let world = World::new(1);
    let policy = leased(bucket(1_000, 1_000), LotSize::Percent(10));
    for number in 0..100_000 {
        for _ in 0..2 {
            assert!(world.passes(0, &policy, &number.to_string(), 1));
        }
    }
    let lots = &world.gateways[0].1;
    assert_eq!(lots.len.load(Ordering::Relaxed), LOTS_MAX);
    world.asked();
    assert!(world.passes(0, &policy, "99999", 1) && world.passes(0, &policy, "99999", 1));
    assert_eq!(world.asked(), 2);
    world.clock.advance(TTL);
    world.sweep();
    assert_eq!((lots.len.load(Ordering::Relaxed), world.in_hand()), (0, 0));
}

#[test]
fn what_is_left_when_a_lot_ends_is_there_for_others() {
    let world = World::new(2);
    let policy = leased(
        FixedWindow::new(100, 60 * SECOND, Align::Clock).unwrap(),
        LotSize::Percent(50),
    );
    for _ in 0..10 {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    let in_hand = world.in_hand();
    assert!(in_hand > 0);
    assert_eq!(world.left(&policy, "alice"), 90 - in_hand);
    world.clock.advance(TTL);
    world.sweep();
    assert_eq!((world.in_hand(), world.left(&policy, "alice")), (0, 90));
    let passed = (0..200).filter(|_| world.passes(1, &policy, "alice", 1)).count();
    assert_eq!(passed, 90);
}

#[test]
fn a_lot_is_not_used_in_the_next_window() {
    for align in [Align::Clock, Align::FirstRequest] {
        let world = World::new(1);
        let policy = leased(FixedWindow::new(100, SECOND, align).unwrap(), LotSize::Percent(50));
        assert!(world.passes(0, &policy, "alice", 1));
        world.clock.advance(Duration::from_millis(900));
        for _ in 0..10 {
            assert!(world.passes(0, &policy, "alice", 1));
        }
        assert!(world.in_hand() > 0);
        world.clock.advance(Duration::from_millis(100));
        let passed = (0..200).filter(|_| world.passes(0, &policy, "alice", 1)).count();
        assert_eq!(passed, 100, "as many as without the last window's: {align:?}");
    }
}

#[test]
fn a_refusal_by_another_layer_gives_back_what_was_in_hand() {
    let world = World::new(1);
    let policy = leased(bucket(1_000, 1_000), LotSize::Percent(10));
    let narrow = FixedWindow::new(20, 60 * SECOND, Align::Clock).unwrap();
    let narrow = Arc::new(Policy::new("narrow", narrow, OnFailure::Local));
    let asks = [&policy, &narrow].map(|policy| Ask {
        policy,
        key: "alice",
        cost: 1,
    });
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..200 {
        let Outcome::Decided(decision) = world.check(0, &asks) else {
            panic!("the store answers");
        };
        match decision.verdict {
            Verdict::Allowed => passed += 1,
            Verdict::Denied { by, .. } => {
                assert_eq!((by, decision.readings[0].taken), (1, 0));
                refused += 1;
            }
        }
    }
    assert_eq!((passed, refused), (20, 180));
    assert_eq!(world.left(&policy, "alice") + world.in_hand(), 980);
    world.clock.advance(TTL);
    world.sweep();
    assert_eq!(world.in_hand(), 0);
}

#[test]
fn what_was_in_hand_before_a_change_of_terms_goes_back() {
    let world = World::new(1);
    let window = |limit| FixedWindow::new(limit, 60 * SECOND, Align::Clock).unwrap();
    let policy = leased(window(100), LotSize::Percent(50));
    for _ in 0..10 {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    assert!(world.in_hand() > 0);
    let changed = leased(window(50), LotSize::Units(2));
    assert!(world.passes(0, &changed, "alice", 1));
    assert!(world.in_hand() <= 2);
    let passed = (0..200).filter(|_| world.passes(0, &changed, "alice", 1)).count();
    assert_eq!(passed, 39);
}

#[test]
fn a_reload_that_changes_nothing_leaves_the_lot() {
    let world = World::new(1);
    let policy = || leased(bucket(1_000, 1_000), LotSize::Percent(10));
    for _ in 0..10 {
        assert!(world.passes(0, &policy(), "alice", 1));
    }
    assert!(world.asked() < 20);
    let in_hand = world.in_hand();
    assert!(in_hand > 0);
    assert!(world.passes(0, &policy(), "alice", 1));
    assert_eq!(world.left(&policy(), "alice") + world.in_hand(), 989);
}

#[test]
fn all_goes_back_at_the_end_and_nothing_is_taken_any_more() {
    let world = World::new(1);
    let policy = leased(
        FixedWindow::new(100, 60 * SECOND, Align::Clock).unwrap(),
        LotSize::Percent(50),
    );
    for _ in 0..10 {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    world.remote.settle(world.gateways[0].1.close());
    assert_eq!((world.in_hand(), world.left(&policy, "alice")), (0, 90));
    for _ in 0..10 {
        assert!(world.passes(0, &policy, "alice", 1), "each asks for itself");
    }
    assert_eq!((world.in_hand(), world.left(&policy, "alice")), (0, 80));
}

#[test]
fn without_the_store_what_is_in_hand_passes_until_it_ends() {
    let world = World::new(1);
    let policy = leased(bucket(1_000, 1_000), LotSize::Percent(10));
    for _ in 0..100 {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    let in_hand = world.in_hand();
    assert!(in_hand > 0);
    world.remote.is_away.store(true, Ordering::Relaxed);
    for _ in 0..in_hand {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    let ask = Ask {
        policy: &policy,
        key: "alice",
        cost: 1,
    };
    assert!(matches!(world.check(0, &[ask]), Outcome::Fallback { .. }));
}

#[test]
fn a_cost_of_nothing_takes_nothing_and_a_large_one_asks_for_itself() {
    let world = World::new(1);
    let policy = leased(bucket(1_000, 1_000), LotSize::Units(10));
    for _ in 0..20 {
        assert!(world.passes(0, &policy, "alice", 1));
    }
    let sum = world.left(&policy, "alice") + world.in_hand();
    assert!(world.passes(0, &policy, "alice", 0));
    assert_eq!(world.left(&policy, "alice") + world.in_hand(), sum);
    assert!(world.passes(0, &policy, "alice", 500));
    assert!(!world.passes(0, &policy, "alice", 600));
    assert_eq!(world.left(&policy, "alice") + world.in_hand(), sum - 500);
}

/// What is done next.
#[derive(Clone, Debug)]
enum Step {
    Ask { gateway: usize, key: usize, cost: u64 },
    Wait(u64),
    Sweep,
    Die(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..3_usize, 0..2_usize, prop_oneof![5 => Just(1_u64), 1 => 0..6_u64])
            .prop_map(|(gateway, key, cost)| Step::Ask { gateway, key, cost }),
        3 => prop_oneof![0..3_000_u64, 0..400_000_u64].prop_map(Step::Wait),
        2 => Just(Step::Sweep),
        1 => (0..3_usize).prop_map(Step::Die),
    ]
}

/// What passed of one key until a moment, and what was in hand then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u64,
    passed: u64,
    in_hand: u64,
}

const KEYS: [&str; 2] = ["alice", "bob"];

/// Follows `steps`; gives the marks of each key, one before each step.
fn follow(policy: &Arc<Policy>, steps: &[Step]) -> HashMap<usize, Vec<Mark>> {
    let mut world = World::new(3);
    let mut marks: HashMap<usize, Vec<Mark>> = HashMap::new();
    let mut passed = [0; 2];
    for step in steps {
        mark(&world, policy, passed, &mut marks);
        match *step {
            Step::Ask { gateway, key, cost } => {
                if world.passes(gateway, policy, KEYS[key], cost) {
                    passed[key] += cost;
                }
                for (_, lots) in &world.gateways {
                    assert!(KEYS.iter().all(|key| lots.in_hand_of(policy, key) <= policy.lot_max()));
                }
            }
            Step::Wait(micros) => {
                world.clock.advance(Duration::from_micros(micros));
            }
            Step::Sweep => world.sweep(),
            // What it has in hand is lost.
            Step::Die(gateway) => {
                world.gateways[gateway] = world.gateway();
            }
        }
    }
    mark(&world, policy, passed, &mut marks);
    marks
}

fn mark(world: &World, policy: &Arc<Policy>, passed: [u64; 2], marks: &mut HashMap<usize, Vec<Mark>>) {
    for (key, passed) in passed.into_iter().enumerate() {
        let in_hand = |(_, lots): &(_, Arc<Lots>)| lots.in_hand_of(policy, KEYS[key]);
        marks.entry(key).or_default().push(Mark {
            at: world.clock.now().as_micros() - NOON.as_micros(),
            passed,
            in_hand: world.gateways.iter().map(in_hand).sum(),
        });
    }
}

/// The same, of which nothing in hand is an excuse.
fn nothing_in_hand(marks: &[Mark]) -> Vec<Mark> {
    let in_hand = 0;
    marks.iter().map(|mark| Mark { in_hand, ..*mark }).collect()
}

/// In any time that begins at a mark, at most `most(µs)` and what was in hand then pass; from the beginning on, nothing was.
fn bounded(marks: &[Mark], most: impl Fn(u64, u64) -> Option<u64>) -> Result<(), TestCaseError> {
    for (i, from) in marks.iter().enumerate() {
        for to in &marks[i..] {
            if let Some(most) = most(from.at, to.at) {
                prop_assert!(
                    to.passed - from.passed <= most + from.in_hand,
                    "{from:?} to {to:?}: more than {most}"
                );
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_bucket_lets_pass_at_most_what_was_in_hand_beyond_it(
        steps in prop::collection::vec(step(), 1..150),
        is_leaky in any::<bool>(),
        part in 1..100_u8,
    ) {
        let (rate, burst) = (40, 30);
        let policy = match is_leaky {
            true => {
                let rate = Rate { units: rate, per: SECOND };
                leased(LeakyBucket::new(rate, burst).unwrap(), LotSize::Percent(part))
            }
            false => leased(bucket(rate, burst), LotSize::Percent(part)),
        };
        for marks in follow(&policy, &steps).values() {
            bounded(marks, |from, to| Some(burst + (to - from) * rate / 1_000_000))?;
        }
    }

    #[test]
    fn no_fixed_window_lets_more_pass_than_without_lots(
        steps in prop::collection::vec(step(), 1..150),
        part in 1..100_u8,
    ) {
        let policy = leased(FixedWindow::new(30, SECOND, Align::Clock).unwrap(), LotSize::Percent(part));
        for marks in follow(&policy, &steps).values() {
            let mut before: HashMap<u64, (u64, u64)> = HashMap::new();
            for mark in marks {
                let window = before.entry(mark.at / 1_000_000).or_insert((mark.passed, mark.passed));
                window.1 = mark.passed;
            }
            for (window, (first, last)) in before {
                prop_assert!(last - first <= 30, "{} in window {window}", last - first);
            }
        }
    }

    #[test]
    fn no_sliding_window_lets_more_pass_than_without_lots(
        steps in prop::collection::vec(step(), 1..150),
        part in 1..100_u8,
    ) {
        let policy = leased(SlidingWindowCounter::new(30, SECOND, 5).unwrap(), LotSize::Percent(part));
        for marks in follow(&policy, &steps).values() {
            // What it promises: of five sub-windows, the limit in four fifths of the window.
            bounded(&nothing_in_hand(marks), |from, to| (to - from <= 800_000).then_some(30))?;
        }
    }

    #[test]
    fn what_is_never_asked_for_is_all_there_again(steps in prop::collection::vec(step(), 1..100)) {
        let world = World::new(3);
        let policy = leased(FixedWindow::new(1_000, 3_600 * SECOND, Align::Clock).unwrap(), LotSize::Percent(20));
        let mut passed = 0;
        for step in steps {
            match step {
                Step::Ask { gateway, cost, .. } => {
                    passed += if world.passes(gateway, &policy, "alice", cost) { cost } else { 0 };
                }
                Step::Wait(micros) => world.clock.advance(Duration::from_micros(micros)),
                Step::Sweep | Step::Die(_) => world.sweep(),
            }
            prop_assert_eq!(world.left(&policy, "alice") + world.in_hand() + passed, 1_000);
        }
        world.clock.advance(TTL);
        world.sweep();
        prop_assert_eq!(world.left(&policy, "alice"), 1_000 - passed);
    }
}

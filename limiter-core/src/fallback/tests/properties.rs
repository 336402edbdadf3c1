//! Random gateways, arrivals and counters: what is admitted, and what is owed.

use proptest::{collection::vec, prelude::*};

use super::*;

/// An algorithm of each kind, of this limit, with a window of a minute.
fn algorithm(kind: usize, limit: u64, buckets: u32) -> Algorithm {
    let minute = Duration::from_secs(60);
    let rate = Rate {
        units: limit,
        per: minute,
    };
    match kind {
        0 => TokenBucket::new(rate, limit).unwrap().into(),
        1 => LeakyBucket::new(Rate { units: 7, per: SECOND }, limit).unwrap().into(),
        2 => FixedWindow::new(limit, minute, Align::Clock).unwrap().into(),
        3 => SlidingWindowCounter::new(limit, minute, buckets).unwrap().into(),
        _ => SlidingWindowLog::new(limit, minute).unwrap().into(),
    }
}

/// Gaps in milliseconds, and thousandths of the limit that are wanted then.
fn history() -> impl Strategy<Value = Vec<(u64, u64)>> {
    vec((0_u64..20_000, 0_u64..500), 0..8)
}

/// A counter of the whole quota after a history, and the time then.
fn whole(algorithm: &Algorithm, history: &[(u64, u64)]) -> (Counter, Timestamp) {
    let (mut counter, mut now) = (algorithm.load(None, NOON), NOON);
    for (gap, share) in history {
        now = now.plus(Duration::from_millis(*gap));
        counter = algorithm.load(Some(counter), now);
        let wanted = algorithm.limit() * share / 1_000;
        let units = wanted.min(algorithm.free(&counter));
        algorithm.save(&mut counter, units, now);
    }
    (counter, now)
}

/// Units used, in full where only a part of one is.
fn units(counter: &Counter) -> u64 {
    match counter {
        Counter::Bucket(bucket) => bucket.used.div_ceil(bucket.period),
        Counter::Warming(bucket) => bucket.used.div_ceil(bucket.period),
        Counter::Window(window) => window.count,
        Counter::SubWindows(windows) => windows.used,
        Counter::Log(log) => log.live(),
        Counter::Slots(slots) => slots.held,
    }
}

/// Gateways with a clock in common.
fn gateways(count: u32, now: Timestamp) -> (Arc<ManualClock>, Vec<Fallback>) {
    let clock = Arc::new(ManualClock::new(now));
    let gateway = |_| {
        let fallback = Fallback::with_clock(100, Arc::clone(&clock) as Arc<dyn Clock>);
        fallback.set_live(count);
        fallback
    };
    let gateways = (0..count).map(gateway).collect();
    (clock, gateways)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Gateways that saw the same counter admit together what a single undivided counter has room for, from then on.
    #[test]
    fn together_they_admit_what_one_counter_would(
        kind in 0..5_usize,
        (count, limit) in (1_u32..9, 1_u64..200),
        is_divisible in any::<bool>(),
        buckets in 1_u32..20,
        history in history(),
        arrivals in vec((0_u64..6_000, any::<prop::sample::Index>(), 1_u64..8), 1..200),
    ) {
        let n = u64::from(count);
        let limit = if is_divisible { limit * n } else { limit };
        let policy = policy("user", algorithm(kind, limit, buckets));
        let algorithm = policy.algorithm();
        let (mut shared, mut now) = whole(algorithm, &history);
        let (clock, gateways) = gateways(count, now);
        for gateway in &gateways {
            gateway.saw(&policy, "alice", &shared);
        }
        // A share is at least 1; and each sliding counter rounds off less than a unit.
        let bound = limit.max(n) + if kind == 3 { n - 1 } else { 0 };
        for (gap, gateway, cost) in arrivals {
            now = now.plus(Duration::from_millis(gap));
            clock.set(now);
            shared = algorithm.load(Some(shared), now);
            let cost = cost.min((limit / n).max(1));
            if ask(gateway.get(&gateways), &policy, "alice", cost) == Verdict::Allowed {
                algorithm.save(&mut shared, cost, now);
                prop_assert!(units(&shared) <= bound, "{} used, {} at most", units(&shared), bound);
            }
        }
    }

    /// Windows that begin with a request: the one that ran when the server went holds no more than it would have.
    #[test]
    fn a_window_that_runs_holds_no_more(
        (count, share) in (1_u32..9, 1_u64..50),
        before in 1_u64..100,
        arrivals in vec((0_u64..59_999, any::<prop::sample::Index>(), 1_u64..8), 1..200),
    ) {
        let limit = share * u64::from(count);
        let window = FixedWindow::new(limit, Duration::from_secs(60), Align::FirstRequest).unwrap();
        let policy = policy("user", window);
        let (clock, gateways) = gateways(count, NOON);
        let seen = used(&policy, before.min(limit), NOON);
        let mut admitted = units(&seen);
        for gateway in &gateways {
            gateway.saw(&policy, "alice", &seen);
        }
        let mut arrivals = arrivals;
        arrivals.sort_by_key(|(at, ..)| *at);
        for (at, gateway, cost) in arrivals {
            clock.set(NOON.plus(Duration::from_millis(at)));
            let cost = cost.min(share);
            admitted += match ask(gateway.get(&gateways), &policy, "alice", cost) {
                Verdict::Allowed => cost,
                Verdict::Denied { .. } => 0,
            };
        }
        prop_assert!(admitted <= limit);
    }

    /// What the server knows and what is owed make up what a share has used, whenever the server comes back.
    #[test]
    fn part_and_debt_make_up_what_is_used(
        kind in 0..5_usize,
        (count, share) in (1_u32..9, 1_u64..50),
        buckets in 1_u32..20,
        history in history(),
        arrivals in vec((0_u64..20_000, 1_u64..8), 0..40),
        away in 0_u64..70_000,
    ) {
        let policy = policy("user", algorithm(kind, share * u64::from(count), buckets));
        let (shared, mut now) = whole(policy.algorithm(), &history);
        let (clock, gateways) = gateways(count, now);
        let gateway = &gateways[0];
        gateway.saw(&policy, "alice", &shared);
        let mut admitted = 0;
        for (gap, cost) in arrivals {
            now = now.plus(Duration::from_millis(gap));
            clock.set(now);
            if ask(gateway, &policy, "alice", cost.min(share)) == Verdict::Allowed {
                admitted += cost.min(share);
            }
        }
        now = now.plus(Duration::from_millis(away));
        clock.set(now);
        let divided = policy.algorithm().divided(count);
        // A share that admitted nothing: what it has used is its part of what the server knows.
        let mut part = divided.load(None, now);
        let name = policy.fingerprint("alice");
        gateway.raise(&policy, &divided, name, &mut part, count, now);
        let own = gateway.own.read(name, |own, now| units(&divided.load(own.cloned(), now)));
        let debt: u64 = gateway.take_debts().map(|debt| debt.units()).sum();
        if admitted == 0 {
            prop_assert_eq!(debt, 0);
        } else {
            let told = units(&part) + debt;
            prop_assert!(told >= own, "{} and {} are not {}", units(&part), debt, own);
            prop_assert!(told <= own + 1, "{} and {} are more than {}", units(&part), debt, own);
        }
    }
}

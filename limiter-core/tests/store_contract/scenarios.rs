//! The same on every store.

use super::*;

/// Offers ten a second and gives how many pass in each.
async fn admitted(world: &World, policy: &Arc<Policy>, seconds: u32) -> Vec<usize> {
    let mut admitted = Vec::new();
    for second in 0..seconds {
        world.clock.set(START.plus(second * SECOND));
        admitted.push(world.passing(policy, "k", 10).await);
    }
    admitted
}

/// `(second, units)`, and 0 in all others.
fn at(seconds: u32, given: &[(usize, usize)]) -> Vec<usize> {
    let mut all = vec![0; seconds as usize];
    for &(second, units) in given {
        all[second] = units;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_quota_passes_then_exactly_what_comes_back() {
    let rate = Rate {
        units: 1,
        per: 2 * SECOND,
    };
    let window = 10 * SECOND;
    let halved: Vec<(usize, usize)> = (2..25).step_by(2).map(|second| (second, 1)).chain([(0, 5)]).collect();
    let blocks = [(0, 5), (10, 5), (20, 5)];
    // The sub-windows are 2 s long; one that is half outside weighs half, rounded down.
    let counted = [(0, 5), (11, 3), (12, 2), (21, 2), (22, 1), (23, 1), (24, 1)];
    let expected = [
        (policy("tb", TokenBucket::new(rate, 5).unwrap()), at(25, &halved)),
        (policy("lb", LeakyBucket::new(rate, 5).unwrap()), at(25, &halved)),
        (
            policy("fc", FixedWindow::new(5, window, Align::Clock).unwrap()),
            at(25, &blocks),
        ),
        (
            policy("ff", FixedWindow::new(5, window, Align::FirstRequest).unwrap()),
            at(25, &blocks),
        ),
        (policy("sl", SlidingWindowLog::new(5, window).unwrap()), at(25, &blocks)),
        (
            policy("sc", SlidingWindowCounter::new(5, window, 5).unwrap()),
            at(25, &counted),
        ),
    ];
    for world in World::each().await {
        for (policy, expected) in &expected {
            assert_eq!(
                &admitted(&world, policy, 25).await,
                expected,
                "{:?} {policy:?}",
                world.store
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_of_the_clock_ends_with_the_clock() {
    let window = 10 * SECOND;
    let clock = policy("clock", FixedWindow::new(2, window, Align::Clock).unwrap());
    let first = policy("first", FixedWindow::new(2, window, Align::FirstRequest).unwrap());
    for world in World::each().await {
        world.clock.set(START.plus(7 * SECOND));
        assert_eq!(world.passing(&clock, "k", 3).await, 2);
        assert_eq!(world.passing(&first, "k", 3).await, 2);
        world.clock.set(START.plus(10 * SECOND));
        assert_eq!(world.passing(&clock, "k", 3).await, 2);
        assert_eq!(world.passing(&first, "k", 3).await, 0);
        world.clock.set(START.plus(17 * SECOND));
        assert_eq!(world.passing(&clock, "k", 3).await, 0);
        assert_eq!(world.passing(&first, "k", 3).await, 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_of_a_calendar_ends_at_midnight_there() {
    let berlin = Zone::named("Europe/Berlin").unwrap();
    let calendar = Calendar::days(berlin, 1).unwrap();
    // Clocks are set forward in the one, and back in the other.
    for (day, hours) in [("2027-03-28T00:00:00+01:00", 23), ("2027-10-31T00:00:00+02:00", 25)] {
        let day: jiff::Timestamp = day.parse().unwrap();
        let midnight = Timestamp::from_micros(day.as_microsecond().try_into().unwrap());
        let next = midnight.plus(hours * 3_600 * SECOND);
        let daily = policy("daily", FixedWindow::of_calendar(2, calendar.clone()).unwrap());
        for world in World::each().await {
            world.clock.set(midnight);
            assert_eq!(world.passing(&daily, "k", 3).await, 2);
            let denied = world.decide(&[(&daily, "k", 1)]).await.verdict;
            let wait = Wait::For(next.since(midnight));
            assert_eq!(denied, Verdict::Denied { by: 0, wait }, "{:?}", world.store);
            world.clock.set(Timestamp::from_micros(next.as_micros() - 1));
            assert_eq!(world.passing(&daily, "k", 1).await, 0);
            world.clock.set(next);
            assert_eq!(world.passing(&daily, "k", 3).await, 2);
            // A store that knew the server's time learns that it is another.
            world.clock.set(next.plus(400 * 86_400 * SECOND));
            assert_eq!(world.passing(&daily, "k", 3).await, 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_counted_in_one_time_zone_is_counted_in_another() {
    let day = |zone, limit| {
        let calendar = Calendar::days(Zone::named(zone).unwrap(), 1).unwrap();
        policy("daily", FixedWindow::of_calendar(limit, calendar).unwrap())
    };
    let hour = 3_600 * SECOND;
    let plain = policy("daily", FixedWindow::new(7, 24 * hour, Align::Clock).unwrap());
    for world in World::each().await {
        assert_eq!(world.passing(&day("Europe/Berlin", 2), "k", 3).await, 2);
        assert_eq!(world.passing(&day("America/New_York", 5), "k", 5).await, 3);
        assert_eq!(world.passing(&plain, "k", 5).await, 2);
        assert_eq!(world.remaining(&day("Asia/Tokyo", 8), "k").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_as_told_passes_and_not_a_microsecond_earlier() {
    for world in World::each().await {
        for policy in every_algorithm(7, 10 * SECOND) {
            world.clock.set(START);
            for step in 0..50 {
                // Uneven times and costs, so that rounding shows.
                world.clock.advance(Duration::from_micros(step * 37_001));
                let cost = 1 + step % 3;
                let wait = loop {
                    let decision = world.decide(&[(&policy, "k", cost)]).await;
                    match decision.verdict {
                        Verdict::Allowed => {}
                        Verdict::Denied {
                            by: 0,
                            wait: Wait::For(wait),
                        } => break wait,
                        Verdict::Denied { .. } => panic!("{decision:?}"),
                    }
                };
                assert!(wait > Duration::ZERO && wait <= 20 * SECOND, "{policy:?}: {wait:?}");
                let told = world.clock.now().plus(wait);
                world.clock.set(Timestamp::from_micros(told.as_micros() - 1));
                let early = world.decide(&[(&policy, "k", cost)]).await.verdict;
                assert_ne!(early, Verdict::Allowed, "{policy:?}: 1 µs before {wait:?}");
                assert_eq!(
                    early,
                    Verdict::Denied {
                        by: 0,
                        wait: Wait::For(MICRO)
                    },
                    "{policy:?}"
                );
                world.clock.set(told);
                let verdict = world.decide(&[(&policy, "k", cost)]).await.verdict;
                assert_eq!(verdict, Verdict::Allowed, "{policy:?}: after {wait:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_layers_are_charged_or_none_in_any_order() {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for world in World::each().await {
        for (turn, order) in ORDERS.iter().enumerate() {
            let key = format!("turn {turn}");
            let (wide, narrow, middle) = (
                every_algorithm(10, 100 * SECOND),
                every_algorithm(3, 50 * SECOND),
                every_algorithm(5, 70 * SECOND),
            );
            // Three layers of different algorithms.
            let named = |policy: &Policy, tag: &str| {
                super::policy(&format!("{}-{tag}", policy.name()), policy.algorithm().clone())
            };
            let layers = [
                named(&wide[turn], "wide"),
                named(&narrow[(turn + 2) % 6], "narrow"),
                named(&middle[(turn + 4) % 6], "middle"),
            ];
            let asks: Vec<_> = order.iter().map(|&i| (&layers[i], key.as_str(), 1)).collect();
            for _ in 0..3 {
                assert_eq!(world.decide(&asks).await.verdict, Verdict::Allowed);
            }
            for _ in 0..3 {
                let decision = world.decide(&asks).await;
                let narrow = order.iter().position(|&i| i == 1).unwrap();
                assert!(
                    matches!(decision.verdict, Verdict::Denied { by, .. } if by == narrow),
                    "{decision:?}"
                );
                let fits: Vec<_> = decision.readings.iter().map(|reading| reading.fits).collect();
                let expected: Vec<_> = order.iter().map(|&i| i != 1).collect();
                assert_eq!(fits, expected);
            }
            let mut left = Vec::new();
            for layer in &layers {
                left.push(world.remaining(layer, &key).await);
            }
            assert_eq!(left, [7, 0, 2], "order {order:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_wait_of_the_layers_without_room_is_told() {
    let short = policy("short", FixedWindow::new(1, 10 * SECOND, Align::FirstRequest).unwrap());
    let long = policy("long", FixedWindow::new(1, 60 * SECOND, Align::FirstRequest).unwrap());
    let never = policy("never", FixedWindow::new(1, 5 * SECOND, Align::FirstRequest).unwrap());
    for world in World::each().await {
        assert_eq!(
            world.decide(&[(&short, "k", 1), (&long, "k", 1)]).await.verdict,
            Verdict::Allowed
        );
        let verdict = world.decide(&[(&short, "k", 1), (&long, "k", 1)]).await.verdict;
        assert_eq!(
            verdict,
            Verdict::Denied {
                by: 0,
                wait: Wait::For(60 * SECOND)
            }
        );
        let verdict = world
            .decide(&[(&short, "k", 1), (&never, "k", 2), (&long, "k", 1)])
            .await
            .verdict;
        assert_eq!(
            verdict,
            Verdict::Denied {
                by: 0,
                wait: Wait::Never
            }
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_may_cost_more_than_one_or_nothing() {
    for world in World::each().await {
        for policy in every_algorithm(5, 10 * SECOND) {
            let ask = async |cost| world.decide(&[(&policy, "k", cost)]).await;
            let first = ask(3).await;
            assert_eq!(
                (first.verdict, first.readings[0].remaining),
                (Verdict::Allowed, 2),
                "{policy:?}"
            );
            assert_ne!(ask(3).await.verdict, Verdict::Allowed, "{policy:?}");
            assert_eq!(ask(0).await.verdict, Verdict::Allowed);
            assert_eq!(
                ask(2).await.verdict,
                Verdict::Allowed,
                "a refusal took something: {policy:?}"
            );
            let empty = ask(0).await;
            assert_eq!(
                (empty.verdict, empty.readings[0].remaining),
                (Verdict::Allowed, 0),
                "{policy:?}"
            );
            let wait = Wait::Never;
            assert_eq!(ask(6).await.verdict, Verdict::Denied { by: 0, wait }, "{policy:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_mints_nothing_and_freezes_nothing() {
    for world in World::each().await {
        for policy in every_algorithm(5, 10 * SECOND) {
            world.clock.set(START);
            assert_eq!(world.passing(&policy, "k", 6).await, 5);
            world
                .clock
                .set(Timestamp::from_micros(START.as_micros() - 3_600_000_000));
            let decision = world.decide(&[(&policy, "k", 1)]).await;
            let Verdict::Denied {
                wait: Wait::For(wait), ..
            } = decision.verdict
            else {
                panic!("{policy:?}: {decision:?}")
            };
            assert!(wait <= 20 * SECOND, "{policy:?}: frozen for {wait:?}");
            world.clock.advance(wait);
            assert!(world.passes(&policy, "k").await, "{policy:?}");
            world.clock.advance(20 * SECOND);
            assert_eq!(world.passing(&policy, "k", 6).await, 5, "{policy:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_any_text_and_never_meet() {
    let long = "x".repeat(300);
    let keys = [
        "",
        " ",
        "a",
        "a ",
        "A",
        "a:",
        ":a",
        "a:b",
        "{a}",
        "}{",
        "*",
        "a\0b",
        "a\r\nb",
        "\"",
        "'",
        "\\",
        "%41",
        "ä",
        "日本",
        "~ip:10.0.0.1",
        "#00",
        "|",
        "a|b",
        "$5",
        "*3\r\n$3",
        &long,
    ];
    for world in World::each().await {
        for policy in every_algorithm(2, 10 * SECOND) {
            for (used, key) in keys.iter().enumerate() {
                for _ in 0..used % 3 {
                    assert!(world.passes(&policy, key).await, "{policy:?} {key:?}");
                }
            }
            for (used, key) in keys.iter().enumerate() {
                assert_eq!(
                    world.remaining(&policy, key).await,
                    2 - (used as u64 % 3),
                    "{policy:?} {key:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_do_not_meet_where_their_keys_are_the_same() {
    for world in World::each().await {
        let window = 10 * SECOND;
        let one = policy("one", SlidingWindowLog::new(1, window).unwrap());
        let two = policy("two", SlidingWindowLog::new(1, window).unwrap());
        let changed = policy("one", FixedWindow::new(1, window, Align::Clock).unwrap());
        assert!(world.passes(&one, "k").await);
        assert!(world.passes(&two, "k").await);
        assert!(world.passes(&changed, "k").await, "another algorithm begins anew");
        assert!(!world.passes(&one, "k").await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_used_stays_used_under_other_parameters() {
    for world in World::each().await {
        let (old, new) = (every_algorithm(10, 10 * SECOND), every_algorithm(20, 40 * SECOND));
        for (old, new) in old.iter().zip(&new) {
            world.decide(&[(old, "k", 4)]).await;
            assert_eq!(world.remaining(new, "k").await, 16, "{new:?}");
            world.decide(&[(new, "k", 1)]).await;
            assert_eq!(world.remaining(old, "k").await, 5, "{old:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_writes_no_counter() {
    let wide = every_algorithm(10, 100 * SECOND);
    for world in World::each().await {
        let narrow = policy(
            "narrow",
            FixedWindow::new(1, 100 * SECOND, Align::FirstRequest).unwrap(),
        );
        assert!(world.passes(&narrow, "k").await);
        let keys = |world: &World| world.server.as_ref().map(|server| server.command(&["DBSIZE"]));
        let before = keys(&world);
        for position in 0..=wide.len() {
            let mut asks: Vec<_> = wide.iter().map(|policy| (policy, "k", 1)).collect();
            asks.insert(position, (&narrow, "k", 1));
            let verdict = world.decide(&asks).await.verdict;
            assert!(matches!(verdict, Verdict::Denied { by, .. } if by == position));
        }
        assert_eq!(keys(&world), before);
        for policy in &wide {
            assert_eq!(world.remaining(policy, "k").await, 10, "{policy:?}");
        }
        assert_eq!(keys(&world), before, "to look is not to write");
    }
}

/// The delay of a request of one unit, in ms: nothing where it is refused.
async fn delay(world: &World, policy: &Arc<Policy>) -> Option<u128> {
    let decision = world.decide(&[(policy, "k", 1)]).await;
    // The time of the test stands still, but an answer of Redis takes some of the real time off.
    let delay = decision.turn.map_or(Duration::ZERO, |turn| turn.delay());
    (decision.verdict == Verdict::Allowed).then_some(delay.as_millis().div_ceil(20_000) * 20_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_gives_turns_and_takes_the_last_one_back() {
    let rate = Rate {
        units: 1,
        per: 20 * SECOND,
    };
    let queue = policy("queue", LeakyBucket::queue(rate, 4, 3600 * SECOND).unwrap());
    let bucket = TokenBucket::new(rate, 2).unwrap().with_max_wait(40 * SECOND).unwrap();
    let waited = policy("waited", bucket);
    for world in World::each().await {
        for (policy, expected) in [(&queue, [0, 20_000, 40_000, 60_000]), (&waited, [0, 0, 20_000, 40_000])] {
            for expected in expected {
                assert_eq!(delay(&world, policy).await, Some(expected), "{:?}", world.store);
            }
            assert_eq!(delay(&world, policy).await, None, "{:?}", world.store);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_a_queue_gives_the_last_turn_back_and_no_other() {
    let rate = Rate {
        units: 1,
        per: 20 * SECOND,
    };
    let queue = policy("queue", LeakyBucket::queue(rate, 10, 3600 * SECOND).unwrap());
    for world in World::each().await {
        let limiter = Limiter::new(Arc::clone(&world.store), Arc::clone(&world.store));
        let enter = async || {
            let outcome = match limiter.check(&one(&queue)) {
                Checking::Ready(outcome) => outcome,
                Checking::Pending(outcome) => outcome.await,
            };
            match outcome {
                Outcome::Decided(decision) => decision.turn,
                Outcome::Fallback { error, .. } => panic!("{error}"),
                Outcome::Repeated { .. } | Outcome::Refused { .. } => panic!("it asks the store, always"),
            }
        };
        assert!(enter().await.is_none(), "the first leaves at once");
        let (second, third) = (enter().await.unwrap(), enter().await.unwrap());
        limiter.leave(*second);
        assert_eq!(world.remaining(&queue, "k").await, 7, "{:?}", world.store);
        limiter.leave(*third);
        assert_eq!(world.remaining(&queue, "k").await, 8, "{:?}", world.store);
        assert_eq!(delay(&world, &queue).await, Some(40_000), "{:?}", world.store);
    }
}

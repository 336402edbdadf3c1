//! The number that the operator wrote is the number that passes, while gateways are killed under load.

use crate::support::{CLIENTS, FIVE, Killing, Redis, Settings, get};

const LIMIT: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_are_killed_let_nothing_more_pass_and_lose_only_what_had_no_answer() {
    let redis = Redis::start().await;
    let settings =
        Settings::answering()
            .counting_in(&redis, "killed")
            .five_limits("header:x-user-id", LIMIT as u64, "1d");
    let killing = Killing::begin(settings).await;
    let mut lost = 0;
    for algorithm in FIVE {
        for user in 0..3 {
            let request = get(&algorithm.path()).header("x-user-id", &format!("user-{user}"));
            let seen = killing.send(request, 40).await;
            let passed = seen.tally.passed();
            assert!(
                passed <= LIMIT && passed + seen.lost >= LIMIT,
                "{algorithm:?}: of {LIMIT} a day {passed} passed, {} had no answer",
                seen.lost
            );
            assert_eq!(passed + seen.tally.denied() + seen.lost, 40 * CLIENTS, "{seen:?}");
            lost += seen.lost;
        }
    }
    let killed = killing.end().await;
    assert!(killed >= 5, "only {killed} were killed");
    // Else it shows nothing of those that had an answer.
    assert!(
        lost <= 2 * CLIENTS * killed,
        "{lost} without an answer, {killed} killed"
    );
    eprintln!("{killed} killed, {lost} requests without an answer");
}

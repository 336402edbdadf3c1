//! A flood of refused requests is answered from memory, and in the same words.

use std::time::Duration;

use crate::support::{FIVE, Gateway, Redis, Settings, get, pause};

#[tokio::test]
async fn a_flood_costs_redis_a_call_a_second() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "flood")
        .five_limits("header:x-user-id", 5, "1d");
    let gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    let mut client = gateway.client();
    for algorithm in FIVE {
        let request = get(&algorithm.path()).header("x-user-id", "mallory");
        client.repeat(5, &request).await;
        let asked = client.send(&request).await;
        assert!(asked.denied(), "{asked:?}");
        let before = redis.script_calls().await;
        let repeated_before = gateway.metric("gateway_local_refusals_total", &[]).await;
        let began = tokio::time::Instant::now();
        let repeated = client.repeat(300, &request).await;
        let seconds = began.elapsed().as_secs() + 1;
        let made = redis.script_calls().await - before;
        // A decision and a heartbeat a second, and five decisions until they are so far apart.
        assert!(made <= 2 * seconds + 6, "{algorithm:?}: {made} calls in {seconds} s");
        let from_memory = gateway.metric("gateway_local_refusals_total", &[]).await - repeated_before;
        assert!(from_memory >= 290.0, "{algorithm:?}: {from_memory} from memory");
        for answer in &repeated {
            assert!(answer.denied());
            assert_eq!(answer.json()["violated-policies"], asked.json()["violated-policies"]);
            for same in ["ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining"] {
                assert_eq!(answer.header(same), asked.header(same), "{same}");
            }
            let secs =
                |answer: &crate::support::Response| answer.header("retry-after").unwrap().parse::<u64>().unwrap();
            assert!(secs(answer) <= secs(&asked) && secs(answer) + seconds + 1 >= secs(&asked));
        }
        // Another user of the same layer is nobody's concern.
        let other = get(&algorithm.path()).header("x-user-id", "alice");
        assert!(client.send(&other).await.passed());
    }
}

#[tokio::test]
async fn a_reload_forgets_what_was_refused() {
    let redis = Redis::start().await;
    let settings = |limit: u64| {
        Settings::answering()
            .counting_in(&redis, "reload")
            .five_limits("header:x-user-id", limit, "1d")
    };
    let gateway = Gateway::with(&settings(5)).start().await;
    gateway.status_says("/store/state", "connected").await;
    let mut client = gateway.client();
    for algorithm in FIVE {
        let request = get(&algorithm.path()).header("x-user-id", "alice");
        let answers = client.repeat(7, &request).await;
        assert!(answers[6].denied(), "{algorithm:?}");
    }
    gateway.write_by_rename(&settings(6));
    gateway.status_says("/config/version", 2).await;
    for algorithm in FIVE {
        let request = get(&algorithm.path()).header("x-user-id", "alice");
        let answer = client.send(&request).await;
        assert!(answer.passed(), "{algorithm:?}: {answer:?}");
    }
}

#[tokio::test]
async fn whoever_waits_as_told_is_let_through_in_a_flood_of_others() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "wait")
        .five_limits("header:x-user-id", 2, "1s");
    let gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    let one = async |algorithm: crate::support::Algorithm, user: &'static str| {
        let mut client = gateway.client();
        let request = get(&algorithm.path()).header("x-user-id", user);
        for _ in 0..4 {
            let answers = client.repeat(6, &request).await;
            let denied = answers.iter().rfind(|answer| answer.denied()).unwrap();
            let wait: u64 = denied.header("retry-after").unwrap().parse().unwrap();
            pause(Duration::from_secs(wait)).await;
            let answer = client.send(&request).await;
            assert!(answer.passed(), "{algorithm:?}, {user}: {answer:?}");
        }
    };
    let [a, b, c, d, e] = FIVE;
    tokio::join!(
        one(a, "1"),
        one(b, "2"),
        one(c, "3"),
        one(d, "4"),
        one(e, "5"),
        one(a, "6")
    );
}

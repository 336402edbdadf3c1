//! Bans: a key that a layer refused too often is refused outright, by all gateways, for as long as the file says.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    Client, DEADLINE, Gateway, Origin, Redis, Response, Settings, get, request, wait::pause_until, wait_for,
};

const OUTCOMES: &str = "gateway_limit_decisions_total";
const ABNORMAL: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
/// How long others may take to learn of a ban.
pub(super) const SHARED: Duration = Duration::from_secs(1);

/// Passes one request of a user a day, and bans by this.
pub(super) fn layer(ban: &str) -> String {
    format!("{{name: user, key: \"header:x-user-id\", algorithm: fixed_window, limit: 1, window: 1d, ban: {ban}}}")
}

pub(super) fn answering(ban: &str) -> Settings {
    Settings::answering().limit(&layer(ban))
}

pub(super) async fn ask(gateway: &Gateway, user: &str) -> Response {
    gateway.client().send(&get("/").header("x-user-id", user)).await
}

pub(super) async fn two(settings: &Settings) -> [Gateway; 2] {
    let gateways = [
        Gateway::with(settings).start().await,
        Gateway::with(settings).start().await,
    ];
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    gateways
}

pub(super) fn is_banned(answer: &Response) -> bool {
    answer.status == 429 && answer.json()["type"] == ABNORMAL
}

/// Asks until the user is banned, and says how long that took. Requests that are refused meanwhile count.
async fn becomes_banned(gateway: &Gateway, user: &str) -> Duration {
    let since = Instant::now();
    wait_for(DEADLINE, "a ban", || async { is_banned(&ask(gateway, user).await) }).await;
    since.elapsed()
}

/// The quickest of several times: a machine that is busy may hold up one of them.
fn is_soon(times: &[Duration]) {
    assert!(times.iter().min().is_some_and(|time| *time < SHARED), "{times:?}");
}

pub(super) async fn bans(gateway: &Gateway) -> Vec<Value> {
    let answer = gateway.ask_admin("GET", "/api/bans").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json().as_array().unwrap().clone()
}

/// Waits until a gateway knows of so many bans.
pub(super) async fn knows_of(gateway: &Gateway, number: usize) {
    wait_for(DEADLINE, "bans in /api/bans", || async {
        bans(gateway).await.len() == number
    })
    .await;
}

pub(super) async fn logs(gateway: &Gateway, event: &str) {
    wait_for(DEADLINE, event, || async { gateway.log().contains(event) }).await;
}

/// The statuses of so many requests in a row; `b` for a ban, `p` for passing, `d` for a common refusal.
pub(super) async fn course(gateway: &Gateway, user: &str, requests: usize) -> String {
    let mut course = String::new();
    for _ in 0..requests {
        let answer = ask(gateway, user).await;
        course.push(match answer.status {
            200 => 'p',
            _ if is_banned(&answer) => 'b',
            429 => 'd',
            status => panic!("{status}"),
        });
    }
    course
}

#[tokio::test]
async fn refusals_ban_a_key_and_only_that() {
    let redis = Redis::start().await;
    let settings = answering("{after: 3, within: 1m, for: 10m}");
    for settings in [settings.clone(), settings.counting_in(&redis, "gw")] {
        let gateway = Gateway::with(&settings).start().await;
        assert_eq!(course(&gateway, "alice", 8).await, "pdddbbbb");
        assert_eq!(course(&gateway, "bob", 3).await, "pdd");
        let outcome = async |outcome| {
            gateway
                .metric(OUTCOMES, &[("limit", "user"), ("outcome", outcome)])
                .await
        };
        assert_eq!((outcome("denied").await, outcome("banned").await), (5.0, 4.0));
        let answer = ask(&gateway, "alice").await;
        let left = answer.retry_after().unwrap();
        assert!((590..=600).contains(&left), "{left}");
        let problem = answer.json();
        assert_eq!(
            (
                &problem["status"],
                &problem["violated-policies"],
                &problem["retry-after"]
            ),
            (&json!(429), &json!(["user"]), &json!(left))
        );
        assert_eq!(answer.header("ratelimit").unwrap(), format!("\"user\";r=0;t={left}"));
        assert_eq!(answer.header("ratelimit-policy").unwrap(), "\"user\";q=1;w=86400");
        logs(&gateway, "a ban began").await;
        let call = get("/")
            .header("x-user-id", "alice")
            .header("content-type", "application/grpc");
        let answer = gateway.client().send(&call).await;
        assert_eq!(
            (answer.status, answer.header("grpc-status")),
            (200, Some("8")),
            "{answer:?}"
        );
        assert!(answer.retry_after().is_some());
    }
}

/// A banned flood is answered from memory: it charges nothing, and Redis does not hear of it.
#[tokio::test]
async fn a_ban_is_checked_before_all_layers_and_asks_no_store() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "gw")
        .limit("{name: all, key: global, algorithm: fixed_window, limit: 1000, window: 1d}")
        .limit(&layer("{after: 1, within: 1m, for: 10m}"));
    let [one, two] = two(&settings).await;
    assert_eq!(course(&one, "alice", 3).await, "pdb");
    knows_of(&two, 1).await;
    redis.freeze();
    assert_eq!(course(&one, "alice", 50).await, "b".repeat(50));
    assert_eq!(course(&two, "alice", 50).await, "b".repeat(50));
    redis.thaw();
    one.status_says("/store/state", "connected").await;
    assert_eq!(
        one.metric("gateway_store_errors_total", &[("kind", "drift")]).await,
        0.0
    );
    // Of the layer for all, one for alice and one for bob.
    let answer = ask(&one, "bob").await;
    assert!(
        answer.header("ratelimit").unwrap().contains("\"all\";r=998"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_ban_of_one_gateway_is_that_of_all_and_ends_on_time() {
    const BAN: Duration = Duration::from_secs(7);
    let redis = Redis::start().await;
    let [one, two] = two(&answering("{after: 3, within: 1m, for: 7s}").counting_in(&redis, "gw")).await;
    let mut times = Vec::new();
    let mut began = Instant::now();
    for user in ["bob", "carol", "alice"] {
        began = Instant::now();
        assert_eq!(course(&one, user, 5).await, "pdddb", "at once where it was refused");
        // Nobody is counted there: the first request would pass, the ban does not let it.
        times.push(becomes_banned(&two, user).await);
    }
    is_soon(&times);
    logs(&two, "a ban began").await;
    // Whoever goes on is not banned for longer.
    pause_until(began, Duration::from_millis(2500)).await;
    for gateway in [&one, &two] {
        let before = began.elapsed();
        let answer = ask(gateway, "alice").await;
        let after = began.elapsed();
        assert!(is_banned(&answer), "{answer:?}");
        let left = |passed: Duration| BAN.saturating_sub(passed).as_secs_f64().ceil();
        let told = answer.retry_after().unwrap() as f64;
        assert!(
            (left(after)..=left(before) + 1.0).contains(&told),
            "{told} s after {before:?}"
        );
    }
    pause_until(began, BAN + SHARED).await;
    for gateway in [&one, &two] {
        assert_eq!(course(gateway, "alice", 1).await, "d", "banned no more");
        logs(gateway, "a ban ended").await;
        assert_eq!(bans(gateway).await, Vec::<Value>::new());
    }
}

/// No gateway has seen enough; together they have.
#[tokio::test]
async fn refusals_are_summed_over_gateways() {
    let redis = Redis::start().await;
    let [one, two] = two(&answering("{after: 6, within: 1m, for: 10m}").counting_in(&redis, "gw")).await;
    assert_eq!(course(&one, "alice", 4).await, "pddd");
    assert_eq!(course(&two, "alice", 3).await, "ddd");
    knows_of(&one, 1).await;
    knows_of(&two, 1).await;
    assert!(is_banned(&ask(&one, "alice").await));
    // One that starts later learns of it.
    let three = Gateway::with(&answering("{after: 6, within: 1m, for: 10m}").counting_in(&redis, "gw"));
    let three = three.start().await;
    knows_of(&three, 1).await;
    assert!(is_banned(&ask(&three, "alice").await));
}

#[tokio::test]
async fn a_ban_is_lifted_by_any_gateway_on_all() {
    let redis = Redis::start().await;
    let [one, two] = two(&answering("{after: 3, within: 1m, for: [10m, 1h]}").counting_in(&redis, "gw")).await;
    let user = "a/b|c";
    let path = "/api/bans/user/a%2Fb%5C%7Cc";
    let mut times = Vec::new();
    for round in 0..3 {
        course(&one, user, if round == 0 { 4 } else { 3 }).await;
        knows_of(&two, 1).await;
        let ban = &bans(&two).await[0];
        assert_eq!(
            (&ban["limit"], &ban["key"]),
            (&json!("user"), &json!("a/b\\|c")),
            "{ban}"
        );
        let left = ban["seconds_left"].as_u64().unwrap();
        assert!((590..=600).contains(&left), "round {round}: of the first rung, {left}");
        assert!(ban["until"].as_str().unwrap().ends_with('Z'), "{ban}");

        assert_eq!(two.ask_admin("DELETE", path).await.status, 204);
        let lifted = Instant::now();
        assert!(!is_banned(&ask(&two, user).await));
        wait_for(DEADLINE, "the ban to be over elsewhere", || async {
            bans(&one).await.is_empty()
        })
        .await;
        times.push(lifted.elapsed());
        logs(&one, "a ban was lifted").await;
        assert!(!is_banned(&ask(&one, user).await), "its tally is gone too");
        assert_eq!(
            two.ask_admin("DELETE", path).await.status,
            404,
            "there is none any more"
        );
    }
    is_soon(&times);
}

#[tokio::test]
async fn lifting_takes_the_token() {
    let settings = answering("{after: 1, within: 1m, for: 10m}");
    let yaml = settings
        .to_yaml()
        .replace("admin: 127.0.0.1:0", "admin: {address: 127.0.0.1:0, token: secret}");
    let gateway = Gateway::with_yaml(&yaml).start().await;
    assert_eq!(course(&gateway, "alice", 3).await, "pdb");
    assert_eq!(gateway.ask_admin("DELETE", "/api/bans/user/alice").await.status, 401);
    assert!(is_banned(&ask(&gateway, "alice").await));
    assert_eq!(gateway.ask_admin("POST", "/api/bans/user/alice").await.status, 405);
    let delete = async |path| {
        let request = request("DELETE", path).header("authorization", "Bearer secret");
        Client::to(gateway.admin()).send(&request).await.status
    };
    assert_eq!(delete("/api/bans/user/bob").await, 404);
    assert_eq!(delete("/api/bans/nobody/alice").await, 404);
    assert_eq!(delete("/api/bans/user/alice").await, 204);
    assert_eq!(course(&gateway, "alice", 2).await, "db");
    assert!(gateway.log().contains("DELETE /api/bans"), "the call is logged");
}

#[tokio::test]
async fn who_offends_again_is_banned_for_longer() {
    let redis = Redis::start().await;
    let settings = answering("{after: 2, within: 1m, for: [2s, 10m]}");
    for settings in [settings.clone(), settings.counting_in(&redis, "gw")] {
        let gateway = Gateway::with(&settings).start().await;
        assert_eq!(course(&gateway, "alice", 4).await, "pddb");
        wait_for(DEADLINE, "the end of the first", || async {
            bans(&gateway).await.is_empty()
        })
        .await;
        // At once: the sweep has not been there yet.
        assert_eq!(course(&gateway, "alice", 3).await, "ddb");
        logs(&gateway, "rung=2").await;
        assert_eq!(gateway.log().matches("a ban ended").count(), 1, "{}", gateway.log());
        let left = bans(&gateway).await[0]["seconds_left"].as_u64().unwrap();
        assert!((590..=600).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn a_ban_stays_over_reloads_that_keep_its_layer() {
    let redis = Redis::start().await;
    for in_redis in [false, true] {
        let of = |layers: &[&str]| {
            let settings = Settings::answering().limits(layers.iter().copied());
            if in_redis {
                settings.counting_in(&redis, "gw")
            } else {
                settings
            }
        };
        let other = "{name: other, key: ip, algorithm: token_bucket, rate: 1000/s}";
        let banning = layer("{after: 2, within: 1m, for: 10m}");
        let gateway = Gateway::with(&of(&[&banning])).start().await;
        assert_eq!(course(&gateway, "alice", 4).await, "pddb");
        let longer = layer("{after: 9, within: 1h, for: [1h, 2h]}").replace("limit: 1,", "limit: 2,");
        for (version, layers) in [(2, vec![other, &banning]), (3, vec![&*longer, other])] {
            gateway.write_by_rename(&of(&layers));
            gateway.status_says("/config/version", version).await;
            assert_eq!(course(&gateway, "alice", 2).await, "bb", "version {version}");
        }
        assert_eq!(course(&gateway, "bob", 10).await, "ppdddddddd", "by the new numbers");
        // Without `ban`, in the shadow, without the layer: it ends, and stays ended.
        let plain = layer("{after: 2, within: 1m, for: 10m}").replace(", ban: {after: 2, within: 1m, for: 10m}", "");
        let shadow = banning.replace("key:", "mode: shadow, key:");
        let mut version = 3;
        for (without, course_of_it) in [(&plain, "dd"), (&shadow, "pp"), (&other.to_owned(), "pp")] {
            version += 1;
            gateway.write_by_rename(&of(&[without]));
            gateway.status_says("/config/version", version).await;
            assert_eq!(course(&gateway, "alice", 2).await, course_of_it, "{without}");
            assert_eq!(bans(&gateway).await, Vec::<Value>::new());
            version += 1;
            if in_redis {
                wait_for(DEADLINE, "its end in Redis", || async {
                    !redis
                        .keys("gw:~{bans}:")
                        .await
                        .iter()
                        .any(|key| key.ends_with(":alice"))
                })
                .await;
            }
            gateway.write_by_rename(&of(&[&banning]));
            gateway.status_says("/config/version", version).await;
            assert_eq!(course(&gateway, "alice", 3).await, "ddb", "after {without}");
        }
    }
}

/// Refusals are counted where they are made: not by a shadow, nor a candidate; by a layer that charges all, and by one
/// that sends elsewhere what it refuses, which a ban does not.
#[tokio::test]
async fn who_counts_and_what_a_ban_looks_like() {
    let origin = Origin::start().await;
    let ban = "ban: {after: 2, within: 1m, for: 10m}";
    let key = "key: \"header:x-user-id\", algorithm: fixed_window, window: 1d";
    let at = |path: &str| format!("match: {{path: /{path}}}");
    let settings = Settings::answering()
        .upstream("origin", &[&origin])
        .limit(&format!("{{name: shadow, {key}, limit: 1, mode: shadow, {ban}, {}}}", at("shadow")))
        .limit(&format!(
            "{{name: candidate, {key}, limit: 9, candidate: {{algorithm: fixed_window, limit: 1, window: 1d}}, {ban}, {}}}",
            at("candidate")
        ))
        .limit(&format!("{{name: all, {key}, limit: 1, charge: all, {ban}, {}}}", at("all")))
        .limit(&format!(
            "{{name: elsewhere, {key}, limit: 1, rejection: {{upstream: origin}}, {ban}, {}}}",
            at("elsewhere")
        ))
        .limit(&format!(
            "{{name: page, {key}, limit: 1, {ban}, {}, rejection: {{status: 503, body: {{content_type: text/plain, \
             template: \"{{{{layer}}}} {{{{retry_after}}}}\"}}}}}}",
            at("page")
        ));
    let gateway = Gateway::with(&settings).start().await;
    for (path, expected) in [
        ("shadow", "200 200 200 200 200"),
        ("candidate", "200 200 200 200 200"),
        ("all", "200 429 429 429 429"),
        ("elsewhere", "200 200 200 429 429"),
        ("page", "200 503 503 503 503"),
    ] {
        let mut statuses = Vec::new();
        let mut last = None;
        for _ in 0..5 {
            let answer = gateway
                .client()
                .send(&get(&format!("/{path}")).header("x-user-id", "a"))
                .await;
            statuses.push(answer.status.to_string());
            last = Some(answer);
        }
        assert_eq!(statuses.join(" "), expected, "{path}");
        let last = last.unwrap();
        if path == "page" {
            assert_eq!(last.text(), format!("page {}", last.retry_after().unwrap()));
            assert!(last.retry_after().unwrap() <= 600, "the ban's time, not the window's");
        }
    }
    let banned: Vec<_> = bans(&gateway).await.iter().map(|ban| ban["limit"].clone()).collect();
    assert_eq!(banned, [json!("all"), json!("elsewhere"), json!("page")]);
}

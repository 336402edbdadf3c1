//! Costs that the request or its answer says, and charges that depend on the status of the answer: in memory, in Redis over
//! two gateways, and alone while Redis is away.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use tokio::sync::Notify;

use crate::support::{
    Algorithm, Crowd, DEADLINE, FIVE, Gateway, Raw, Redis, Request, Response, Settings, Step, Tally, get, wait_for,
};

mod answers;
mod held;
mod requests;

/// A parameter of a target: 7 for `n` of `/x?n=7`.
fn parameter<'a>(target: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = target.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(own, value)| (own == name).then_some(value))
}

/// An upstream that answers with the status and the `x-used` that the target asks for.
async fn origin() -> crate::support::Origin {
    let origin = crate::support::Origin::start().await;
    origin.answers(|seen| vec![answer(&seen.target)]);
    origin
}

fn answer(target: &str) -> Step {
    let status = parameter(target, "status").unwrap_or("200");
    let used = parameter(target, "used").map(|used| format!("X-Used: {used}\r\n"));
    let used = used.unwrap_or_default();
    Step::text(&format!("HTTP/1.1 {status} Said\r\n{used}Content-Length: 0\r\n\r\n"))
}

/// Redis, with a short deadline, so that its loss shows.
fn shared(settings: &Settings, redis: &Redis) -> Settings {
    let url = format!("redis://{}/0", redis.address());
    settings
        .clone()
        .store(&format!("{{redis: {{url: \"{url}\", prefix: charge, timeout: 1s}}}}"))
}

/// One gateway in memory, two in a Redis, and one whose Redis is gone, each with these settings.
async fn everywhere(settings: &Settings) -> Vec<(&'static str, Vec<Gateway>, Option<Redis>)> {
    let (redis, lost) = (Redis::start().await, Redis::start().await);
    let in_redis = settings.clone().counting_in(&redis, "charge");
    let alone = Gateway::with(&shared(settings, &lost)).start().await;
    lost.kill();
    alone.status_says("/store/state", "down").await;
    let two = vec![
        Gateway::with(&in_redis).start().await,
        Gateway::with(&in_redis).start().await,
    ];
    let memory = Gateway::with(settings).start().await;
    vec![
        ("in memory", vec![memory], None),
        ("in redis", two, Some(redis)),
        ("in the fallback", vec![alone], None),
    ]
}

/// Waits until `request`, which is answered and settled so that it takes nothing in the end, finds so much left: settlements
/// in Redis leave after the answer.
async fn finds_left(gateway: &Gateway, request: &Request, left: i64, what: &str) {
    if let Err(found) = left_is(gateway, request, left).await {
        panic!("{what}: {found:?} left, not {left}");
    }
}

/// As `finds_left`; what was found at last where that is something else.
async fn left_is(gateway: &Gateway, request: &Request, left: i64) -> Result<(), Option<i64>> {
    let mut client = gateway.client();
    let mut last = None;
    for _ in 0..500 {
        last = client.send(request).await.number("x-ratelimit-remaining");
        if last == Some(left) {
            return Ok(());
        }
        crate::support::pause(Duration::from_millis(10)).await;
    }
    Err(last)
}

/// Calls and probes so far that Redis did not answer.
async fn lost_calls(gateway: &Gateway) -> f64 {
    gateway.metric("gateway_store_errors_total", &[]).await
}

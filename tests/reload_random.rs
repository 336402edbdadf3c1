//! A thousand random edits of a file: the gateway goes on serving, takes what is valid as a whole, and nothing else.
//!
//! `RELOAD_SEED=number` repeats a run; without it, every run is another.

use std::fs;

use fastrand::Rng;
use gateway::config::{self, Config, Target};
use serde_json::json;

use crate::support::{Gateway, Response, get, request};

const EDITS: usize = 1_000;

/// Most of what a file may have. Nothing in it, changed by accident, would keep the probes of this test from being
/// answered.
const FILE: &str = r#"# what runs
listen: 127.0.0.1:0
admin: {address: 127.0.0.1:0}
store: {memory: {max_keys: 100000}}
client_ip:
  trusted_proxies: [10.0.0.0/8, "fd00::/8"]
  ipv6_prefix: 56
upstreams:
  orders: &orders
    endpoints: [http://127.0.0.1:9, {url: http://127.0.0.1:19, weight: 2}]
    timeout: 5s
  payments:
    <<: *orders
    connect_timeout: 250ms
routes:
  - name: version
    path: /version
    respond: {status: 200, body: "1"}
  - {name: orders, path: "/v1/orders/{id}", methods: [GET, POST], upstream: orders}
  - {name: payments, path: "/v1/payments/{*rest}", hosts: [pay.example], upstream: payments}
limits:
  - name: user
    key: header:x-user-id
    on_missing_key: skip
    match: {path: "/v1/**", not: {methods: OPTIONS}}
    algorithm: token_bucket
    rate: 100/s
    burst: 200
  - name: api
    key: [route, ip]
    match: {path: [/v1/orders, "/v1/orders/**"]}
    algorithm: sliding_window_counter
    limit: 500
    window: 10s
    buckets: 5
  - name: logins
    key: ip
    match: {path: /v1/login, methods: POST}
    algorithm: sliding_window_log
    limit: 5
    window: 1m
    cost: 1
responses: {ratelimit_headers: [draft-11, legacy], legacy_reset: delta}
server: {drain: 10s, workers: 2}
log: {access: false, level: info}
"#;

/// One edit of `text`, as by a hand that slips.
fn edit(rng: &mut Rng, text: &[u8]) -> Vec<u8> {
    let mut edited = text.to_vec();
    let at = rng.usize(0..text.len());
    let end = (at + rng.usize(1..40)).min(text.len());
    match rng.u8(0..10) {
        0 => edited.truncate(at),
        1 => drop(edited.drain(at..end)),
        2 => {
            let copied = text[at..end].to_vec();
            let to = rng.usize(0..=text.len());
            drop(edited.splice(to..to, copied));
        }
        3 => edited[at] = rng.u8(..),
        4 => edited[at] = *rng.choice(b"\n \t:{}[],\"'#&*|>-?!%@`~0x").unwrap(),
        5 => lines(&mut edited, |lines| drop(lines.remove(rng.usize(0..lines.len())))),
        6 => lines(&mut edited, |lines| {
            let (a, b) = (rng.usize(0..lines.len()), rng.usize(0..lines.len()));
            lines.swap(a, b);
        }),
        7 => lines(&mut edited, |lines| {
            let copied = lines[rng.usize(0..lines.len())].clone();
            lines.insert(rng.usize(0..=lines.len()), copied);
        }),
        8 => {
            // Another number where one is.
            let digits: Vec<usize> = (0..text.len()).filter(|&at| text[at].is_ascii_digit()).collect();
            if let Some(&at) = rng.choice(&digits) {
                edited[at] = rng.u8(b'0'..=b'9');
            }
        }
        _ => {
            let answer = format!("body: \"{}\"", rng.u32(..));
            edited = String::from_utf8_lossy(text)
                .replacen("body: \"1\"", &answer, 1)
                .into_bytes();
        }
    }
    edited
}

fn lines(text: &mut Vec<u8>, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let mut lines: Vec<Vec<u8>> = text
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    if lines.len() > 1 {
        change(&mut lines);
    }
    *text = lines.concat();
}

/// What has to become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Applied,
    Unchanged,
    RestartRequired,
    Rejected,
}

/// What runs, by what the same text says when it is checked.
struct Running {
    text: Vec<u8>,
    config: Config,
    version: u64,
}

impl Running {
    fn new() -> Self {
        Self {
            text: FILE.into(),
            config: config::parse("gateway.yaml", FILE).unwrap(),
            version: 1,
        }
    }

    fn take(&mut self, text: &[u8]) -> Fate {
        if text == self.text {
            return Fate::Unchanged;
        }
        let Some(config) = std::str::from_utf8(text)
            .ok()
            .and_then(|text| config::parse("gateway.yaml", text).ok())
        else {
            return Fate::Rejected;
        };
        let fixed = |config: &Config| (config.listen.clone(), config.admin.address, config.server.workers);
        if fixed(&config) != fixed(&self.config) {
            return Fate::RestartRequired;
        }
        (self.text, self.config) = (text.to_vec(), config);
        self.version += 1;
        Fate::Applied
    }

    /// What `GET /version` must be answered with, where one route and no layer has a say.
    fn answer(&self) -> Option<(u16, &str)> {
        let mut routes = self
            .config
            .routes
            .iter()
            .filter(|route| route.path.as_str() == "/version");
        let (route, None) = (routes.next()?, routes.next()) else {
            return None;
        };
        let limits = &self.config.limits;
        let is_free = limits.len() <= 3 && limits.iter().all(|layer| !layer.matches.paths.is_empty());
        match &route.target {
            Target::Respond(respond) if is_free && route.methods.is_empty() && route.hosts.is_empty() => {
                Some((respond.status.as_u16(), &respond.body))
            }
            _ => None,
        }
    }
}

/// Gives the gateway a file and has it look, or has it write it.
async fn give(gateway: &Gateway, text: &[u8], by_put: bool) -> Response {
    let mut call = request("POST", "/api/reload");
    if by_put {
        call = request("PUT", "/api/config");
        call.body = text.to_vec();
    } else {
        fs::write(gateway.config_path().with_extension("new"), text).unwrap();
        fs::rename(gateway.config_path().with_extension("new"), gateway.config_path()).unwrap();
    }
    crate::support::Client::to(gateway.admin()).send(&call).await
}

#[tokio::test]
async fn of_a_thousand_random_edits_the_valid_ones_are_taken_whole_and_no_others() {
    let seed = match std::env::var("RELOAD_SEED") {
        Ok(seed) => seed.parse().expect("RELOAD_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    eprintln!("RELOAD_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let gateway = Gateway::with_yaml(FILE).start().await;
    let mut client = gateway.client();
    let mut running = Running::new();
    let (mut applied, mut rejected, mut compared) = (0, 0, 0);
    for number in 0..EDITS {
        // One slip after the other; now and then somebody sees, and begins again with what is good.
        let base = if rng.bool() { FILE.as_bytes() } else { &running.text };
        let mut text = edit(&mut rng, base);
        if rng.u8(0..8) == 0 && !text.is_empty() {
            text = edit(&mut rng, &text);
        }
        let by_put = rng.u8(0..4) == 0;
        let before = fs::read(gateway.config_path()).unwrap();
        let fate = running.take(&text);
        let answer = give(&gateway, &text, by_put).await;
        let seen = format!(
            "RELOAD_SEED={seed}, edit {number}, {fate:?}: {answer:?}\n{}",
            String::from_utf8_lossy(&text)
        );
        let (status, outcome) = match fate {
            // The watch may have been first.
            Fate::Applied if !by_put && answer.json()["outcome"] == "unchanged" => (200, "unchanged"),
            Fate::Applied => (200, "applied"),
            Fate::Unchanged => (200, "unchanged"),
            Fate::RestartRequired => (409, "restart_required"),
            Fate::Rejected => (400, "rejected"),
        };
        let json = answer.json();
        assert_eq!((answer.status, &json["outcome"]), (status, &json!(outcome)), "{seen}");
        assert_eq!(json["version"], running.version, "{seen}");
        if by_put {
            let is_written = matches!(fate, Fate::Applied | Fate::Unchanged);
            let expected = if is_written { &text } else { &before };
            assert!(fs::read(gateway.config_path()).unwrap() == *expected, "{seen}");
        }
        let answer = client.send(&get("/version")).await;
        if let Some(expected) = running.answer() {
            assert_eq!((answer.status, answer.text().as_str()), expected, "{seen}");
            compared += 1;
        }
        applied += u32::from(fate == Fate::Applied);
        rejected += u32::from(fate == Fate::Rejected);
    }
    eprintln!("{applied} applied, {rejected} rejected, {compared} answers compared");
    assert!(
        applied > 100 && rejected > 200 && compared > 500,
        "the edits are no good"
    );
    let status = gateway.status().await;
    assert_eq!(status["config"]["version"], running.version);
}

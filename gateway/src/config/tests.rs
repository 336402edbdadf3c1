//! What is taken, and what is told of mistakes.

mod files;
pub(super) mod mistakes;
mod overrides;

use limiter_core::{Algorithm, OnFailure};

use super::*;

const FILE: &str = "f";

fn parsed(text: &str) -> Config {
    let config = parse_with(FILE, text, &|_| None).unwrap_or_else(|error| panic!("{error}\nin\n{text}"));
    assert!(
        text.len() > 10_000 || schema::tests::takes(text),
        "not by the schema:\n{text}"
    );
    config
}

fn told(text: &str) -> String {
    match parse_with(FILE, text, &|_| None) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn mistakes_are_told_with_their_place() {
    let mut wrong = Vec::new();
    for (what, text, expected) in mistakes::MISTAKES {
        let expected: Vec<_> = expected.lines().map(|line| format!("{FILE}:{line}")).collect();
        let told = told(text);
        if told != expected.join("\n") {
            wrong.push(format!(
                "{what}\n{text}told:     {told}\nexpected: {}",
                expected.join("\n")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn all_mistakes_are_told_at_once() {
    let told = told("listen: 80\nadmin: here\nroutes:\n  - path: x\nlimits:\n  - key: ip\n    rate: 5\n  - nmae: b\n");
    let places: Vec<_> = told.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    let expected = [
        "listen:",
        "admin:",
        "routes[0].upstream:",
        "routes[0].path:",
        "limits[0].name:",
        "limits[0].algorithm:",
        "limits[1].key:",
        "limits[1].algorithm:",
        "limits[1].nmae:",
    ];
    assert_eq!(places, expected, "{told}");
}

#[test]
fn a_caret_stands_under_the_place() {
    let error = parse_with("gateway.yaml", "server:\n  drain: 10\n", &|_| None).unwrap_err();
    let expected = "\
gateway.yaml:2:10: server.drain: 10 has no unit, expected a duration such as `10s`
 2 |   drain: 10
   |          ^^
";
    assert_eq!(error.render(false), expected);
    assert!(error.render(true).contains("\x1b[31m^^\x1b[0m"));
}

#[test]
fn no_secret_is_in_the_line_that_is_shown() {
    for (text, shown) in [
        (
            "store: {redis: {url: \"redis://gateway:p@s,w@127.0.0.1:6379/abc\"}}\n",
            "s,w",
        ),
        (
            "store:\n  redis:\n    url: redis://gateway:päss@127.0.0.1:6379/abc\n",
            "päss",
        ),
        ("admin: {address: 127.0.0.1:1, token: hunter2, tokn: 1}\n", "hunter2"),
        (
            "store: {redis: {url: \"redis://h\", key_secret: 'hunter2', x: 1}}\n",
            "hunter2",
        ),
    ] {
        let told = parse("gateway.yaml", text).unwrap_err().render(false);
        assert!(!told.contains(shown) && told.contains("***"), "{told}");
    }
}

#[test]
fn what_a_value_holds_cannot_take_the_terminal_over() {
    let long = format!(
        "limits: []\nlog: {{access: true, level: \"\\e[31m\\n{}\"}}\n",
        "x".repeat(10_000)
    );
    let error = parse("gateway.yaml", &long).unwrap_err();
    let shown = error.render(false);
    assert!(shown.starts_with("gateway.yaml:2:28: log.level:"), "{shown}");
    assert!(shown.contains("expected"), "{shown}");
    assert!(shown.len() < 1500 && shown.lines().count() == 3, "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn an_empty_mapping_has_the_defaults() {
    let config = parsed("{}");
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!(config.admin.address, "127.0.0.1:9090".parse().unwrap());
    assert_eq!(config.store, Store::Memory { max_keys: 1_000_000 });
    assert_eq!((config.client_ip.ipv4_prefix, config.client_ip.ipv6_prefix), (32, 64));
    assert!(config.responses.draft_11 && config.responses.legacy);
    assert_eq!(config.server.max_header_bytes, 32 * 1024);
    assert!(config.log.access);
}

#[test]
fn every_key_of_this_version_is_taken() {
    let config = parsed(
        r#"
listen: [127.0.0.1:8080, {address: "[::1]:8080", mode: proxy}]
admin: {address: 0.0.0.0:9090, token: s3cret}
store:
  redis: {url: "redis://user:pass@redis.internal:6380/2", timeout: 20ms, connections: 4, prefix: gw2, key_secret: k, on_failure: closed}
client_ip: {trusted_proxies: [10.0.0.0/8, "2001:db8::1"], header: forwarded, ipv4_prefix: 24, ipv6_prefix: 56}
upstreams:
  orders:
    endpoints: [http://10.0.0.1:8000, {url: "http://[::1]", weight: 2}]
    balance: round_robin
    protocol: http1
    connect_timeout: 2s
    timeout: 5s
    idle_timeout: 3s
    max_connections: 10
    adaptive_concurrency: {min: 5}
routes:
  - {name: orders, path: "/v1/orders/{id}", methods: [GET, POST], hosts: API.example.com, upstream: orders, timeout: 1s, priority: -3}
  - {path: /ping, respond: {status: 204, headers: {x-a: [b, c]}}}
limits:
  - name: user
    key: [header:X-User-Id, "cookie:session", "query:api_key"]
    on_missing_key: deny
    match: {path: [/v1/orders, "/v1/**"], methods: POST, hosts: a, headers: {x-b: c}, ip: 10.0.0.0/8, not: {methods: GET}}
    algorithm: token_bucket
    rate: 3/10s
    cost: 2
    mode: enforce
    precision: exact
    scope: cluster
    charge: allowed
    on_store_failure: open
  - {name: l, key: global, algorithm: leaky_bucket, rate: 5/m, delay: false}
  - {name: f, key: ip, algorithm: fixed_window, limit: 5, window: 1w, align: first_request, timezone: UTC}
  - {name: s, key: path, algorithm: sliding_window_log, limit: 5, window: 1m}
  - {name: c, key: route, algorithm: sliding_window_counter, limit: 5, window: 1m, buckets: 10}
responses: {ratelimit_headers: draft-11, legacy_reset: delta}
server: {header_timeout: 1s, idle_timeout: 1s, max_header_bytes: 64KiB, max_body_bytes: 0, max_connections: 9, drain: 0s, workers: 2}
log: {format: json, access: false, level: debug, output: stdout}
"#,
    );
    assert_eq!(config.listen.len(), 2);
    assert_eq!(
        config.upstreams[0].endpoints[1],
        Endpoint {
            host: "::1".into(),
            port: 80,
            weight: 2
        }
    );
    assert_eq!(
        config.upstreams[0].adaptive_concurrency,
        Some(AdaptiveConcurrency { min: 5, max: 1000 })
    );
    assert_eq!(config.routes[0].hosts, ["api.example.com"]);
    assert_eq!((config.routes[0].priority, config.routes[1].priority), (-3, 0));
    assert_eq!(&*config.routes[1].name, "/ping");
    let [user, leaky, fixed, ..] = &config.limits[..] else {
        panic!("{:?}", config.limits)
    };
    assert_eq!(user.policy.algorithm().limit(), 3, "the N of the rate as written");
    assert_eq!(
        (user.policy.on_failure(), fixed.policy.on_failure()),
        (OnFailure::Open, OnFailure::Closed)
    );
    assert_eq!(leaky.policy.algorithm().limit(), 1, "at least 1");
    assert!(matches!(fixed.policy.algorithm(), Algorithm::FixedWindow(_)));
    let secret: Vec<_> = user
        .key
        .iter()
        .map(|part| matches!(part, KeyPart::Query { secret: true, .. }))
        .collect();
    assert_eq!(secret, [false, false, true]);
    assert_eq!(
        user.key[0],
        KeyPart::Header {
            name: HeaderName::from_static("x-user-id"),
            secret: false
        }
    );
    assert_eq!(user.matches.not.as_ref().unwrap().methods, [Method::GET, Method::HEAD]);
    assert!(config.responses.draft_11 && !config.responses.legacy);
}

#[test]
fn json_is_yaml() {
    let config = parsed("{\"listen\": \"127.0.0.1:1\",\n\t\"server\": {\n\t\t\"drain\": \"5s\"\n\t}\n}\n");
    assert_eq!(config.server.drain, Duration::from_secs(5));
}

#[test]
fn anchors_aliases_and_merges_work() {
    let text = "
limits:
  - &base {name: a, key: &key header:x-user-id, algorithm: &alg fixed_window, limit: 5, window: 1m}
  - {<<: *base, name: b, limit: 6}
  - name: c
    <<: [{limit: 7}, *base]
  - {name: d, key: *key, algorithm: *alg, limit: 8, window: 1m}
";
    let limits: Vec<_> = parsed(text)
        .limits
        .iter()
        .map(|layer| layer.policy.algorithm().limit())
        .collect();
    assert_eq!(limits, [5, 6, 7, 8]);
    // What is merged is wrong where it is written, for each that merges it.
    let wrong = told(&text.replace("window: 1m}\n  - {<<", "window: 1}\n  - {<<"));
    let places: Vec<_> = wrong
        .lines()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let place = |layer| format!("f:3:97 limits[{layer}].window");
    assert_eq!(places, [place(0), place(1), place(2)], "{wrong}");
}

#[test]
fn variables_give_texts_and_numbers() {
    let lookup = |name: &str| (name == "LIMIT").then(|| "7".to_owned());
    let text = "
routes: [{path: /, respond: {body: 'costs $$5'}}]
limits: [{name: a, key: ip, algorithm: fixed_window, limit: \"${LIMIT}\", window: '${WINDOW:-1m}'}]
log: {access: \"${ACCESS:-false}\"}
";
    let config = parse_with(FILE, text, &lookup).unwrap();
    assert_eq!(config.limits[0].policy.algorithm().limit(), 7);
    assert!(!config.log.access);
    let Target::Respond(respond) = &config.routes[0].target else {
        panic!()
    };
    assert_eq!(respond.body, "costs $5");
}

#[test]
fn a_cost_of_0_checks_and_takes_nothing() {
    let text = "limits: [{name: a, key: ip, algorithm: token_bucket, rate: 5/s, cost: 0}]";
    assert_eq!(parsed(text).limits[0].cost, Cost::Fixed(0));
}

#[test]
fn costs_and_charges() {
    let layer = |keys: &str| {
        let text = format!("limits: [{{name: a, key: ip, algorithm: fixed_window, limit: 99, window: 1s, {keys}}}]");
        parsed(&text).limits.remove(0)
    };
    let header = |default, max| Cost::Header {
        name: HeaderName::from_static("x-cost"),
        default,
        max,
    };
    let response = |estimate| Cost::Response {
        name: HeaderName::from_static("x-cost"),
        estimate,
    };
    for (written, expected) in [
        ("header:X-Cost", header(1, None)),
        ("{header: x-cost}", header(1, None)),
        ("{header: x-cost, default: 0, max: 7}", header(0, Some(7))),
        ("{response_header: x-cost}", response(1)),
        ("{response_header: x-cost, estimate: 99}", response(99)),
    ] {
        let layer = layer(&format!("cost: {written}"));
        assert_eq!(layer.policy.gives_back(), matches!(expected, Cost::Response { .. }));
        assert_eq!(layer.cost, expected);
    }
    for written in ["401", "[401]", "\"401\""] {
        let layer = layer(&format!(
            "charge: {{status: {written}}}, candidate: {{algorithm: fixed_window, limit: 9, window: 1s}}"
        ));
        let codes: Vec<_> = layer.charged_statuses.iter().map(StatusCode::as_u16).collect();
        assert_eq!(codes, [401]);
        assert!(layer.policy.gives_back() && layer.candidate.unwrap().gives_back());
    }
    assert!(!layer("charge: all").policy.gives_back());
}

#[test]
fn secrets_are_not_repeated() {
    for text in [
        "store: {redis: {url: 'redis://:hunter2@host:port/0'}}",
        "store: {redis: {url: 'rediss://:hunter2@host/x'}}",
        "store: {redis: {url: 'http://:hunter2@host'}}",
        "admin: {address: 127.0.0.1:1, token: 'hunter2 '}",
        "upstreams: {a: {endpoints: 'http://u:hunter2@host'}}",
    ] {
        let told = told(text);
        assert!(!told.is_empty() && !told.contains("hunter2"), "{told}");
    }
}

#[test]
fn secrets_are_not_in_debug_output() {
    let text = "{admin: {address: 127.0.0.1:1, token: hunter2}, store: {redis: {url: 'redis://:hunter2@a', key_secret: hunter2}}}";
    let shown = format!("{:?}", parsed(text));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, of) in ["b", "c", "d", "e", "f", "g", "h"]
        .iter()
        .zip(["a", "b", "c", "d", "e", "f", "g"])
    {
        laughs.push_str(&format!(
            "{name}: &{name} [{}]\n",
            vec![format!("*{of}"); 10].join(", ")
        ));
    }
    assert!(
        told(&laughs).contains("too many values when aliases are followed"),
        "{}",
        told(&laughs)
    );

    let mut chain = "a0: &a0 [x]\n".to_owned();
    for n in 1..20_000 {
        chain.push_str(&format!("a{n}: &a{n} [*a{}]\n", n - 1));
    }
    assert!(told(&chain).contains("nested too deep"));
    assert!(told(&"[".repeat(100_000)).contains("nested too deep"));
    assert!(told(&"{a: ".repeat(100_000)).contains("nested too deep"));
    assert!(told(&"#".repeat(17 << 20)).contains("the file is too large"));
}

#[test]
fn a_file_that_is_cut_anywhere_never_panics_and_never_forgets_a_section() {
    let whole = include_str!("../../../gateway.yaml");
    for cut in (0..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
        let result = parse_with(FILE, &whole[..cut], &|_| None);
        if let Err(error) = result {
            let last = whole[..cut].lines().count().max(1);
            assert!(
                error
                    .problems()
                    .iter()
                    .all(|problem| problem.spot.is_none_or(|spot| spot.line <= last + 1))
            );
            assert!(!error.render(false).is_empty());
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_told_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let name = path.display().to_string();
    assert!(
        load(&path)
            .unwrap_err()
            .to_string()
            .starts_with(&format!("{name}: cannot be read: "))
    );
    std::fs::write(&path, b"listen: 127.0.0.1:1\nx: \xff\n").unwrap();
    assert_eq!(
        load(&path).unwrap_err().to_string(),
        format!("{name}: is not UTF-8, first at line 2")
    );
    std::fs::write(&path, "\u{feff}listen: 127.0.0.1:1\r\nadmin: 127.0.0.1:2\r\n").unwrap();
    assert_eq!(load(&path).unwrap().listen[0].port(), 1, "a byte order mark and CRLF");
}

#[test]
fn ipv4_in_ipv6_spelling_is_ipv4() {
    let text =
        "client_ip: {trusted_proxies: [\"::ffff:10.1.2.3/104\", \"::ffff:192.0.2.1\", \"::/0\", \"::ffff:0:0/90\"]}";
    let trusted = parsed(text).client_ip.trusted_proxies;
    let told: Vec<_> = trusted.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["10.0.0.0/8", "192.0.2.1/32", "::/0", "::ffc0:0:0/90"]);
}

#[test]
fn more_layers_than_a_decision_can_name_are_refused() {
    let told = told(&format!("limits: [{}]", "x, ".repeat(65_536)));
    let first = told.lines().next().unwrap();
    assert_eq!(first, "f:1:9: limits: 65536 layers, expected at most 65535");
}

#[test]
fn whole_days_weeks_and_months_are_those_of_a_calendar() {
    let calendar_of = |rest: &str| {
        let layer = format!("limits: [{{name: a, key: ip, algorithm: fixed_window, limit: 5, {rest}}}]");
        let config = parsed(&layer);
        let Algorithm::FixedWindow(window) = config.limits[0].policy.algorithm() else {
            panic!("{rest}")
        };
        window
            .calendar()
            .map(|calendar| (calendar.zone().name().to_owned(), calendar.nominal().as_secs() / 86_400))
    };
    let found = |zone: &str, days| Some((zone.to_owned(), days));
    assert_eq!(calendar_of("window: 1mo"), found("UTC", 31));
    assert_eq!(calendar_of("window: 1w"), found("UTC", 7));
    assert_eq!(calendar_of("window: 14d, timezone: UTC"), found("UTC", 14));
    assert_eq!(calendar_of("window: 24h, timezone: asia/tokyo"), found("Asia/Tokyo", 1));
    assert_eq!(
        calendar_of("window: 1mo, timezone: Asia/Tokyo"),
        found("Asia/Tokyo", 31)
    );
    // The same as multiples since the epoch.
    for plain in [
        "window: 1d",
        "window: 1000d, timezone: UTC",
        "window: 36h",
        "window: 1w, align: first_request",
    ] {
        assert_eq!(calendar_of(plain), None, "{plain}");
    }
}

#[test]
fn large_files_load() {
    let mut text = "upstreams: {a: {endpoints: http://127.0.0.1:1}}\nroutes:\n".to_owned();
    for n in 0..10_000 {
        text.push_str(&format!("  - {{path: \"/r{n}/{{id}}\", upstream: a}}\n"));
    }
    text.push_str("limits:\n");
    for n in 0..5_000 {
        text.push_str(&format!(
            "  - {{name: l{n}, key: ip, algorithm: token_bucket, rate: 5/s, match: {{path: /r{n}/*}}}}\n"
        ));
    }
    let config = parsed(&text);
    assert_eq!((config.routes.len(), config.limits.len()), (10_000, 5_000));
}

use super::super::{parse_with, render_warnings};

/// The warnings of a file, a line each, and the problems where it has some.
fn told(text: &str) -> String {
    match parse_with("f", text, &|_| None) {
        Ok(config) => {
            let lines: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
            lines.join("\n")
        }
        Err(error) => format!("error: {error}"),
    }
}

const ROUTES: &str = "\
upstreams: {u: {endpoints: http://127.0.0.1:8000}}
routes:
  - {path: '/v1/orders/{id}', methods: [GET, POST], hosts: [a.example], upstream: u}
  - {path: /v1/reports, methods: GET, hosts: [b.example], upstream: u}
  - {path: '/files/{*rest}', methods: GET, hosts: [a.example], upstream: u}
limits:
";

/// The warnings of a layer with this `match`.
fn matched(matches: &str) -> String {
    told(&format!(
        "{ROUTES}- {{name: a, key: ip, algorithm: token_bucket, rate: 5/s, match: {matches}}}\n"
    ))
}

#[test]
fn layers_that_no_route_leads_to() {
    for (matches, expected) in [
        ("{path: /v1/orders/7}", ""),
        ("{path: /v1/orders/*, methods: POST}", ""),
        ("{path: '/v1/**'}", ""),
        ("{path: '/**/7'}", ""),
        ("{path: '/*/reports'}", ""),
        ("{path: /v1/rep*}", ""),
        ("{path: /files/a/b/c}", ""),
        ("{path: /files/}", ""),
        ("{methods: [DELETE, POST]}", ""),
        ("{hosts: [B.example]}", ""),
        ("{ip: 10.0.0.0/8, headers: {x-a: b}}", ""),
        (
            "{path: /v1/orders}",
            "7:72: limits[0].match.path: no route has such a path: this has no effect",
        ),
        (
            "{path: ['/v1/orders/*', '/v1/ordres/*', '/files']}",
            "7:89: limits[0].match.path[1]: no route has such a path: this has no effect\n\
             7:105: limits[0].match.path[2]: no route has such a path: this has no effect",
        ),
        (
            "{path: '/v1/orders/*/x/**'}",
            "7:72: limits[0].match.path: no route has such a path: this has no effect",
        ),
        (
            "{path: '/**/x', hosts: b.example}",
            "7:65: limits[0].match: no route has such a path, method and host together: this has no effect",
        ),
        (
            "{methods: DELETE}",
            "7:75: limits[0].match.methods: no route takes any of these methods: this has no effect",
        ),
        (
            "{hosts: [a.example, c.example]}",
            "7:85: limits[0].match.hosts[1]: no route has this host: this has no effect",
        ),
        (
            "{path: /v1/reports, methods: POST}",
            "7:65: limits[0].match: no route has such a path, method and host together: this has no effect",
        ),
    ] {
        assert_eq!(matched(matches), expected, "{matches}");
    }
}

#[test]
fn a_search_that_takes_too_long_is_given_up() {
    let layer = "limits: {name: a, key: ip, algorithm: token_bucket, rate: 5/s, match: {path: '/**/x/**/y/**/z'}}\n";
    let routes = (0..2_000).map(|n| format!("- {{path: '/{n}{}', respond: {{}}}}\n", "/x/y".repeat(20)));
    let wide = format!("routes:\n{}{layer}", routes.collect::<String>());
    assert_eq!(told(&wide), "");
}

#[test]
fn a_layer_that_leaves_out_all_that_it_takes_is_wrong() {
    let never = "leaves out all that `match` takes: the layer never applies, expected less";
    for matches in [
        "{path: /v1/reports, not: {path: /v1/reports}}",
        "{path: '/v1/*', methods: GET, not: {path: '/v1/**'}}",
        "{ip: [10.1.0.0/16], headers: {x-a: b}, not: {ip: 10.0.0.0/8}}",
        "{methods: [GET], not: {methods: [POST, GET]}}",
        "{not: {path: '/**'}}",
        "{methods: [GET], not: {ip: [0.0.0.0/0, '::/0']}}",
    ] {
        let told = matched(matches);
        assert!(
            told.starts_with("error: ") && told.ends_with(never),
            "{matches}: {told}"
        );
    }
    for matches in [
        "{path: '/v1/**', not: {path: /v1/reports}}",
        "{path: /v1/reports, not: {path: /v1/reports, methods: POST}}",
        "{path: /v1/reports, not: {path: /v1/reports, not: {methods: POST}}}",
        "{ip: [10.0.0.0/8], not: {ip: 10.1.0.0/16}}",
        "{headers: {x-a: b}, not: {headers: {x-a: c}}}",
        "{not: {methods: GET}}",
    ] {
        assert_eq!(matched(matches), "", "{matches}");
    }
}

#[test]
fn quotas() {
    for (quota, expected) in [
        ("algorithm: token_bucket, rate: 100/s", ""),
        ("algorithm: token_bucket, rate: 5/h", ""),
        ("algorithm: token_bucket, rate: 5/h, warm_up: 12m", ""),
        (
            "algorithm: token_bucket, rate: 5/h, warm_up: 11m",
            "warm_up: is less than the time of a token: ",
        ),
        (
            "algorithm: token_bucket, rate: 100/s, burst: 99",
            "burst: 99 pass at once, but 100 in a second: ",
        ),
        (
            "algorithm: token_bucket, rate: 100/500ms",
            "rate: 100 pass at once, but 200 in a second: ",
        ),
        ("algorithm: sliding_window_log, limit: 10000, window: 1m", ""),
        (
            "algorithm: sliding_window_log, limit: 10001, window: 1m",
            "limit: the times of up to 10001 requests are kept",
        ),
        ("algorithm: sliding_window_counter, limit: 10001, window: 1m", ""),
    ] {
        let told = told(&format!("limits: {{name: a, key: ip, {quota}}}\n"));
        let told = told.split_once("limits.").map_or(told.as_str(), |(_, told)| told);
        assert!(
            told.starts_with(expected) && told.is_empty() == expected.is_empty(),
            "{quota}: {told}"
        );
    }
}

#[test]
fn trust_in_everybody() {
    let everybody = "is everybody: any client can name the address that it is counted by";
    assert_eq!(told("client_ip: {trusted_proxies: [10.0.0.0/8, 128.0.0.0/1]}"), "");
    assert_eq!(
        told("client_ip: {trusted_proxies: [10.0.0.0/8, '::/0', 0.0.0.0/0]}"),
        format!(
            "1:43: client_ip.trusted_proxies[1]: `::/0` {everybody}\n\
             1:51: client_ip.trusted_proxies[2]: `0.0.0.0/0` {everybody}"
        )
    );
}

#[test]
fn costs_that_are_taken_and_never_fit() {
    let layer = |max| {
        told(&format!(
            "limits: {{name: a, key: ip, algorithm: fixed_window, limit: 5, window: 1s, cost: {{header: x, max: {max}}}}}\n"
        ))
    };
    assert_eq!(layer(5), "");
    let expected = "1:98: limits.cost.max: only 5 pass at once: a request that costs more, up to 6, is always refused";
    assert_eq!(layer(6), expected);
}

#[test]
fn nothing_limited_without_redis() {
    let with = |store: &str, layer: &str| {
        told(&format!(
            "store: {{redis: {{url: redis://127.0.0.1{store}}}}}\n\
             limits:\n- {{name: a, key: ip, algorithm: token_bucket, rate: 1/s, on_store_failure: open}}\n\
             - {{name: b, key: ip, algorithm: token_bucket, rate: 1/s{layer}}}\n"
        ))
    };
    let open = "every layer is `open`: nothing is limited while Redis cannot answer";
    assert_eq!(
        with(", on_failure: open", ""),
        format!("1:53: store.redis.on_failure: {open}")
    );
    assert_eq!(
        with("", ", on_store_failure: open"),
        format!("1:16: store.redis: {open}")
    );
    assert_eq!(with(", on_failure: open", ", on_store_failure: local"), "");
    assert_eq!(
        with(", on_failure: open", ", scope: instance"),
        "",
        "one is counted here"
    );
    assert_eq!(
        with("", ", scope: instance, on_store_failure: open"),
        "4:93: limits[1].on_store_failure: the layer is counted in memory, whatever the store does: this has no effect"
    );
    assert_eq!(with("", ""), "");
}

#[test]
fn files_that_are_shipped_have_none() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway.yaml");
    assert_eq!(told(&std::fs::read_to_string(file).unwrap()), "");
}

#[test]
fn a_warning_says_that_it_is_one() {
    let text = "client_ip:\n  trusted_proxies: ::/0\n";
    let warnings = parse_with("gateway.yaml", text, &|_| None).unwrap().warnings;
    let expected = "\
gateway.yaml:2:20: warning: client_ip.trusted_proxies: `::/0` is everybody: any client can name the address that it is \
counted by
 2 |   trusted_proxies: ::/0
   |                    ^^^^
";
    assert_eq!(render_warnings("gateway.yaml", text, &warnings, false), expected);
    assert!(render_warnings("gateway.yaml", text, &warnings, true).contains("\x1b[33m^^^^\x1b[0m"));
}

#[test]
fn queues_that_take_in_less_than_they_say() {
    let queue = |more: &str| {
        told(&format!(
            "limits: {{name: a, key: ip, algorithm: leaky_bucket, rate: 10/s, {more}}}\n"
        ))
    };
    assert_eq!(queue("capacity: 101"), "");
    assert_eq!(
        queue("capacity: 102"),
        "1:75: limits.capacity: only 101 of a capacity of 102 have a turn within `max_delay`: the others are refused"
    );
    assert_eq!(
        queue("capacity: 50, max_delay: 2s"),
        "1:90: limits.max_delay: only 21 of a capacity of 50 have a turn within `max_delay`: the others are refused"
    );
    assert_eq!(
        queue("delay: false, max_delay: 2s"),
        "1:90: limits.max_delay: nothing waits with `delay: false`: this has no effect"
    );
}

#[test]
fn priorities_that_order_nothing() {
    let upstreams = "upstreams: {u: {endpoints: http://127.0.0.1:1}, v: {endpoints: http://127.0.0.1:2, \
                     adaptive_concurrency: {}}}\n";
    let routes = "routes: [{path: /u, upstream: u, priority: 1}, {path: /v, upstream: v, priority: 2}, {path: /w, \
                  upstream: u}]\n";
    let message = "orders who is shed, and nothing of this route is, without `adaptive_concurrency` of its upstream: this \
                   has no effect";
    assert_eq!(
        told(&format!("{upstreams}{routes}")),
        format!("2:44: routes[0].priority: {message}")
    );
    let degraded = "responses: {rejection: {upstream: v}}\n";
    assert_eq!(told(&format!("{upstreams}{routes}{degraded}")), "");
}

#[test]
fn bans_that_nobody_gets_or_that_one_client_brings_on_all() {
    let ban = |key: &str| {
        told(&format!(
            "limits: [{{name: a, key: {key}, algorithm: token_bucket, rate: 5/s, ban: {{after: 1, within: 1s, for: 1s}}}}]\n"
        ))
    };
    let doubtful = "limits[0].ban: clients share this key: one that is refused too often shuts all of them out";
    for key in ["global", "[route, method]", "host"] {
        assert!(ban(key).ends_with(doubtful), "{key}: {}", ban(key));
    }
    for key in ["ip", "[global, ip]", "path", "'header:x-user-id'"] {
        assert_eq!(ban(key), "", "{key}");
    }
    let shadow = ban("ip, mode: shadow");
    assert!(
        shadow.ends_with("limits[0].ban: a shadow refuses nothing, so it bans nobody: this has no effect"),
        "{shadow}"
    );
}

#[test]
fn leases_that_gain_nothing() {
    let layer = |store: &str, more: &str| {
        told(&format!(
            "store: {store}\nlimits: [{{name: a, key: ip, algorithm: fixed_window, window: 1m, precision: leased, {more}}}]\n"
        ))
    };
    let redis = "{redis: {url: redis://127.0.0.1}}";
    assert_eq!(layer(redis, "limit: 200"), "");
    assert_eq!(layer(redis, "limit: 5, lease: {size: 2}"), "");
    assert_eq!(
        layer(redis, "limit: 150"),
        "2:77: limits[0].precision: a lot is one unit of the 150 that pass at once, and nothing is gained: expected a `size` of \
         at least 2 in `lease`, or `exact`"
    );
    assert_eq!(
        layer("memory", "limit: 200"),
        "2:77: limits[0].precision: the store is this gateway's own memory, which costs no call: this has no effect"
    );
}

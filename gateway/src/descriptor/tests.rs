use std::time::Duration;

use http::{HeaderName, HeaderValue};
use limiter_core::{OnFailure, Rate, Role, algorithm::TokenBucket};

use super::*;
use crate::{
    config::{ForwardingHeader, KeyPattern, KeyValue, Match, Override, Terms},
    path::Glob,
};

/// A request to describe, and what it is made of.
struct Request {
    method: Method,
    host: &'static str,
    path: &'static str,
    query: Option<&'static str>,
    headers: HeaderMap,
    client: &'static str,
}

fn get(path: &'static str) -> Request {
    Request {
        method: Method::GET,
        host: "a.example",
        path,
        query: None,
        headers: HeaderMap::new(),
        client: "203.0.113.7",
    }
}

impl Request {
    fn header(mut self, name: &'static str, value: &[u8]) -> Self {
        self.headers.append(name, HeaderValue::from_bytes(value).unwrap());
        self
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            method: &self.method,
            host: self.host,
            path: self.path,
            query: self.query,
            headers: &self.headers,
            client: self.client.parse().unwrap(),
            route: "orders",
        }
    }
}

fn layer(key: Vec<KeyPart>) -> config::Layer {
    let rate = Rate {
        units: 10,
        per: Duration::from_secs(1),
    };
    config::Layer {
        candidate: None,
        policy: Arc::new(Policy::new(
            "test",
            TokenBucket::new(rate, 10).unwrap(),
            OnFailure::Local,
        )),
        key,
        on_missing_key: OnMissingKey::Ip,
        matches: Match::default(),
        cost: config::Cost::Fixed(1),
        charged_statuses: Vec::new(),
        rejection: None,
        overrides: Vec::new(),
        ban: None,
    }
}

fn matching(matches: Match) -> config::Layer {
    config::Layer {
        candidate: None,
        matches,
        ..layer(vec![KeyPart::Global])
    }
}

fn user() -> KeyPart {
    KeyPart::Header {
        name: HeaderName::from_static("x-user-id"),
        secret: false,
    }
}

fn build(layers: &[config::Layer]) -> Layers {
    let client_ip = config::ClientIp {
        trusted_proxies: Vec::new(),
        header: ForwardingHeader::XForwardedFor,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
    };
    Layers::new(layers, &client_ip, None)
}

fn keys(layers: &[config::Layer], request: &Request) -> Result<Vec<(usize, String)>, KeyError> {
    let mut descriptor = Descriptor::default();
    build(layers).describe(&request.facts(), &mut descriptor)?;
    let applied = descriptor.applied().iter();
    Ok(applied
        .map(|applied| (applied.layer.index(), applied.key.as_str().to_owned()))
        .collect())
}

fn key(parts: Vec<KeyPart>, request: &Request) -> String {
    let keys = keys(&[layer(parts)], request).unwrap();
    assert_eq!(keys.len(), 1);
    keys[0].1.clone()
}

fn applies(matches: Match, request: &Request) -> bool {
    !keys(&[matching(matches)], request).unwrap().is_empty()
}

#[test]
fn each_part() {
    let mut request = get("/v1/orders")
        .header("x-user-id", b" alice ")
        .header("cookie", b"a=1; sid=x");
    request.query = Some("q=%41b");
    let query = KeyPart::Query {
        name: "q".to_owned(),
        secret: false,
    };
    assert_eq!(key(vec![KeyPart::Global], &request), "*");
    assert_eq!(key(vec![KeyPart::Ip], &request), "203.0.113.7");
    assert_eq!(key(vec![KeyPart::Path], &request), "/v1/orders");
    assert_eq!(key(vec![KeyPart::Route], &request), "orders");
    assert_eq!(key(vec![KeyPart::Method], &request), "GET");
    assert_eq!(key(vec![KeyPart::Host], &request), "a.example");
    assert_eq!(key(vec![user()], &request), "alice");
    assert_eq!(key(vec![query], &request), "Ab");
    assert_eq!(
        key(vec![KeyPart::Route, user(), KeyPart::Ip], &request),
        "orders|alice|203.0.113.7"
    );
}

#[test]
fn ipv6_clients_are_counted_by_network() {
    let client = |client| Request { client, ..get("/") };
    assert_eq!(key(vec![KeyPart::Ip], &client("2001:db8:1:2::7")), "2001:db8:1:2::/64");
    assert_eq!(key(vec![user()], &client("2001:db8:1:2::7")), "~ip:2001:db8:1:2::/64");
}

#[test]
fn secrets_are_hashed() {
    let secret = KeyPart::Header {
        name: HeaderName::from_static("x-api-key"),
        secret: true,
    };
    let request = get("/")
        .header("x-api-key", b"hunter2")
        .header("cookie", b"sid=hunter2");
    let hashed = key(vec![secret], &request);
    assert!(hashed.starts_with('#') && hashed.len() == 33, "{hashed}");
    assert_eq!(key(vec![KeyPart::Cookie("sid".to_owned())], &request), hashed);
}

#[test]
fn values_are_bytes() {
    let of = |value: &[u8]| key(vec![user()], &get("/").header("x-user-id", value));
    assert_ne!(of(b"\xff"), of(b"\xfe"));
    assert_ne!(of(b"\xff"), of("\u{fffd}".as_bytes()));
    assert_ne!(of(b"Alice"), of(b"alice"));
}

#[test]
fn a_missing_value_is_the_address_in_its_own_name_space() {
    for request in [
        get("/"),
        get("/").header("x-user-id", b""),
        get("/").header("x-user-id", b"  \t"),
    ] {
        assert_eq!(key(vec![user()], &request), "~ip:203.0.113.7");
        assert_eq!(key(vec![KeyPart::Route, user()], &request), "orders|~ip:203.0.113.7");
    }
    let claimed = get("/").header("x-user-id", b"~ip:203.0.113.7");
    assert_ne!(key(vec![user()], &claimed), "~ip:203.0.113.7");
}

#[test]
fn a_missing_value_skips_or_denies() {
    let missing = |on_missing_key| {
        let layer = config::Layer {
            on_missing_key,
            ..layer(vec![KeyPart::Route, user()])
        };
        [
            self::layer(vec![KeyPart::Global]),
            layer,
            self::layer(vec![KeyPart::Ip]),
        ]
    };
    let skipped = keys(&missing(OnMissingKey::Skip), &get("/")).unwrap();
    assert_eq!(skipped, [(0, "*".to_owned()), (2, "203.0.113.7".to_owned())]);
    assert_eq!(
        keys(&missing(OnMissingKey::Deny), &get("/")),
        Err(KeyError::Missing { layer: 1 })
    );
    let mut descriptor = Descriptor::default();
    build(&missing(OnMissingKey::Skip))
        .describe(&get("/").facts(), &mut descriptor)
        .unwrap();
    assert_eq!(descriptor.skipped(), [1]);
    let present = get("/").header("x-user-id", b"alice");
    build(&missing(OnMissingKey::Skip))
        .describe(&present.facts(), &mut descriptor)
        .unwrap();
    assert!(descriptor.skipped().is_empty());
    assert_eq!(keys(&missing(OnMissingKey::Deny), &present).unwrap().len(), 3);
}

#[test]
fn a_repeated_header_is_refused_only_where_it_is_counted_by() {
    let request = get("/").header("x-user-id", b"a").header("x-user-id", b"b");
    assert_eq!(
        keys(&[layer(vec![KeyPart::Ip]), layer(vec![user()])], &request),
        Err(KeyError::Repeated { layer: 1 })
    );
    let elsewhere = config::Layer {
        matches: Match {
            paths: vec![Glob::new("/elsewhere").unwrap()],
            ..Match::default()
        },
        ..layer(vec![user()])
    };
    assert_eq!(keys(&[elsewhere], &request), Ok(Vec::new()));
}

#[test]
fn preflights_meet_only_layers_that_need_nothing_of_them() {
    let layers = [
        layer(vec![KeyPart::Ip]),
        layer(vec![KeyPart::Ip, user()]),
        layer(vec![KeyPart::Cookie("sid".to_owned())]),
        layer(vec![KeyPart::Global]),
    ];
    let mut request = get("/").header("access-control-request-method", b"POST");
    let met = |request: &Request| {
        keys(&layers, request)
            .unwrap()
            .iter()
            .map(|(layer, _)| *layer)
            .collect::<Vec<_>>()
    };
    assert_eq!(met(&request), [0, 1, 2, 3], "not OPTIONS");
    request.method = Method::OPTIONS;
    assert_eq!(met(&request), [0, 3]);
    request.headers.clear();
    assert_eq!(met(&request), [0, 1, 2, 3], "an OPTIONS of its own");
}

#[test]
fn conditions() {
    let request = get("/v1/orders").header("x-tier", b"free").header("x-tier", b"gold");
    let gold = (HeaderName::from_static("x-tier"), HeaderValue::from_static("gold"));
    let red = (HeaderName::from_static("x-tier"), HeaderValue::from_static("red"));
    let paths = |paths: &[&str]| Match {
        paths: paths.iter().map(|path| Glob::new(path).unwrap()).collect(),
        ..Match::default()
    };
    assert!(applies(Match::default(), &request));
    assert!(applies(paths(&["/x", "/v1/orders/**"]), &request));
    assert!(!applies(paths(&["/x"]), &request));
    let methods = |methods: &[Method]| Match {
        methods: methods.to_vec(),
        ..paths(&["/v1/**"])
    };
    assert!(applies(methods(&[Method::POST, Method::GET]), &request));
    assert!(!applies(methods(&[Method::POST]), &request), "all conditions must hold");
    let hosts = |host: &str| Match {
        hosts: vec![host.to_owned()],
        ..Match::default()
    };
    assert!(applies(hosts("a.example"), &request));
    assert!(!applies(hosts("b.example"), &request));
    let headers = |headers: Vec<_>| Match {
        headers,
        ..Match::default()
    };
    assert!(applies(headers(vec![gold.clone()]), &request));
    assert!(!applies(headers(vec![gold, red]), &request));
    let ips = |net: &str| Match {
        ips: vec![net.parse().unwrap()],
        ..Match::default()
    };
    assert!(applies(ips("203.0.113.0/24"), &request));
    assert!(!applies(ips("198.51.100.0/24"), &request));
}

#[test]
fn not_is_the_opposite_of_a_match() {
    let not = |not: Match| Match {
        paths: vec![Glob::new("/v1/**").unwrap()],
        not: Some(Box::new(not)),
        ..Match::default()
    };
    let get_orders = || Match {
        paths: vec![Glob::new("/v1/orders").unwrap()],
        methods: vec![Method::GET],
        ..Match::default()
    };
    assert!(!applies(not(get_orders()), &get("/v1/orders")));
    assert!(applies(not(get_orders()), &get("/v1/users")));
    let mut post = get("/v1/orders");
    post.method = Method::POST;
    assert!(
        applies(not(get_orders()), &post),
        "only what `not` matches as a whole is left out"
    );
    assert!(!applies(not(get_orders()), &get("/v2")));
}

#[test]
fn a_descriptor_keeps_nothing_of_the_request_before() {
    let layers = build(&[
        layer(vec![user()]),
        layer(vec![KeyPart::Path]),
        layer(vec![KeyPart::Ip]),
    ]);
    let mut descriptor = Descriptor::default();
    let first = get("/a-rather-long-path").header("x-user-id", b"somebody");
    layers.describe(&first.facts(), &mut descriptor).unwrap();
    let second = Request {
        client: "198.51.100.1",
        ..get("/")
    };
    layers.describe(&second.facts(), &mut descriptor).unwrap();
    let keys: Vec<_> = descriptor
        .applied()
        .iter()
        .map(|applied| applied.key.as_str())
        .collect();
    assert_eq!(keys, ["~ip:198.51.100.1", "/", "198.51.100.1"]);

    let repeated = get("/").header("x-user-id", b"a").header("x-user-id", b"b");
    layers.describe(&repeated.facts(), &mut descriptor).unwrap_err();
    assert!(descriptor.applied().is_empty());
    assert!(!format!("{descriptor:?}").contains("somebody"));
}

#[test]
fn a_header_that_says_no_cost_refuses_the_request_but_not_for_a_shadow() {
    let enforced = config::Layer {
        cost: config::Cost::Header {
            name: HeaderName::from_static("x-cost"),
            default: 2,
            max: Some(9),
        },
        ..layer(vec![KeyPart::Global])
    };
    let policy = Policy::clone(&enforced.policy).with_role(Role::Shadow);
    let shadow = config::Layer {
        policy: Arc::new(policy),
        ..enforced.clone()
    };
    let (enforced, shadow) = (build(&[layer(vec![KeyPart::Global]), enforced]), build(&[shadow]));
    let mut descriptor = Descriptor::default();
    for (value, expected) in [
        ("9", Ok(9)),
        ("10", Err(CostProblem::AboveMax(9))),
        ("-1", Err(CostProblem::Negative)),
        ("1.0", Err(CostProblem::Unreadable)),
    ] {
        let request = get("/").header("x-cost", value.as_bytes());
        let described = enforced.describe(&request.facts(), &mut descriptor);
        let cost = described.map(|()| descriptor.applied()[1].cost);
        assert_eq!(cost, expected.map_err(|problem| KeyError::Cost { layer: 1, problem }));
        shadow.describe(&request.facts(), &mut descriptor).unwrap();
        assert_eq!(descriptor.skipped().len(), usize::from(expected.is_err()));
        assert_eq!(descriptor.applied().len(), usize::from(expected.is_ok()));
    }
    assert_eq!(enforced.cost_header(1).unwrap(), "x-cost");
    assert!(enforced.cost_header(0).is_none());
}

#[test]
fn costs_are_those_of_the_layers() {
    let layers = [
        layer(vec![KeyPart::Global]),
        config::Layer {
            candidate: None,
            cost: config::Cost::Fixed(7),
            ..layer(vec![KeyPart::Ip])
        },
    ];
    let mut descriptor = Descriptor::default();
    build(&layers).describe(&get("/").facts(), &mut descriptor).unwrap();
    assert_eq!(
        descriptor
            .applied()
            .iter()
            .map(|applied| applied.cost)
            .collect::<Vec<_>>(),
        [1, 7]
    );
}

/// A layer by `key` with an override for each of `overrides`; those with a number have that limit.
fn with_overrides(key: KeyPart, overrides: Vec<(KeyPattern, Option<u64>)>) -> config::Layer {
    let mut layer = layer(vec![key]);
    let terms = |limit: Option<u64>| {
        let Some(limit) = limit else { return Terms::Denied };
        let rate = Rate {
            units: limit,
            per: Duration::from_secs(1),
        };
        let policy = layer.policy.with_algorithm(TokenBucket::new(rate, limit).unwrap());
        if limit == 99 {
            Terms::Unlimited
        } else {
            Terms::Policy(Arc::new(policy))
        }
    };
    layer.overrides = (overrides.into_iter())
        .map(|(keys, limit)| Override {
            keys,
            terms: terms(limit),
        })
        .collect();
    layer
}

/// The limit that a request of `client` with this user meets: 99 where it is skipped, `None` where it is refused.
fn limit_met(layers: &Layers, user: &str, client: &'static str) -> Option<u64> {
    let mut request = get("/").header("x-user-id", user.as_bytes());
    request.client = client;
    let mut descriptor = Descriptor::default();
    match layers.describe(&request.facts(), &mut descriptor) {
        Err(error) => {
            assert_eq!(error, KeyError::Denied { layer: 0 });
            None
        }
        Ok(()) => match descriptor.applied() {
            [] => {
                assert_eq!(descriptor.skipped(), [0]);
                Some(99)
            }
            [applied] => {
                let policy = layers.policy(applied.layer);
                assert_eq!((&**policy.name(), applied.layer.index()), ("test", 0));
                Some(policy.algorithm().limit())
            }
            more => panic!("{more:?}"),
        },
    }
}

fn exact(value: &str) -> KeyPattern {
    KeyPattern::Exact(vec![KeyValue::Value(value.into())])
}

fn beginning(value: &str) -> KeyPattern {
    KeyPattern::Prefix(Vec::new(), KeyValue::Value(value.into()))
}

#[test]
fn overrides_by_value() {
    let layers = build(&[with_overrides(
        user(),
        vec![
            (beginning("p"), Some(20)),
            (exact("partner"), Some(30)),
            (exact("partner"), Some(40)),
            (beginning("part"), Some(99)),
            (beginning("abuser-"), None),
            (exact("a|b"), Some(50)),
            (
                KeyPattern::Exact(vec![KeyValue::Printed("~ip:203.0.113.9".to_owned())]),
                Some(60),
            ),
        ],
    )]);
    for (user, expected) in [
        ("alice", Some(10)),
        ("p", Some(20)),
        ("pa", Some(20)),
        ("partner", Some(30)),
        ("partner2", Some(99)),
        ("part", Some(99)),
        ("abuser-3", None),
        ("abuser", Some(10)),
        ("a|b", Some(50)),
        ("~ip:203.0.113.9", Some(10)),
        ("Partner", Some(10)),
    ] {
        assert_eq!(limit_met(&layers, user, "203.0.113.7"), expected, "{user}");
    }
    assert_eq!(limit_met(&layers, "", "203.0.113.9"), Some(60), "a missing key");
    assert_eq!(limit_met(&layers, "", "203.0.113.8"), Some(10));
}

#[test]
fn overrides_of_secret_and_long_values_meet_their_hashes() {
    let key = KeyPart::Header {
        name: HeaderName::from_static("x-user-id"),
        secret: true,
    };
    let secret = KeyPattern::Exact(vec![KeyValue::Secret(b"s3cret".to_vec())]);
    let layers = build(&[with_overrides(key, vec![(secret, Some(20))])]);
    assert_eq!(limit_met(&layers, "s3cret", "203.0.113.7"), Some(20));
    assert_eq!(limit_met(&layers, "secret", "203.0.113.7"), Some(10));
    let long = "long".repeat(20);
    let layers = build(&[with_overrides(
        user(),
        vec![(exact(&long), Some(20)), (beginning("long"), Some(30))],
    )]);
    assert_eq!(limit_met(&layers, &long, "203.0.113.7"), Some(20));
    assert_eq!(
        limit_met(&layers, &format!("{long}er"), "203.0.113.7"),
        Some(10),
        "hashed"
    );
}

#[test]
fn overrides_by_address() {
    let network = |text: &str| KeyPattern::Network(text.parse().unwrap());
    let layers = build(&[with_overrides(
        KeyPart::Ip,
        vec![
            (network("10.0.0.0/8"), Some(20)),
            (network("10.1.0.0/16"), Some(30)),
            (beginning("10.1.1."), Some(40)),
            (exact("10.1.1.1"), Some(50)),
            (network("2001:db8::/32"), None),
        ],
    )]);
    for (client, expected) in [
        ("11.0.0.1", Some(10)),
        ("10.2.0.1", Some(20)),
        ("10.1.0.1", Some(30)),
        ("10.1.1.2", Some(40)),
        ("10.1.1.1", Some(50)),
        ("::ffff:10.2.0.1", Some(20)),
        ("2001:db8:1::1", None),
        ("2001:db9::1", Some(10)),
    ] {
        assert_eq!(limit_met(&layers, "x", client), expected, "{client}");
    }
}

#[test]
fn equal_parameters_are_one_policy_and_no_layer_shares_those_of_another() {
    let mut first = with_overrides(user(), vec![(exact("a"), Some(20)), (exact("b"), Some(30))]);
    let again = first.overrides[0].terms.clone();
    first.overrides.push(Override {
        keys: exact("c"),
        terms: again,
    });
    let second = with_overrides(user(), vec![(exact("a"), Some(40))]);
    let layers = build(&[first, second]);
    let met = |user: &str| {
        let request = get("/").header("x-user-id", user.as_bytes());
        let mut descriptor = Descriptor::default();
        layers.describe(&request.facts(), &mut descriptor).unwrap();
        let applied = descriptor.applied().iter();
        applied
            .map(|applied| Arc::clone(layers.policy(applied.layer)))
            .collect::<Vec<_>>()
    };
    let limits = |user| {
        met(user)
            .iter()
            .map(|policy| policy.algorithm().limit())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (limits("a"), limits("b"), limits("c")),
        (vec![20, 40], vec![30, 10], vec![20, 10])
    );
    assert!(Arc::ptr_eq(&met("a")[0], &met("c")[0]));
    assert!(Arc::ptr_eq(&met("b")[1], &met("c")[1]));
}

#[test]
fn claims_of_verified_tokens() {
    let believing = |text: &str| {
        let keys = Arc::new(jwt::Keys::parse(text.as_bytes()).unwrap());
        let settings = jwt::Settings {
            keys: jwt::KeysAt::File(Arc::clone(&keys)),
            issuers: Vec::new(),
            audiences: Vec::new(),
        };
        let claim = |name: &str| KeyPart::Jwt {
            claim: name.to_owned(),
            secret: name == "token",
        };
        let mut skipping = layer(vec![claim("role")]);
        skipping.on_missing_key = OnMissingKey::Skip;
        let layers = [
            layer(vec![claim("sub"), KeyPart::Method]),
            skipping,
            layer(vec![claim("token")]),
        ];
        build(&layers).believing(
            &settings,
            jwt::Source::fixed(keys),
            Arc::new(limiter_core::MonotonicClock::new()),
        )
    };
    // Keys `secret` and `another`.
    let layers = believing(r#"{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}"#);
    let others = believing(r#"{"keys": [{"kty": "oct", "k": "YW5vdGhlcg"}]}"#);
    let claims = serde_json::json!({"sub": "alice", "role": "admin", "token": "t"});
    let signer = jsonwebtoken::EncodingKey::from_secret(b"secret");
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &signer).unwrap();
    let request = || get("/").header("authorization", format!("Bearer {token}").as_bytes());
    let mut descriptor = Descriptor::default();
    let mut keys = |layers: &Layers, request: &Request| {
        layers.describe(&request.facts(), &mut descriptor)?;
        let applied = descriptor.applied().iter();
        Ok(applied
            .map(|applied| applied.key.as_str().to_owned())
            .collect::<Vec<_>>())
    };
    let missing = || Ok(vec!["~ip:203.0.113.7|GET".to_owned(), "~ip:203.0.113.7".to_owned()]);
    for _ in 0..2 {
        let found = keys(&layers, &request()).unwrap();
        assert_eq!(found[..2], ["alice|GET", "admin"]);
        assert!(found[2].starts_with('#') && found[2].len() == 33, "{found:?}");
        assert_eq!(keys(&others, &request()), missing(), "by other keys it is none");
        assert_eq!(keys(&layers, &get("/")), missing(), "the token of the request before");
    }
    let repeated = request().header("authorization", b"Basic x");
    assert_eq!(keys(&layers, &repeated), Err(KeyError::Repeated { layer: 0 }));
    let mut preflight = request().header("access-control-request-method", b"GET");
    preflight.method = Method::OPTIONS;
    assert_eq!(keys(&layers, &preflight), Ok(Vec::new()));
}

#[test]
fn a_counter_is_told_its_policy_by_its_name() {
    let mut own = with_overrides(
        user(),
        vec![
            (exact("gold"), Some(20)),
            (beginning("g"), Some(30)),
            (exact("free"), Some(99)),
        ],
    );
    let rate = Rate {
        units: 5,
        per: Duration::from_secs(1),
    };
    own.candidate = Some(Arc::new(own.policy.candidate(TokenBucket::new(rate, 5).unwrap())));
    let candidate = own.candidate.as_ref().unwrap().key_prefix().to_owned();
    let prefix = own.policy.key_prefix().to_owned();
    let layers = build(&[own]);
    let limit = |prefix: &str, key: &str| Some(layers.policy_of(prefix, key)?.algorithm().limit());
    for (key, expected) in [("gold", 20), ("golden", 30), ("free", 10), ("alice", 10)] {
        assert_eq!(limit(&prefix, key), Some(expected), "{key}");
    }
    assert_eq!(limit(&candidate, "gold"), Some(5));
    assert_eq!(limit("other:tb:", "gold"), None);
}

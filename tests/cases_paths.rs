//! One spelling of a path for matching, counting and forwarding.

use crate::support::{Gateway, H2Client, Origin, Raw, Redis, Settings, get};

fn login_limited(origin: &Origin) -> Settings {
    Settings::forwarding_to(origin)
        .limit("{name: login, key: ip, match: {path: /login}, algorithm: sliding_window_log, limit: 3, window: 60s}")
}

/// Spellings of `/login` that a web server would resolve.
const SPELLINGS: [&str; 10] = [
    "//login",
    "/./login",
    "/x/../login",
    "/x/y/../../login",
    "/%6Cogin",
    "/%6cogin",
    "/%2e/login",
    "/x/%2E%2e/login",
    "/login?",
    "/../login",
];

/// Case 059.
#[tokio::test]
async fn no_spelling_of_a_path_escapes_its_limit() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&login_limited(&origin)).start().await;
    let mut client = gateway.client();
    for _ in 0..3 {
        assert!(client.get("/login").await.passed());
    }
    for spelling in SPELLINGS {
        for _ in 0..3 {
            let response = client.get(spelling).await;
            assert!(response.denied(), "{spelling}: {response:?}");
        }
    }
    for number in 0..3 {
        assert!(client.get(&format!("/login?x={number}")).await.denied());
        let absolute = client.get("http://gateway.test/login").await;
        assert!(absolute.denied(), "absolute form: {absolute:?}");
        let mut h2 = H2Client::connect(gateway.address()).await;
        for target in ["/login", "//login", "/x/../login", "/%6Cogin"] {
            let response = h2.send(&get(target)).await;
            assert!(response.denied(), "HTTP/2 {target}: {response:?}");
        }
    }
    assert_eq!(origin.executed(), 3);
    assert_eq!(origin.executed_target("/login"), 3);
}

/// Case 059: what is counted as `/login` is sent as `/login`.
#[tokio::test]
async fn the_upstream_gets_the_spelling_that_was_matched() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut client = gateway.client();
    for spelling in SPELLINGS {
        assert!(client.get(spelling).await.passed(), "{spelling}");
        let target = origin.last().target;
        assert_eq!(target.trim_end_matches('?'), "/login", "{spelling}");
    }
    for (sent, forwarded) in [
        ("/a/b%2Fc", "/a/b%2Fc"),
        ("/a%2f..%2Fb", "/a%2F..%2Fb"),
        ("/a%7Eb/%C3%a4", "/a~b/%C3%A4"),
        ("/a/?q=//x/../%6C&r=%zz", "/a/?q=//x/../%6C&r=%zz"),
        ("/a/..", "/"),
        ("/a/.", "/a/"),
    ] {
        assert!(client.get(sent).await.passed(), "{sent}");
        assert_eq!(origin.last().target, forwarded, "{sent}");
    }
}

/// Case 059: what has no one meaning has none here.
#[tokio::test]
async fn a_path_that_cannot_be_read_is_refused() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&login_limited(&origin)).start().await;
    for target in ["/%zz", "/login%", "/login%4", "/lo%00gin", "/x\\login", "/x%5Clogin"] {
        let mut raw = Raw::connect(gateway.address()).await;
        raw.send(get(target).to_bytes()).await.unwrap();
        let response = raw.response_to("GET").await.unwrap();
        assert_eq!(response.status, 400, "{target}");
    }
    assert_eq!(origin.executed(), 0);
}

/// Case 061.
#[tokio::test]
async fn inventing_paths_gains_no_counters() {
    let (origin, redis) = (Origin::start().await, Redis::start().await);
    let settings = Settings::new()
        .upstream("origin", &[&origin])
        .route(r#"{name: items, path: "/items/{id}", upstream: origin}"#)
        .route(r#"{name: verify, path: "/verify/{*rest}", upstream: origin}"#)
        .limit(r#"{name: items, key: ip, match: {path: "/items/**"}, algorithm: fixed_window, limit: 5, window: 1d, align: first_request}"#)
        .limit(
            r#"{name: verify, key: route, match: {path: "/verify/**"}, algorithm: sliding_window_log, limit: 5, window: 60s}"#,
        )
        .counting_in(&redis, "t61");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for kind in ["items", "verify"] {
        let mut passed = 0;
        for number in 1..=50 {
            let response = client.get(&format!("/{kind}/{}", number * 7919)).await;
            assert!(response.passed() || response.denied(), "{response:?}");
            passed += usize::from(response.passed());
        }
        assert_eq!(passed, 5, "{kind}");
    }
    assert_eq!(redis.counters("t61").await.len(), 2);
    assert_eq!(origin.executed(), 10);
}

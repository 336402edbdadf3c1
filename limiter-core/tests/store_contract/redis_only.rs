//! What only a shared store has: several processes, a script, expiry, a URL.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use limiter_core::StoreObserver;

use super::*;

/// Notes what a store says of its calls.
#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) requests: AtomicUsize,
    pub(super) calls: AtomicUsize,
    failures: Mutex<BTreeMap<&'static str, usize>>,
}

impl StoreObserver for Noted {
    fn answered(&self, _took: Duration, requests: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }

    fn failed(&self, kind: &'static str) {
        *self.failures.lock().unwrap().entry(kind).or_default() += 1;
    }
}

impl Noted {
    pub(super) fn failures(&self, kind: &str) -> usize {
        self.failures.lock().unwrap().get(kind).copied().unwrap_or_default()
    }
}

pub(super) const DEADLINE: Duration = Duration::from_millis(50);

pub(super) fn start(server: &RedisServer, timeout: Duration) -> (Arc<RedisStore>, Arc<Noted>) {
    let noted = Arc::new(Noted::default());
    let config = RedisConfig {
        timeout,
        ..config(server)
    };
    let runtime = tokio::runtime::Handle::current();
    let options = RedisOptions {
        observer: Some(Arc::<Noted>::clone(&noted)),
        ..RedisOptions::default()
    };
    let store = RedisStore::start_with(config, &runtime, options).unwrap();
    (Arc::new(store), noted)
}

/// A quota that does not come back while a test runs.
pub(super) fn quotas(limit: u64) -> Vec<Arc<Policy>> {
    every_algorithm(limit, 86_400 * SECOND)
}

pub(super) fn allowed(result: &Result<Decision, StoreError>) -> bool {
    matches!(result, Ok(decision) if decision.verdict == Verdict::Allowed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deciders_on_two_stores_admit_exactly_the_quota() {
    let server = RedisServer::start();
    let stores = [start(&server, 5 * SECOND), start(&server, 5 * SECOND)];
    for (store, _) in &stores {
        connected(store).await;
    }
    for policy in quotas(500) {
        let admitted = Arc::new(AtomicUsize::new(0));
        let deciders: Vec<_> = (0..64)
            .map(|i| {
                let (store, policy) = (Arc::clone(&stores[i % 2].0), Arc::clone(&policy));
                let admitted = Arc::clone(&admitted);
                tokio::spawn(async move {
                    for _ in 0..12 {
                        let result = decide(&*store, &[(&policy, "k", 1)]).await;
                        admitted.fetch_add(usize::from(allowed(&result)), Ordering::Relaxed);
                        result.unwrap();
                    }
                })
            })
            .collect();
        for decider in deciders {
            decider.await.unwrap();
        }
        assert_eq!(admitted.load(Ordering::Relaxed), 500, "{policy:?}");
    }
    let (calls, requests) = stores.iter().fold((0, 0), |(calls, requests), (_, noted)| {
        (
            calls + noted.calls.load(Ordering::Relaxed),
            requests + noted.requests.load(Ordering::Relaxed),
        )
    });
    assert_eq!(requests, 6 * 64 * 12, "each is decided once");
    assert!(
        calls < requests / 2,
        "those that wait at the same moment share a call: {calls} calls"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deciders_over_four_layers_admit_what_the_narrowest_allows() {
    let server = RedisServer::start();
    let stores = [start(&server, 5 * SECOND).0, start(&server, 5 * SECOND).0];
    for store in &stores {
        connected(store).await;
    }
    let wide = quotas(10_000);
    let narrow = &quotas(500)[4];
    let layers = [
        policy("global", wide[0].algorithm().clone()),
        policy("user", wide[2].algorithm().clone()),
        policy("route", narrow.algorithm().clone()),
        policy("ip", wide[5].algorithm().clone()),
    ];
    let admitted = Arc::new(AtomicUsize::new(0));
    let deciders: Vec<_> = (0..64)
        .map(|i| {
            let (store, layers, admitted) = (Arc::clone(&stores[i % 2]), layers.clone(), Arc::clone(&admitted));
            tokio::spawn(async move {
                let (user, address) = (format!("user-{}", i % 7), format!("10.0.0.{}", i % 5));
                let keys = ["*", &user, "r", &address];
                let asks: Vec<_> = layers.iter().zip(keys).map(|(layer, key)| (layer, key, 1)).collect();
                for _ in 0..12 {
                    let result = decide(&*store, &asks).await;
                    admitted.fetch_add(usize::from(allowed(&result)), Ordering::Relaxed);
                    let verdict = result.unwrap().verdict;
                    assert!(
                        matches!(verdict, Verdict::Allowed | Verdict::Denied { by: 2, .. }),
                        "{verdict:?}"
                    );
                }
            })
        })
        .collect();
    for decider in deciders {
        decider.await.unwrap();
    }
    assert_eq!(admitted.load(Ordering::Relaxed), 500);
    let global = decide(&*stores[0], &[(&layers[0], "*", 0)]).await.unwrap();
    assert_eq!(
        global.readings[0].remaining, 9_500,
        "the refused ones took nothing from the layers before"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_expires() {
    let server = RedisServer::start();
    let (store, _) = start(&server, 2 * SECOND);
    connected(&store).await;
    for window in [SECOND * 60, SECOND * 3600] {
        for policy in every_algorithm(100, window) {
            let policy = super::policy(
                &format!("{}-{}", policy.name(), window.as_secs()),
                policy.algorithm().clone(),
            );
            for cost in [1, 7, 80] {
                decide(&*store, &[(&policy, "k", cost)]).await.unwrap();
            }
            let names = server
                .command(&["KEYS", &format!("test:{}*", policy.key_prefix())])
                .texts();
            assert_eq!(names, [format!("test:{}k", policy.key_prefix())]);
            let left = server.command(&["PTTL", &names[0]]).int().unwrap();
            let bound = i64::try_from(window.as_millis() * 2).unwrap();
            assert!(left > 0 && left <= bound, "{policy:?}: {left} ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_lost_its_expiry_gets_it_back_when_it_refuses() {
    let server = RedisServer::start();
    let (store, _) = start(&server, 2 * SECOND);
    connected(&store).await;
    for policy in quotas(1) {
        assert!(allowed(&decide(&*store, &[(&policy, "k", 1)]).await));
        let name = format!("test:{}k", policy.key_prefix());
        assert_eq!(server.command(&["PERSIST", &name]), RedisReply::Int(1));
        assert!(!allowed(&decide(&*store, &[(&policy, "k", 1)]).await));
        let left = server.command(&["PTTL", &name]).int().unwrap();
        assert!(left > 0, "{policy:?}: {left} ms");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_else_stands_under_a_key_is_replaced_and_told_and_no_error() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, 2 * SECOND);
    connected(&store).await;
    let strangers: [&[&str]; 5] = [
        &["SET", "KEY", "not a counter"],
        &["RPUSH", "KEY", "not", "a", "log"],
        &["HSET", "KEY", "a", "b"],
        &["ZADD", "KEY", "1", "a"],
        &["XADD", "KEY", "*", "a", "b"],
    ];
    let policies = quotas(3);
    for policy in &policies {
        for (index, command) in strangers.iter().enumerate() {
            let (key, before) = (index.to_string(), noted.failures("replaced"));
            let name = format!("test:{}{key}", policy.key_prefix());
            let command: Vec<&str> = command
                .iter()
                .map(|&part| if part == "KEY" { &name } else { part })
                .collect();
            assert!(!matches!(server.command(&command), RedisReply::Error(_)));
            let mut admitted = 0;
            for _ in 0..5 {
                admitted += usize::from(allowed(&decide(&*store, &[(policy, &key, 1)]).await));
            }
            assert_eq!(
                (admitted, noted.failures("replaced") - before),
                (3, 1),
                "{policy:?} over {command:?}"
            );
        }
    }
    for kind in ["server", "protocol", "drift"] {
        assert_eq!(noted.failures(kind), 0, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_was_forgotten_is_loaded_within_the_same_call() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, 2 * SECOND);
    connected(&store).await;
    let policy = &quotas(100)[0];
    for taken in 1..=20 {
        assert_eq!(server.command(&["SCRIPT", "FLUSH"]), RedisReply::Text("OK".to_owned()));
        let decision = decide(&*store, &[(policy, "k", 1)]).await.unwrap();
        assert_eq!(decision.readings[0].remaining, 100 - taken);
    }
    assert_eq!(noted.failures("server"), 0);
    assert_eq!(store.health(), Health::Connected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_leaves_no_connection() {
    let server = RedisServer::start();
    let (store, _) = start(&server, DEADLINE);
    connected(&store).await;
    drop(store);
    let clients = || server.command(&["CLIENT", "LIST"]);
    eventually(
        "only ours is left",
        || matches!(clients(), RedisReply::Text(list) if list.lines().count() == 1),
    )
    .await;
}

/// On one thread, so that nothing is sent before the first await.
#[tokio::test]
async fn who_leaves_takes_nobody_along_and_is_not_charged() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, 2 * SECOND);
    connected(&store).await;
    let policy = &quotas(100)[0];
    let ask = || store.decide(&one(policy));
    let mut answers: Vec<_> = (0..10).map(|_| ask()).collect();
    drop(answers.drain(1..6));
    for answer in answers {
        let Answer::Pending(result) = answer else {
            panic!("{answer:?}")
        };
        assert!(allowed(&result.await));
    }
    let decision = decide(&*store, &[(policy, "k", 0)]).await.unwrap();
    assert_eq!(decision.readings[0].remaining, 95);
    assert_eq!(noted.requests.load(Ordering::Relaxed), 6);
}

/// On one thread, so that they wait together.
#[tokio::test]
async fn requests_from_before_and_after_a_reload_may_wait_together() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, 2 * SECOND);
    connected(&store).await;
    for (old, new) in quotas(10).iter().zip(&quotas(20)) {
        let answers: Vec<_> = (0..40)
            .map(|i| store.decide(&one(if i % 2 == 0 { old } else { new })))
            .collect();
        let mut admitted = 0;
        for answer in answers {
            let Answer::Pending(result) = answer else {
                panic!("{answer:?}")
            };
            let result = result.await;
            assert!(result.is_ok(), "{result:?}");
            admitted += usize::from(allowed(&result));
        }
        assert_eq!(admitted, 20, "{new:?}");
    }
    assert_eq!(noted.failures("drift"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_and_database_of_the_url_are_used_and_few_commands() {
    // What lua/README.md asks for, and nothing else.
    const COMMANDS: &str = "+evalsha +eval +time +mget +set +psetex +llen +lindex +ltrim +lrem +rpush +pttl +pexpire \
                            +unlink +ping +select";
    let user = ["--user", "gw", "on", ">s:c@ret", "~test:*"].into_iter();
    let server = RedisServer::start_with(&user.chain(COMMANDS.split_whitespace()).collect::<Vec<_>>());
    let runtime = tokio::runtime::Handle::current();
    let start = |login: &str, database: &str| {
        let url = format!("redis://{login}@127.0.0.1:{}{database}", server.port());
        RedisStore::start(config_of(&url), &runtime).unwrap()
    };
    let wrong = start("gw:guess", "");
    let store = start("gw:s%3Ac%40ret", "/5");
    connected(&store).await;
    for policy in quotas(1) {
        assert!(allowed(&decide(&store, &[(&policy, "k", 1)]).await));
    }
    let keyspace = format!("{:?}", server.command(&["INFO", "keyspace"]));
    assert!(keyspace.contains("db5:keys=6,expires=6"), "{keyspace}");
    assert_eq!(wrong.health(), Health::Down);
}

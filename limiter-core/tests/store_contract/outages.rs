//! What only a server can do to a store: restart, freeze, refuse, not be there.

use std::sync::atomic::{AtomicUsize, Ordering};

use limiter_core::{Checking, Fallback, Limiter, MonotonicClock, Outcome};

use super::{
    redis_only::{DEADLINE, allowed, quotas, start},
    relay::Relay,
    *,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_is_found_again() {
    let server = RedisServer::start();
    let (store, _) = start(&server, DEADLINE);
    connected(&store).await;
    let policy = &quotas(5)[0];
    assert!(allowed(&decide(&*store, &[(policy, "k", 5)]).await));
    for _ in 0..3 {
        server.stop();
        eventually("the loss shows, without traffic", || store.health() == Health::Down).await;
        server.restart();
        connected(&store).await;
        assert!(
            allowed(&decide(&*store, &[(policy, "k", 5)]).await),
            "it came back empty"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_noticed_at_once_under_load() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, SECOND);
    connected(&store).await;
    let policy = quotas(100_000).remove(0);
    let clients: Vec<_> = (0..32)
        .map(|_| {
            let (store, policy) = (Arc::clone(&store), Arc::clone(&policy));
            tokio::spawn(async move { while decide(&*store, &[(&policy, "k", 1)]).await.is_ok() {} })
        })
        .collect();
    eventually("calls are answered", || noted.calls.load(Ordering::Relaxed) > 20).await;
    server.stop();
    let all = async {
        for client in clients {
            client.await.unwrap();
        }
    };
    let noticed = tokio::time::timeout(SECOND / 2, all).await;
    assert!(noticed.is_ok(), "nobody waits for the deadline of 1 s");
    eventually("the store is down", || store.health() == Health::Down).await;
    server.restart();
    connected(&store).await;
    assert!(allowed(&decide(&*store, &[(&quotas(1)[4], "k", 1)]).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_stood_and_are_cut_are_missed_for_moments_only() {
    let server = RedisServer::start();
    let (store, _) = start(&server, 2 * SECOND);
    connected(&store).await;
    let (policy, clock) = (&quotas(100_000)[0], MonotonicClock::new());
    let decided = async || decide(&*store, &[(policy, "k", 1)]).await.is_ok();
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        // Who stood for less is made to wait.
        let since = clock.now();
        while clock.now().since(since) < SECOND + SECOND / 10 {
            assert!(decided().await, "nothing was cut");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let killed = server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert!(matches!(killed, RedisReply::Int(2..)), "{killed:?}");
        let cut = clock.now();
        while !decided().await {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        shortest = shortest.min(clock.now().since(cut));
    }
    // The pause before a second probe is longer.
    assert!(shortest < Duration::from_millis(90), "{shortest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_answer_was_lost_is_charged_once() {
    let server = RedisServer::start();
    let relay = Relay::start(server.port()).await;
    let config = RedisConfig {
        connections: 1,
        ..config_of(&relay.url())
    };
    let store = RedisStore::start(config, &tokio::runtime::Handle::current()).unwrap();
    for policy in quotas(100) {
        for asked in 1..=2 {
            connected(&store).await;
            relay.lose_an_answer();
            let lost = decide(&store, &[(&policy, "k", 1)]).await;
            assert!(matches!(lost, Err(StoreError::Unavailable)), "{lost:?}");
            connected(&store).await;
            let left = decide(&store, &[(&policy, "k", 0)]).await.unwrap().readings[0].remaining;
            assert_eq!(left, 100 - asked, "{policy:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_cut_who_passes_was_charged() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, SECOND);
    connected(&store).await;
    // The log: nothing comes back meanwhile.
    let policy = quotas(100_000).remove(4);
    let [passed, unknown, stop] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (store, policy) = (Arc::clone(&store), Arc::clone(&policy));
            let (passed, unknown, stop) = (Arc::clone(&passed), Arc::clone(&unknown), Arc::clone(&stop));
            tokio::spawn(async move {
                while stop.load(Ordering::Relaxed) == 0 {
                    let Answer::Pending(result) = store.decide(&one(&policy)) else {
                        // Not asked, so not charged.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    };
                    let count = if allowed(&result.await) { &passed } else { &unknown };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let before = noted.calls.load(Ordering::Relaxed);
        eventually("calls are answered", || {
            noted.calls.load(Ordering::Relaxed) > before + 20
        })
        .await;
        drop(server.command(&["CLIENT", "KILL", "TYPE", "normal"]));
    }
    stop.store(1, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let left = loop {
        // The last cut may not have been met before.
        connected(&store).await;
        if let Ok(decision) = decide(&*store, &[(&policy, "k", 0)]).await {
            break decision.readings[0].remaining;
        }
    };
    let charged = 100_000 - usize::try_from(left).unwrap();
    let (passed, unknown) = (passed.load(Ordering::Relaxed), unknown.load(Ordering::Relaxed));
    assert!(
        passed <= charged && charged <= passed + unknown,
        "{passed} passed, {unknown} unknown, {charged} charged"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_costs_a_deadline_and_then_nothing() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, DEADLINE);
    connected(&store).await;
    let policy = quotas(100_000).remove(0);
    server.pause();
    let mut longest = Duration::ZERO;
    let began = tokio::time::Instant::now();
    let mut unavailable = 0;
    // Long enough for fred to find the connections dead, and to fail to make new ones.
    while began.elapsed() < 2 * SECOND {
        let asked = tokio::time::Instant::now();
        let asks = [(&policy, "k", 1)];
        for result in all((0..16).map(|_| decide(&*store, &asks))).await {
            match result {
                Err(StoreError::Unavailable) => unavailable += 1,
                Err(StoreError::Timeout) => {}
                other => panic!("{other:?}"),
            }
        }
        longest = longest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Far above the deadline, for a busy machine; far below what a hanging client would take.
    assert!(longest < DEADLINE * 6, "an answer took {longest:?}");
    assert!(unavailable > 1_000, "most were not even asked: {unavailable}");
    assert!(noted.failures("timeout") >= 1);
    assert_eq!(store.health(), Health::Down);
    let began = tokio::time::Instant::now();
    server.resume();
    connected(&store).await;
    assert!(began.elapsed() < 2 * SECOND, "back only after {:?}", began.elapsed());
    let decision = decide(&*store, &[(&policy, "k", 1)]).await.unwrap();
    assert_eq!(
        decision.readings[0].remaining, 99_999,
        "what arrived too late was not charged"
    );
}

/// Runs all at once.
async fn all<F>(all: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future,
{
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, done) in all.iter_mut().zip(&mut done) {
            if done.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending {
            std::task::Poll::Pending
        } else {
            std::task::Poll::Ready(())
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_without_a_server_and_connects_when_there_is_one() {
    let server = RedisServer::reserve();
    let (store, _) = start(&server, DEADLINE);
    let policy = &quotas(5)[0];
    assert_eq!(store.health(), Health::Down);
    for _ in 0..100 {
        let answer = store.decide(&one(policy));
        assert!(
            matches!(answer, Answer::Ready(Err(StoreError::Unavailable))),
            "nobody waits: {answer:?}"
        );
    }
    assert!(!store.wait_connected(DEADLINE).await);
    server.restart();
    assert!(store.wait_connected(10 * SECOND).await);
    assert!(allowed(&decide(&*store, &[(policy, "k", 1)]).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_not_charged_and_not_hammered() {
    let server = RedisServer::start();
    let (store, noted) = start(&server, DEADLINE);
    connected(&store).await;
    let policy = &quotas(5)[0];
    assert!(allowed(&decide(&*store, &[(policy, "k", 1)]).await));
    let primary = RedisServer::reserve();
    drop(server.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]));
    let result = decide(&*store, &[(policy, "k", 1)]).await;
    assert!(
        matches!(&result, Err(StoreError::Server(text)) if text.starts_with("READONLY")),
        "{result:?}"
    );
    let answer = store.decide(&one(policy));
    assert!(
        matches!(answer, Answer::Ready(Err(StoreError::Unavailable))),
        "{answer:?}"
    );
    let connections = |server: &RedisServer| {
        let info = server.command(&["INFO", "stats"]);
        let RedisReply::Text(info) = info else {
            panic!("{info:?}")
        };
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse::<usize>().unwrap()
    };
    let before = connections(&server);
    tokio::time::sleep(SECOND).await;
    let made = connections(&server) - before;
    assert!(made <= 8, "{made} connections in a second");
    assert!(noted.failures("server") >= 2, "it is probed");
    drop(server.command(&["REPLICAOF", "NO", "ONE"]));
    connected(&store).await;
    assert_eq!(
        decide(&*store, &[(policy, "k", 1)]).await.unwrap().readings[0].remaining,
        3
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_server_refuses_opens_the_breaker_without_a_wait() {
    // Our counters are not among the keys that this user may touch: probes pass, calls fail.
    let server = RedisServer::start_with(&["--user", "gw", "on", "nopass", "~test:~*", "+@all"]);
    let config = config_of(&format!("redis://gw:x@127.0.0.1:{}", server.port()));
    let runtime = tokio::runtime::Handle::current();
    let store = RedisStore::start(config, &runtime).unwrap();
    connected(&store).await;
    let policy = &quotas(1)[0];
    let refused = decide(&store, &[(policy, "k", 1)]).await;
    assert!(
        matches!(&refused, Err(StoreError::Server(text)) if text.starts_with("NOPERM")),
        "{refused:?}"
    );
    // The probe that a failure wakes finds nothing wrong, and may be back before we have looked.
    let mut shows = false;
    for _ in 0..100 {
        shows |= store.health() != Health::Connected;
        decide(&store, &[(policy, "k", 1)]).await.unwrap_err();
    }
    assert!(shows);
}

#[tokio::test]
async fn what_the_fallback_admits_for_a_single_late_call_is_charged_too() {
    let server = RedisServer::start();
    let fallback = Arc::new(Fallback::new(1_000));
    let config = RedisConfig {
        timeout: Duration::from_millis(100),
        ..config(&server)
    };
    let options = RedisOptions {
        fallback: Some(Arc::clone(&fallback)),
        ..RedisOptions::default()
    };
    let store = Arc::new(RedisStore::start_with(config, &tokio::runtime::Handle::current(), options).unwrap());
    connected(&store).await;
    let policy = &Arc::new(Policy::new("p", quotas(10)[0].algorithm().clone(), OnFailure::Local));
    let limiter = Limiter::new(Arc::<RedisStore>::clone(&store), Arc::<Fallback>::clone(&fallback));
    server.pause();
    let outcome = match limiter.check(&one(policy)) {
        Checking::Ready(outcome) => outcome,
        Checking::Pending(outcome) => outcome.await,
    };
    server.resume();
    assert!(matches!(outcome, Outcome::Fallback { .. }), "{outcome:?}");
    assert_eq!(fallback.debtors(), 1);
    // Told with the next answer, and not with a heartbeat: what comes back in a second would pass twice.
    let answer = async {
        while decide(&*store, &[(policy, "k", 0)]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, answer).await.unwrap();
    assert_eq!(fallback.debtors(), 0);
    let decision = decide(&*store, &[(policy, "k", 0)]).await.unwrap();
    assert_eq!(decision.readings[0].remaining, 9);
}

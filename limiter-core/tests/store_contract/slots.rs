//! Units that are held for as long as a request runs, on every store; and what servers do to them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use limiter_core::{
    Role,
    algorithm::Concurrency,
    test_util::{RedisCluster, RedisSentinels, redis_command},
};

use super::{settling::check, *};

/// Long enough for a busy machine to renew it in time.
const LEASE: Duration = Duration::from_secs(5);

fn at_once(name: &str, limit: u64) -> Arc<Policy> {
    policy(name, Concurrency::new(limit, LEASE).unwrap())
}

fn is_allowed(decision: &Decision) -> bool {
    decision.verdict == Verdict::Allowed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_taken_is_held_until_it_is_dropped() {
    for world in World::each().await {
        let (limiter, policy) = (world.limiter(), at_once("slots", 3));
        let one = check(&limiter, &[(&policy, 1)]).await;
        let two = check(&limiter, &[(&policy, 2)]).await;
        assert!(one.held.is_some() && two.held.is_some());
        assert_eq!(two.readings[0].remaining, 0);
        let refused = check(&limiter, &[(&policy, 1)]).await;
        assert_eq!(
            refused.verdict,
            Verdict::Denied {
                by: 0,
                wait: Wait::For(SECOND)
            }
        );
        assert!(refused.held.is_none());
        assert_eq!(check(&limiter, &[(&policy, 4)]).await.readings[0].wait, Wait::Never);
        // No passing of time brings one.
        world.clock.advance(LEASE / 2);
        assert!(!is_allowed(&check(&limiter, &[(&policy, 1)]).await));
        // What is cloned is held once.
        let copy = one.clone();
        drop(one);
        assert!(!is_allowed(&check(&limiter, &[(&policy, 1)]).await));
        drop(copy);
        world.leaves(&policy, 1).await;
        drop(two);
        world.leaves(&policy, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_elsewhere_holds_nothing() {
    let window = FixedWindow::new(1, 10 * SECOND, Align::Clock).unwrap();
    for world in World::each().await {
        let (limiter, slots, window) = (world.limiter(), at_once("slots", 2), policy("window", window.clone()));
        let first = check(&limiter, &[(&slots, 1), (&window, 1)]).await;
        assert!(is_allowed(&first));
        assert!(!is_allowed(&check(&limiter, &[(&slots, 1), (&window, 1)]).await));
        assert_eq!(world.remaining(&slots, "k").await, 1);
        drop(first);
        world.leaves(&slots, 2).await;
        assert_eq!(world.remaining(&window, "k").await, 0, "that is not held");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadows_and_candidates_hold_what_runs() {
    for world in World::each().await {
        let limiter = world.limiter();
        let live = at_once("live", 2);
        let shadow = Arc::new(Policy::clone(&at_once("shadow", 1)).with_role(Role::Shadow));
        let candidate = Arc::new(live.candidate(Concurrency::new(3, LEASE).unwrap()));
        let layers = [(&live, 1), (&candidate, 1), (&shadow, 1)];
        let first = check(&limiter, &layers).await;
        let second = check(&limiter, &layers).await;
        let third = check(&limiter, &layers).await;
        let fits = |decision: &Decision| decision.readings.iter().map(|reading| reading.fits).collect::<Vec<_>>();
        assert_eq!(fits(&first), [true, true, true]);
        assert_eq!(fits(&second), [true, true, false]);
        assert_eq!(fits(&third), [false, true, false], "it would have been the third");
        assert!(is_allowed(&second) && !is_allowed(&third) && third.held.is_none());
        // Who is refused does not run: the candidate holds two.
        world.leaves(&candidate, 1).await;
        drop((first, second));
        for (policy, limit) in [(&live, 2), (&candidate, 3), (&shadow, 1)] {
            world.leaves(policy, limit).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_nobody_waits_for_is_given_back() {
    let world = World::redis().await;
    let policy = at_once("slots", 1);
    for _ in 0..20 {
        let Answer::Pending(mut answer) = world.store.decide(&one(&policy)) else {
            panic!("it is on its way");
        };
        // It has left, and is given up at some moment.
        let wait = Duration::from_micros(fastrand::u64(0..600));
        drop(tokio::time::timeout(wait, &mut answer).await);
        drop(answer);
        world.leaves(&policy, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_is_made_good() {
    let server = RedisServer::start();
    let relay = relay::Relay::start(server.port()).await;
    let config = RedisConfig {
        connections: 1,
        ..config_of(&relay.url())
    };
    let store: Arc<dyn Store> = {
        let store = RedisStore::start(config, &tokio::runtime::Handle::current()).unwrap();
        connected(&store).await;
        Arc::new(store)
    };
    let world = World {
        store,
        clock: Arc::new(ManualClock::new(START)),
        server: Some(server),
    };
    let (limiter, policy) = (world.limiter(), at_once("slots", 10));
    // While this is held, what was lost with an answer does not end with its lease.
    let held = check(&limiter, &[(&policy, 1)]).await;
    for _ in 0..3 {
        relay.lose_an_answer();
        let lost = decide(&*world.store, &[(&policy, "k", 2)]).await;
        assert!(matches!(lost, Err(StoreError::Unavailable)), "{lost:?}");
        eventually("the store is back", || world.store.health() == Health::Connected).await;
        world.leaves(&policy, 9).await;
    }
    drop(held);
    world.leaves(&policy, 10).await;
}

/// Takes and gives back, for as long as it is told to.
async fn hold_again_and_again(
    limiter: Limiter,
    policy: Arc<Policy>,
    runs: Arc<AtomicBool>,
    held: Arc<[AtomicUsize; 3]>,
) {
    let [now, most, all] = &*held;
    while runs.load(Ordering::Relaxed) {
        let asked = match limiter.check(&one(&policy)) {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(outcome) => outcome.await,
        };
        if let Outcome::Decided(decision) = asked
            && is_allowed(&decision)
        {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            all.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..4))).await;
            now.fetch_sub(1, Ordering::SeqCst);
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Answers are lost, with all that they say: never are more held than may be, and at last none. The server gets into
/// `trouble` ten times; its stores wait for an answer no longer than `timeout`.
async fn survives(timeout: Duration, trouble: impl AsyncFn(&RedisServer)) {
    let server = RedisServer::start();
    let policy = at_once("slots", 5);
    let config = RedisConfig {
        timeout,
        ..config(&server)
    };
    let store = |_| RedisStore::start(config.clone(), &tokio::runtime::Handle::current()).unwrap();
    let stores: Vec<Arc<RedisStore>> = (0..2).map(store).map(Arc::new).collect();
    let runs = Arc::new(AtomicBool::new(true));
    let held = Arc::new([(); 3].map(|()| AtomicUsize::new(0)));
    let clients: Vec<_> = (0..24)
        .map(|number| {
            let store: Arc<dyn Store> = Arc::<RedisStore>::clone(&stores[number % 2]);
            let limiter = Limiter::new(Arc::clone(&store), store);
            let (policy, runs, held) = (Arc::clone(&policy), Arc::clone(&runs), Arc::clone(&held));
            tokio::spawn(hold_again_and_again(limiter, policy, runs, held))
        })
        .collect();
    for _ in 0..10 {
        for store in &stores {
            connected(store).await;
        }
        let before = held[2].load(Ordering::Relaxed);
        eventually("slots are taken", || held[2].load(Ordering::Relaxed) > before + 40).await;
        trouble(&server).await;
    }
    runs.store(false, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(held[1].load(Ordering::SeqCst), 5, "at most, and that many");
    eventually("all slots are free", || {
        matches!(server.command(&["EXISTS", "test:slots:co:k"]), RedisReply::Int(0))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_cut_no_more_are_held_and_none_is_left() {
    survives(2 * SECOND, async |server| {
        drop(server.command(&["CLIENT", "KILL", "TYPE", "normal"]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_late_no_more_are_held_and_none_is_left() {
    survives(SECOND / 20, async |server| {
        server.pause();
        tokio::time::sleep(Duration::from_millis(fastrand::u64(40..200))).await;
        server.resume();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_leases_than_a_call_names_are_kept() {
    let server = RedisServer::start();
    let store = RedisStore::start(config(&server), &tokio::runtime::Handle::current()).unwrap();
    connected(&store).await;
    let policy = policy("slots", Concurrency::new(1, SECOND).unwrap());
    let keys: Vec<String> = (0..300).map(|key| format!("k{key}")).collect();
    let mut held = Vec::new();
    for key in &keys {
        held.push(decide(&store, &[(&policy, key, 1)]).await.unwrap().held.unwrap());
    }
    tokio::time::sleep(3 * SECOND).await;
    for key in &keys {
        assert!(
            !is_allowed(&decide(&store, &[(&policy, key, 1)]).await.unwrap()),
            "{key}"
        );
    }
    // Without anybody who renews them, they end.
    drop(store);
    tokio::time::sleep(SECOND + SECOND / 10).await;
    assert_eq!(server.command(&["KEYS", "test:slots:*"]).texts(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_all_slots_are_taken_or_none() {
    let cluster = RedisCluster::start_without_replicas();
    let store = RedisStore::start(config_of(&cluster.url()), &tokio::runtime::Handle::current()).unwrap();
    connected(&store).await;
    let world = World {
        store: Arc::new(store),
        clock: Arc::new(ManualClock::new(START)),
        server: None,
    };
    let limiter = world.limiter();
    let policies: Vec<_> = (2..8).map(|limit| at_once(&format!("p{limit}"), limit)).collect();
    let layers: Vec<_> = policies.iter().map(|policy| (policy, 1)).collect();
    let two = [check(&limiter, &layers).await, check(&limiter, &layers).await];
    assert!(two.iter().all(is_allowed));
    for _ in 0..5 {
        assert!(!is_allowed(&check(&limiter, &layers).await));
    }
    for policy in &policies {
        world.leaves(policy, policy.algorithm().limit() - 2).await;
    }
    drop(two);
    for policy in &policies {
        world.leaves(policy, policy.algorithm().limit()).await;
    }
}

/// Whatever a new primary has (leases have ended, or were not copied): it is told what is held before it decides anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_is_told_what_is_held() {
    let sentinels = Arc::new(RedisSentinels::start());
    let store = RedisStore::start(config_of(&sentinels.url()), &tokio::runtime::Handle::current()).unwrap();
    connected(&store).await;
    let policy = policy("slots", Concurrency::new(1, SECOND).unwrap());
    let keys: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
    let mut held = Vec::new();
    for key in &keys {
        held.push(decide(&store, &[(&policy, key, 1)]).await.unwrap().held.unwrap());
    }
    let guard = Arc::clone(&sentinels);
    let switched = tokio::task::spawn_blocking(move || {
        let old = guard.primary_port();
        guard.kill_primary();
        guard.wait_for_successor_of(old);
    });
    switched.await.unwrap();
    for key in &keys {
        let decision = loop {
            match decide(&store, &[(&policy, key, 1)]).await {
                Ok(decision) => break decision,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        assert!(!is_allowed(&decision), "{key}");
    }
    drop(held);
    let is_free =
        || redis_command(sentinels.primary_port(), &["KEYS", "test:slots:*"]).is_ok_and(|keys| keys.texts().is_empty());
    eventually("all slots are free", is_free).await;
}

/// What the fallback admitted before there ever was a server is kept there, as all else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_fallback_admitted_is_leased_when_there_is_a_server() {
    let server = RedisServer::start();
    server.stop();
    let policy = Arc::new(Policy::new(
        "slots",
        Concurrency::new(3, SECOND).unwrap(),
        OnFailure::Local,
    ));
    let fallback = Arc::new(Fallback::new(100));
    let options = RedisOptions {
        fallback: Some(Arc::clone(&fallback)),
        ..RedisOptions::default()
    };
    let store = RedisStore::start_with(config(&server), &tokio::runtime::Handle::current(), options).unwrap();
    let store = Arc::new(store);
    let limiter = Limiter::new(Arc::<RedisStore>::clone(&store), fallback);
    let mut held = Vec::new();
    for _ in 0..3 {
        match limiter.check(&one(&policy)) {
            Checking::Ready(outcome) => held.push(outcome),
            Checking::Pending(_) => panic!("there is no server to ask"),
        }
    }
    server.restart();
    connected(&store).await;
    let other = RedisStore::start(config(&server), &tokio::runtime::Handle::current()).unwrap();
    connected(&other).await;
    for _ in 0..30 {
        assert!(!is_allowed(&decide(&other, &[(&policy, "k", 1)]).await.unwrap()));
        tokio::time::sleep(SECOND / 10).await;
    }
    drop(held);
    eventually("all slots are free", || {
        matches!(server.command(&["EXISTS", "test:slots:co:k"]), RedisReply::Int(0))
    })
    .await;
}

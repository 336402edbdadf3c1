//! The number that the operator wrote is the number that passes, while gateways are killed under load.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use crate::support::{Client, FIVE, Gateway, Redis, Request, Settings, Tally, get, pause};

const GATEWAYS: usize = 3;
pub(crate) const CLIENTS: usize = 24;
const LIMIT: usize = 500;

/// Where the gateways listen that live.
pub(crate) type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

async fn start(settings: &Settings) -> Gateway {
    let gateway = Gateway::with(settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    gateway
}

/// Kills one after the other, picked by chance, and starts another in its place, until `is_over`. Says how many.
async fn kill_at_random(
    settings: Settings,
    mut gateways: Vec<Gateway>,
    addresses: Addresses,
    is_over: Arc<AtomicBool>,
) -> usize {
    let mut random = Rng::new();
    let mut killed = 0;
    while !is_over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(random.u64(20..150))).await;
        let victim = random.usize(..GATEWAYS);
        gateways[victim].signal(Signal::KILL);
        gateways[victim].exit().await;
        killed += 1;
        gateways[victim] = start(&settings).await;
        addresses.lock().unwrap()[victim] = gateways[victim].address();
    }
    killed
}

/// Gateways of which one after the other is killed.
pub(crate) struct Killing {
    pub(crate) addresses: Addresses,
    is_over: Arc<AtomicBool>,
    task: JoinHandle<usize>,
}

impl Killing {
    /// Starts the gateways, and begins to kill them.
    pub(crate) async fn begin(settings: Settings) -> Self {
        let mut gateways = Vec::new();
        for _ in 0..GATEWAYS {
            gateways.push(start(&settings).await);
        }
        let addresses: Addresses = Arc::new(Mutex::new(gateways.iter().map(Gateway::address).collect()));
        let is_over = Arc::new(AtomicBool::new(false));
        let task = kill_at_random(settings, gateways, Arc::clone(&addresses), Arc::clone(&is_over));
        Self {
            addresses,
            is_over,
            task: tokio::spawn(task),
        }
    }

    /// Ends it. Says how many were killed.
    pub(crate) async fn end(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

/// What came of requests.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) tally: Tally,
    /// Requests without an answer: each may have been charged.
    pub(crate) lost: usize,
}

/// Sends `count` requests from each client, each to a gateway picked by chance, of those that take it.
pub(crate) async fn send(addresses: &Addresses, request: Request, count: usize) -> Seen {
    let clients = (0..CLIENTS).map(|_| {
        let (addresses, request) = (Arc::clone(addresses), request.clone());
        tokio::spawn(async move {
            let (mut seen, mut random) = (Seen::default(), Rng::new());
            let mut left = count;
            while left > 0 {
                let address = addresses.lock().unwrap()[random.usize(..GATEWAYS)];
                match Client::to(address).try_send(&request).await {
                    Ok(response) => seen.tally.add(&response),
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        pause(Duration::from_millis(2)).await; // It went nowhere.
                        continue;
                    }
                    Err(_) => seen.lost += 1,
                }
                left -= 1;
            }
            seen
        })
    });
    let mut all = Seen::default();
    for client in clients.collect::<Vec<_>>() {
        let seen = client.await.unwrap();
        all.tally.merge(&seen.tally);
        all.lost += seen.lost;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_are_killed_let_nothing_more_pass_and_lose_only_what_had_no_answer() {
    let redis = Redis::start().await;
    let settings =
        Settings::answering()
            .counting_in(&redis, "killed")
            .five_limits("header:x-user-id", LIMIT as u64, "1d");
    let killing = Killing::begin(settings).await;
    let mut lost = 0;
    for algorithm in FIVE {
        for user in 0..3 {
            let request = get(&algorithm.path()).header("x-user-id", &format!("user-{user}"));
            let seen = send(&killing.addresses, request, 40).await;
            let passed = seen.tally.passed();
            assert!(
                passed <= LIMIT && passed + seen.lost >= LIMIT,
                "{algorithm:?}: of {LIMIT} a day {passed} passed, {} had no answer",
                seen.lost
            );
            assert_eq!(passed + seen.tally.denied() + seen.lost, 40 * CLIENTS, "{seen:?}");
            lost += seen.lost;
        }
    }
    let killed = killing.end().await;
    assert!(killed >= 5, "only {killed} were killed");
    // Else it shows nothing of those that had an answer.
    assert!(
        lost <= 2 * CLIENTS * killed,
        "{lost} without an answer, {killed} killed"
    );
    eprintln!("{killed} killed, {lost} requests without an answer");
}

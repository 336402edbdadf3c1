//! Gateways that are killed under load, and what their clients see.

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

use super::{Client, Gateway, Request, Settings, Tally, pause};

const GATEWAYS: usize = 3;
/// Those who send at the same time.
pub(crate) const CLIENTS: usize = 24;

/// Where the gateways listen that live.
type Addresses = Arc<Mutex<Vec<SocketAddr>>>;

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
#[derive(Debug)]
pub(crate) struct Killing {
    addresses: Addresses,
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

    /// Sends `count` requests from each client, each to a gateway picked by chance, of those that take it.
    pub(crate) async fn send(&self, request: Request, count: usize) -> Seen {
        let clients = (0..CLIENTS).map(|_| {
            let (addresses, request) = (Arc::clone(&self.addresses), request.clone());
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

//! Reloads while requests come, by every way of changing the file: no request fails, no counter is refilled, and the new
//! rules are in force in time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use crate::support::{FIVE, Gateway, Redis, Request, Settings, Way, get, pause, wait_for};

/// Reloads by each way.
const RELOADS: u64 = 20;

/// Requests a second that are offered, over all clients. A busy machine may take fewer.
const OFFERED: u64 = 5_000;

const CLIENTS: u64 = 8;

/// A change has to be in force 1 s after the last write; the rest is for a machine that is busy with other tests.
const IN_FORCE: Duration = Duration::from_secs(3);

/// Units of a day, for each algorithm.
const LIMIT: u64 = 5;

/// Answers `/version` with the number of the version, and limits everything else.
fn version(number: u64) -> Settings {
    let route = format!("{{name: version, path: /version, respond: {{body: \"{number}\"}}}}");
    let settings = Settings::new()
        .section("log: {access: false}")
        .route(&route)
        .route("{name: all, path: \"/{*rest}\", respond: {body: fine}}");
    // Another order each time: counters follow the name.
    let mut order = FIVE;
    order.rotate_left(usize::try_from(number).unwrap() % FIVE.len());
    order.iter().fold(settings, |settings, algorithm| {
        settings.limit(&algorithm.layer("header:x-user-id", LIMIT, "1d"))
    })
}

fn limited() -> impl Iterator<Item = Request> {
    FIVE.iter()
        .map(|algorithm| get(&algorithm.path()).header("x-user-id", "one"))
}

/// Clients that send at an even pace; each looks for an old version, a failure, or a refilled counter.
struct Load {
    /// The version that is known to be in force: an answer to a request sent later must not be older.
    in_force: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u64>>,
    begun: Instant,
}

impl Load {
    fn on(gateway: &Gateway) -> Self {
        let (in_force, stop) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
        let begun = Instant::now();
        let client = |_| {
            let (in_force, stop) = (Arc::clone(&in_force), Arc::clone(&stop));
            let mut client = gateway.client();
            tokio::spawn(async move {
                let requests: Vec<Request> = limited().collect();
                let mut sent = 0;
                while !stop.load(Ordering::SeqCst) {
                    let due = begun.elapsed().as_micros() * u128::from(OFFERED / CLIENTS) / 1_000_000;
                    if u128::from(sent) > due {
                        pause(Duration::from_millis(1)).await;
                        continue;
                    }
                    let oldest = in_force.load(Ordering::SeqCst);
                    if sent % 4 == 0 {
                        let refused = client
                            .send(&requests[usize::try_from(sent / 4).unwrap() % requests.len()])
                            .await;
                        assert!(refused.denied(), "a counter was refilled: {refused:?}");
                    } else {
                        let answer = client.get("/version").await;
                        assert!(answer.passed(), "{answer:?}");
                        let found: u64 = answer.text().parse().unwrap();
                        assert!(found >= oldest, "version {found} after {oldest} was in force");
                    }
                    sent += 1;
                }
                sent
            })
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self {
            in_force,
            stop,
            clients,
            begun,
        }
    }

    /// Requests a second.
    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        let mut sent = 0;
        for client in self.clients {
            sent += client.await.unwrap();
        }
        sent * 1_000 / u64::try_from(self.begun.elapsed().as_millis()).unwrap()
    }
}

async fn reloads_under_load(gateway: Gateway, ways: &[Way], file: impl Fn(u64) -> String) {
    for request in limited() {
        let answers = gateway.client().repeat(6, &request).await;
        assert_eq!(answers.iter().filter(|answer| answer.passed()).count(), 5);
    }
    let load = Load::on(&gateway);
    let mut number = 1;
    for &way in ways {
        let mut longest = Duration::ZERO;
        for _ in 0..RELOADS {
            number += 1;
            gateway.write(way, &file(number)).await;
            let written = Instant::now();
            wait_for(IN_FORCE, &format!("version {number}, by {way:?}"), || async {
                gateway.client().get("/version").await.text() == number.to_string()
            })
            .await;
            longest = longest.max(written.elapsed());
            load.in_force.store(number, Ordering::SeqCst);
        }
        eprintln!("{way:?}: in force after at most {longest:?}");
    }
    let rate = load.end().await;
    eprintln!("{rate} requests/s meanwhile");
    assert!(rate > 100, "only {rate} requests/s");
    for request in limited() {
        assert!(gateway.client().send(&request).await.denied());
    }
    let reloads = async |outcome| {
        gateway
            .metric("gateway_config_reloads_total", &[("outcome", outcome)])
            .await
    };
    // Each was taken once, whoever noticed it first.
    let expected = f64::from(u32::try_from(number - 1).unwrap());
    assert!((reloads("applied").await - expected).abs() < 0.5);
    assert_eq!(reloads("restart_required").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_every_way_of_writing() {
    let file = |number| version(number).to_yaml();
    let gateway = Gateway::with_yaml(&file(1)).start().await;
    let ways = [
        Way::InPlace,
        Way::Rename,
        Way::DeleteAndCreate,
        Way::Backup,
        Way::Signal,
        Way::Post,
        Way::Put,
    ];
    reloads_under_load(gateway, &ways, file).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_a_swapped_config_map_with_the_counts_in_redis() {
    let redis = Redis::start().await;
    let file = |number| version(number).counting_in(&redis, "load").to_yaml();
    let gateway = Gateway::with_yaml(&file(1)).mounted().start().await;
    reloads_under_load(gateway, &[Way::ConfigMap], file).await;
}

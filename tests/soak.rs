//! Half of what the gateway can do, for a while, with a random fault of its Redis every 5 s: nothing leaks, nobody is stuck.
//!
//! `SOAK_SECONDS` says for how long (20, where it says nothing), `SOAK_SEED` which faults. A short one runs beside other
//! tests, and asks for little.

use std::{fs, str::FromStr, time::Duration};

use fastrand::Rng;
use tokio::time::Instant;

use crate::support::{
    Answered, Crowd, DEADLINE, Gateway, Load, Redis, Relay, Settings, get, pause, redis::Reply, wait_for,
};

/// Each algorithm under one policy, and many counters.
const PATHS: [&str; 15] = [
    "/tb/1", "/lb/1", "/fw/1", "/sl/1", "/sc/1", "/tb/2", "/lb/2", "/fw/2", "/sl/2", "/sc/2", "/tb/3", "/lb/3",
    "/fw/3", "/sl/3", "/sc/3",
];
const CLIENTS: u32 = 60;
/// Where others need the machine too: no more a second, and how long that is so.
const MOST_PER_SECOND: u32 = 1500;
const SHORT: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(5);
/// A wait that no machine explains.
const STUCK: Duration = Duration::from_secs(3);

fn variable<T: FromStr>(name: &str, default: T) -> T {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

fn settings(relay: &Relay) -> Settings {
    let policies = ["local", "open", "closed", "local", "closed"];
    let settings = Settings::answering().section("log: {access: false}").store(&format!(
        "{{redis: {{url: \"redis://{}/0\", prefix: soak}}}}",
        relay.address()
    ));
    crate::support::FIVE
        .iter()
        .zip(policies)
        .fold(settings, |settings, (algorithm, policy)| {
            let layer = algorithm.layer("path", 100, "1s");
            let (start, _) = layer.rsplit_once('}').unwrap();
            settings.limit(&format!("{start}, on_store_failure: {policy}}}"))
        })
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Frozen,
    BlackHole,
    Refused,
    Cut,
    CutByServer,
    Slow,
    Full,
    Flushed,
    Locked,
}

const FAULTS: [Fault; 10] = [
    Fault::Killed,
    Fault::Frozen,
    Fault::BlackHole,
    Fault::Refused,
    Fault::Cut,
    Fault::CutByServer,
    Fault::Slow,
    Fault::Full,
    Fault::Flushed,
    Fault::Locked,
];

impl Fault {
    /// Happens, for so long.
    async fn happen(self, time: Duration, redis: &Redis, relay: &Relay) {
        let order = async |words: &[&str]| {
            let reply = redis.command(words).await;
            assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
        };
        match self {
            Self::Killed => redis.kill(),
            Self::Frozen => redis.freeze(),
            Self::BlackHole => relay.black_hole(true),
            Self::Refused => {
                relay.refuse(true);
                relay.cut();
            }
            Self::Cut => relay.cut(),
            Self::CutByServer => order(&["CLIENT", "KILL", "TYPE", "normal"]).await,
            Self::Slow => relay.delay(Duration::from_millis(100)),
            Self::Full => order(&["CONFIG", "SET", "maxmemory", "1"]).await,
            Self::Flushed => order(&["SCRIPT", "FLUSH"]).await,
            Self::Locked => {
                order(&["CONFIG", "SET", "requirepass", "secret"]).await;
                order(&["CLIENT", "KILL", "TYPE", "normal"]).await;
            }
        }
        pause(time).await;
        match self {
            Self::Killed => redis.start_again().await,
            Self::Frozen => redis.thaw(),
            Self::BlackHole => relay.black_hole(false),
            Self::Refused => relay.refuse(false),
            Self::Cut | Self::CutByServer | Self::Flushed => {}
            Self::Slow => relay.delay(Duration::ZERO),
            Self::Full => order(&["CONFIG", "SET", "maxmemory", "0"]).await,
            Self::Locked => order(&["CONFIG", "SET", "requirepass", ""]).await,
        }
    }
}

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    memory_kib: u64,
    threads: u64,
    files: usize,
}

impl Held {
    fn by(gateway: &Gateway) -> Self {
        let folder = format!("/proc/{}", gateway.pid().as_raw_nonzero());
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        Self {
            memory_kib: field("VmRSS:"),
            threads: field("Threads:"),
            files: fs::read_dir(format!("{folder}/fd")).unwrap().count(),
        }
    }
}

/// Half of what passes when as much as possible is sent.
async fn half_of_capacity(gateway: &Gateway) -> u32 {
    let began = Instant::now();
    let count = 3000;
    Crowd::of(32)
        .to(&[gateway.address()])
        .send(count, |index| get(PATHS[index % PATHS.len()]))
        .await;
    let half = count as f64 / began.elapsed().as_secs_f64() / 2.0;
    (half as u32).max(CLIENTS)
}

/// Faults, one every 5 s, until the time is over.
async fn trouble(time: Duration, seed: u64, redis: &Redis, relay: &Relay) -> Vec<Fault> {
    let mut random = Rng::with_seed(seed);
    let mut seen = Vec::new();
    let began = Instant::now();
    while began.elapsed() + EVERY <= time {
        let fault = *random.choice(&FAULTS).unwrap();
        let lasts = Duration::from_millis(random.u64(200..3_000));
        fault.happen(lasts, redis, relay).await;
        seen.push(fault);
        tokio::time::sleep_until(began + EVERY * u32::try_from(seen.len()).unwrap()).await;
    }
    seen
}

fn judge(answers: &[Answered]) {
    for answered in answers {
        let status = answered.status.unwrap_or_else(|| panic!("lost: {answered:?}"));
        assert!([200, 429, 503].contains(&status), "{answered:?}");
        assert!(answered.waited < STUCK, "{answered:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_leaks_and_nobody_is_stuck_through_random_faults() {
    let time = Duration::from_secs(variable("SOAK_SECONDS", 20));
    let seed = variable("SOAK_SEED", fastrand::u64(..));
    println!("SOAK_SECONDS={} SOAK_SEED={seed}", time.as_secs());
    let redis = Redis::start().await;
    let relay = Relay::to(redis.address()).await;
    let gateway = Gateway::with(&settings(&relay)).start().await;
    gateway.status_says("/store/state", "connected").await;
    let half = half_of_capacity(&gateway).await;
    let per_second = if time < SHORT { half.min(MOST_PER_SECOND) } else { half };
    // Once through a fault, so that all that is there for faults is there.
    Fault::Cut.happen(Duration::from_secs(1), &redis, &relay).await;
    is_quiet(&gateway).await;
    let before = Held::by(&gateway);

    let load = Load::start(gateway.address(), &PATHS, CLIENTS, per_second);
    let faults = trouble(time, seed, &redis, &relay).await;
    gateway.status_says("/store/state", "connected").await;
    let answers = load.stop().await;
    judge(&answers);
    is_quiet(&gateway).await;
    wait_for(DEADLINE, "files to be closed", || async {
        Held::by(&gateway).files <= before.files + 2
    })
    .await;
    let after = Held::by(&gateway);
    let worst = answers.iter().map(|answered| answered.waited).max().unwrap();
    println!(
        "{} requests, {per_second} a second; {faults:?}; worst wait {worst:?}\nbefore {before:?}\nafter  {after:?}",
        answers.len()
    );
    assert!(after.threads <= before.threads + 4, "{before:?}, {after:?}");
    // However long it took; 16 MiB are for what is allocated once.
    assert!(
        after.memory_kib <= before.memory_kib + 16 * 1024,
        "{before:?}, {after:?}"
    );
}

/// Waits until nobody is served, but who asks.
async fn is_quiet(gateway: &Gateway) {
    wait_for(DEADLINE, "no request and no connection", || async {
        gateway.metric("gateway_in_flight_requests", &[]).await == 0.0
            && gateway.metric("gateway_connections", &[]).await <= 1.0
    })
    .await;
}

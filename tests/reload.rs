//! A changed file is taken whole or not at all, while the gateway serves, and counts are kept.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::support::{
    Algorithm, Client, DEADLINE, FIVE, Gateway, Origin, Raw, Redis, Settings, Step, Tally, get, pause, wait_for,
};

/// Answers `/version` with the number of the version, and limits everything else.
fn version(number: u64, limit: u64) -> Settings {
    let settings = Settings::new()
        .route(&format!(
            "{{name: version, path: /version, respond: {{body: \"{number}\"}}}}"
        ))
        .route("{name: all, path: \"/{*rest}\", respond: {body: fine}}");
    FIVE.iter().fold(settings, |settings, algorithm| {
        settings.limit(&algorithm.layer("header:x-user-id", limit, "1d"))
    })
}

/// Clients that ask for the version all the time, and notice an old one.
struct Watchers {
    /// The version that is known to be in force: an answer to a request sent later must not be older.
    in_force: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<u64>>,
}

impl Watchers {
    fn of(gateway: &Gateway, count: usize) -> Self {
        let (in_force, stop) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
        let watch = || {
            let (in_force, stop) = (Arc::clone(&in_force), Arc::clone(&stop));
            let mut client = gateway.client();
            tokio::spawn(async move {
                let mut answers = 0;
                while !stop.load(Ordering::SeqCst) {
                    let oldest = in_force.load(Ordering::SeqCst);
                    let answer = client.get("/version").await;
                    assert!(answer.passed(), "{answer:?}");
                    let version: u64 = answer.text().parse().unwrap();
                    assert!(
                        version >= oldest,
                        "version {version} answered after {oldest} was in force"
                    );
                    answers += 1;
                    tokio::task::yield_now().await;
                }
                answers
            })
        };
        let tasks = (0..count).map(|_| watch()).collect();
        Self { in_force, stop, tasks }
    }

    /// Says that this version is in force from now on.
    fn expect(&self, version: u64) {
        self.in_force.store(version, Ordering::SeqCst);
    }

    /// Ends them. How many answers they saw.
    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        let mut answers = 0;
        for task in self.tasks {
            answers += task.await.unwrap();
        }
        answers
    }
}

/// Waits until the version is the one, asked afresh each time.
async fn is_in_force(gateway: &Gateway, version: u64) {
    wait_for(DEADLINE, &format!("version {version}"), || async {
        gateway.client().get("/version").await.text() == version.to_string()
    })
    .await;
    // A worker that has not taken the new snapshot yet would be the fault that this looks for.
}

/// How many of 20 pass for each algorithm.
async fn passed(gateway: &Gateway) -> [usize; 5] {
    let mut passed = [0; 5];
    for (count, algorithm) in passed.iter_mut().zip(FIVE) {
        let request = get(&algorithm.path()).header("x-user-id", "one");
        *count = gateway
            .client()
            .repeat(20, &request)
            .await
            .iter()
            .collect::<Tally>()
            .passed();
    }
    passed
}

async fn reload_under_load(store: impl Fn(Settings) -> Settings) {
    let gateway = Gateway::with(&store(version(1, 15))).start().await;
    assert_eq!(passed(&gateway).await, [15; 5], "the quota of the first version");
    let watchers = Watchers::of(&gateway, 8);
    for number in 2..=9 {
        // Reordered, too: counters follow the name.
        let limit = if number < 9 { 15 } else { 18 };
        let settings = store(version(number, limit));
        if number % 2 == 0 {
            gateway.write_in_place(&settings);
        } else {
            gateway.write_by_rename(&settings);
        }
        is_in_force(&gateway, number).await;
        watchers.expect(number);
        if number == 5 {
            assert_eq!(passed(&gateway).await, [0; 5], "a reload refilled a counter");
        }
    }
    let answers = watchers.end().await;
    assert!(answers > 100, "only {answers} requests during the reloads");
    // Three more in a day; a bucket's fraction came back meanwhile, but no whole unit.
    assert_eq!(
        passed(&gateway).await,
        [3; 5],
        "what was used stays used, and the new limit counts"
    );
    assert!(
        gateway
            .metric("gateway_config_reloads_total", &[("outcome", "applied")])
            .await
            >= 8.0
    );
}

#[tokio::test]
async fn reloads_under_load_fail_nothing_and_refill_nothing_in_memory() {
    reload_under_load(|settings| settings).await;
}

#[tokio::test]
async fn reloads_under_load_fail_nothing_and_refill_nothing_in_redis() {
    let redis = Redis::start().await;
    reload_under_load(|settings| settings.counting_in(&redis, "reload")).await;
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_reported() {
    let gateway = Gateway::with(&version(1, 15)).start().await;
    let before = gateway.status().await;
    gateway.write_by_rename(&version(2, 15).limit("{name: broken, key: ip, algorithm: token_bucket, rat: 5/s}"));
    gateway.status_says("/config/last_reload/outcome", "rejected").await;
    let status = gateway.status().await;
    let error = status.pointer("/config/last_reload/error").unwrap().as_str().unwrap();
    assert!(error.contains("rat") && error.contains("gateway.yaml:"), "{error}");
    assert_eq!(status.pointer("/config/version"), before.pointer("/config/version"));
    assert_eq!(gateway.client().get("/version").await.text(), "1");
    assert!(
        gateway
            .metric("gateway_config_reloads_total", &[("outcome", "rejected")])
            .await
            >= 1.0
    );
    gateway.write_by_rename(&version(3, 15));
    is_in_force(&gateway, 3).await;
    gateway.status_says("/config/last_reload/outcome", "applied").await;
    let error = gateway.status().await.pointer("/config/last_reload/error").cloned();
    assert_eq!(error, Some(serde_json::Value::Null));
}

#[tokio::test]
async fn a_change_that_needs_a_restart_is_refused_by_name() {
    let gateway = Gateway::with(&version(1, 15)).start().await;
    gateway.write_by_rename(&version(2, 15).listen("127.0.0.2:0"));
    gateway
        .status_says("/config/last_reload/outcome", "restart_required")
        .await;
    let status = gateway.status().await;
    let error = status.pointer("/config/last_reload/error").unwrap().as_str().unwrap();
    assert!(error.contains("listen"), "{error}");
    assert_eq!(gateway.client().get("/version").await.text(), "1");
}

#[tokio::test]
async fn sighup_reads_the_file_again_and_a_touch_changes_nothing() {
    let gateway = Gateway::with(&version(1, 15)).start().await;
    let before = gateway.status().await.pointer("/config/version").cloned();
    gateway.signal(Signal::HUP);
    gateway.status_says("/config/last_reload/outcome", "unchanged").await;
    assert_eq!(gateway.status().await.pointer("/config/version").cloned(), before);
    assert_eq!(
        gateway
            .metric("gateway_config_reloads_total", &[("outcome", "applied")])
            .await,
        0.0
    );
}

#[tokio::test]
async fn a_request_in_flight_ends_under_the_rules_that_it_began_with() {
    let origin = Origin::start().await;
    let go_on = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go_on);
    origin.answers(move |seen| match seen.target.as_str() {
        "/slow" => vec![Step::Wait(Arc::clone(&signal)), Step::ok("from the old rules")],
        _ => vec![Step::ok("old")],
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut slow = Raw::connect(gateway.address()).await;
    slow.send(get("/slow").to_bytes()).await.unwrap();
    origin.has_executed(1).await;
    gateway.write_by_rename(&version(2, 15));
    is_in_force(&gateway, 2).await;
    go_on.notify_one();
    assert_eq!(slow.response_to("GET").await.unwrap().text(), "from the old rules");
}

#[tokio::test]
async fn the_store_may_change_too() {
    let redis = Redis::start().await;
    let gateway = Gateway::with(&version(1, 15)).start().await;
    gateway.write_by_rename(&version(2, 15).counting_in(&redis, "later"));
    is_in_force(&gateway, 2).await;
    let algorithm = Algorithm::FixedWindow;
    let request = get(&algorithm.path()).header("x-user-id", "one");
    Client::to(gateway.address())
        .repeat(20, &request)
        .await
        .iter()
        .collect::<Tally>()
        .expect(15, 5, "in Redis");
    assert_eq!(redis.counters("later").await.len(), 1);
    assert_eq!(gateway.status().await.pointer("/store/kind"), Some(&"redis".into()));
}

/// As where only the file is mounted into a container: its folder hears nothing of a write.
#[tokio::test]
async fn a_write_under_another_name_is_noticed() {
    // The test's log is in the same folder, and would be heard.
    let version = |number| version(number, 15).section("log: {access: false}");
    let gateway = Gateway::with(&version(1)).start().await;
    let elsewhere = TempDir::new_in(gateway.config_path().parent().unwrap().parent().unwrap()).unwrap();
    let other_name = elsewhere.path().join("mounted.yaml");
    fs::hard_link(gateway.config_path(), &other_name).unwrap();
    gateway.write_in_place(&version(2));
    is_in_force(&gateway, 2).await;
    // Right after a change the gateway looks again, watched or not: that is not what this is about.
    pause(Duration::from_millis(300)).await;
    fs::write(&other_name, version(3).to_yaml()).unwrap();
    // Before the poll that looks every three seconds in any case.
    wait_for(Duration::from_secs(2), "the change", || async {
        gateway.client().get("/version").await.text() == "3"
    })
    .await;
}

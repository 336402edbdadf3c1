//! A changed file is taken whole or not at all, while the gateway serves.

use std::{fs, sync::Arc, time::Duration};

use rustix::process::Signal;
use tempfile::TempDir;

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

/// Waits until the version is the one, asked afresh each time.
async fn is_in_force(gateway: &Gateway, version: u64) {
    wait_for(DEADLINE, &format!("version {version}"), || async {
        gateway.client().get("/version").await.text() == version.to_string()
    })
    .await;
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

// Every request got 503, and the reload was told as applied.
#[tokio::test]
async fn a_store_that_answers_is_not_given_up_for_one_that_does_not() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "kept")
        .limit("{name: few, key: ip, algorithm: fixed_window, limit: 3, window: 1d}");
    let gateway = Gateway::with(&settings).start().await;
    let port = redis.address().port();
    let urls = [
        "redis://127.0.0.1:1/0".to_owned(),
        format!("redis://127.0.0.1:{port}/99"),
    ];
    for (rejected, url) in urls.iter().enumerate() {
        let store = format!("{{redis: {{url: \"{url}\", on_failure: closed}}}}");
        gateway.write_by_rename(&settings.clone().store(&store));
        wait_for(DEADLINE, "the rejection", async || {
            let labels = [("outcome", "rejected")];
            gateway.metric("gateway_config_reloads_total", &labels).await > rejected as f64
        })
        .await;
        assert!(gateway.client().get("/").await.passed(), "{url}");
    }
    assert_eq!(
        gateway.client().get("/").await.remaining(),
        0,
        "one counter all the time"
    );
}

// A pipe in the file's place was waited for, and no later change was ever read.
#[tokio::test]
async fn a_pipe_in_the_place_of_the_file_stops_nothing() {
    let gateway = Gateway::with(&version(1, 15)).start().await;
    let path = gateway.config_path();
    fs::remove_file(&path).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    gateway.status_says("/config/last_reload/outcome", "rejected").await;
    gateway.write_by_rename(&version(2, 15));
    is_in_force(&gateway, 2).await;
}

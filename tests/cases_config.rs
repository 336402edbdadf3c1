//! Cases of the kind K18: how a configuration is loaded and reloaded. Case 100 is in `reload_counts`.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    time::{Duration, SystemTime},
};

use crate::support::{
    Gateway, Settings, Way,
    gateway::{check, run_gateway},
    get, pause, wait_for,
};

/// A change has to be in force this soon; the cases say so, and a busy machine is allowed as much again.
const IN_FORCE: Duration = Duration::from_secs(4);

fn limited_to(limit: u64) -> String {
    let layer = format!("{{name: all, key: ip, algorithm: fixed_window, limit: {limit}, window: 1h}}");
    // The test's log is in the same folder, and would be heard.
    let settings = Settings::answering().section("log: {access: false}").limit(&layer);
    settings.to_yaml()
}

async fn limit(gateway: &Gateway) -> Option<i64> {
    gateway.client().send(&get("/")).await.number("x-ratelimit-limit")
}

async fn is_in_force(gateway: &Gateway, expected: i64, what: &str) {
    wait_for(IN_FORCE, &format!("a limit of {expected}: {what}"), || async {
        limit(gateway).await == Some(expected)
    })
    .await;
}

async fn applied(gateway: &Gateway) -> f64 {
    let labels = [("outcome", "applied")];
    gateway.metric("gateway_config_reloads_total", &labels).await
}

/// Case 096.
#[tokio::test]
async fn an_editor_replaces_the_file_and_later_changes_are_seen_too() {
    let gateway = Gateway::with_yaml(&limited_to(1_000)).start().await;
    let path = gateway.config_path();
    gateway.write(Way::InPlace, &limited_to(1_001)).await;
    is_in_force(&gateway, 1_001, "written in place").await;
    gateway.write(Way::Rename, &limited_to(1_002)).await;
    is_in_force(&gateway, 1_002, "renamed over").await;

    fs::remove_file(&path).unwrap();
    for _ in 0..10 {
        assert_eq!(limit(&gateway).await, Some(1_002), "what runs, while there is no file");
        pause(Duration::from_millis(50)).await;
    }
    fs::write(&path, limited_to(1_003)).unwrap();
    is_in_force(&gateway, 1_003, "deleted and made anew").await;

    gateway.write(Way::Backup, &limited_to(1_004)).await;
    is_in_force(&gateway, 1_004, "renamed to a backup, and written anew").await;
    assert_eq!(applied(&gateway).await, 4.0);

    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    gateway.write(Way::Rename, &limited_to(1_004)).await;
    // Long enough for all of that to have been looked at.
    pause(Duration::from_millis(800)).await;
    assert_eq!(applied(&gateway).await, 4.0, "the same content is no change");

    gateway.write(Way::Rename, &limited_to(1_005)).await;
    is_in_force(&gateway, 1_005, "renamed over again").await;
    assert_eq!(applied(&gateway).await, 5.0);
}

/// Case 097.
#[tokio::test]
async fn a_config_map_is_swapped() {
    let gateway = Gateway::with_yaml(&limited_to(1_001)).mounted().start().await;
    for number in 2..=3 {
        gateway.write(Way::ConfigMap, &limited_to(1_000 + number)).await;
        is_in_force(&gateway, 1_000 + i64::try_from(number).unwrap(), "the link was swapped").await;
    }
    gateway.write(Way::ConfigMap, &limited_to(1_004)).await;
    pause(Duration::from_millis(50)).await;
    gateway.write(Way::ConfigMap, &limited_to(1_005)).await;
    is_in_force(&gateway, 1_005, "swapped twice, and the last one counts").await;
    pause(Duration::from_millis(500)).await;
    assert_eq!(limit(&gateway).await, Some(1_005));
}

/// A slip in a file; the place and the words of the answer, or none where it has a meaning that it then keeps.
const SLIPS: [(&str, &str, Option<&[&str]>); 12] = [
    (
        "limit: 10",
        "limt: 10",
        Some(&[":12:5: limits[0].limt: unknown key", "`limit`"]),
    ),
    (
        "window: 60s",
        "window_s: 60",
        Some(&[":13:5: limits[0].window_s: unknown key", "`window`"]),
    ),
    (
        "on_failure: open",
        "on-failure: open",
        Some(&[":4:5: store.redis.on-failure: unknown key", "`on_failure`"]),
    ),
    (
        "body: fine}",
        "body: fine}\n    limits: [{name: b, key: ip}]",
        Some(&[":8:5: routes[0].limits: unknown key"]),
    ),
    (
        "limit: 10",
        "limit: 10\n    limit: 20",
        Some(&[":13:5: limits[0].limit", "second time"]),
    ),
    ("limit: 10", "limit: \"10\"", None),
    (
        "window: 60s",
        "window: 60",
        Some(&[":13:13: limits[0].window: 60 has no unit", "`60s`"]),
    ),
    (
        "limit: 10",
        "limit: 010",
        Some(&[":12:12: limits[0].limit: `010`", "`10`"]),
    ),
    (
        "algorithm: fixed_window",
        "algorithm: FixedWindow",
        Some(&[":11:16: limits[0].algorithm", "`fixed_window`"]),
    ),
    ("key: ip", "key: \"header:\"", Some(&[":10:10: limits[0].key"])),
    (
        "    limit: 10",
        "\tlimit: 10",
        Some(&[":12:1: a tab in the indentation"]),
    ),
    ("limit: 10", "limit : 10", None),
];

const STRICT: &str = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
store: {redis: {url: \"redis://127.0.0.1:1\",
    on_failure: open}}
routes:
  - path: \"/{*rest}\"
    respond: {body: fine}
limits:
  - name: all
    key: ip
    algorithm: fixed_window
    limit: 10
    window: 60s
";

/// Case 099.
#[tokio::test]
async fn no_slip_leaves_a_setting_at_its_default() {
    let gateway = Gateway::with(&Settings::answering().section("log: {access: false}"))
        .start()
        .await;
    for (right, wrong, refused) in SLIPS {
        assert_eq!(STRICT.matches(right).count(), 1, "{right}");
        let yaml = STRICT.replace(right, wrong);
        let (status, told) = check(&yaml);
        let Some(words) = refused else {
            assert_eq!(status, 0, "{wrong}: {told}");
            continue;
        };
        assert_eq!(status, 2, "{wrong}: {told}");
        for word in words {
            assert!(told.contains(word), "{wrong}: no {word:?} in\n{told}");
        }
        let dir = tempfile::TempDir::new().unwrap();
        fs::write(dir.path().join("gateway.yaml"), &yaml).unwrap();
        let started = run_gateway(&["run"], dir.path());
        assert_eq!(started.status.code(), Some(2), "{wrong}");
        let answer = gateway.put_config(&yaml).await;
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
        let problems = answer.json()["problems"].to_string();
        assert!(problems.contains(&words[0].replace('"', "\\\"")), "{wrong}: {problems}");
    }
    // A number in quotes is that number.
    let answer = gateway
        .put_config(&limited_to(10).replace("limit: 10", "limit: \"10\""))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(limit(&gateway).await, Some(10));
}

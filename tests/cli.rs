//! The command line: what it prints, and the exit status that scripts go by (0 fine, 1 failed while running, 2 the
//! configuration or the command line is wrong).

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use limiter_core::test_util::Certificates;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::{
    DEADLINE, Gateway, Settings,
    gateway::{check, run_gateway},
    wait_for,
};

/// Runs the binary; its exit status, and all that it printed.
fn run(arguments: &[&str], dir: &Path) -> (i32, String) {
    let output = run_gateway(arguments, dir);
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gateway.yaml")
}

/// A folder with this gateway.yaml in it.
fn folder(yaml: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("gateway.yaml"), yaml).unwrap();
    dir
}

#[test]
fn check_passes_what_can_run() {
    let (status, text) = check(&Settings::answering().to_yaml());
    assert_eq!(status, 0, "{text}");
    let (status, text) = check(
        r#"{"listen": "127.0.0.1:0", "routes": [{"path": "/{*rest}", "respond": {"status": 204}}], "limits":
        [{"name": "all", "key": "global", "algorithm": "token_bucket", "rate": "5/s"}]}"#,
    );
    assert_eq!(status, 0, "JSON is YAML: {text}");
}

#[test]
fn check_reads_certificates_beside_the_file_and_connects_to_nobody() {
    let (certificates, somebody) = (
        Certificates::make(),
        std::net::TcpListener::bind("127.0.0.1:0").unwrap(),
    );
    somebody.set_nonblocking(true).unwrap();
    let url = format!("rediss://{}", somebody.local_addr().unwrap());
    let store = format!("{{redis: {{url: \"{url}\", tls: {{ca: ca.pem}}}}}}");
    let dir = folder(&Settings::answering().store(&store).to_yaml());
    let elsewhere = TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let check = || run(&["check", "--config", file.to_str().unwrap()], elsewhere.path());
    let (status, text) = check();
    assert_eq!(status, 2, "{text}");
    assert!(
        text.contains("store.redis.tls.ca: `") && text.contains("cannot be read"),
        "{text}"
    );
    fs::copy(certificates.ca(), dir.path().join("ca.pem")).unwrap();
    let (status, text) = check();
    assert_eq!(status, 0, "{text}");
    let nobody = somebody.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn the_shipped_file_is_fine() {
    let dir = TempDir::new().unwrap();
    let file = shipped();
    let (status, text) = run(&["check", "--config", file.to_str().unwrap()], dir.path());
    assert_eq!(status, 0, "{text}");
}

#[test]
fn check_tells_every_problem_with_its_place() {
    let (status, text) = check(
        "listen: 127.0.0.1:0
upstreams:
  orders: {endpoints: [http://127.0.0.1:1]}
routes:
  - path: /a
    upstream: order
  - path: /b
    respond: {status: fine}
limits:
  - name: user
    key: header:x-user-id
    algorithm: token_bucket
    rat: 5/s
  - name: user
    key: ip
    algorithm: fixed_window
    limit: 0
    window: 1m
surprise: yes
",
    );
    assert_eq!(status, 2, "{text}");
    for (place, words) in [
        ("gateway.yaml:6:", &["routes[0].upstream", "orders"][..]),
        ("gateway.yaml:8:", &["routes[1].respond.status"]),
        ("gateway.yaml:13:", &["limits[0].rat", "rate"]),
        ("gateway.yaml:14:", &["limits[1].name", "user"]),
        ("gateway.yaml:17:", &["limits[1].limit"]),
        ("gateway.yaml:19:", &["surprise"]),
    ] {
        let found = text
            .lines()
            .any(|line| line.contains(place) && words.iter().all(|word| line.contains(word)));
        assert!(found, "no line with {place} and {words:?} in:\n{text}");
    }
}

const DOUBTFUL: &str = "{name: l, key: ip, algorithm: token_bucket, rate: 50/s, burst: 5}";

#[test]
fn check_passes_what_is_doubtful_with_a_warning() {
    let (status, text) = check(&Settings::answering().limit(DOUBTFUL).to_yaml());
    assert_eq!(status, 0, "{text}");
    let warning = text
        .lines()
        .find(|line| line.contains("warning: limits[0].burst: 5 pass at once"));
    assert!(warning.is_some_and(|line| line.starts_with("gateway.yaml:")), "{text}");
    assert!(text.contains(", 1 warning\n"), "{text}");
    assert!(!text.contains('\x1b'), "colours where there is no terminal: {text}");
}

#[tokio::test]
async fn warnings_are_logged_after_a_start_and_a_reload() {
    let doubtful = |name: &str| DOUBTFUL.replace("name: l", &format!("name: {name}"));
    let settings = Settings::answering().limit(&doubtful("l"));
    let gateway = Gateway::with(&settings).start().await;
    let warned = |place: &str| {
        gateway
            .log()
            .contains(&format!(" {place}: 5 pass at once, but 50 in a second"))
    };
    assert!(warned("limits[0].burst"), "{}", gateway.log());
    gateway.write_in_place(&settings.limit(&doubtful("m")));
    wait_for(DEADLINE, "the warning", || {
        std::future::ready(warned("limits[1].burst"))
    })
    .await;
}

#[test]
fn the_schema_is_json() {
    let dir = TempDir::new().unwrap();
    let output = run_gateway(&["schema"], dir.path());
    assert!(output.status.success());
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["$defs"]["Redis"]["properties"]["timeout"]["default"], "50ms");
}

#[test]
fn what_is_not_built_yet_is_refused_and_not_ignored() {
    for (section, key) in [
        ("log: {sample_refusals: 0.5}", "log.sample_refusals"),
        ("tracing: {otlp: \"http://127.0.0.1:4317\"}", "tracing"),
    ] {
        let (status, text) = check(&Settings::answering().section(section).to_yaml());
        assert_eq!(status, 2, "{section}: {text}");
        assert!(text.contains(key), "{section}: {text}");
    }
}

#[test]
fn a_missing_file_and_a_wrong_word_are_the_callers_fault() {
    let dir = TempDir::new().unwrap();
    for arguments in [&["check"][..], &["run"], &[], &["check", "--config", "elsewhere.yaml"]] {
        let (status, text) = run(arguments, dir.path());
        assert_eq!(status, 2, "{arguments:?}: {text}");
        assert!(text.contains(".yaml"), "{arguments:?} does not name the file: {text}");
    }
    for arguments in [&["serve"][..], &["run", "--confg", "x"], &["check", "--config"]] {
        let (status, text) = run(arguments, dir.path());
        assert_eq!(status, 2, "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[test]
fn help_and_version() {
    let dir = TempDir::new().unwrap();
    let (status, text) = run(&["--help"], dir.path());
    assert_eq!(status, 0, "{text}");
    for command in ["run", "check", "demo", "schema"] {
        assert!(text.contains(command), "{text}");
    }
    let (status, text) = run(&["--version"], dir.path());
    assert_eq!(status, 0, "{text}");
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}

#[test]
fn a_wrong_file_ends_the_start_with_every_problem() {
    let yaml = Settings::answering().limit("{name: a, kay: ip}").to_yaml();
    let dir = folder(&yaml);
    let (status, text) = run(&["run"], dir.path());
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("limits[0].kay") && text.contains("limits[0]"), "{text}");
}

#[tokio::test]
async fn an_address_that_another_process_has_ends_the_start() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap().to_string();
    for yaml in [
        Settings::answering().listen(&address).to_yaml(),
        Settings::answering()
            .to_yaml()
            .replace("admin: 127.0.0.1:0", &format!("admin: {address}")),
    ] {
        let dir = folder(&yaml);
        let path = dir.path().to_owned();
        let (status, text) = tokio::task::spawn_blocking(move || run(&["run"], &path)).await.unwrap();
        assert_eq!(status, 1, "{text}");
        assert!(text.contains(&address), "it does not say which address: {text}");
    }
}

#[tokio::test]
async fn a_signal_to_end_is_no_failure() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = Gateway::with(&Settings::answering()).start().await;
        assert!(gateway.client().get("/").await.passed());
        gateway.signal(signal);
        assert_eq!(gateway.exit().await.code(), Some(0), "{signal:?}: {}", gateway.log());
    }
}

#[test]
fn signals_are_caught_before_it_says_that_it_listens() {
    for _ in 0..5 {
        let dir = folder("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n");
        let mut gateway = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .current_dir(&dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(gateway.stdout.take().unwrap()).lines();
        log.find(|line| line.as_ref().unwrap().contains(": listening on "));
        let pid = Pid::from_child(&gateway);
        for signal in [Signal::HUP, Signal::TERM] {
            kill_process(pid, signal).unwrap();
        }
        let status = gateway.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

//! The real binary as a child process.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    client::Client,
    http::{get, request},
    settings::Settings,
    wait::{DEADLINE, wait_for},
    ways,
};

/// A gateway that serves; it ends with this guard.
#[derive(Debug)]
pub(crate) struct Gateway {
    dir: TempDir,
    child: Child,
    listener: SocketAddr,
    admin: SocketAddr,
}

/// How a gateway is started.
#[derive(Debug)]
pub(crate) struct Launch {
    yaml: String,
    command: String,
    environment: Vec<(String, String)>,
    is_mounted: bool,
}

impl Launch {
    /// Runs this command of it instead of `run`.
    pub(crate) fn command(mut self, command: &str) -> Self {
        command.clone_into(&mut self.command);
        self
    }

    /// Sets a variable of its environment.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Has its file behind links, as Kubernetes mounts a ConfigMap.
    pub(crate) fn mounted(mut self) -> Self {
        self.is_mounted = true;
        self
    }

    /// Starts it and waits until it is ready.
    pub(crate) async fn start(self) -> Gateway {
        let dir = TempDir::new().unwrap();
        if self.is_mounted {
            ways::mount(dir.path(), &self.yaml);
        } else {
            fs::write(dir.path().join("gateway.yaml"), &self.yaml).unwrap();
        }
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .arg(self.command)
            .current_dir(dir.path())
            .envs(self.environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut gateway = Gateway {
            dir,
            child,
            listener: nowhere,
            admin: nowhere,
        };
        gateway.comes_up().await;
        gateway
    }
}

impl Gateway {
    /// A gateway with these settings, to be started.
    pub(crate) fn with(settings: &Settings) -> Launch {
        Self::with_yaml(&settings.to_yaml())
    }

    /// A gateway with this file, to be started.
    pub(crate) fn with_yaml(yaml: &str) -> Launch {
        Launch {
            yaml: yaml.to_owned(),
            command: "run".to_owned(),
            environment: Vec::new(),
            is_mounted: false,
        }
    }

    async fn comes_up(&mut self) {
        wait_for(DEADLINE, "the gateway's listeners", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the gateway ended with {status}:\n{}", self.log());
            }
            let found = self.find_listeners();
            async move { found }
        })
        .await;
        let ready = || async {
            Client::to(self.admin)
                .try_send(&get("/readyz"))
                .await
                .is_ok_and(|answer| answer.passed())
        };
        wait_for(DEADLINE, "/readyz", ready).await;
    }

    /// Reads the bound addresses from the log.
    fn find_listeners(&mut self) -> bool {
        let log = self.log();
        let addresses = log.lines().filter_map(|line| {
            let (_, rest) = line.split_once("listening on ")?;
            let end = rest
                .find(|c: char| !c.is_ascii_hexdigit() && !".:[]".contains(c))
                .unwrap_or(rest.len());
            Some((line.contains("admin"), rest[..end].parse::<SocketAddr>().ok()?))
        });
        let (mut listener, mut admin) = (None, None);
        for (is_admin, address) in addresses {
            if is_admin {
                admin.get_or_insert(address)
            } else {
                listener.get_or_insert(address)
            };
        }
        if let (Some(listener), Some(admin)) = (listener, admin) {
            (self.listener, self.admin) = (listener, admin);
            return true;
        }
        false
    }

    /// Where it takes traffic.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener
    }

    /// Where it is looked after.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::to(self.listener)
    }

    /// What it has logged so far, without colours.
    pub(crate) fn log(&self) -> String {
        let bytes = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.dir.path().join("gateway.yaml")
    }

    /// Writes its file in place, as an editor may.
    pub(crate) fn write_in_place(&self, settings: &Settings) {
        fs::write(self.config_path(), settings.to_yaml()).unwrap();
    }

    /// Writes a new file beside it and renames that over it, as other editors do.
    pub(crate) fn write_by_rename(&self, settings: &Settings) {
        let new = self.dir.path().join("gateway.yaml.new");
        fs::write(&new, settings.to_yaml()).unwrap();
        fs::rename(new, self.config_path()).unwrap();
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for(DEADLINE, "the gateway's end", || {
            status = self.child.try_wait().unwrap();
            let ended = status.is_some();
            async move { ended }
        })
        .await;
        status.unwrap()
    }

    /// Whether it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// `/api/status`.
    pub(crate) async fn status(&self) -> Value {
        Client::to(self.admin).get("/api/status").await.json()
    }

    /// Waits until `/api/status` says something, found by a JSON pointer.
    pub(crate) async fn status_says(&self, pointer: &str, expected: impl Into<Value>) {
        let expected = expected.into();
        wait_for(
            DEADLINE,
            &format!("{pointer} to be {expected} in /api/status"),
            || async { self.status().await.pointer(pointer) == Some(&expected) },
        )
        .await;
    }

    /// `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        Client::to(self.admin).get("/metrics").await.text()
    }

    /// The sum of the samples of a metric that bear all these labels.
    pub(crate) async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let text = self.metrics().await;
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (family, series_labels) = series.split_once('{').unwrap_or((series, ""));
            let bears = |(key, value): &(&str, &str)| series_labels.contains(&format!("{key}=\"{value}\""));
            (family == name && labels.iter().all(bears)).then(|| value.parse::<f64>().unwrap())
        });
        samples.sum()
    }

    /// Sends a request to the admin listener.
    pub(crate) async fn ask_admin(&self, method: &str, path: &str) -> super::Response {
        Client::to(self.admin).send(&request(method, path)).await
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended already cannot be ended, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
        let log = self.log();
        if std::thread::panicking() {
            let lines: Vec<_> = log.lines().collect();
            eprintln!(
                "the end of the gateway's log:\n{}",
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        } else {
            assert!(!log.contains("panicked at"), "the gateway panicked:\n{log}");
        }
    }
}

/// Runs the binary with these arguments to its end.
pub(crate) fn run_gateway(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs `gateway check` on this file: its exit code, and all that it printed.
pub(crate) fn check(yaml: &str) -> (i32, String) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("gateway.yaml"), yaml).unwrap();
    let output = run_gateway(&["check"], dir.path());
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

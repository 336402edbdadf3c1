//! A real redis-server, for as long as its guard lives.

use std::{
    fs::{self, File},
    io,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tempfile::TempDir;

use super::{
    Certificates, RedisReply,
    redis_reply::{GUARD_USER, redis_command},
    wait::{free_port, holds_in_time, wait_until},
};

/// In an argument: the port, and the second one of servers that need two.
const PORT: &str = "{port}";
pub(super) const SECOND_PORT: &str = "{second}";

/// A redis-server on a free port of 127.0.0.1, with a folder of its own and no persistence. It ends on drop.
///
/// Its methods block, and panic where anything goes wrong: this is for tests.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    /// For TLS, or for the talk between the nodes of a cluster.
    second: u16,
    child: Mutex<Option<Child>>,
    dir: TempDir,
    setup: Setup,
    certificates: Option<Arc<Certificates>>,
}

/// What a server is started with. `{port}` and `{second}` stand for its two ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    pub(super) arguments: Vec<String>,
    /// Of a sentinel: its file, which it writes to.
    pub(super) sentinel_conf: Option<String>,
}

impl Setup {
    /// As the system takes arguments.
    pub(super) fn with<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            sentinel_conf: None,
        }
    }
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// Where redis-server is not installed, or does not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`RedisServer::start`], with more arguments on the command line.
    ///
    /// # Panics
    /// Where redis-server is not installed, or does not start.
    #[must_use]
    pub fn start_with(args: &[&str]) -> Self {
        Self::start_as(Setup::with(args.iter().copied()), None)
    }

    /// Starts a server that takes TLS on [`RedisServer::tls_port`] as well, and asks no client for a certificate.
    ///
    /// # Panics
    /// Where redis-server is not installed, knows no TLS, or does not start.
    #[must_use]
    pub fn start_tls() -> Self {
        Self::start_tls_with("no")
    }

    /// As [`RedisServer::start_tls`], but over TLS it serves only who shows a certificate of its authority.
    ///
    /// # Panics
    /// Where redis-server is not installed, knows no TLS, or does not start.
    #[must_use]
    pub fn start_tls_for_certified_clients() -> Self {
        Self::start_tls_with("yes")
    }

    fn start_tls_with(auth_clients: &str) -> Self {
        let certificates = Certificates::make();
        let mut setup = Setup::with(["--tls-port", SECOND_PORT, "--tls-auth-clients", auth_clients]);
        for (option, file) in [
            ("--tls-cert-file", certificates.server_cert()),
            ("--tls-key-file", certificates.server_key()),
            ("--tls-ca-cert-file", certificates.ca()),
        ] {
            let file = file.into_os_string().into_string().expect("a path of plain text");
            setup.arguments.extend([option.to_owned(), file]);
        }
        Self::start_as(setup, Some(Arc::new(certificates)))
    }

    /// Starts a server that asks everybody for this password.
    ///
    /// # Panics
    /// Where redis-server is not installed, or does not start.
    #[must_use]
    pub fn start_with_password(password: &str) -> Self {
        Self::start_with(&["--requirepass", password])
    }

    /// Starts a server that serves this user, by password, within `rules` (`~gw:* +evalsha`), and nobody else.
    ///
    /// # Panics
    /// Where redis-server is not installed, or does not start.
    #[must_use]
    pub fn start_with_user(user: &str, password: &str, rules: &str) -> Self {
        let secret = format!(">{password}");
        let mut args = vec!["--user", "default", "off", "--user", user, "on", &secret];
        args.extend(rules.split_whitespace());
        Self::start_with(&args)
    }

    /// Starts a replica of `primary`, and waits until it has all that the primary holds.
    ///
    /// # Panics
    /// Where redis-server is not installed, does not start, or does not reach the primary.
    #[must_use]
    pub fn start_replica_of(primary: &Self) -> Self {
        let replica = Self::start_with(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
        replica.wait_until_in_sync();
        replica
    }

    pub(super) fn start_as(setup: Setup, certificates: Option<Arc<Certificates>>) -> Self {
        let mut server = Self::reserve();
        server.setup = setup;
        server.certificates = certificates;
        for _ in 0..5 {
            if server.launch() {
                return server;
            }
            // Another process was faster at one of the ports.
            (server.port, server.second) = (free_port(), free_port());
        }
        panic!("redis-server does not start: {}", server.last_words());
    }

    /// A port and a folder for a server that [`RedisServer::restart`] starts later.
    ///
    /// # Panics
    /// Where there is no free port, or no folder for temporary files.
    #[must_use]
    pub fn reserve() -> Self {
        Self {
            port: free_port(),
            second: free_port(),
            child: Mutex::new(None),
            dir: tempfile::tempdir().expect("a temporary folder for redis-server"),
            setup: Setup::default(),
            certificates: None,
        }
    }

    /// Its port on 127.0.0.1; the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its port for TLS, where it takes that.
    ///
    /// # Panics
    /// Where it was started without TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        assert!(self.certificates.is_some(), "a server that was started with TLS");
        self.second
    }

    /// Its second port, whatever it is for.
    pub(super) fn second_port(&self) -> u16 {
        self.second
    }

    /// Its certificates, where it takes TLS.
    ///
    /// # Panics
    /// Where it was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("a server that was started with TLS")
    }

    /// `redis://127.0.0.1:PORT/0`; of a server with TLS `rediss://127.0.0.1:TLS_PORT/0`.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.certificates {
            Some(_) => format!("rediss://127.0.0.1:{}/0", self.second),
            None => format!("redis://127.0.0.1:{}/0", self.port),
        }
    }

    /// Ends the server at once, as a crash would (SIGKILL). What it held is gone.
    pub fn stop(&self) {
        if let Some(mut child) = self.child().take() {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Starts a server, empty, on the same port, and waits until it answers.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart(&self) {
        self.stop();
        assert!(
            self.launch(),
            "redis-server does not start on port {}: {}",
            self.port,
            self.last_words()
        );
    }

    /// Whether its process runs, be it frozen.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let mut child = self.child();
        child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Freezes the server (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Panics
    /// Where it does not run.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    /// Sends one command over a connection of its own, as a user that may do everything.
    ///
    /// # Panics
    /// Where the server cannot be reached or its reply cannot be read.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> RedisReply {
        match self.try_command(args) {
            Ok(reply) => reply,
            Err(error) => panic!("redis-server on port {}: {args:?}: {error}", self.port),
        }
    }

    /// As [`RedisServer::command`], of a server that may be gone.
    ///
    /// # Errors
    /// Where the server cannot be reached or its reply cannot be read.
    pub fn try_command(&self, args: &[&str]) -> io::Result<RedisReply> {
        redis_command(self.port, args)
    }

    /// Sends one command that has to be answered with OK.
    ///
    /// # Panics
    /// Where it is not.
    pub fn order(&self, args: &[&str]) {
        let reply = self.command(args);
        assert!(reply.is_ok(), "{args:?} on port {}: {reply:?}", self.port);
    }

    /// A field of `INFO`, such as `role`; none where the server is gone or does not tell it.
    #[must_use]
    pub fn info(&self, field: &str) -> Option<String> {
        info_of(self.port, field)
    }

    /// Waits until it is a replica that has all that its primary holds.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn wait_until_in_sync(&self) {
        wait_until("a replica in step with its primary", || self.is_in_sync());
    }

    /// Whether it is a replica that has what its primary held, and is sent what is new.
    ///
    /// Asks the primary: it sends a replica that thinks itself in step nothing before it has heard of it once.
    pub(super) fn is_in_sync(&self) -> bool {
        let acknowledged = || {
            let primary = self.info("master_port")?.parse().ok()?;
            let mut replicas = (0..3).filter_map(|number| info_of(primary, &format!("slave{number}")));
            let own = format!(",port={},", self.port);
            let line = replicas.find(|line| line.contains(&own))?;
            let offset = line.split(',').find_map(|part| part.strip_prefix("offset="))?;
            offset.parse::<u64>().ok()
        };
        self.info("master_link_status").as_deref() == Some("up") && acknowledged() > Some(0)
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: &str) {
        let pid = self.child().as_ref().expect("a running redis-server").id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().expect("kill");
        assert!(status.success(), "kill {signal} {pid}: {status}");
    }

    /// What it wrote, at the end.
    fn last_words(&self) -> String {
        let read = |name| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        let text = read("redis.log") + &read("stderr");
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Whether the server came up.
    fn launch(&self) -> bool {
        match self.spawn() {
            Ok(child) => *self.child() = Some(child),
            Err(error) => panic!("redis-server cannot be started, and these tests need it installed: {error}"),
        }
        let mut answers = false;
        holds_in_time(|| {
            answers = self
                .try_command(&["PING"])
                .is_ok_and(|reply| reply.text() == Some("PONG"));
            answers || !self.is_running()
        });
        // One that answers may still be another's, which was faster at this port.
        if answers && self.is_running() {
            return true;
        }
        self.stop();
        false
    }

    fn spawn(&self) -> io::Result<Child> {
        let [port, second] = [self.port, self.second].map(|port| port.to_string());
        let fill = |text: &str| text.replace(PORT, &port).replace(SECOND_PORT, &second);
        let mut command = Command::new("redis-server");
        if let Some(conf) = &self.setup.sentinel_conf {
            fs::write(self.dir.path().join("sentinel.conf"), fill(conf))?;
            command.args(["sentinel.conf", "--sentinel"]);
        } else {
            // A replica leaves what it was sent.
            drop(fs::remove_file(self.dir.path().join("dump.rdb")));
            // A replica is filled at once: else the primary waits 5 s for more of them to come. And it has something to
            // acknowledge within a second.
            command.args(["--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"]);
            command.args(["--repl-ping-replica-period", "1"]);
        }
        command
            .args([
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--logfile",
                "redis.log",
                "--user",
            ])
            .args(GUARD_USER)
            .args(self.setup.arguments.iter().map(|argument| fill(argument)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.dir.path().join("stderr"))?)
            .spawn()
    }
}

fn info_of(port: u16, field: &str) -> Option<String> {
    let text = redis_command(port, &["INFO"]).ok()?;
    let mut fields = text.text()?.lines().filter_map(|line| line.split_once(':'));
    fields.find_map(|(name, value)| (name == field).then(|| value.to_owned()))
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Talks to the server as redis-cli does, and says what came of it.
    fn cli(args: &[&str]) -> String {
        let output = Command::new("redis-cli").args(args).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
            .trim()
            .to_owned()
    }

    #[test]
    fn it_stops_restarts_empty_and_on_its_port() {
        let server = RedisServer::start();
        server.order(&["SET", "key", "value"]);
        server.stop();
        assert!(!server.is_running());
        server.restart();
        assert_eq!(server.command(&["GET", "key"]), RedisReply::Nil);
    }

    #[test]
    fn with_tls_it_serves_who_trusts_its_authority() {
        let server = RedisServer::start_tls();
        let (port, certificates) = (server.tls_port().to_string(), server.certificates());
        let ping = |ca: &std::path::Path| cli(&["--tls", "-p", &port, "--cacert", ca.to_str().unwrap(), "PING"]);
        assert_eq!(ping(&certificates.ca()), "PONG");
        assert!(ping(&certificates.stranger_ca()).contains("certificate verify failed"));
    }

    #[test]
    fn certified_clients_only_where_asked_for() {
        let server = RedisServer::start_tls_for_certified_clients();
        let certificates = server.certificates();
        let [ca, cert, key] = [certificates.ca(), certificates.client_cert(), certificates.client_key()]
            .map(|file| file.to_str().unwrap().to_owned());
        let port = server.tls_port().to_string();
        let plain = ["--tls", "-p", &port, "--cacert", &ca];
        assert!(!cli(&[&plain[..], &["PING"]].concat()).contains("PONG"));
        let certified = ["--cert", &cert, "--key", &key, "PING"];
        assert_eq!(cli(&[&plain[..], &certified].concat()), "PONG");
    }

    #[test]
    fn a_password_or_a_user_is_asked_for() {
        let server = RedisServer::start_with_password("secret");
        let port = server.port().to_string();
        assert!(cli(&["-p", &port, "PING"]).contains("NOAUTH"));
        assert_eq!(cli(&["--no-auth-warning", "-a", "secret", "-p", &port, "PING"]), "PONG");

        let server = RedisServer::start_with_user("gw", "secret", "~gw:* +@all");
        let port = server.port().to_string();
        let get = |key| {
            cli(&[
                "--no-auth-warning",
                "--user",
                "gw",
                "-a",
                "secret",
                "-p",
                &port,
                "GET",
                key,
            ])
        };
        assert!(cli(&["-p", &port, "PING"]).contains("NOAUTH"));
        assert_eq!(get("gw:key"), "");
        assert!(get("other").contains("NOPERM"), "{}", get("other"));
    }

    #[test]
    fn a_replica_follows() {
        let primary = RedisServer::start();
        primary.order(&["SET", "key", "value"]);
        let replica = RedisServer::start_replica_of(&primary);
        assert_eq!(replica.command(&["GET", "key"]).text(), Some("value"));
        assert_eq!(replica.info("role").as_deref(), Some("slave"));
    }
}

//! A real redis-server, for as long as its guard lives.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

/// How long a server may take to answer its first PING.
const START_ATTEMPTS: u32 = 2_000;
const PAUSE: Duration = Duration::from_millis(5);

/// A redis-server on a free port of 127.0.0.1, with a folder of its own and no persistence. It ends on drop.
///
/// Its methods panic where anything goes wrong: this is for tests.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    child: Option<Child>,
    dir: TempDir,
    args: Vec<String>,
}

/// A reply, as the protocol has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// No value.
    Nil,
    /// A whole number.
    Int(i64),
    /// A status or a value; bytes that are not UTF-8 are replaced.
    Text(String),
    /// An error.
    Error(String),
    /// Several.
    List(Vec<RedisReply>),
}

impl RedisReply {
    /// The number, where it is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The texts of a list.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let Self::List(items) = self else { return Vec::new() };
        let text = |item: &Self| match item {
            Self::Text(text) => Some(text.clone()),
            _ => None,
        };
        items.iter().filter_map(text).collect()
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
        let mut server = Self::reserve();
        server.args = args.iter().map(|&arg| arg.to_owned()).collect();
        for _ in 0..5 {
            if server.launch() {
                return server;
            }
            // Another process was faster at this port.
            server.port = free_port();
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
            child: None,
            dir: tempfile::tempdir().expect("a temporary folder for redis-server"),
            args: Vec::new(),
        }
    }

    /// Its port on 127.0.0.1; the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT/0`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// Ends the server at once, as a crash would. What it held is gone.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Starts a server, empty, on the same port, and waits until it answers.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart(&mut self) {
        self.stop();
        assert!(
            self.launch(),
            "redis-server does not start on port {}: {}",
            self.port,
            self.last_words()
        );
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

    /// Sends one command over a connection of its own.
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

    fn try_command(&self, args: &[&str]) -> io::Result<RedisReply> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        stream.write_all(request.as_bytes())?;
        read_reply(&mut BufReader::new(stream))
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("a running redis-server").id().to_string();
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
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for a process, outside any runtime, up to a bound"
    )]
    fn launch(&mut self) -> bool {
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--logfile", "redis.log"])
            .args(&self.args)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.dir.path().join("stderr")).map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn();
        match child {
            Ok(child) => self.child = Some(child),
            Err(error) => panic!("redis-server cannot be started, and these tests need it installed: {error}"),
        }
        for _ in 0..START_ATTEMPTS {
            let ended = self.child.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(Some(_))));
            if ended {
                self.child = None;
                return false;
            }
            if self
                .try_command(&["PING"])
                .is_ok_and(|r| r == RedisReply::Text("PONG".to_owned()))
            {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        self.stop();
        false
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn read_reply(from: &mut impl BufRead) -> io::Result<RedisReply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => RedisReply::Text(rest.to_owned()),
        "-" => RedisReply::Error(rest.to_owned()),
        ":" => RedisReply::Int(number()?),
        "$" => match usize::try_from(number()?) {
            Err(_) => RedisReply::Nil,
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                RedisReply::Text(String::from_utf8_lossy(&bytes[..length]).into_owned())
            }
        },
        "*" => match usize::try_from(number()?) {
            Err(_) => RedisReply::Nil,
            Ok(length) => RedisReply::List((0..length).map(|_| read_reply(from)).collect::<io::Result<_>>()?),
        },
        _ => return Err(io::Error::other(format!("unknown reply: {line}"))),
    })
}

//! A real redis-server of the test's own.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::wait::{DEADLINE, pause, wait_for};

/// The server; it ends with this guard.
#[derive(Debug)]
pub(crate) struct Redis {
    dir: TempDir,
    address: SocketAddr,
    child: Child,
}

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status or a bulk string.
    Text(String),
    /// A number.
    Number(i64),
    /// Nothing there.
    Nil,
    /// Several.
    List(Vec<Reply>),
    /// A refusal.
    Error(String),
}

impl Redis {
    /// Starts a server on a free port, without persistence.
    ///
    /// # Panics
    ///
    /// If `redis-server` is missing: these tests do not pass without it.
    pub(crate) async fn start() -> Self {
        // Another process may take the port between our look and the server's bind: then it exits, and we look again.
        for _ in 0..5 {
            let dir = TempDir::new().unwrap();
            let address = free_address().await;
            let child = spawn(dir.path(), address);
            let mut redis = Self { dir, address, child };
            if redis.comes_up().await {
                return redis;
            }
        }
        panic!("redis-server did not come up on five ports in a row");
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it answers before it exits.
    async fn comes_up(&mut self) -> bool {
        for _ in 0..2000 {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if matches!(self.try_command(&["PING"]).await, Ok(Reply::Text(_))) {
                return true;
            }
            pause(Duration::from_millis(10)).await;
        }
        false
    }

    /// Ends the server at once: what it held is lost.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after `kill`, empty, on the port that it had.
    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(self.dir.path(), self.address);
        assert!(
            self.comes_up().await,
            "redis-server did not come back on {}",
            self.address
        );
    }

    /// Stops it as a hung host does: connections stay open, nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it run on after `freeze`.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends a command and reads its reply, over a connection of its own.
    pub(crate) async fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words).await.unwrap()
    }

    async fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        let mut stream = TcpStream::connect(self.address).await?;
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        stream.write_all(&bytes).await?;
        timeout(DEADLINE, read_reply(&mut BufReader::new(stream))).await?
    }

    /// All keys that begin with `prefix`, in order.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let Reply::List(keys) = self.command(&["KEYS", &format!("{prefix}*")]).await else {
            panic!("KEYS gave no list")
        };
        let mut keys: Vec<_> = keys.into_iter().map(Reply::into_text).collect();
        keys.sort();
        keys
    }

    /// The keys of counters that begin with `prefix`: all but the gateways' own bookkeeping, which begins with `~`.
    pub(crate) async fn counters(&self, prefix: &str) -> Vec<String> {
        let bookkeeping = format!("{prefix}:~");
        let mut keys = self.keys(prefix).await;
        keys.retain(|key| !key.starts_with(&bookkeeping));
        keys
    }

    /// How long a key still lives: `Some(None)` is for ever, `None` is not there.
    pub(crate) async fn time_to_live(&self, key: &str) -> Option<Option<Duration>> {
        match self.command(&["PTTL", key]).await {
            Reply::Number(-2) => None,
            Reply::Number(-1) => Some(None),
            Reply::Number(ms) => Some(Some(Duration::from_millis(u64::try_from(ms).unwrap()))),
            other => panic!("PTTL gave {other:?}"),
        }
    }

    /// Everything it holds under `prefix`, to compare before and after.
    pub(crate) async fn dump(&self, prefix: &str) -> Vec<(String, Reply)> {
        let mut dump = Vec::new();
        for key in self.counters(prefix).await {
            let value = self.command(&["DUMP", &key]).await;
            dump.push((key, value));
        }
        dump
    }

    /// Waits until some counter begins with `prefix`.
    pub(crate) async fn sees_counters(&self, prefix: &str) {
        wait_for(DEADLINE, "a counter in Redis", || async {
            !self.counters(prefix).await.is_empty()
        })
        .await;
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // A frozen process ends by SIGKILL too. One that is gone already is none of our concern.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Reply {
    /// The text of it.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("no text: {other:?}"),
        }
    }
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn spawn(dir: &Path, address: SocketAddr) -> Child {
    let log = File::create(dir.join("redis.log")).unwrap();
    Command::new("redis-server")
        .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("redis-server cannot be run ({error}); install it, these tests need it"))
}

/// RESP2.
async fn read_reply<R: AsyncBufReadExt + Unpin + Send>(reader: &mut R) -> io::Result<Reply> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).await?;
    let line = String::from_utf8_lossy(&line);
    let Some((kind, rest)) = line.trim_end().split_at_checked(1) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => Reply::Text(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Number(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                reader.read_exact(&mut bytes).await?;
                bytes.truncate(length);
                Reply::Text(bytes.iter().map(|byte| char::from(*byte)).collect())
            }
            Err(_) => Reply::Nil,
        },
        "*" => {
            let mut list = Vec::new();
            for _ in 0..number()?.max(0) {
                list.push(Box::pin(read_reply(reader)).await?);
            }
            Reply::List(list)
        }
        other => return Err(io::Error::other(format!("no reply: {other}{rest}"))),
    })
}

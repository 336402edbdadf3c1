//! The connections, as fred keeps them, and what had to be added around it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{ClientLike, EventInterface, Resp3Frame},
    types::{
        Builder, ClusterHash, CustomCommand, Value,
        config::{Config, Options, ReconnectPolicy, Server, ServerConfig, TlsConnector, UnresponsiveConfig},
    },
};
use tokio::{
    runtime::Handle,
    sync::{Notify, broadcast::error::RecvError},
    task::JoinHandle,
};
use tracing::warn;

use super::{
    config::{Access, Address},
    failure::Failure,
};
use crate::store::StoreError;

/// Pause before a router that ended is started again.
const RESTART_PAUSE: Duration = Duration::from_millis(250);
/// Bound of a connect, and of each command of fred's own that follows it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// The least time without an answer after which a connection counts as dead.
const MIN_UNRESPONSIVE: Duration = Duration::from_millis(250);
/// Longest pause between two attempts to connect, in ms.
const MAX_RECONNECT_PAUSE_MS: u32 = 500;

/// How the script is named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// By its hash.
    EvalSha,
    /// By its text, which also loads it.
    Eval,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::EvalSha => "EVALSHA",
            Self::Eval => "EVAL",
        }
    }
}

/// A few connections to the same server; more than one, so that a stuck one does not stop all.
#[derive(Debug)]
pub(super) struct Connections {
    list: Box<[Connection]>,
    next: AtomicUsize,
    unresponsive: Duration,
    /// A connection, or a call, has failed: wakes the probe.
    pub(super) troubled: Notify,
    /// What fred said last of a connection that broke or could not be made, for the log.
    last_error: Mutex<String>,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    /// Whether fred's router task runs. Where it died, fred's own state may go on saying `Connected`.
    routed: AtomicBool,
}

impl Connection {
    fn is_up(&self) -> bool {
        self.routed.load(Ordering::Acquire) && self.client.is_connected()
    }
}

impl Connections {
    /// Connections that are not being made yet.
    ///
    /// # Errors
    /// Where the access cannot be used.
    pub(super) fn new(
        address: &Address,
        access: &Access,
        connections: usize,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let list = (0..connections.max(1))
            .map(|_| {
                let client = client(address, access, timeout)?;
                let routed = AtomicBool::new(false);
                Ok(Connection { client, routed })
            })
            .collect::<Result<_, StoreError>>()?;
        let next = AtomicUsize::new(0);
        let unresponsive = unresponsive(timeout);
        Ok(Self {
            list,
            next,
            unresponsive,
            troubled: Notify::new(),
            last_error: Mutex::new("not connected yet".to_owned()),
        })
    }

    /// Keeps every connection being made, in tasks of `runtime`, until the returned guards are dropped.
    pub(super) fn supervise(self: &Arc<Self>, runtime: &Handle) -> Vec<TaskGuard> {
        let one = |at| {
            let connections = Arc::clone(self);
            TaskGuard(runtime.spawn(async move { connections.supervise_one(at).await }))
        };
        (0..self.list.len()).map(one).collect()
    }

    /// fred's router task can end for good (an error that it does not recover from), and nothing in fred starts it
    /// again.
    async fn supervise_one(&self, at: usize) {
        let connection = &self.list[at];
        loop {
            connection.routed.store(true, Ordering::Release);
            let mut errors = connection.client.error_rx();
            let mut router = TaskGuard(connection.client.connect());
            let ended = loop {
                tokio::select! {
                    ended = &mut router.0 => break ended,
                    error = errors.recv() => match error {
                        Ok((error, _)) => self.note(error.to_string()),
                        // Some were missed; the next one says as much.
                        Err(RecvError::Lagged(_)) => {}
                        // Nobody tells any more.
                        Err(RecvError::Closed) => break (&mut router.0).await,
                    },
                }
            };
            connection.routed.store(false, Ordering::Release);
            let why = match ended {
                Ok(Ok(())) => "it ended by itself".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            warn!(
                connection = at,
                error = why,
                "the connection to redis gave up; it is started again"
            );
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    }

    fn note(&self, error: String) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        self.troubled.notify_one();
    }

    /// Why no connection is up, as far as is known.
    pub(super) fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long a probe waits: longer than it takes to find a connection dead, so that no other probe is written
    /// meanwhile and puts that off.
    pub(super) fn patience(&self) -> Duration {
        self.unresponsive.saturating_add(self.unresponsive / 2)
    }

    /// Whether any connection is up, as far as is known.
    pub(super) fn any_up(&self) -> bool {
        self.list.iter().any(Connection::is_up)
    }

    /// Runs the script once and gives its reply.
    ///
    /// Never sends twice. A call that timed out before it was written is not written any more.
    pub(super) async fn send(&self, call: Call, args: Vec<Value>, timeout: Duration) -> Result<Bytes, Failure> {
        string(self.ask(call.name(), args, timeout).await?)
    }

    #[allow(dead_code, reason = "clusters, which call it, come next")]
    /// As [`Connections::send`], as a call that a node of a cluster is to run though it is still importing the keys.
    pub(super) async fn send_asking(&self, call: Call, args: Vec<Value>, timeout: Duration) -> Result<Bytes, Failure> {
        let pipeline = self.pick()?.client.pipeline().with_options(&options(timeout));
        let queued: Result<Value, Error> = async {
            pipeline.custom::<Value, Value>(command("ASKING"), Vec::new()).await?;
            pipeline.custom(command(call.name()), args).await
        }
        .await;
        queued.map_err(|error| Failure::from(&error))?;
        // Both are written without anything in between; the reply to the first says nothing.
        match pipeline.last().await.map_err(|error| Failure::from(&error))? {
            Value::Bytes(data) => Ok(data),
            Value::String(text) => Ok(text.into_inner()),
            _ => Err(Failure::Unreadable("it is not a string")),
        }
    }

    /// Sends any command once and gives its reply; an error of the server is a [`Failure`].
    ///
    /// Never sends twice. A command that timed out before it was written is not written any more.
    pub(super) async fn ask(
        &self,
        name: &'static str,
        args: Vec<Value>,
        timeout: Duration,
    ) -> Result<Resp3Frame, Failure> {
        let client = self.pick()?.client.with_options(&options(timeout));
        // Not `evalsha()` and the like: they ignore the options.
        let reply = client.custom_raw(command(name), args).await;
        match reply.map_err(|error| Failure::from(&error))? {
            Resp3Frame::SimpleError { data, .. } => {
                Err(Failure::from(&Error::new(ErrorKind::Unknown, data.to_string())))
            }
            reply => Ok(reply),
        }
    }

    /// Makes every connection anew. Returns once they stand.
    pub(super) async fn reconnect(&self) {
        for connection in &self.list {
            if let Err(error) = connection.client.force_reconnection().await {
                // The supervisor sees to it.
                tracing::debug!(%error, "reconnecting failed");
            }
        }
    }

    /// The next connection, in turn, that is up.
    fn pick(&self) -> Result<&Connection, Failure> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..self.list.len())
            .map(|i| &self.list[start.wrapping_add(i) % self.list.len()])
            .find(|connection| connection.is_up())
            .ok_or_else(|| Failure::Lost(self.last_error()))
    }
}

/// The slot plays no part with a single server.
fn command(name: &'static str) -> CustomCommand {
    CustomCommand::new_static(name, ClusterHash::Custom(0), false)
}

fn options(timeout: Duration) -> Options {
    Options {
        fail_fast: true,
        max_attempts: Some(1),
        // Zero would mean none.
        timeout: Some(timeout.max(Duration::from_millis(1))),
        ..Options::default()
    }
}

fn string(reply: Resp3Frame) -> Result<Bytes, Failure> {
    match reply {
        Resp3Frame::BlobString { data, .. } => Ok(data),
        _ => Err(Failure::Unreadable("it is not a string")),
    }
}

fn client(address: &Address, access: &Access, timeout: Duration) -> Result<Client, StoreError> {
    let fred_config = Config {
        server: ServerConfig::Centralized {
            server: Server::new(address.host.as_str(), address.port),
        },
        username: access.username.clone(),
        password: access.password.clone(),
        database: (access.database != 0).then_some(access.database),
        tls: access
            .tls
            .as_ref()
            .map(|tls| TlsConnector::from(tls.client().clone()).into()),
        // Else a first attempt that fails would be the last.
        fail_fast: false,
        ..Config::default()
    };
    // 0 attempts: for ever. With jitter or a first pause, fred would go on saying `Connected` for that long after a
    // loss, and calls would wait for their deadline instead of failing at once.
    let mut policy = ReconnectPolicy::new_exponential(0, 1, MAX_RECONNECT_PAUSE_MS, 2);
    policy.set_jitter(0);
    let unresponsive = unresponsive(timeout);
    Builder::from_config(fred_config)
        .with_connection_config(|c| {
            c.connection_timeout = CONNECT_TIMEOUT;
            c.internal_command_timeout = CONNECT_TIMEOUT;
            // More would run a script again that may have run.
            c.max_command_attempts = 1;
            // Bounded by the calls in flight instead: with a bound here, the router dies when its own message does not
            // fit.
            c.max_command_buffer_len = 0;
            c.tcp.nodelay = Some(true);
            // Else a write into a black hole blocks until the kernel gives up, many minutes later.
            #[cfg(target_os = "linux")]
            {
                c.tcp.user_timeout = Some(unresponsive.saturating_mul(2));
            }
            // Counts from the last write: it works only because the breaker stops writing.
            c.unresponsive = UnresponsiveConfig {
                max_timeout: Some(unresponsive),
                interval: unresponsive / 4,
            };
        })
        .with_performance_config(|p| p.default_command_timeout = timeout)
        .set_policy(policy)
        .build()
        .map_err(|error| StoreError::Config(error.details().into()))
}

/// How long a connection may owe an answer before it counts as dead.
fn unresponsive(timeout: Duration) -> Duration {
    MIN_UNRESPONSIVE.max(timeout.saturating_mul(2))
}

/// A task that ends with its guard.
#[derive(Debug)]
pub(super) struct TaskGuard<T = ()>(pub(super) JoinHandle<T>);

impl<T> Drop for TaskGuard<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "test-util")]
    #[tokio::test]
    async fn a_router_that_ended_is_started_again() {
        let server = crate::test_util::RedisServer::start();
        let timeout = Duration::from_secs(2);
        let address = Address::new("127.0.0.1", server.port());
        let connections = Arc::new(Connections::new(&address, &Access::default(), 1, timeout).unwrap());
        let _guards = connections.supervise(&Handle::current());
        for _ in 0..3 {
            let up = async {
                while !connections.any_up() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), up)
                .await
                .expect("it is up again");
            let ping = connections.send(Call::Eval, vec!["return 'PONG'".into(), 0.into()], timeout);
            assert_eq!(ping.await.unwrap(), "PONG");
            connections.list[0].client.quit().await.unwrap();
            let lost = connections
                .send(Call::Eval, vec!["return 'PONG'".into(), 0.into()], timeout)
                .await;
            assert!(matches!(lost, Err(Failure::Lost(_))), "{lost:?}");
        }
    }
}

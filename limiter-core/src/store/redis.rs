//! Counters in Redis, shared by any number of processes.
//!
//! A request waits in the [`group`] and leaves in a [`call`]; the [`script`] decides the whole call as one step. The
//! [`breaker`] sees to it that nobody waits for a server that is away, and the [`probe`] finds out when it is back.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fred::types::Value;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};
use tracing::{debug, error, info, warn};

use self::{
    breaker::Breaker,
    connection::{Call, Connections, TaskGuard},
    failure::Failure,
    group::{Batch, Full, Group, Waiter},
    script::{Arguments, LAYERS_MAX, Script, ScriptClock},
    server_clock::ServerClock,
};
use super::{Answer, Ask, Health, Store, StoreError, are_distinct};
use crate::{
    clock::{Clock, MonotonicClock, Timestamp},
    decision::Decision,
};

mod breaker;
mod call;
mod config;
mod connection;
mod failure;
mod group;
mod probe;
pub(crate) mod script;
mod server_clock;
mod tls;
mod url;

pub use config::{Access, Address, AddressError, RedisConfig, Servers};
pub use tls::{ClientIdentity, PemProblem, Tls, TlsError};
pub use url::{RedisUrl, UrlError};

/// Is told of every call to the store, for metrics. Called on the path of decisions: it must be quick.
pub trait StoreObserver: fmt::Debug + Send + Sync + 'static {
    /// A call was answered: how long it took, how many requests it decided.
    fn answered(&self, took: Duration, requests: usize);

    /// A call, or a probe, has no usable answer; `kind` is [`StoreError::kind`]. Or, as `drift`: it has, but the script
    /// decided otherwise than our own arithmetic does, which is a bug.
    fn failed(&self, kind: &'static str);
}

/// Counters in Redis.
///
/// Works without a server: until one is reached, every decision is [`StoreError::Unavailable`], at once.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    /// The connections end with the store.
    _tasks: Vec<TaskGuard>,
}

/// What decisions, calls and probes share.
#[derive(Debug)]
struct Shared {
    config: RedisConfig,
    runtime: Handle,
    clock: MonotonicClock,
    connections: Arc<Connections>,
    script: Script,
    /// Replaces the server's clock, in tests.
    given_clock: Option<Arc<dyn Clock>>,
    group: Group,
    breaker: Breaker,
    server_clock: ServerClock,
    hasher: RandomState,
    observer: Option<Arc<dyn StoreObserver>>,
    /// The breaker has closed.
    closed: Notify,
    /// Tells the calls on their way that no connection is left.
    lost: Notify,
    /// The server that we are connected to is the wrong one.
    misdirected: AtomicBool,
    /// When the last call was answered, in µs of our clock.
    answered_at: AtomicU64,
    /// Calls in which script and replay disagreed.
    drift: AtomicU64,
}

impl RedisStore {
    /// Starts connecting, in tasks of `runtime`; does not wait for the connection.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the configuration cannot be used.
    pub fn start(config: RedisConfig, runtime: &Handle) -> Result<Self, StoreError> {
        Self::start_with(config, runtime, None, None)
    }

    /// As [`RedisStore::start`], with an observer of its calls.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the configuration cannot be used.
    pub fn start_observed(
        config: RedisConfig,
        runtime: &Handle,
        observer: Arc<dyn StoreObserver>,
    ) -> Result<Self, StoreError> {
        Self::start_with(config, runtime, Some(observer), None)
    }

    /// As [`RedisStore::start`], but counters go by `clock` instead of the server's: for tests.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the configuration cannot be used.
    #[cfg(feature = "test-util")]
    pub fn start_with_clock(config: RedisConfig, runtime: &Handle, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start_with(config, runtime, None, Some(clock))
    }

    /// Waits until the server answers, `at_most` so long. Whether it does.
    ///
    /// For a start: what is asked before the first connection stands is [`StoreError::Unavailable`].
    pub async fn wait_connected(&self, at_most: Duration) -> bool {
        let shared = &self.shared;
        let wait = async {
            loop {
                let closed = shared.closed.notified();
                if shared.breaker.is_closed() {
                    return;
                }
                closed.await;
            }
        };
        tokio::time::timeout(at_most, wait).await.is_ok()
    }

    fn start_with(
        config: RedisConfig,
        runtime: &Handle,
        observer: Option<Arc<dyn StoreObserver>>,
        given_clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self, StoreError> {
        let Servers::Standalone(address) = &config.servers else {
            return Err(StoreError::Config("Sentinel and Cluster are not supported yet".into()));
        };
        let connections = Connections::new(address, &config.access, config.connections, config.timeout)?;
        let connections = Arc::new(connections);
        let shared = Arc::new(Shared {
            config,
            runtime: runtime.clone(),
            clock: MonotonicClock::new(),
            connections: Arc::clone(&connections),
            script: Script::new(if given_clock.is_some() {
                ScriptClock::Given
            } else {
                ScriptClock::Server
            }),
            given_clock,
            group: Group::default(),
            breaker: Breaker::new(),
            server_clock: ServerClock::new(),
            hasher: RandomState::new(),
            observer,
            closed: Notify::new(),
            lost: Notify::new(),
            misdirected: AtomicBool::new(false),
            answered_at: AtomicU64::new(0),
            drift: AtomicU64::new(0),
        });
        let mut tasks = connections.supervise(runtime);
        tasks.push(TaskGuard(runtime.spawn(probe::run(Arc::clone(&shared)))));
        Ok(Self { shared, _tasks: tasks })
    }
}

impl Store for RedisStore {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        debug_assert!(are_distinct(asks), "two asks name the same counter: {asks:?}");
        let shared = &self.shared;
        if !shared.breaker.is_closed() {
            return Answer::Ready(Err(StoreError::Unavailable));
        }
        if asks.is_empty() {
            return Answer::Ready(Ok(Decision::unlimited()));
        }
        if asks.len() > LAYERS_MAX {
            return Answer::Ready(Err(StoreError::Protocol("too many layers")));
        }
        let hash = |ask: &Ask<'_>| shared.hasher.hash_one((ask.policy.key_prefix(), ask.key));
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter {
            request: asks.iter().collect(),
            counters: asks.iter().map(hash).collect(),
            deadline: shared.now().plus(shared.config.timeout),
            answer: Some(answer),
        };
        match shared.group.push(waiter) {
            Ok(Some(batch)) => launch(Arc::clone(shared), batch),
            Ok(None) => {}
            Err(Full) => return Answer::Ready(Err(StoreError::Unavailable)),
        }
        // Ends without an answer only where the runtime does.
        Answer::Pending(Box::pin(async move {
            answered.await.unwrap_or(Err(StoreError::Unavailable))
        }))
    }

    fn health(&self) -> Health {
        if self.shared.connections.any_up() {
            self.shared.breaker.health()
        } else {
            Health::Down
        }
    }
}

/// Sends a call in a task of its own: a client that leaves must not take the others along.
fn launch(shared: Arc<Shared>, batch: Batch) {
    let owed = Owed(shared);
    let runtime = owed.0.runtime.clone();
    runtime.spawn(async move { call::run(Arc::clone(&owed.0), batch).await });
}

/// Tells the group that a call has ended, however it ended.
struct Owed(Arc<Shared>);

impl Drop for Owed {
    fn drop(&mut self) {
        for batch in self.0.group.returned() {
            launch(Arc::clone(&self.0), batch);
        }
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs the script once.
    async fn send(&self, call: Call, arguments: &Arguments, timeout: Duration) -> Result<Bytes, Failure> {
        let Arguments { keys, args } = arguments;
        let mut all = Vec::<Value>::with_capacity(3 + keys.len() + args.len());
        all.push(match call {
            Call::EvalSha => self.script.sha1().into(),
            Call::Eval => self.script.text().into(),
        });
        all.push(Value::Integer(i64::try_from(keys.len()).unwrap_or(i64::MAX)));
        all.extend(keys.iter().chain(args).map(|bytes| Value::Bytes(bytes.clone())));
        if let Some(clock) = &self.given_clock {
            all.push(clock.now().as_micros().to_string().into());
        }
        self.connections.send(call, all, timeout).await
    }

    /// A call was answered. `drift` of its decisions differ between script and replay.
    fn call_succeeded(&self, at: Timestamp, took: Duration, requests: usize, drift: usize) {
        if drift > 0 {
            let seen = self.drift.fetch_add(1, Ordering::Relaxed) + 1;
            // The log must not be filled by a bug on a path that is taken often.
            if seen.is_power_of_two() {
                error!(
                    drift,
                    seen, "a bug: the script in redis decided otherwise than its replay; its verdict stands"
                );
            }
            self.count_failure("drift");
        }
        self.breaker.succeeded();
        self.answered_at.store(at.as_micros(), Ordering::Relaxed);
        if let Some(observer) = &self.observer {
            observer.answered(took, requests);
        }
    }

    fn count_failure(&self, kind: &'static str) {
        if let Some(observer) = &self.observer {
            observer.failed(kind);
        }
    }

    /// A call, or a probe, has no usable answer.
    fn call_failed(&self, failure: &Failure) {
        self.count_failure(failure.to_error().kind());
        let opened = match failure {
            Failure::Misdirected(_) => {
                self.misdirected.store(true, Ordering::Relaxed);
                self.breaker.open()
            }
            Failure::Lost(_) if !self.connections.any_up() => self.breaker.open(),
            _ => self.breaker.failed(),
        };
        debug!(?failure, opened, "a call to redis failed");
        self.connections.troubled.notify_one();
        if opened {
            self.opened(failure);
        }
    }

    /// No connection is up. Calls may be stuck in fred's queue, if they were made in the millisecond in which fred had
    /// not yet seen the loss: they are given up.
    fn unconnected(&self) {
        // In this order: a call that begins now either sees the breaker open or is among those that are told.
        let opened = self.breaker.open();
        self.lost.notify_waiters();
        if opened {
            let failure = Failure::Lost(self.connections.last_error());
            self.count_failure(failure.to_error().kind());
            self.opened(&failure);
        }
    }

    /// The breaker has opened: nobody begins to wait any more, and those who had not left in a call are answered.
    fn opened(&self, failure: &Failure) {
        self.announce_loss(failure);
        for mut waiter in self.group.drain() {
            waiter.answer(Err(StoreError::Unavailable));
        }
    }

    fn probe_succeeded(&self) {
        self.answered_at.store(self.now().as_micros(), Ordering::Relaxed);
        if self.breaker.probe_succeeded() {
            self.closed.notify_waiters();
            if self.breaker.announce_return() {
                info!("redis is back: decisions are shared again");
            } else {
                info!("connected to redis");
            }
        }
    }

    fn probe_failed(&self, failure: &Failure) {
        self.breaker.probe_failed();
        self.call_failed(failure);
    }

    fn announce_loss(&self, failure: &Failure) {
        if self.breaker.announce_loss() {
            warn!(error = %failure, "redis is away: the layers' failure policies decide until it is back");
        }
    }

    /// Whether a call was answered less than `limit` ago.
    fn answered_within(&self, limit: Duration) -> bool {
        let at = Timestamp::from_micros(self.answered_at.load(Ordering::Relaxed));
        self.now().since(at) < limit
    }
}

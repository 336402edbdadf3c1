//! One server: its connections, who waits for it, and whether it is asked at all.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fred::types::Value;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
};
use tracing::{debug, info, warn};

use super::{
    breaker::Breaker,
    call,
    cluster::Cluster,
    config::Address,
    connection::{Call, Connections, TaskGuard},
    context::Context,
    failure::Failure,
    group::{Batch, Full, Group, Waiter},
    probe,
    script::Arguments,
    server_clock::ServerClock,
};
use crate::{
    clock::Timestamp,
    store::{Ask, Health, StoreError},
};

mod debts;
mod held;

/// One server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) context: Arc<Context>,
    pub(super) address: Address,
    pub(super) connections: Arc<Connections>,
    pub(super) server_clock: ServerClock,
    pub(super) breaker: Breaker,
    /// Tells the calls on their way that no connection is left.
    pub(super) lost: Notify,
    /// The cluster that it belongs to; of none, nothing is ever found.
    pub(super) cluster: Weak<Cluster>,
    group: Group,
    /// A key that it is the one to ask for, where that is not so of any.
    probe_key: ArcSwapOption<String>,
    /// It said that it is not the one to ask.
    misdirected: AtomicBool,
    /// When the last call was answered, in µs of our clock.
    answered_at: AtomicU64,
}

/// A server that is kept connected and probed, for as long as this lives.
pub(super) struct Running {
    node: Arc<Node>,
    _tasks: Vec<TaskGuard>,
}

impl Running {
    /// Starts connecting; does not wait for the connection.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the settings cannot be used.
    pub(super) fn start(
        address: Address,
        context: &Arc<Context>,
        cluster: Weak<Cluster>,
    ) -> Result<Arc<Self>, StoreError> {
        let config = &context.config;
        let connections = Connections::new(&address, &config.access, config.connections, config.timeout)?;
        let connections = Arc::new(connections);
        let node = Arc::new(Node {
            context: Arc::clone(context),
            address,
            connections: Arc::clone(&connections),
            server_clock: ServerClock::new(),
            breaker: Breaker::new(),
            lost: Notify::new(),
            cluster,
            group: Group::default(),
            probe_key: ArcSwapOption::empty(),
            misdirected: AtomicBool::new(false),
            answered_at: AtomicU64::new(0),
        });
        let mut tasks = connections.supervise(&context.runtime);
        tasks.push(TaskGuard(context.runtime.spawn(probe::run(Arc::clone(&node)))));
        Ok(Arc::new(Self { node, _tasks: tasks }))
    }

    /// The server, without what keeps it going.
    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

impl Deref for Running {
    type Target = Arc<Node>;

    fn deref(&self) -> &Self::Target {
        &self.node
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

/// What was decided, and when.
pub(super) type Decided = Result<(crate::decision::Decision, Moment), StoreError>;

/// One moment on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) server: Timestamp,
    pub(super) ours: Timestamp,
}

impl Node {
    /// Lets a request wait for its decision. All its counters lie in `slot`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where the server is not asked, or too many wait already.
    pub(super) fn ask<'a>(
        self: &Arc<Self>,
        asks: impl Iterator<Item = &'a Ask<'a>> + Clone,
        slot: u16,
    ) -> Result<oneshot::Receiver<Decided>, StoreError> {
        if !self.breaker.is_closed() {
            return Err(StoreError::Unavailable);
        }
        let context = &self.context;
        let hash = |ask: &Ask<'_>| ask.policy.fingerprint(ask.key).hash();
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter {
            request: asks.clone().collect(),
            holds: asks.clone().any(|ask| ask.policy.algorithm().holds()),
            counters: asks.map(hash).collect(),
            slot,
            deadline: context.now().plus(context.config.timeout),
            answer: Some(answer),
            home: Handle::try_current().ok(),
        };
        match self.group.push(waiter) {
            Ok(true) => self.gather(),
            Ok(false) => {}
            Err(Full) => return Err(StoreError::Unavailable),
        }
        Ok(answered)
    }

    /// Sends a call as soon as this runtime has nothing else to do at the moment: whatever it was told of together with
    /// the first request of the call, it has read then, and all of it leaves together.
    fn gather(self: &Arc<Self>) {
        let gathering = Gathering(Arc::clone(self));
        let Ok(runtime) = Handle::try_current() else {
            return drop(gathering);
        };
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            drop(gathering);
        });
    }

    /// Sends what waits, if a call may leave.
    fn flush(self: &Arc<Self>) {
        // Where no connection is up the breaker is about to open, and what is sent until then would be lost.
        if self.breaker.is_closed()
            && self.connections.any_up()
            && let Some(batch) = self.group.next()
        {
            self.launch(batch);
        }
    }

    /// Sends a call in tasks of its own: a client that leaves must not take the others along. In a cluster every slot
    /// has a call of its own.
    fn launch(self: &Arc<Self>, mut batch: Batch) {
        let owed = Arc::new(Owed(Arc::clone(self)));
        if batch.is_alone {
            batch.settlements.splice(..0, self.assertions());
        }
        for part in batch.by_slot() {
            let owed = Arc::clone(&owed);
            let node = Arc::clone(self);
            self.context.runtime.spawn(async move {
                call::run(node, part).await;
                drop(owed);
            });
        }
    }

    /// How the server is doing.
    pub(super) fn health(&self) -> Health {
        if self.connections.any_up() {
            self.breaker.health()
        } else {
            Health::Down
        }
    }

    /// Runs the script once.
    pub(super) async fn send(
        &self,
        call: Call,
        arguments: &Arguments,
        asking: bool,
        timeout: Duration,
    ) -> Result<Bytes, Failure> {
        let Arguments { keys, args } = arguments;
        let script = &self.context.script;
        let mut all = Vec::<Value>::with_capacity(3 + keys.len() + args.len());
        all.push(match call {
            Call::EvalSha => script.sha1().into(),
            Call::Eval => script.text().into(),
        });
        all.push(Value::Integer(i64::try_from(keys.len()).unwrap_or(i64::MAX)));
        all.extend(keys.iter().chain(args).map(|bytes| Value::Bytes(bytes.clone())));
        if let Some(clock) = &self.context.given_clock {
            all.push(clock.now().as_micros().to_string().into());
        }
        if asking {
            self.connections.send_asking(call, all, timeout).await
        } else {
            self.connections.send(call, all, timeout).await
        }
    }

    /// Its clock showed `server` between `sent` and `received`.
    pub(super) fn learn_clock(&self, sent: Timestamp, server: Timestamp, received: Timestamp) {
        self.server_clock.learn(sent, server, received);
        if let (Some(fallback), Some(now)) = (&self.context.fallback, self.server_clock.at(received)) {
            fallback.server_time_is(now);
        }
    }

    /// A call was answered.
    pub(super) fn call_succeeded(&self, at: Timestamp, took: Duration, requests: usize) {
        self.breaker.succeeded();
        self.answered_at.store(at.as_micros(), Ordering::Relaxed);
        self.context.answered(took, requests);
    }

    /// A call, or a probe, has no usable answer.
    pub(super) fn call_failed(&self, failure: &Failure) {
        self.context.failed(failure.to_error().kind());
        let opened = match failure {
            // It is well; its slots are on the move.
            Failure::Moved(_) | Failure::Ask(_) | Failure::TryAgain if self.cluster.strong_count() > 0 => {
                self.context.doubted.notify_one();
                return;
            }
            Failure::Misdirected(_) | Failure::Moved(_) | Failure::Ask(_) => {
                self.context.doubted.notify_one();
                self.misdirected.store(true, Ordering::Relaxed);
                self.breaker.open()
            }
            Failure::Lost(_) if !self.connections.any_up() => self.breaker.open(),
            _ => self.breaker.failed(),
        };
        debug!(server = %self.address, ?failure, opened, "a call to redis failed");
        self.connections.troubled.notify_one();
        if opened {
            self.opened(failure);
        }
    }

    /// No connection is up. Calls may be stuck in fred's queue, if they were made in the millisecond in which fred had
    /// not yet seen the loss: they are given up.
    pub(super) fn unconnected(&self) {
        // In this order: a call that begins now either sees the breaker open or is among those that are told.
        let opened = self.breaker.open();
        self.lost.notify_waiters();
        if opened {
            let failure = Failure::Lost(self.connections.last_error());
            self.context.failed(failure.to_error().kind());
            self.opened(&failure);
        }
    }

    /// The breaker has opened: nobody begins to wait any more, and those who had not left in a call are answered.
    fn opened(&self, failure: &Failure) {
        self.context.lost();
        self.announce_loss(failure);
        self.context.doubted.notify_one();
        for mut waiter in self.group.drain() {
            waiter.answer(Err(StoreError::Unavailable));
        }
    }

    pub(super) fn probe_succeeded(self: &Arc<Self>) {
        self.answered_at
            .store(self.context.now().as_micros(), Ordering::Relaxed);
        // Before anybody is let through: what was admitted meanwhile counts.
        if !self.breaker.is_closed() {
            self.repay();
            if self.context.leases.doubt_all(self.context.now()) {
                self.group.want_alone(true);
            }
            self.context.returned();
        }
        if self.breaker.probe_succeeded() {
            if self.breaker.announce_return() {
                info!(server = %self.address, "redis is back: decisions are shared again");
            } else {
                info!(server = %self.address, "connected to redis");
            }
            self.context.changed.notify_waiters();
            self.flush();
        }
    }

    pub(super) fn probe_failed(&self, failure: &Failure) {
        self.breaker.probe_failed();
        self.call_failed(failure);
        // A server that refuses from the start was never lost: it is told of all the same.
        if !self.breaker.is_closed() {
            self.announce_loss(failure);
        }
    }

    pub(super) fn announce_loss(&self, failure: &Failure) {
        if self.breaker.announce_loss() {
            warn!(
                server = %self.address,
                error = %failure,
                "redis is away: the layers' failure policies decide until it is back"
            );
        }
    }

    /// Sets the key that probes name: one in a slot of this server.
    pub(super) fn set_probe_key(&self, key: Option<String>) {
        self.probe_key.store(key.map(Arc::new));
    }

    /// The key that a probe names.
    pub(super) fn probe_key(&self) -> Bytes {
        match &*self.probe_key.load() {
            Some(key) => Bytes::copy_from_slice(key.as_bytes()),
            None => format!("{}:~probe", self.context.config.prefix).into(),
        }
    }

    /// Whether it said, since this was asked last, that it is not the one to ask.
    pub(super) fn was_misdirected(&self) -> bool {
        self.misdirected.swap(false, Ordering::Relaxed)
    }

    /// Whether a call was answered less than `limit` ago.
    pub(super) fn answered_within(&self, limit: Duration) -> bool {
        let at = Timestamp::from_micros(self.answered_at.load(Ordering::Relaxed));
        self.context.now().since(at) < limit
    }
}

/// Tells the group that all are there, even where the runtime ends.
struct Gathering(Arc<Node>);

impl Drop for Gathering {
    fn drop(&mut self) {
        for batch in self.0.group.gathered() {
            self.0.launch(batch);
        }
    }
}

/// Tells the group that a call has ended, however it ended.
struct Owed(Arc<Node>);

impl Drop for Owed {
    fn drop(&mut self) {
        for batch in self.0.group.returned() {
            self.0.launch(batch);
        }
    }
}

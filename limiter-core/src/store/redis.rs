//! Counters in Redis, shared by any number of processes.
//!
//! A [`node`] is one server: a request waits in its [`group`] and leaves in a [`call`]; the [`script`] decides the whole
//! call as one step. The [`breaker`] sees to it that nobody waits for a server that is away, and the [`probe`] finds out
//! when it is back. Which server is the one to ask is the matter of [`sentinel`] and [`cluster`].

use std::{
    fmt,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot};

use self::{
    cluster::Cluster,
    connection::TaskGuard,
    context::Context,
    node::{Decided, Node, Running},
    script::{LAYERS_MAX, Script, ScriptClock},
    sentinel::Sentinels,
};
use super::{Answer, Ask, Health, Store, StoreError, are_distinct};
use crate::{clock::Clock, decision::Decision, fallback::Fallback, lots::Lots, settlement::Settlement};

mod answer;
mod asker;
mod bans;
mod beat;
mod breaker;
mod call;
mod cluster;
mod config;
mod connection;
mod context;
mod eviction;
mod failure;
mod frame;
mod group;
mod leases;
mod node;
mod probe;
pub(crate) mod script;
mod sentinel;
mod server_clock;
mod tls;
mod url;

pub use bans::BanSharing;
pub use config::{Access, Address, AddressError, RedisConfig, Servers};
pub use tls::{ClientIdentity, PemProblem, Tls, TlsError};
pub use url::{RedisUrl, UrlError};

/// Is told of every call to the store, for metrics. Called on the path of decisions: it must be quick.
pub trait StoreObserver: fmt::Debug + Send + Sync + 'static {
    /// A call was answered: how long it took, how many requests it decided.
    fn answered(&self, took: Duration, requests: usize);

    /// A call, or a probe, has no usable answer; `kind` is [`StoreError::kind`]. Or one of these: `drift`, the script
    /// decided otherwise than our own arithmetic does, which is a bug; `replaced`, a key held something else than a
    /// counter; `unsettled`, units that were to be charged or given back afterwards were not; `evicted`, the server
    /// evicted keys for want of memory.
    fn failed(&self, kind: &'static str);
}

/// How often it is looked whether all is settled.
const LOOK: Duration = Duration::from_millis(5);

/// How often it is looked for lots that have ended: what is left of them may be wanted elsewhere.
const LOTS_PAUSE: Duration = Duration::from_millis(50);

/// Counters in Redis.
///
/// Works without a server: until one is reached, every decision is [`StoreError::Unavailable`], at once.
#[derive(Debug)]
pub struct RedisStore {
    context: Arc<Context>,
    topology: Arc<Topology>,
    lots: Arc<Lots>,
    /// The connections end with the store.
    _tasks: Vec<TaskGuard>,
}

/// What is around a store in Redis: all of it can be left out.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Is told of every call.
    pub observer: Option<Arc<dyn StoreObserver>>,
    /// Decides in place of the servers while they are away. It is told what they say, and what it admits is charged
    /// when they are back.
    pub fallback: Option<Arc<Fallback>>,
    /// Counters go by this clock in place of the servers': for tests.
    pub clock: Option<Arc<dyn Clock>>,
}

/// Which server is asked.
#[derive(Debug)]
enum Topology {
    /// Always the same one.
    Standalone(Arc<Running>),
    /// The one that the sentinels name.
    Sentinel(Arc<Sentinels>),
    /// The one that owns the slot of the counter.
    Cluster(Arc<Cluster>),
}

impl RedisStore {
    /// Starts connecting, in tasks of `runtime`; does not wait for the connection.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the configuration cannot be used.
    pub fn start(config: RedisConfig, runtime: &Handle) -> Result<Self, StoreError> {
        Self::start_with(config, runtime, RedisOptions::default())
    }

    /// Whether the counters of one request may lie at several servers, which decide it in parts.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(&*self.topology, Topology::Cluster(_))
    }

    /// Waits until all servers answer, `at_most` so long. Whether they do.
    ///
    /// For a start: what is asked before the first connection stands is [`StoreError::Unavailable`].
    pub async fn wait_connected(&self, at_most: Duration) -> bool {
        let wait = async {
            loop {
                let changed = self.context.changed.notified();
                if self.topology.is_ready() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(at_most, wait).await.is_ok()
    }

    /// Gateways that live and share these counters, this one among them: as last seen, and 1 before anything was.
    #[must_use]
    pub fn live_gateways(&self) -> u32 {
        self.context.live.load(Ordering::Relaxed)
    }

    /// What is in hand of policies that are taken in [lots](crate::LotTerms), for the limiters over this store. What is left
    /// of a lot goes back when it has ended.
    #[must_use]
    pub fn lots(&self) -> &Arc<Lots> {
        &self.lots
    }

    /// Gives back what is in hand: for a change of policies, after which nobody may ask for it.
    pub fn return_lots(&self) {
        self.give_back(self.lots.take_all());
    }

    fn give_back(&self, lots: Vec<Settlement>) {
        if !lots.is_empty() {
            self.settle(lots);
        }
    }

    /// Tells the servers what they are still to be told: what is to be charged or given back, lots among it, and what the
    /// fallback admitted in their place. Waits for that, and for servers that are away, `at_most` so long. Gives the number of counters
    /// whose servers were not told.
    ///
    /// For the end: what is decided meanwhile may have to be told as well.
    pub async fn settled(&self, at_most: Duration) -> usize {
        self.give_back(self.lots.close());
        let owed = || (self.context.fallback.as_ref()).map_or(0, |fallback| fallback.debtors());
        let wait = async {
            // Each is asked: one that is not settled must not keep the others from it.
            while self.topology.nodes().iter().filter(|node| !node.is_settled()).count() > 0 || owed() > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(at_most, wait).await {
            Ok(()) => 0,
            Err(_) => owed() + self.topology.nodes().iter().map(|node| node.unsettled()).sum::<usize>(),
        }
    }

    /// As [`RedisStore::start`], with what is around it.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the configuration cannot be used.
    pub fn start_with(config: RedisConfig, runtime: &Handle, options: RedisOptions) -> Result<Self, StoreError> {
        let script = Script::new(match options.clock {
            Some(_) => ScriptClock::Given,
            None => ScriptClock::Server,
        });
        let servers = config.servers.clone();
        let context = Context::new(config, runtime.clone(), script, options);
        let mut tasks = Vec::new();
        let topology = match servers {
            Servers::Standalone(address) => Topology::Standalone(Running::start(address, &context, Weak::new())?),
            Servers::Sentinel {
                sentinels: addresses,
                service,
                access,
            } => {
                let sentinels = Arc::new(Sentinels::new(Arc::clone(&context)));
                let watch = sentinel::watch(Arc::clone(&sentinels), addresses, service, access);
                tasks.push(TaskGuard(runtime.spawn(watch)));
                Topology::Sentinel(sentinels)
            }
            Servers::Cluster(seeds) => {
                let cluster = Cluster::new(Arc::clone(&context));
                let watch = cluster::watch::run(Arc::clone(&cluster), seeds);
                tasks.push(TaskGuard(runtime.spawn(watch)));
                Topology::Cluster(cluster)
            }
        };
        let topology = Arc::new(topology);
        context.settle_by(&topology);
        let clock = context.given_clock.clone();
        let clock = clock.unwrap_or_else(|| Arc::new(context.clock));
        let lots = Arc::new(Lots::new(clock, context.runtime.clone()));
        tasks.push(TaskGuard(runtime.spawn(end_lots(
            Arc::clone(&context),
            Arc::clone(&topology),
            Arc::clone(&lots),
        ))));
        let leases = leases::run(Arc::clone(&context), Arc::clone(&topology));
        tasks.push(TaskGuard(runtime.spawn(leases)));
        let beat = beat::run(Arc::clone(&context), Arc::clone(&topology));
        tasks.push(TaskGuard(runtime.spawn(beat)));
        let watch = eviction::run(Arc::clone(&context), Arc::clone(&topology));
        tasks.push(TaskGuard(runtime.spawn(watch)));
        Ok(Self {
            context,
            topology,
            lots,
            _tasks: tasks,
        })
    }
}

impl Store for RedisStore {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        debug_assert!(are_distinct(asks), "two asks name the same counter: {asks:?}");
        if asks.len() > LAYERS_MAX {
            return Answer::Ready(Err(StoreError::Protocol("too many layers")));
        }
        match &*self.topology {
            Topology::Standalone(node) => ask(node, asks),
            Topology::Sentinel(sentinels) => match &*sentinels.primary() {
                Some(node) => ask(node, asks),
                None => Answer::Ready(Err(StoreError::Unavailable)),
            },
            Topology::Cluster(cluster) => cluster.decide(asks),
        }
    }

    fn settle(&self, settlements: Vec<Settlement>) {
        if let Err(dropped) = self.topology.settle(settlements) {
            self.context.unsettled(dropped);
        }
    }

    fn health(&self) -> Health {
        match &*self.topology {
            Topology::Standalone(node) => node.health(),
            Topology::Sentinel(sentinels) => sentinels.health(),
            Topology::Cluster(cluster) => cluster.health(),
        }
    }
}

impl Topology {
    /// Hands settlements to the servers that they are for.
    ///
    /// # Errors
    /// How many were dropped, since no server is known.
    fn settle(&self, settlements: Vec<Settlement>) -> Result<(), usize> {
        let all = settlements.into_iter();
        match self {
            Self::Standalone(node) => node.settle(all.map(|settlement| (0, settlement))),
            Self::Sentinel(sentinels) => match &*sentinels.primary() {
                Some(node) => node.settle(all.map(|settlement| (0, settlement))),
                None => return Err(all.len()),
            },
            Self::Cluster(cluster) => cluster.settle(all),
        }
        Ok(())
    }

    /// Whether all servers are asked.
    fn is_ready(&self) -> bool {
        match self {
            Self::Standalone(node) => node.breaker.is_closed(),
            Self::Sentinel(sentinels) => (sentinels.primary().as_ref()).is_some_and(|node| node.breaker.is_closed()),
            Self::Cluster(cluster) => cluster.is_ready(),
        }
    }

    /// All servers that hold counters, as far as they are known.
    fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::Standalone(node) => vec![Arc::clone(node.node())],
            Self::Sentinel(sentinels) => sentinels
                .primary()
                .iter()
                .map(|running| Arc::clone(running.node()))
                .collect(),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The server that has the gateways' own key `name`.
    fn owner_of(&self, name: &str) -> Option<Arc<Node>> {
        match self {
            Self::Standalone(node) => Some(Arc::clone(node.node())),
            Self::Sentinel(sentinels) => sentinels.primary().as_ref().map(|running| Arc::clone(running.node())),
            Self::Cluster(cluster) => cluster.owner_of(name),
        }
    }
}

/// Gives back what is left of lots that have ended, for ever.
async fn end_lots(context: Arc<Context>, topology: Arc<Topology>, lots: Arc<Lots>) {
    loop {
        lots.wait().await;
        tokio::time::sleep(LOTS_PAUSE).await;
        let left = lots.sweep();
        if !left.is_empty()
            && let Err(dropped) = topology.settle(left)
        {
            context.unsettled(dropped);
        }
    }
}

/// Asks one server about the whole request.
fn ask(node: &Arc<Node>, asks: &[Ask<'_>]) -> Answer {
    if asks.is_empty() {
        return Answer::Ready(Ok(Decision::unlimited()));
    }
    match node.ask(asks.iter(), 0) {
        Ok(answered) => pending(answered, Arc::clone(&node.context)),
        Err(error) => Answer::Ready(Err(error)),
    }
}

/// Ends without an answer only where the server was given up, or the runtime ends.
fn pending(answered: oneshot::Receiver<Decided>, context: Arc<Context>) -> Answer {
    Answer::Pending(Box::pin(async move {
        let (mut decision, at) = answered.await.unwrap_or(Err(StoreError::Unavailable))?;
        if let Some(turn) = &mut decision.turn {
            // It counts from the decision, which was made a while ago: turns would else be apart by how long answers
            // took.
            turn.pass(context.now().since(at.ours));
        }
        Ok(decision)
    }))
}

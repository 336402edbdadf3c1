//! What all servers of a store share.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify};
use tracing::{error, warn};

use super::{Address, RedisConfig, RedisOptions, StoreObserver, Topology, leases::Leases, script::Script};
use crate::{
    algorithm::Counter,
    clock::{Clock, MonotonicClock, Timestamp},
    fallback::Fallback,
    policy::Policy,
};

/// What all servers of a store share: settings, script, time, and who is told.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: RedisConfig,
    pub(super) runtime: Handle,
    pub(super) clock: MonotonicClock,
    pub(super) script: Script,
    /// Replaces the server's clock, in tests.
    pub(super) given_clock: Option<Arc<dyn Clock>>,
    pub(super) observer: Option<Arc<dyn StoreObserver>>,
    /// Decides in place of a server that is away, so it is told what servers say.
    pub(super) fallback: Option<Arc<Fallback>>,
    /// What is held of limits of concurrency.
    pub(super) leases: Leases,
    /// Who has settlements that come by themselves.
    pub(super) topology: OnceLock<Weak<Topology>>,
    pub(super) me: Weak<Self>,
    /// Gateways that live, as far as was seen; 1 before anything was.
    pub(super) live: AtomicU32,
    /// Since when a server is away, in µs of our clock; 0: none is.
    lost_at: AtomicU64,
    /// A server has come back, or another was found: whoever waits for that looks again.
    pub(super) changed: Notify,
    /// A server is away, or is the wrong one to ask: the map of the servers may be out of date.
    pub(super) doubted: Notify,
    /// Decisions in which script and replay disagreed.
    drift: AtomicU64,
    /// Slow calls that the log does not tell of.
    slow_untold: AtomicU64,
    /// When it last told of one, in µs of our clock; 0: never.
    slow_told_at: AtomicU64,
    /// Keys that held something else than a counter.
    replaced: AtomicU64,
    /// Settlements that were not made.
    unsettled: AtomicU64,
}

/// A call that takes longer is told of.
pub(super) const SLOW: Duration = Duration::from_millis(10);
/// The least time between two lines of slow calls.
const SLOW_PAUSE: Duration = Duration::from_secs(10);

/// A call that took long, and what is known of why.
#[derive(Debug)]
pub(super) struct SlowCall<'a> {
    pub(super) server: &'a Address,
    /// From sending it to its answer.
    pub(super) took: Duration,
    /// The part of that before the server ran it: the way there, and calls of others. The clocks are known to within
    /// the quickest round trip, so this is right to about that.
    pub(super) before_it_ran: Option<Duration>,
    pub(super) requests: usize,
    pub(super) counters: usize,
}

impl Context {
    pub(super) fn new(config: RedisConfig, runtime: Handle, script: Script, options: RedisOptions) -> Arc<Self> {
        let holdings = options
            .fallback
            .as_ref()
            .map(|fallback| Arc::clone(fallback.holdings()));
        let context = Arc::new_cyclic(|me| Self {
            config,
            runtime,
            clock: MonotonicClock::new(),
            script,
            given_clock: options.clock,
            observer: options.observer,
            fallback: options.fallback,
            leases: Leases::new(holdings.unwrap_or_default()),
            topology: OnceLock::new(),
            me: Weak::clone(me),
            live: AtomicU32::new(1),
            lost_at: AtomicU64::new(0),
            changed: Notify::new(),
            doubted: Notify::new(),
            drift: AtomicU64::new(0),
            slow_untold: AtomicU64::new(0),
            slow_told_at: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
        });
        Leases::begin(&context);
        context
    }

    /// From now on settlements that come by themselves go to `topology`.
    pub(super) fn settle_by(&self, topology: &Arc<Topology>) {
        self.topology.get_or_init(|| Arc::downgrade(topology));
    }

    /// A server is away.
    pub(super) fn lost(&self) {
        let now = self.now().as_micros();
        // The first counts. Lost again before it is back: the same outage.
        if self.lost_at.load(Ordering::Relaxed) == 0 {
            self.lost_at.store(now, Ordering::Relaxed);
        }
        if let Some(fallback) = &self.fallback {
            fallback.lost();
        }
    }

    /// A server is about to be asked again.
    pub(super) fn returned(&self) {
        let lost_at = self.lost_at.swap(0, Ordering::Relaxed);
        if let (Some(fallback), 1..) = (&self.fallback, lost_at) {
            fallback.returned(self.now().since(Timestamp::from_micros(lost_at)));
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn answered(&self, took: Duration, requests: usize) {
        if let Some(observer) = &self.observer {
            observer.answered(took, requests);
        }
    }

    pub(super) fn failed(&self, kind: &'static str) {
        if let Some(observer) = &self.observer {
            observer.failed(kind);
        }
    }

    /// A call took long. At most one such line in [`SLOW_PAUSE`], whatever happens.
    pub(super) fn slow(&self, call: &SlowCall<'_>) {
        let more = self.slow_untold.fetch_add(1, Ordering::Relaxed);
        let (now, told) = (self.now(), self.slow_told_at.load(Ordering::Relaxed));
        let is_due = told == 0 || now.since(Timestamp::from_micros(told)) >= SLOW_PAUSE;
        // Of those that come together one tells.
        let claim = || {
            self.slow_told_at
                .compare_exchange(told, now.as_micros(), Ordering::Relaxed, Ordering::Relaxed)
        };
        if is_due && claim().is_ok() {
            self.slow_untold.store(0, Ordering::Relaxed);
            warn!(
                server = %call.server,
                took_ms = call.took.as_millis(),
                before_it_ran_ms = call.before_it_ran.map(|time| time.as_millis()),
                requests = call.requests,
                counters = call.counters,
                others_since = more,
                "a call to redis was slow"
            );
        }
    }

    /// In place of `count` counters something else stood in Redis, which was replaced.
    pub(super) fn replaced(&self, count: usize) {
        if let Some(seen) = tell(&self.replaced, count) {
            warn!(
                seen,
                "keys in redis held something else than counters; they were replaced"
            );
        }
        self.failed("replaced");
    }

    /// A server said that the counter of `key` is this now.
    pub(super) fn saw(&self, policy: &Arc<Policy>, key: &str, counter: &Counter) {
        if let Some(fallback) = &self.fallback {
            fallback.saw(policy, key, counter);
        }
    }

    /// `count` settlements were not made: too many waited, or the call with them failed.
    pub(super) fn unsettled(&self, count: usize) {
        if let Some(seen) = tell(&self.unsettled, count) {
            warn!(
                seen,
                "what was to be charged or given back in redis afterwards was lost"
            );
        }
        self.failed("unsettled");
    }

    /// The script decided otherwise than its replay, `drift` times in one call.
    pub(super) fn drifted(&self, drift: usize) {
        if let Some(seen) = tell(&self.drift, drift) {
            error!(
                seen,
                "a bug: the script in redis decided otherwise than its replay; its verdict stands"
            );
        }
        self.failed("drift");
    }
}

/// Adds `count` to what was seen. Gives the sum where it is worth a line in the log: at the first, and each time that
/// it has doubled, so that nothing that happens often fills the log.
fn tell(seen: &AtomicU64, count: usize) -> Option<u64> {
    let before = seen.fetch_add(count as u64, Ordering::Relaxed);
    let after = before + count as u64;
    (before == 0 || before.ilog2() < after.ilog2()).then_some(after)
}

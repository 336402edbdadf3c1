//! Counting while the server is away: the store of the layers that are then decided here (`local`).
//!
//! Each gateway has a share of every quota, and begins with its part of what it last saw used at the server. What it
//! admits is kept in a ledger, as debts that the server is told of when it is back. Shares are counted in a store of
//! their own, which survives: a server that comes and goes gives nobody a fresh share.
//!
//! # Bounds
//!
//! `n` gateways that know of each other and have last seen the same counter never use more together than the whole
//! quota allows one, but for the floors: a share is at least 1, so that a limit below `n` becomes `n`; and the shares of
//! a sliding counter round off less than a unit each, together at most `n − 1`. Beyond that:
//!
//! - A gateway that the number does not count has its share on top. One that never saw a key begins with a fresh share
//!   of it; nor does any know what others admitted after it last saw the key.
//! - A request that costs more than a share passes where nothing of the share is used: at each gateway one at a time.
//!   A bucket then drains that longer than a share's worth; a window forgets it when it ends.
//! - The windows of `first_request` begin at each gateway with its own first request.
//! - Of a sliding log only the number of units is known. They count as taken when they were last seen: never too early.
//! - Where the store is full, counters are evicted, those with the least used first.
//! - What the server itself forgot, in a crash, is not part of the debts: they are what was admitted here.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;

mod counters;
mod held;
mod ledger;
mod server_time;
mod shares;
#[cfg(test)]
mod tests;

use self::{
    ledger::{ACCOUNTS_MAX, Charge, Ledger},
    server_time::ServerTime,
    shares::Shares,
};
use crate::{
    algorithm::{Algorithm, Counter},
    clock::{Clock, MonotonicClock, Timestamp},
    decide::{Layer, decide},
    decision::{Decision, INLINE_LAYERS, Verdict},
    fingerprint::Fingerprint,
    holdings::Holdings,
    policy::{OnFailure, Policy},
    receipt::Receipt,
    settlement::Settlement,
    store::{Answer, Ask, Health, MemoryStore, Store, are_distinct},
    turn::Home,
};

/// Says which policy a counter has, by the prefix of its name and the key.
type FindPolicy = dyn Fn(&str, &str) -> Option<Arc<Policy>> + Send + Sync;

/// How much later than we another gateway may find a server that is back: the longest pause between two attempts to
/// connect, with its jitter.
const APART_MAX: Duration = Duration::from_millis(2_500);

/// A value for each layer.
type PerLayer<T> = SmallVec<[T; INLINE_LAYERS]>;

/// Decides with this process's share of each quota, while the store that all share is away. Always answers, at once.
///
/// One serves for as long as the process runs, whatever stores come and go. They tell it what they see.
pub struct Fallback {
    time: Arc<ServerTime>,
    /// Gateways among which every quota is divided.
    live: AtomicU32,
    shares: Shares,
    policies: RwLock<Box<FindPolicy>>,
    /// Counters of the shares.
    own: MemoryStore,
    /// Counters of the whole, as they were last seen.
    seen: MemoryStore,
    ledger: Ledger,
    /// What requests hold of limits of concurrency, whoever decided.
    holdings: Arc<Holdings>,
    /// Until this time, in µs of ours, other gateways may not have found the server yet.
    apart_until: AtomicU64,
}

/// What was admitted of one counter while the server was away, and still counts.
#[derive(Debug)]
pub struct Debt {
    policy: Arc<Policy>,
    key: Box<str>,
    units: u64,
}

impl Debt {
    /// The counter's policy.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The counter's key, as it was asked.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Units to charge, at least 1. They may be more than are free.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Fallback {
    /// A fallback that keeps at most `max_keys` counters of shares, and as many that were seen: about 100 bytes each.
    #[must_use]
    pub fn new(max_keys: usize) -> Self {
        Self::with_clock(max_keys, Arc::new(MonotonicClock::new()))
    }

    /// As [`Fallback::new`], on a given clock.
    #[must_use]
    pub fn with_clock(max_keys: usize, clock: Arc<dyn Clock>) -> Self {
        let time = Arc::new(ServerTime::new(clock));
        let own = MemoryStore::new(Arc::<ServerTime>::clone(&time), max_keys);
        Self {
            time,
            live: AtomicU32::new(1),
            shares: Shares::default(),
            policies: RwLock::new(Box::new(|_, _| None)),
            seen: own.sibling(max_keys),
            own,
            ledger: Ledger::new(ACCOUNTS_MAX),
            holdings: Arc::default(),
            apart_until: AtomicU64::new(0),
        }
    }

    /// It is `now` at the server. Until this is known, our own time serves.
    pub fn server_time_is(&self, now: Timestamp) {
        self.time.set(now);
    }

    /// From now on a quota is divided among `gateways`, this one included; 0 counts as 1. Counters keep what was used.
    pub fn set_live(&self, gateways: u32) {
        self.live.store(gateways.max(1), Ordering::Relaxed);
    }

    /// From now on `find` says which policy a counter has, by the [`Policy::key_prefix`] and the key. What is owed under a
    /// policy that is gone is owed under that. It is asked while decisions wait: it must be quick.
    pub fn use_policies(&self, find: impl Fn(&str, &str) -> Option<Arc<Policy>> + Send + Sync + 'static) {
        *self.policies.write().unwrap_or_else(PoisonError::into_inner) = Box::new(find);
    }

    fn policy_of(&self, key_prefix: &str, key: &str) -> Option<Arc<Policy>> {
        self.policies.read().unwrap_or_else(PoisonError::into_inner)(key_prefix, key)
    }

    /// Gateways among which a quota is divided; 1 until told.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// The server answered that `counter` is what is used of `policy`'s whole quota.
    pub(crate) fn saw(&self, policy: &Arc<Policy>, key: &str, counter: &Counter) {
        // What others hold says nothing of our share, and what we hold we know.
        if policy.on_failure() != OnFailure::Local || policy.algorithm().holds() {
            return;
        }
        let (algorithm, fingerprint) = (policy.algorithm(), policy.fingerprint(key));
        let remember = |old| counters::remembered(algorithm, counter, old, || self.time.now());
        self.seen.write(fingerprint, algorithm, remember);
    }

    /// The server is back, for us, after an outage of this length. Other gateways may find it so much later, at most
    /// [`APART_MAX`]: until then, what they admitted is not charged there yet, and seems free. So for that long we go on
    /// keeping to our shares too.
    pub(crate) fn returned(&self, outage: Duration) {
        if self.live() > 1 {
            let until = self.time.now().plus(outage.min(APART_MAX));
            self.apart_until.fetch_max(until.as_micros(), Ordering::Relaxed);
        }
    }

    /// The server is away: our shares decide alone.
    pub(crate) fn lost(&self) {
        self.apart_until.store(0, Ordering::Relaxed);
    }

    /// Decides a request with our shares, as [`Store::decide`] does.
    pub fn decide_now(&self, asks: &[Ask<'_>]) -> Decision {
        self.decide_by_shares(asks, true)
    }

    /// As [`Fallback::decide_now`]; `owed`: what is admitted is to be charged at the server afterwards.
    fn decide_by_shares(&self, asks: &[Ask<'_>], owed: bool) -> Decision {
        debug_assert!(are_distinct(asks), "two asks name the same counter: {asks:?}");
        let by = self.live();
        let shares: PerLayer<Arc<Algorithm>> =
            (asks.iter().map(|ask| self.shares.of(ask.policy, by, ask.cost))).collect();
        let layers: PerLayer<Layer<'_>> = (asks.iter().zip(&shares))
            .map(|(ask, algorithm)| Layer {
                algorithm,
                role: ask.policy.role(),
                cost: ask.cost,
                gives_back: ask.policy.gives_back(),
            })
            .collect();
        let names: PerLayer<Fingerprint> = (asks.iter().map(|ask| ask.policy.fingerprint(ask.key))).collect();
        // All of it under the locks of the counters: who is charged in between is not part of a seed.
        self.own.decide_by(&layers, &names, |counters, now| {
            for (((ask, layer), name), counter) in asks.iter().zip(&layers).zip(&names).zip(&mut *counters) {
                self.raise(ask.policy, layer.algorithm, *name, counter, by, now);
            }
            self.show_held(asks, counters);
            let seeds: PerLayer<Option<Counter>> = counters.iter().map(seed).collect();
            let mut decision = decide(&layers, counters, now);
            let charges = asks.iter().zip(&names).zip(seeds).zip(layers.iter().zip(&*counters));
            let charges = charges
                .zip(&decision.readings)
                .filter(|((((ask, _), _), _), reading)| reading.taken > 0 && !ask.policy.algorithm().holds());
            let charges = charges.map(|((((ask, name), seed), (layer, counter)), reading)| Charge {
                fingerprint: *name,
                policy: ask.policy,
                key: ask.key,
                units: reading.taken,
                seed,
                expires_at: layer.algorithm.expires_at(counter),
            });
            if owed {
                self.ledger.charge(charges, now);
                self.hold(asks, &mut decision);
            }
            held::forget(counters);
            decision
        })
    }

    /// Sees to it that a share's counter is not below its part of what was last seen.
    fn raise(&self, policy: &Policy, share: &Algorithm, name: Fingerprint, own: &mut Counter, by: u32, now: Timestamp) {
        self.seen.read(name, |whole, _| {
            if let Some(whole) = whole {
                counters::raise(share, own, (policy.algorithm(), whole), u64::from(by), now);
            }
        });
    }

    /// Empties the ledger, counter by counter: what has to be charged at the server now that it is back. Debts of
    /// policies that are gone, with none in their place, are dropped. Our own counters stay as they are, for the next time.
    ///
    /// What the iterator did not come to stays in the ledger.
    pub fn take_debts(&self) -> impl Iterator<Item = Debt> {
        self.take_debts_of(|_, _| true)
    }

    /// As [`Fallback::take_debts`], but only of the counters that `is_wanted`, by the [`Policy::key_prefix`] and the
    /// key: of several servers, one may be back. It is asked of every counter at once, while decisions wait: it must be
    /// quick.
    pub fn take_debts_of(&self, is_wanted: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = Debt> {
        self.ledger
            .names(is_wanted)
            .into_iter()
            .filter_map(|name| self.take_debt(name))
    }

    fn take_debt(&self, fingerprint: Fingerprint) -> Option<Debt> {
        self.own.read(fingerprint, |own, now| {
            let account = self.ledger.take(fingerprint)?;
            let policy = (account.policy.upgrade()).or_else(|| self.policy_of(&account.key_prefix, &account.key))?;
            let share = self.shares.of(&policy, self.live(), 1);
            let units = account.owed(&share, own, now);
            let key = account.key;
            (units > 0).then_some(Debt { policy, key, units })
        })
    }

    /// Counters held now, our own and those that were seen, expired ones that are not swept yet among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.own.len() + self.seen.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters in the ledger.
    #[must_use]
    pub fn debtors(&self) -> usize {
        self.ledger.len()
    }

    /// Charges so far that the ledger had no place for: they will not be debts.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.ledger.unrecorded()
    }

    /// Looks at about `max` counters of each kind, going round, and removes those that have expired; says how many.
    /// Call it now and then, say once a second with a tenth of `max_keys`.
    pub fn sweep(&self, max: usize) -> usize {
        self.shares.sweep();
        self.ledger.sweep(self.time.now());
        self.own.sweep(max) + self.seen.sweep(max)
    }
}

/// What the ledger keeps of a counter as it was before the first charge.
fn seed(counter: &Counter) -> Option<Counter> {
    match counter {
        Counter::Log(_) => None,
        counter => Some(counter.clone()),
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("live", &self.live())
            .field("time", &self.time)
            .field("debtors", &self.debtors())
            .finish_non_exhaustive()
    }
}

impl Store for Fallback {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        Answer::Ready(Ok(self.decide_now(asks)))
    }

    fn hold_back(&self, asks: &[Ask<'_>], receipt: &mut Option<Box<Receipt>>) -> Option<(PerLayer<usize>, Decision)> {
        let until = self.apart_until.load(Ordering::Relaxed);
        if until == 0 || self.time.now().as_micros() >= until {
            return None;
        }
        let is_ours = |at: &usize| asks[*at].policy.on_failure() == OnFailure::Local;
        let layers: PerLayer<usize> = (0..asks.len()).filter(is_ours).collect();
        let ours: PerLayer<Ask<'_>> = layers.iter().map(|&at| asks[at].clone()).collect();
        let mut decision = self.decide_by_shares(&ours, false);
        if decision.verdict != Verdict::Allowed {
            return Some((layers, decision));
        }
        if let Some(mut charged) = decision.receipt.take() {
            charged.claim(&ours, Home::Share);
            Receipt::join(receipt, Some(charged), &layers);
        }
        None
    }

    /// Settles our shares. What is owed follows from them.
    fn settle(&self, settlements: Vec<Settlement>) {
        for Settlement {
            policy, key, change, ..
        } in settlements
        {
            let share = self.shares.of(&policy, self.live(), 1);
            self.own.settle_one(policy.fingerprint(&key), &share, change);
        }
    }

    /// Where the ledger still has the charge, it is corrected there. Where the server has been told of it, it is for the
    /// server to settle: of a log, whose units are told apart by their times, what comes back is then not found.
    fn settle_charged(&self, charges: Vec<(Timestamp, Settlement)>) -> Vec<Settlement> {
        let is_the_server_s = |charge: (Timestamp, Settlement)| {
            let (at, settlement) = charge;
            let Settlement {
                policy, key, change, ..
            } = &settlement;
            let share = self.shares.of(policy, self.live(), 1);
            let name = policy.fingerprint(key);
            let corrected = self.own.settle_and(name, &share, *change, |counter, now| {
                self.ledger.correct(name, at, *change, share.expires_at(counter), now)
            });
            (!corrected).then_some(settlement)
        };
        charges.into_iter().filter_map(is_the_server_s).collect()
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

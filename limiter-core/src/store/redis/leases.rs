//! What the servers have been told that this process holds of limits of concurrency, and how it stays true.
//!
//! Slots are taken by decisions, and given back by settlements that ride with the next calls. Both change what a server
//! knows by so many, so their order does not matter. But an answer may be lost, and with it the number: what may have run
//! is never sent again. So a server is also told *how many* are held, of each counter four times in the length of its
//! lease, which renews the lease; and soon after a call was lost, and when the server is back from an outage. That is right
//! only while nothing else is on its way. So it leaves in a call that is [alone](super::group::Group::want_alone).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::{Topology, context::Context, group::HOLDS_A_CALL, node::Node};
use crate::{
    algorithm::Algorithm,
    clock::Timestamp,
    decision::Decision,
    held::{Held, Keeper, give_back},
    holdings::{Holding, Holdings, Teller, name},
    policy::Policy,
    settlement::{Change, Settlement, Told},
    store::Ask,
};

/// So many times in its length a lease is renewed.
const RENEWALS: u32 = 4;
/// The least pause between two looks, however much fails.
const LEAST: Duration = Duration::from_millis(2);

/// What one store told its servers.
#[derive(Debug)]
pub(super) struct Leases {
    holdings: Arc<Holdings>,
    book: Mutex<HashMap<Box<str>, Account>>,
    /// The shortest lease in the book when it was last looked at, in µs; 0 where there was none. Under the lock of the book.
    shortest: AtomicU64,
    /// Something is to be told, or held, that was not.
    woken: Notify,
}

/// One counter.
#[derive(Debug)]
struct Account {
    policy: Arc<Policy>,
    key: Box<str>,
    /// Slots that the server will think are held, once all that is given back has been told.
    told: u64,
    /// Slots that are given back, and are on their way to the server.
    unsent: u64,
    /// When the server was told how many are held, or of the first.
    since: Timestamp,
    /// It may think otherwise.
    is_doubted: bool,
}

impl Account {
    fn new(policy: &Arc<Policy>, key: &str, now: Timestamp) -> Self {
        Self {
            policy: Arc::clone(policy),
            key: key.into(),
            told: 0,
            unsent: 0,
            since: now,
            is_doubted: false,
        }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        self.is_doubted || now.since(self.since) >= lease(&self.policy) / RENEWALS
    }

    fn says_nothing(&self) -> bool {
        self.told == 0 && self.unsent == 0 && !self.is_doubted
    }
}

impl Leases {
    pub(super) fn new(holdings: Arc<Holdings>) -> Self {
        Self {
            holdings,
            book: Mutex::default(),
            shortest: AtomicU64::new(0),
            woken: Notify::new(),
        }
    }

    /// What this gateway is called.
    pub(super) fn name(&self) -> u128 {
        self.holdings.name()
    }

    /// What it is called in the state of a counter: the first 53 bits.
    pub(super) fn holder(&self) -> u64 {
        (self.name() >> 75) as u64
    }

    /// `context` tells the servers of what is given back.
    pub(super) fn begin(context: &Arc<Context>) {
        let teller: Weak<Context> = Arc::downgrade(context);
        context.leases.holdings.tell(teller);
    }

    /// A server has decided: what was taken is the request's.
    pub(super) fn claim(&self, asks: &[Ask<'_>], decision: &mut Decision, now: Timestamp) {
        for (ask, reading) in asks.iter().zip(&decision.readings) {
            if reading.taken > 0 && ask.policy.algorithm().holds() {
                // In this order: what is told is never less than what is held.
                self.took(ask.policy, ask.key, reading.taken, now);
                self.holdings.take(ask.policy, ask.key, reading.taken);
            }
        }
        Held::claim(decision, asks, || Keeper::Process(Arc::clone(&self.holdings)));
    }

    fn took(&self, policy: &Arc<Policy>, key: &str, units: u64, now: Timestamp) {
        let mut book = self.book();
        let account = book
            .entry(name(policy, key))
            .or_insert_with(|| Account::new(policy, key, now));
        if account.told == 0 {
            account.since = now;
        }
        account.told = account.told.saturating_add(units);
        self.wake(policy);
    }

    /// Who keeps the leases looks again, where it would else look too late for one of this policy. Under the lock of the
    /// book.
    fn wake(&self, policy: &Policy) {
        let shortest = self.shortest.load(Ordering::Relaxed);
        if shortest == 0 || lease_micros(policy) < shortest {
            self.woken.notify_one();
        }
    }

    /// What a server is to be told of units that were given back, where so many are left: no more than it thinks are held.
    fn give_back(&self, policy: &Arc<Policy>, key: &str, units: u64, left: u64) -> Option<(Box<str>, u64)> {
        let mut book = self.book();
        let name = name(policy, key);
        let account = book.get_mut(&name)?;
        let units = account.told.saturating_sub(left).min(units);
        account.told -= units;
        account.unsent += units;
        (units > 0).then_some((name, units))
    }

    /// It was told of them, or will not be.
    fn settled(&self, name: &str, units: u64) {
        let mut book = self.book();
        if let Some(account) = book.get_mut(name) {
            account.unsent = account.unsent.saturating_sub(units);
            if account.says_nothing() {
                book.remove(name);
            }
        }
    }

    /// What a server thinks of this counter is unknown: a call that named it was lost.
    pub(super) fn doubt(&self, policy: &Arc<Policy>, key: &str, now: Timestamp) {
        if !policy.algorithm().holds() {
            return;
        }
        let mut book = self.book();
        let account = book
            .entry(name(policy, key))
            .or_insert_with(|| Account::new(policy, key, now));
        account.is_doubted = true;
        // The next look is soon enough: what is lost is more likely to be thought held than not, and where calls are lost
        // there is little time for more of them.
        self.wake(policy);
    }

    /// What a server thinks is unknown: it was away. Whether there is anything to tell.
    pub(super) fn doubt_all(&self, now: Timestamp) -> bool {
        self.refresh(now);
        let mut book = self.book();
        book.values_mut().for_each(|account| account.is_doubted = true);
        self.woken.notify_one();
        !book.is_empty()
    }

    /// Takes in what is held that this store has not decided: the fallback has, or another store.
    fn refresh(&self, now: Timestamp) {
        let held = self.holdings.all();
        let mut book = self.book();
        for (name, Holding { policy, key, slots }) in held {
            let account = book.entry(name).or_insert_with(|| Account::new(&policy, &key, now));
            account.is_doubted |= account.told < slots;
            account.policy = policy;
        }
    }

    /// Whether there is something to tell about a counter that is `wanted`.
    fn is_due(&self, now: Timestamp, wanted: impl Fn(&str, &str) -> bool) -> bool {
        let book = self.book();
        let mut due = book.values().filter(|account| account.is_due(now));
        due.any(|account| wanted(account.policy.key_prefix(), &account.key))
    }

    /// Says how many slots are held, of some counters that are `wanted` and due. Nothing else may be on its way to their
    /// server.
    pub(super) fn assertions(&self, now: Timestamp, wanted: impl Fn(&str, &str) -> bool) -> Vec<Settlement> {
        let mut book = self.book();
        let is_ours = |account: &&mut Account| account.is_due(now) && wanted(account.policy.key_prefix(), &account.key);
        let due = book.values_mut().filter(is_ours).take(HOLDS_A_CALL);
        let said = due.map(|account| {
            let slots = self.holdings.slots(&account.policy, &account.key);
            (account.told, account.since, account.is_doubted) = (slots, now, false);
            // What is on its way comes after this.
            let hold = Change::Hold(slots.saturating_add(account.unsent));
            Settlement::new(Arc::clone(&account.policy), account.key.clone(), hold)
        });
        let said: Vec<_> = said.collect();
        book.retain(|_, account| !account.says_nothing());
        if said.len() == HOLDS_A_CALL {
            // There may be more.
            self.woken.notify_one();
        }
        said
    }

    /// How long until something may be due again; `None`: nothing is held.
    fn pause(&self) -> Option<Duration> {
        let book = self.book();
        let shortest = book.values().map(|account| lease_micros(&account.policy)).min();
        self.shortest.store(shortest.unwrap_or(0), Ordering::Relaxed);
        shortest.map(|shortest| Duration::from_micros(shortest) / (2 * RENEWALS))
    }

    /// Every change is complete before anything could panic.
    fn book(&self) -> MutexGuard<'_, HashMap<Box<str>, Account>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Units that were given back, until the server has been told.
#[derive(Debug)]
struct Unsent {
    context: Weak<Context>,
    name: Box<str>,
    units: u64,
}

impl Told for Unsent {}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(context) = self.context.upgrade() {
            context.leases.settled(&self.name, self.units);
        }
    }
}

impl Teller for Context {
    fn released(&self, policy: &Arc<Policy>, key: &str, units: u64, left: u64) {
        let Some((name, units)) = self.leases.give_back(policy, key, units, left) else {
            return;
        };
        let mut settlement = give_back(policy, key, units);
        let context = Weak::clone(&self.me);
        settlement.told = Some(Arc::new(Unsent { context, name, units }));
        if let Some(topology) = self.topology.get().and_then(Weak::upgrade) {
            // Where no server is known, it will be told how many are held.
            topology.settle(vec![settlement]).unwrap_or_default();
        }
    }
}

/// Keeps the leases, for ever.
pub(super) async fn run(context: Arc<Context>, topology: Arc<Topology>) {
    loop {
        let woken = context.leases.woken.notified();
        match context.leases.pause() {
            Some(pause) => drop(timeout(pause, woken).await),
            None => woken.await,
        }
        let now = context.now();
        context.leases.refresh(now);
        for node in topology.nodes() {
            if node.breaker.is_closed() && context.leases.is_due(now, |policy, key| node.has(policy, key)) {
                renew(node);
            }
        }
        sleep(LEAST).await;
    }
}

/// Tells a server, in a call that is alone: if that cannot leave within half of a deadline, no longer at the expense of
/// all others.
fn renew(node: Arc<Node>) {
    node.want_alone(true);
    let patience = node.context.config.timeout / 2;
    let runtime = node.context.runtime.clone();
    runtime.spawn(async move {
        sleep(patience).await;
        node.want_alone(false);
    });
}

fn lease_micros(policy: &Policy) -> u64 {
    u64::try_from(lease(policy).as_micros()).unwrap_or(u64::MAX)
}

fn lease(policy: &Policy) -> Duration {
    match policy.algorithm() {
        Algorithm::Concurrency(concurrency) => concurrency.lease(),
        _ => Duration::MAX,
    }
}

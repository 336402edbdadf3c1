//! The connections to one server: a few, each made again for ever, and what can be asked over them.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fred::{interfaces::Resp3Frame, types::Value};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
};
use tracing::{debug, info, warn};

use self::{
    backoff::Backoff,
    link::{Link, Refused, Settings},
};
use super::{
    config::{Access, Address},
    failure::Failure,
};
use crate::{
    clock::{Clock, MonotonicClock},
    store::StoreError,
};

mod backoff;
mod link;
#[cfg(test)]
mod tests;

/// The least time without an answer after which a connection counts as dead.
const MIN_UNRESPONSIVE: Duration = Duration::from_millis(250);
/// Attempts in a row that fail until the log is told of it, where the other connections stand.
const MANY_ATTEMPTS: u32 = 6;

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
///
/// Whatever is sent is sent once. It ends in time, or as soon as its connection breaks; then it may have run.
#[derive(Debug)]
pub(super) struct Connections {
    address: Address,
    settings: Settings,
    list: Box<[Slot]>,
    next: AtomicUsize,
    unresponsive: Duration,
    clock: MonotonicClock,
    /// A connection, or a call, has failed: wakes the probe.
    pub(super) troubled: Notify,
    /// A connection was made: the server can be asked.
    pub(super) made: Notify,
    /// Why the last connection broke, or could not be made.
    last_error: Mutex<String>,
    /// What the log was told of connections that cannot be made.
    told: Mutex<Option<String>>,
}

/// The place of a connection: holds it while it stands.
type Slot = watch::Sender<Option<Arc<Link>>>;

impl Connections {
    /// Connections that are not being made yet. `timeout` is that of a decision.
    ///
    /// # Errors
    /// [`StoreError::Config`] where fred would not take the access.
    pub(super) fn new(
        address: &Address,
        access: &Access,
        connections: usize,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            address: address.clone(),
            settings: Settings::new(address, access, timeout)?,
            list: (0..connections.max(1)).map(|_| Slot::new(None)).collect(),
            next: AtomicUsize::new(0),
            unresponsive: MIN_UNRESPONSIVE.max(timeout.saturating_mul(2)),
            clock: MonotonicClock::new(),
            troubled: Notify::new(),
            made: Notify::new(),
            last_error: Mutex::new("not connected yet".to_owned()),
            told: Mutex::default(),
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

    async fn supervise_one(&self, at: usize) {
        let slot = &self.list[at];
        let mut backoff = Backoff::new();
        let mut failed: u32 = 0;
        loop {
            let began = self.clock.now();
            let stood = match Link::connect(&self.settings).await {
                Ok((link, router)) => {
                    self.tell_made(std::mem::take(&mut failed));
                    let since = self.clock.now();
                    let link = Arc::new(link);
                    slot.send_replace(Some(Arc::clone(&link)));
                    self.made.notify_one();
                    let why = link.broken(router, self.unresponsive).await;
                    slot.send_replace(None);
                    self.note(why);
                    Some(self.clock.now().since(since))
                }
                Err(refused) => {
                    failed = failed.saturating_add(1);
                    self.tell_refused(&refused, failed);
                    self.note(refused.why);
                    None
                }
            };
            let due = began.plus(backoff.next(stood, fastrand::f64()));
            tokio::time::sleep(due.since(self.clock.now())).await;
        }
    }

    /// Tells what only we know: what is said by a server that is there, but not for us, and that a connection is missing
    /// while others stand. That there is none at all is told elsewhere. Once, until one that was missing is made.
    fn tell_refused(&self, Refused { why, is_told }: &Refused, failed: u32) {
        if *is_told || failed >= MANY_ATTEMPTS && self.any_up() {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.as_ref() != Some(why) {
                warn!(server = %self.address, error = why, "a connection to redis cannot be made");
                *told = Some(why.clone());
            }
        }
    }

    fn tell_made(&self, failed: u32) {
        let told = (failed > 0).then(|| self.told.lock().unwrap_or_else(PoisonError::into_inner).take());
        if told.flatten().is_some() {
            info!(server = %self.address, "the connection to redis is made");
        }
    }

    fn note(&self, why: String) {
        debug!(server = %self.address, error = why, "no connection to redis");
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = why;
        self.troubled.notify_one();
    }

    /// Why the last connection broke, or could not be made.
    pub(super) fn last_error(&self) -> String {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How long a probe waits: longer than it takes to find a connection dead.
    pub(super) fn patience(&self) -> Duration {
        self.unresponsive.saturating_add(self.unresponsive / 2)
    }

    /// Whether any connection stands.
    pub(super) fn any_up(&self) -> bool {
        self.list.iter().any(|slot| standing(slot).is_some())
    }

    /// Runs the script once and gives its reply.
    pub(super) async fn send(&self, call: Call, args: Vec<Value>, timeout: Duration) -> Result<Bytes, Failure> {
        match self.ask(call.name(), args, timeout).await? {
            Resp3Frame::BlobString { data, .. } => Ok(data),
            _ => Err(Failure::Unreadable("it is not a string")),
        }
    }

    /// As [`Connections::send`], as a call that a node of a cluster is to run though it is still importing the keys.
    pub(super) async fn send_asking(&self, call: Call, args: Vec<Value>, timeout: Duration) -> Result<Bytes, Failure> {
        let (slot, link) = self.pick()?;
        match self
            .over(slot, &link, link.ask_asking(call.name(), args, timeout))
            .await?
        {
            Value::Bytes(data) => Ok(data),
            Value::String(text) => Ok(text.into_inner()),
            _ => Err(Failure::Unreadable("it is not a string")),
        }
    }

    /// Sends any command once and gives its reply; an error of the server is a [`Failure`].
    pub(super) async fn ask(
        &self,
        name: &'static str,
        args: Vec<Value>,
        timeout: Duration,
    ) -> Result<Resp3Frame, Failure> {
        let (slot, link) = self.pick()?;
        self.over(slot, &link, link.ask(name, args, timeout)).await
    }

    /// Waits for `reply`, at most until the connection over which it was asked breaks: fred leaves those without an
    /// answer whom its router has not seen when it ends.
    async fn over<T>(
        &self,
        slot: &Slot,
        link: &Arc<Link>,
        reply: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut slot = slot.subscribe();
        let stands = |now: &Option<Arc<Link>>| now.as_ref().is_some_and(|now| Arc::ptr_eq(now, link));
        tokio::select! {
            biased;
            reply = reply => reply,
            _ = slot.wait_for(|now| !stands(now)) => Err(Failure::Lost(self.last_error())),
        }
    }

    /// Makes every connection anew, as fast as the back-off allows. Returns once they stand.
    pub(super) async fn reconnect(&self) {
        let old: Vec<_> = self.list.iter().map(|slot| slot.borrow().clone()).collect();
        for link in old.iter().flatten() {
            link.give_up();
        }
        for (slot, old) in self.list.iter().zip(old) {
            let is_new = |now: &Option<Arc<Link>>| match (now, &old) {
                (Some(now), Some(old)) => !Arc::ptr_eq(now, old),
                (now, _) => now.is_some(),
            };
            // Cannot fail: the sender is ours.
            drop(slot.subscribe().wait_for(is_new).await);
        }
    }

    /// The next connection, in turn, that stands.
    fn pick(&self) -> Result<(&Slot, Arc<Link>), Failure> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..self.list.len())
            .map(|i| &self.list[start.wrapping_add(i) % self.list.len()])
            .find_map(|slot| standing(slot).map(|link| (slot, link)))
            .ok_or_else(|| Failure::Lost(self.last_error()))
    }
}

fn standing(slot: &Slot) -> Option<Arc<Link>> {
    slot.borrow().as_ref().filter(|link| link.stands()).cloned()
}

/// A task that ends with its guard.
#[derive(Debug)]
pub(super) struct TaskGuard<T = ()>(pub(super) JoinHandle<T>);

impl<T> Drop for TaskGuard<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

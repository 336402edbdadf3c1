//! One call: a batch of requests goes to Redis, and everyone in it is answered in time.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    answer,
    connection::Call,
    context::{SLOW, SlowCall},
    failure::Failure,
    group::{Batch, Waiter},
    node::{Moment, Node},
    script::{self, Added, Replay, Reply},
};
use crate::{clock::Timestamp, settlement::Change, store::StoreError};

/// Repetitions of a call, at most. One after another server was named, one to load the script there, one where it came
/// too late by a clock that we had a wrong idea of; and once more all that, in a cluster whose slots are on the move.
const MAX_REPEATS: u32 = 6;
/// How far from what is known the server's time may be, so that a call with a window of a calendar need not be repeated.
const APART_AT_MOST: Duration = Duration::from_secs(3_600);
/// Pause before a call is repeated whose keys are apart while their slot is moved.
const APART_PAUSE: Duration = Duration::from_millis(2);

/// Sends `batch` and answers everyone in it, each at its own deadline at the latest, as well as a timer can.
///
/// A call is repeated only where the server says that nothing ran.
pub(super) async fn run(node: Arc<Node>, mut batch: Batch) {
    let until = deadline(&node, &batch);
    let mut route = Route::new(Arc::clone(&node));
    for repeat in 0..=MAX_REPEATS {
        let at = Arc::clone(&route.node);
        let sent = at.context.now();
        let script_batch = gather(&node, &mut batch, sent);
        if batch.is_empty() {
            return;
        }
        let about = not_later_than(at.server_clock.at(sent).unwrap_or(sent));
        let arguments = script_batch.arguments(&at.context.config.prefix, at.server_clock.at(until), about);
        let send = at.send(route.call, &arguments, route.asking, until.since(sent));
        let result = in_time(&at, &mut batch, until, send).await;
        let received = at.context.now();
        let failure = match result.and_then(|bytes| script_batch.replay(&bytes).map_err(Failure::from)) {
            Ok(Reply::Decided(replay)) => {
                at.learn_clock(sent, replay.now, received);
                return decided(&at, &script_batch, batch, replay, (sent, received));
            }
            Ok(Reply::Late(now)) => {
                at.learn_clock(sent, now, received);
                Failure::Late
            }
            Err(failure) => failure,
        };
        if repeat == MAX_REPEATS || !route.follow(&failure, &mut batch).await {
            return fail(&node, &at, batch, &failure);
        }
    }
}

/// A time before that of the server, which is `about`, or will be when the call comes there.
///
/// A call has the edges of two windows of a calendar, which are longer than that: just after one has begun, by what is
/// known, the server may still be in the one before. It tells where that is not enough, for instance where nothing was
/// known of its time and ours is of no use.
fn not_later_than(about: Timestamp) -> Timestamp {
    let margin = u64::try_from(APART_AT_MOST.as_micros()).unwrap_or(0);
    Timestamp::from_micros(about.as_micros().saturating_sub(margin))
}

/// The last deadline of those in the batch. Settlements have none of their own.
fn deadline(node: &Node, batch: &Batch) -> Timestamp {
    let last = batch.waiters.iter().map(|waiter| waiter.deadline).max();
    last.unwrap_or_else(|| node.context.now().plus(node.context.config.timeout))
}

/// Where a call goes, and how.
struct Route {
    node: Arc<Node>,
    call: Call,
    /// It goes to the server that a slot is being moved to.
    asking: bool,
    was_late: bool,
}

impl Route {
    fn new(node: Arc<Node>) -> Self {
        Self {
            node,
            call: Call::EvalSha,
            asking: false,
            was_late: false,
        }
    }

    /// Whether the call is to be repeated, with what the server said of it. The batch may be made smaller for that.
    async fn follow(&mut self, failure: &Failure, batch: &mut Batch) -> bool {
        match failure {
            Failure::NoScript if self.call == Call::EvalSha => self.call = Call::Eval,
            Failure::Late if !self.was_late => self.was_late = true,
            Failure::Moved(to) | Failure::Ask(to) => {
                // Without a cluster there is nobody else to ask.
                let Some(cluster) = self.node.cluster.upgrade() else {
                    return false;
                };
                let asking = matches!(failure, Failure::Ask(_));
                if !asking {
                    cluster.doubt();
                }
                keep_changes(&self.node, batch);
                let Some(node) = cluster.node(to) else {
                    return false;
                };
                *self = Self {
                    asking,
                    ..Self::new(node)
                };
            }
            Failure::TryAgain if batch.waiters.len() + batch.settlements.len() > 1 => {
                keep_changes(&self.node, batch);
                for part in std::mem::take(batch).one_by_one() {
                    spawn(&self.node, part);
                }
            }
            Failure::TryAgain => sleep(APART_PAUSE).await,
            _ => return false,
        }
        true
    }
}

/// Sends a batch in a call of its own.
fn spawn(node: &Arc<Node>, batch: Batch) {
    // The box breaks the cycle of types: a call may start another.
    let call: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run(Arc::clone(node), batch));
    node.context.runtime.spawn(call);
}

/// Encodes those in `batch` who still wait; the others are dropped from it.
///
/// Who has no place in the same call (while two versions of a configuration are in use, a counter's parameters may
/// differ) goes in a call of its own.
fn gather(node: &Arc<Node>, batch: &mut Batch, now: Timestamp) -> script::Batch {
    expire(&mut batch.waiters, now);
    let mut script_batch = script::Batch::new(node.context.leases.holder());
    let mut apart = Batch::default();
    for settlement in std::mem::take(&mut batch.settlements) {
        match script_batch.settle(&settlement.1) {
            Added::NextBatch => apart.settlements.push(settlement),
            Added::Yes | Added::TooManyLayers => batch.settlements.push(settlement),
        }
    }
    for mut waiter in std::mem::take(&mut batch.waiters) {
        if waiter.is_gone() {
            continue;
        }
        let added = script_batch.add(&waiter.request.asks());
        match added {
            Added::Yes => batch.waiters.push(waiter),
            Added::NextBatch => apart.waiters.push(waiter),
            Added::TooManyLayers => waiter.answer(Err(StoreError::Protocol("too many layers"))),
        }
    }
    if !apart.is_empty() {
        spawn(node, apart);
    }
    script_batch
}

/// Waits for `send`, and meanwhile tells those whose deadline comes that there was no answer.
///
/// It is given up with the last connection: it may be stuck in fred's queue.
async fn in_time(
    node: &Node,
    batch: &mut Batch,
    until: Timestamp,
    send: impl Future<Output = Result<Bytes, Failure>>,
) -> Result<Bytes, Failure> {
    let lost = || Err(Failure::Lost("given up with the last connection".to_owned()));
    let (mut send, mut given_up) = (pin!(send), pin!(node.lost.notified()));
    if !node.breaker.is_closed() {
        return lost();
    }
    loop {
        let now = node.context.now();
        expire(&mut batch.waiters, now);
        let waiting = batch.waiters.iter().filter(|w| w.answer.is_some());
        let next = match waiting.map(|w| w.deadline).min() {
            Some(next) => next,
            None if batch.settlements.is_empty() || until <= now => return Err(Failure::Timeout),
            None => until,
        };
        tokio::select! {
            biased;
            result = &mut send => return result,
            () = &mut given_up => return lost(),
            // Never early, and up to a millisecond late.
            () = sleep(next.since(now).max(Duration::from_micros(100))) => {}
        }
    }
}

fn expire(waiters: &mut [Waiter], now: Timestamp) {
    for waiter in waiters.iter_mut().filter(|waiter| waiter.deadline <= now) {
        waiter.answer(Err(StoreError::Timeout));
    }
}

/// Everyone is answered; `sent` and `received` say when.
fn decided(
    node: &Arc<Node>,
    script_batch: &script::Batch,
    batch: Batch,
    replay: Replay,
    (sent, received): (Timestamp, Timestamp),
) {
    let context = &node.context;
    let took = received.since(sent);
    if took > SLOW {
        context.slow(&SlowCall {
            server: &node.address,
            took,
            before_it_ran: node.server_clock.at(sent).map(|sent| replay.now.since(sent)),
            requests: batch.waiters.len(),
            counters: replay.counters.len(),
        });
    }
    node.call_succeeded(received, took, batch.waiters.len());
    node.repay_late();
    if replay.drift > 0 {
        context.drifted(replay.drift);
    }
    if replay.replaced > 0 {
        context.replaced(replay.replaced);
    }
    let at = Moment {
        server: replay.now,
        ours: node
            .server_clock
            .ours(replay.now)
            .unwrap_or(received)
            .clamp(sent, received),
    };
    let claimed = batch
        .waiters
        .into_iter()
        .zip(replay.decisions)
        .map(|(waiter, mut decision)| {
            if waiter.holds {
                context.leases.claim(&waiter.request.asks(), &mut decision, received);
            }
            (waiter, decision)
        });
    answer::all(claimed, at);
    // Last: nobody waits for it.
    for ((policy, key), counter) in script_batch.keys().zip(&replay.counters) {
        context.saw(policy, key, counter);
    }
}

/// Nobody is answered by the server: it failed the call, at `at`, that began at `home`.
fn fail(home: &Arc<Node>, at: &Arc<Node>, batch: Batch, failure: &Failure) {
    at.call_failed(failure);
    let error = failure.to_error();
    doubt(home, &batch);
    for mut waiter in batch.waiters {
        waiter.answer(Err(error.clone()));
    }
    let mut settlements = batch.settlements;
    settlements.retain(|(_, settlement)| !settlement.heals());
    if failure.is_harmless() {
        home.settle_later(settlements);
    } else if !settlements.is_empty() {
        // They may have been made: never twice.
        home.context.unsettled(settlements.len());
    }
}

/// Takes out what says how many slots are held: that would be right only in a call that is alone, at that server. It is
/// told anew.
fn keep_changes(node: &Node, batch: &mut Batch) {
    let now = node.context.now();
    batch.settlements.retain(|(_, settlement)| {
        let is_change = !matches!(settlement.change, Change::Hold(_));
        if !is_change {
            node.context.leases.doubt(&settlement.policy, &settlement.key, now);
        }
        is_change
    });
}

/// What the server thinks that we hold is unknown: it is told anew.
fn doubt(home: &Node, batch: &Batch) {
    let (leases, now) = (&home.context.leases, home.context.now());
    for waiter in batch.waiters.iter().filter(|waiter| waiter.holds) {
        for ask in waiter.request.asks() {
            leases.doubt(ask.policy, ask.key, now);
        }
    }
    for (_, settlement) in &batch.settlements {
        leases.doubt(&settlement.policy, &settlement.key, now);
    }
}

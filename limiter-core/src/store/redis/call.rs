//! One call: a batch of requests goes to Redis, and everyone in it is answered in time.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    Shared,
    connection::Call,
    failure::Failure,
    group::{Batch, Waiter},
    script::{self, Added, Replay, Reply},
};
use crate::{clock::Timestamp, store::StoreError};

/// Sends `batch` and answers everyone in it, each at its own deadline at the latest, as well as a timer can.
///
/// A call is repeated only where the server says that nothing ran: once where it does not know the script, once where
/// the call came too late by its clock, of which we had a wrong idea.
pub(super) async fn run(shared: Arc<Shared>, mut batch: Batch) {
    let mut call = Call::EvalSha;
    let mut may_be_late = true;
    loop {
        let sent = shared.now();
        let script_batch = gather(&shared, &mut batch, sent);
        let Some(last) = batch.iter().map(|waiter| waiter.deadline).max() else {
            return;
        };
        let arguments = script_batch.arguments(&shared.config.prefix, shared.server_clock.at(last));
        let send = shared.send(call, &arguments, last.since(sent));
        let result = in_time(&shared, &mut batch, send).await;
        let received = shared.now();
        let reply = match result {
            Err(Failure::NoScript) if call == Call::EvalSha => {
                call = Call::Eval;
                continue;
            }
            result => result.and_then(|bytes| script_batch.replay(&bytes).map_err(Failure::from)),
        };
        match reply {
            Ok(Reply::Decided(replay)) => {
                shared.server_clock.learn(sent, replay.now, received);
                shared.call_succeeded(received, received.since(sent), batch.len(), replay.drift);
                return deliver(batch, replay);
            }
            Ok(Reply::Late(now)) => {
                shared.server_clock.learn(sent, now, received);
                if !std::mem::take(&mut may_be_late) {
                    shared.call_failed(&Failure::Timeout);
                    return fail(batch, &StoreError::Timeout);
                }
            }
            Err(failure) => {
                shared.call_failed(&failure);
                return fail(batch, &failure.to_error());
            }
        }
    }
}

/// Encodes those in `batch` who still wait; the others are dropped from it.
///
/// Who has no place in the same call (while two versions of a configuration are in use, a policy's parameters may
/// differ) goes in a call of its own.
fn gather(shared: &Arc<Shared>, batch: &mut Batch, now: Timestamp) -> script::Batch {
    expire(batch, now);
    let mut script_batch = script::Batch::new();
    let mut apart = Batch::new();
    for mut waiter in std::mem::take(batch) {
        if waiter.is_gone() {
            continue;
        }
        let added = script_batch.add(&waiter.request.asks());
        match added {
            Added::Yes => batch.push(waiter),
            Added::NextBatch => apart.push(waiter),
            Added::TooManyLayers => waiter.answer(Err(StoreError::Protocol("too many layers"))),
        }
    }
    if !apart.is_empty() {
        shared.runtime.spawn(run_boxed(Arc::clone(shared), apart));
    }
    script_batch
}

/// Breaks the cycle of types: a call may start another.
fn run_boxed(shared: Arc<Shared>, batch: Batch) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(run(shared, batch))
}

/// Waits for `send`, and meanwhile tells those whose deadline comes that there was no answer.
///
/// It is given up with the last connection: it may be stuck in fred's queue.
async fn in_time(
    shared: &Shared,
    batch: &mut Batch,
    send: impl Future<Output = Result<Bytes, Failure>>,
) -> Result<Bytes, Failure> {
    let lost = || Err(Failure::Lost("given up with the last connection".to_owned()));
    let (mut send, mut given_up) = (pin!(send), pin!(shared.lost.notified()));
    if !shared.breaker.is_closed() {
        return lost();
    }
    loop {
        let now = shared.now();
        expire(batch, now);
        let Some(next) = batch.iter().filter(|w| w.answer.is_some()).map(|w| w.deadline).min() else {
            return Err(Failure::Timeout);
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

fn expire(batch: &mut [Waiter], now: Timestamp) {
    for waiter in batch.iter_mut().filter(|waiter| waiter.deadline <= now) {
        waiter.answer(Err(StoreError::Timeout));
    }
}

fn deliver(batch: Batch, replay: Replay) {
    for (mut waiter, decision) in batch.into_iter().zip(replay.decisions) {
        waiter.answer(Ok(decision));
    }
}

fn fail(batch: Batch, error: &StoreError) {
    for mut waiter in batch {
        waiter.answer(Err(error.clone()));
    }
}

//! The wait for a turn, where a queue has taken the request in.
//!
//! Before a connection to the upstream is looked for, and before the body is read: a request that waits holds its
//! client's connection and nothing else.

use std::time::Duration;

use limiter_core::{Limiter, Turn};

use crate::{error::Failure, metrics::Waits, snapshot::Snapshot, worker::Worker};

/// Requests that wait in one process, at most. A queue bounds its own by its capacity, but there are as many queues as
/// there are keys.
const WAITING_MAX: u64 = 10_000;

/// A request that waits. Dropped before its turn has come, it leaves the queue: its client did.
struct Waiting<'a> {
    limiter: &'a Limiter,
    waits: &'a Waits,
    turn: Option<Box<Turn>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.ended();
        if let Some(turn) = self.turn.take() {
            self.limiter.leave(*turn);
        }
    }
}

/// Waits for the turn, and says for how long.
///
/// # Errors
/// Too many wait already.
pub(crate) async fn wait(turn: Box<Turn>, worker: &Worker, snapshot: &Snapshot) -> Result<Duration, Failure> {
    let (began, delay) = (worker.now(), turn.delay());
    let waits = worker.shared.metrics.waits();
    if !waits.begin(WAITING_MAX) {
        snapshot.limiter.leave(*turn);
        return Err(Failure::TooManyWait);
    }
    let mut waiting = Waiting {
        limiter: &snapshot.limiter,
        waits,
        turn: Some(turn),
    };
    tokio::time::sleep(delay).await;
    waiting.turn = None;
    drop(waiting);
    let waited = worker.now().since(began);
    waits.record(waited);
    Ok(waited)
}

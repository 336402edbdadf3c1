//! Finds out whether Redis is back, and, where nobody asks, whether it is still there.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{
    Shared,
    connection::Call,
    failure::Failure,
    script::{self, Replay, Reply},
};
use crate::{clock::Timestamp, store::Health};

/// An idle store is asked this often, so that a loss shows without traffic.
const IDLE: Duration = Duration::from_secs(1);
/// First and longest pause between two probes of a store that is away.
const MIN_PAUSE: Duration = Duration::from_millis(125);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How often an open breaker looks whether a connection has come up. Costs nothing on the wire.
const LOOK: Duration = Duration::from_millis(20);
/// The least time between two forced reconnections: each succeeds at once, so nothing else would slow them down.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// A deadline that every call misses. (0 would mean none.)
const LONG_AGO: Timestamp = Timestamp::from_micros(1);

/// Probes for ever.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut pause = MIN_PAUSE;
    let mut reconnected = None;
    loop {
        if shared.breaker.health() == Health::Connected && shared.connections.any_up() {
            // Woken early where something fails. Only if nothing does, the pause begins anew: a breaker that closes at
            // each probe and opens at the next call must not do so ever faster.
            if timeout(IDLE, shared.connections.troubled.notified()).await.is_ok() {
                continue;
            }
            pause = MIN_PAUSE;
            if shared.answered_within(IDLE) {
                continue;
            }
        } else {
            if shared.misdirected.swap(false, Ordering::Relaxed) {
                force_reconnection(&shared, &mut reconnected).await;
            }
            wait_for_turn(&shared, pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        probe(&shared).await;
    }
}

async fn force_reconnection(shared: &Shared, last: &mut Option<Timestamp>) {
    let now = shared.now();
    if last.is_none_or(|at| now.since(at) >= RECONNECT_PAUSE) {
        *last = Some(now);
        // Where a connection cannot be made, fred goes on trying; the probe looks on.
        drop(timeout(RECONNECT_PAUSE, shared.connections.reconnect()).await);
    }
}

/// Waits for `pause` (less up to a fifth, so that gateways do not come together) while a connection is up. While none
/// is: until one comes up.
async fn wait_for_turn(shared: &Shared, pause: Duration) {
    if shared.connections.any_up() {
        return sleep(pause.mul_f64(1.0 - 0.2 * fastrand::f64())).await;
    }
    let since = shared.now();
    while !shared.connections.any_up() {
        shared.unconnected();
        if shared.now().since(since) > IDLE {
            shared.announce_loss(&Failure::Lost(shared.connections.last_error()));
        }
        sleep(LOOK).await;
    }
}

/// One call that is late on purpose: it reads the server's clock and loads the script, and changes nothing.
async fn probe(shared: &Shared) {
    shared.breaker.probe_began();
    match attempt(shared).await {
        Ok(()) => shared.probe_succeeded(),
        Err(failure) => shared.probe_failed(&failure),
    }
}

async fn attempt(shared: &Shared) -> Result<(), Failure> {
    let batch = script::Batch::new();
    let arguments = batch.arguments(&shared.config.prefix, Some(LONG_AGO));
    let patience = shared.connections.patience();
    let sent = shared.now();
    let reply = match shared.send(Call::EvalSha, &arguments, patience).await {
        Err(Failure::NoScript) => shared.send(Call::Eval, &arguments, patience).await?,
        reply => reply?,
    };
    let (Reply::Late(now) | Reply::Decided(Replay { now, .. })) = batch.replay(&reply)?;
    shared.server_clock.learn(sent, now, shared.now());
    Ok(())
}

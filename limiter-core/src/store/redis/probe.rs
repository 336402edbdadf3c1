//! Finds out whether Redis is back, and, where nobody asks, whether it is still there.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    connection::Call,
    failure::Failure,
    node::Node,
    script::{self, Replay, Reply},
};
use crate::{clock::Timestamp, store::Health};

/// An idle store is asked this often, so that a loss shows without traffic.
const IDLE: Duration = Duration::from_secs(1);
/// First and longest pause between two probes of a store that is away.
const MIN_PAUSE: Duration = Duration::from_millis(25);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// How often an open breaker looks whether a connection has come up. Costs nothing on the wire.
const LOOK: Duration = Duration::from_millis(20);
/// The least time between two forced reconnections: each succeeds at once, so nothing else would slow them down.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// A deadline that every call misses. (0 would mean none.)
const LONG_AGO: Timestamp = Timestamp::from_micros(1);

/// Probes for ever.
pub(super) async fn run(node: Arc<Node>) {
    let mut pause = MIN_PAUSE;
    let mut reconnected = None;
    loop {
        if node.breaker.health() == Health::Connected && node.connections.any_up() {
            // Woken early where something fails. Only if nothing does, the pause begins anew: a breaker that closes at
            // each probe and opens at the next call must not do so ever faster.
            if timeout(IDLE, node.connections.troubled.notified()).await.is_ok() {
                continue;
            }
            pause = MIN_PAUSE;
            if node.answered_within(IDLE) {
                continue;
            }
        } else {
            if node.was_misdirected() {
                force_reconnection(&node, &mut reconnected).await;
            }
            wait_for_turn(&node, pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
        probe(&node).await;
    }
}

async fn force_reconnection(node: &Node, last: &mut Option<Timestamp>) {
    let now = node.context.now();
    if last.is_none_or(|at| now.since(at) >= RECONNECT_PAUSE) {
        *last = Some(now);
        // Where a connection cannot be made, fred goes on trying; the probe looks on.
        drop(timeout(RECONNECT_PAUSE, node.connections.reconnect()).await);
    }
}

/// Waits for `pause` (less up to a fifth, so that gateways do not come together) while a connection is up, or until one
/// is made: there are not many of them a second. While none is up: until one is.
async fn wait_for_turn(node: &Node, pause: Duration) {
    let made = || node.connections.made.notified();
    if node.connections.any_up() {
        drop(timeout(pause.mul_f64(1.0 - 0.2 * fastrand::f64()), made()).await);
        return;
    }
    let since = node.context.now();
    while !node.connections.any_up() {
        node.unconnected();
        if node.context.now().since(since) > IDLE {
            node.announce_loss(&Failure::Lost(node.connections.last_error()));
        }
        drop(timeout(LOOK, made()).await);
    }
}

/// One call that is late on purpose: it reads the server's clock and loads the script, and changes nothing.
async fn probe(node: &Arc<Node>) {
    node.breaker.probe_began();
    match attempt(node).await {
        Ok(()) => node.probe_succeeded(),
        Err(failure) => node.probe_failed(&failure),
    }
}

async fn attempt(node: &Node) -> Result<(), Failure> {
    let batch = script::Batch::new(0);
    let mut arguments = batch.arguments(&node.context.config.prefix, Some(LONG_AGO), LONG_AGO);
    // Not read: it lets the server say that it is not the one for such keys, or that they are forbidden to us.
    arguments.keys.push(node.probe_key());
    let patience = node.connections.patience();
    let mut call = Call::EvalSha;
    loop {
        let sent = node.context.now();
        let reply = match node.send(call, &arguments, false, patience).await {
            Err(Failure::NoScript) if call == Call::EvalSha => {
                call = Call::Eval;
                continue;
            }
            reply => reply?,
        };
        let (Reply::Late(now) | Reply::Decided(Replay { now, .. })) = batch.replay(&reply)?;
        let received = node.context.now();
        node.learn_clock(sent, now, received);
        // A server that answers, but later than anybody waits, is as good as none.
        return match received.since(sent) <= node.context.config.timeout {
            true => Ok(()),
            false => Err(Failure::Timeout),
        };
    }
}

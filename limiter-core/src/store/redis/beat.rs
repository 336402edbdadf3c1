//! How many gateways live: each says once a second that it does, idle ones too.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use fred::types::Value;
use tokio::time::sleep;
use tracing::debug;

use super::{Topology, connection::Call, context::Context, failure::Failure, node::Node, script::Script};

/// Time between two beats of a gateway. One that misses three counts as dead: `lua/beat.lua` has that bound.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a beat may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// A count that is lower than before holds only after so many beats: a server that was empty when it came back fills
/// again within one.
const SETTLED: usize = 3;

/// Beats for ever.
pub(super) async fn run(context: Arc<Context>, topology: Arc<Topology>) {
    let script = Script::beat();
    let key = format!("{}:~gateways", context.config.prefix);
    let me = format!("{:032x}", context.leases.name());
    let mut last = [0; SETTLED];
    for beat in (0..SETTLED).cycle() {
        match send(&topology, &script, &key, &me).await {
            Some(Ok(live)) => {
                last[beat] = live;
                let live = last.into_iter().max().unwrap_or(1).max(1);
                context.live.store(live, Ordering::Relaxed);
                if let Some(fallback) = &context.fallback {
                    fallback.set_live(live);
                }
            }
            Some(Err(failure)) => debug!(%failure, "the heartbeat failed"),
            // Nobody is asked while the store is away: the number last seen stands.
            None => {}
        }
        // A call that failed while the breaker stayed closed leaves debts too: no return is told of.
        if context.fallback.as_ref().is_some_and(|fallback| fallback.debtors() > 0) {
            topology.nodes().iter().for_each(Node::repay_if_well);
        }
        sleep(PAUSE.mul_f64(0.9 + 0.1 * fastrand::f64())).await;
    }
}

/// `None` where the server is not asked.
async fn send(topology: &Topology, script: &Script, key: &str, me: &str) -> Option<Result<u32, Failure>> {
    let node = topology.owner_of(key).filter(|node| node.breaker.is_closed())?;
    let args = |script: &str| -> Vec<Value> { vec![script.into(), 1.into(), key.into(), me.into()] };
    let mut reply = node
        .connections
        .send(Call::EvalSha, args(script.sha1()), PATIENCE)
        .await;
    if matches!(reply, Err(Failure::NoScript)) {
        reply = node.connections.send(Call::Eval, args(script.text()), PATIENCE).await;
    }
    Some(reply.and_then(|count| {
        let count = std::str::from_utf8(&count).ok().and_then(|count| count.parse().ok());
        count.ok_or(Failure::Unreadable("it is not a number"))
    }))
}

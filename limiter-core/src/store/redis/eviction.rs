//! Whether Redis forgets counters for want of memory: a limit whose counter was evicted starts afresh.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::sleep;
use tracing::{debug, warn};

use super::{Topology, context::Context, frame::text, node::Node};

/// How often a server is asked.
const PAUSE: Duration = Duration::from_secs(10);
/// How long it may take to tell.
const PATIENCE: Duration = Duration::from_millis(300);

/// What a server says of its memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Memory {
    /// Keys evicted since it was started.
    evicted: u64,
    /// In bytes; 0: none.
    max: u64,
    /// What it does at that bound.
    policy: String,
}

/// Watches for ever.
pub(super) async fn run(context: Arc<Context>, topology: Arc<Topology>) {
    let mut known = HashMap::new();
    loop {
        // Nothing is connected at the start.
        sleep(PAUSE / 10).await;
        let nodes = topology.nodes();
        known.retain(|address, _| nodes.iter().any(|node| node.address == *address));
        for node in nodes.iter().filter(|node| node.breaker.is_closed()) {
            if let Some(memory) = ask(node).await {
                compare(
                    &context,
                    node,
                    &memory,
                    known.insert(node.address.clone(), memory.clone()),
                );
            }
        }
        sleep(PAUSE).await;
    }
}

async fn ask(node: &Node) -> Option<Memory> {
    match node.connections.ask("INFO", vec!["everything".into()], PATIENCE).await {
        Ok(reply) => Some(read(text(&reply)?)),
        Err(failure) => {
            // It may be forbidden to us: nothing depends on it.
            debug!(server = %node.address, %failure, "redis does not tell of its memory");
            None
        }
    }
}

/// Reads `name:value` lines.
fn read(info: &str) -> Memory {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
    };
    let number = |name| field(name).and_then(|value| value.parse().ok()).unwrap_or(0);
    Memory {
        evicted: number("evicted_keys"),
        max: number("maxmemory"),
        policy: field("maxmemory_policy").unwrap_or_default().to_owned(),
    }
}

fn compare(context: &Context, node: &Node, now: &Memory, before: Option<Memory>) {
    let evicts = |memory: &Memory| memory.max > 0 && memory.policy != "noeviction";
    if evicts(now) && !before.as_ref().is_some_and(evicts) {
        warn!(
            server = %node.address,
            policy = now.policy,
            "redis may evict counters, and their limits then start afresh: set maxmemory-policy to noeviction"
        );
    }
    // A server that was started again counts from 0.
    let more = now
        .evicted
        .saturating_sub(before.map_or(now.evicted, |before| before.evicted));
    if more > 0 {
        context.failed("evicted");
        warn!(
            server = %node.address,
            keys = more,
            "redis evicted keys for want of memory: counters may be among them, and their limits start afresh"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_redis_tells() {
        let info = "# Memory\r\nmaxmemory:1048576\r\nmaxmemory_policy:allkeys-lru\r\n# Stats\r\nevicted_keys:17\r\n";
        let memory = Memory {
            evicted: 17,
            max: 1_048_576,
            policy: "allkeys-lru".to_owned(),
        };
        assert_eq!(read(info), memory);
        assert_eq!(read("nothing of that"), Memory::default());
    }
}

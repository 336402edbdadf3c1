//! Keeps the map of the slots up to date.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::{
    super::{asker::Asker, config::Address},
    Cluster,
    map::Layout,
};
use crate::store::Health;

/// A cluster that is well is asked this often.
const WELL: Duration = Duration::from_secs(1);
/// One that is not.
const UNWELL: Duration = Duration::from_millis(250);
/// The least pause, however many redirections tell that the map is out of date.
const LEAST: Duration = Duration::from_millis(50);
/// Attempts that may fail before the log is told of it.
const FIRST_ATTEMPTS: u32 = 3;
/// How long one server may take to tell.
const PATIENCE: Duration = Duration::from_millis(300);

/// Looks for ever. `seeds` are the servers that the configuration names.
pub(in super::super) async fn run(cluster: Arc<Cluster>, seeds: Vec<Address>) {
    let mut askers: Option<Vec<Asker>> = None;
    let (mut told, mut attempts) = (false, 0_u32);
    let mut turn = 0_usize;
    loop {
        turn = turn.wrapping_add(1);
        let layout = match from_servers(&cluster, turn).await {
            Some(layout) => Some(layout),
            None => {
                // No server that is known answers: those of the configuration may. They take a moment to connect.
                let askers = askers.get_or_insert_with(|| {
                    seeds
                        .iter()
                        .filter_map(|seed| {
                            Asker::start(seed.clone(), &cluster.context, &cluster.context.config.access).ok()
                        })
                        .collect()
                });
                from_seeds(askers, turn).await
            }
        };
        match layout {
            Some(layout) => {
                cluster.apply(&layout);
                (told, attempts) = (false, 0);
            }
            // The first attempts come before there is a connection.
            None if attempts < FIRST_ATTEMPTS => attempts += 1,
            None if !std::mem::replace(&mut told, true) => {
                let error = askers
                    .iter()
                    .flatten()
                    .next()
                    .map(Asker::last_error)
                    .unwrap_or_default();
                warn!(error, "no server tells how the redis cluster is divided");
            }
            None => {}
        }
        cluster.forget_strangers();
        let well = cluster.health() == Health::Connected;
        if well {
            askers = None;
        }
        // Woken early where something fails or moves.
        drop(timeout(if well { WELL } else { UNWELL }, cluster.context.doubted.notified()).await);
        sleep(LEAST).await;
    }
}

/// What the first server says that answers, beginning with another each `turn`.
async fn from_servers(cluster: &Cluster, turn: usize) -> Option<Layout> {
    let map = cluster.map.load_full();
    let nodes = map.nodes();
    for at in 0..nodes.len() {
        let node = &nodes[turn.wrapping_add(at) % nodes.len()];
        if !node.connections.any_up() {
            continue;
        }
        match node.connections.ask("CLUSTER", vec!["SLOTS".into()], PATIENCE).await {
            Ok(reply) => {
                if let Some(layout) = Layout::read(&reply, &node.address) {
                    return Some(layout);
                }
            }
            Err(failure) => debug!(server = %node.address, %failure, "does not tell how the cluster is divided"),
        }
    }
    None
}

async fn from_seeds(askers: &[Asker], turn: usize) -> Option<Layout> {
    for at in 0..askers.len() {
        let asker = &askers[turn.wrapping_add(at) % askers.len()];
        if let Ok(reply) = asker.ask("CLUSTER", vec!["SLOTS".into()], PATIENCE).await
            && let Some(layout) = Layout::read(&reply, asker.address())
        {
            return Some(layout);
        }
    }
    None
}

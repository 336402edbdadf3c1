//! A Redis Cluster of three primaries, with a replica each or none.

use super::{
    RedisReply, RedisServer,
    redis_server::{SECOND_PORT, Setup},
    wait::wait_until,
};

const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;

/// Three primaries that share the slots evenly, then their replicas in the same order, where they have any. A node that is
/// silent for 1 s counts as lost. Where slots are lost, the others are served (`cluster-require-full-coverage no`).
///
/// Its methods block, and panic where anything goes wrong: this is for tests.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
}

/// What a node says of a node.
struct Told {
    id: String,
    is_primary: bool,
    /// Whether it is well, as far as the teller knows.
    is_well: bool,
    /// Of a replica.
    primary_id: String,
    slots: Vec<(u16, u16)>,
}

impl RedisCluster {
    /// Three primaries and three replicas.
    ///
    /// # Panics
    /// Where they do not come together.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(true, &[])
    }

    /// Three primaries.
    ///
    /// # Panics
    /// Where they do not come together.
    #[must_use]
    pub fn start_without_replicas() -> Self {
        Self::start_with(false, &[])
    }

    /// With or without replicas, with more arguments for every node.
    ///
    /// # Panics
    /// Where they do not come together.
    #[must_use]
    pub fn start_with(replicas: bool, args: &[&str]) -> Self {
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", SECOND_PORT];
        let timing = [
            "--cluster-node-timeout",
            "1000",
            "--cluster-replica-validity-factor",
            "0",
        ];
        let coverage = ["--cluster-require-full-coverage", "no"];
        let arguments = [&cluster[..], &timing, &coverage, args].concat();
        let count = if replicas { 2 * PRIMARIES } else { PRIMARIES };
        let nodes: Vec<_> = (0..count)
            .map(|_| RedisServer::start_as(Setup::with(arguments.iter().copied()), None))
            .collect();
        let id = |node: &RedisServer| node.command(&["CLUSTER", "MYID"]).text().map(str::to_owned);
        let ids = nodes.iter().map(|node| id(node).expect("the id of a node")).collect();
        let all = Self { nodes, ids };
        all.form();
        all
    }

    /// Shares out the slots, introduces the nodes to each other, and makes replicas of some.
    fn form(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            // Distinct from the start: else they would have to be made so, one at a time.
            node.order(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            let [port, bus_port] = [node.port(), node.second_port()].map(|port| port.to_string());
            self.nodes[0].order(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
        }
        for (index, node) in self.nodes[..PRIMARIES].iter().enumerate() {
            let edge = |index: usize| index * usize::from(SLOTS) / PRIMARIES;
            let [first, last] = [edge(index), edge(index + 1) - 1].map(|slot| slot.to_string());
            node.order(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        wait_until("nodes that know each other", || {
            self.nodes.iter().all(|node| tell(node).len() == self.nodes.len())
        });
        for (index, node) in self.nodes.iter().enumerate().skip(PRIMARIES) {
            // It takes a moment until a node has heard that the other is a primary.
            wait_until("a replica", || {
                let reply = node.command(&["CLUSTER", "REPLICATE", &self.ids[index - PRIMARIES]]);
                reply.is_ok()
            });
        }
        self.wait_until_settled();
    }

    /// `redis-cluster://127.0.0.1:PORT,…`, with the first three nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes[..PRIMARIES]
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// All nodes: those that began as primaries, then those that began as their replicas.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Ends a node as a crash would.
    pub fn kill_node(&self, index: usize) {
        self.nodes[index].stop();
    }

    /// Starts a node again, empty, on its port: it knows the cluster, and what it was in it.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn restart_node(&self, index: usize) {
        self.nodes[index].restart();
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// Where no node answers.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let reply = self.any(|node| node.try_command(&["CLUSTER", "KEYSLOT", key]).ok()?.int());
        u16::try_from(reply).expect("a slot")
    }

    /// The node that serves a key.
    ///
    /// # Panics
    /// Where no node serves it.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> usize {
        self.owner_of_slot(self.slot_of(key))
    }

    /// The node that serves a slot, as most nodes that run have it.
    ///
    /// # Panics
    /// Where no node serves it.
    #[must_use]
    pub fn owner_of_slot(&self, slot: u16) -> usize {
        let serves = |told: &&Told| told.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot));
        let owners: Vec<_> = self
            .running()
            .filter_map(|node| tell(node).iter().find(serves).map(|told| told.id.clone()))
            .collect();
        let votes = |id: &&String| owners.iter().filter(|owner| owner == id).count();
        let owner = owners.iter().max_by_key(votes).expect("a node that serves the slot");
        self.index_of(owner)
    }

    /// The nodes that are primaries now, as the first node that runs has it.
    ///
    /// # Panics
    /// Where no node answers.
    #[must_use]
    pub fn primaries(&self) -> Vec<usize> {
        let told = self.any(|node| Some(tell(node)).filter(|told| !told.is_empty()));
        let primaries = told.iter().filter(|node| node.is_primary && node.is_well);
        primaries.map(|node| self.index_of(&node.id)).collect()
    }

    /// A replica of the node, where it has one that is well.
    ///
    /// # Panics
    /// Where no node answers.
    #[must_use]
    pub fn replica_of(&self, index: usize) -> Option<usize> {
        let told = self.any(|node| Some(tell(node)).filter(|told| !told.is_empty()));
        let replica = told
            .iter()
            .find(|node| node.primary_id == self.ids[index] && node.is_well)?;
        Some(self.index_of(&replica.id))
    }

    /// Makes this replica the primary in the place of its primary while both are well, and waits until all know.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn fail_over_to(&self, replica: usize) {
        self.nodes[replica].order(&["CLUSTER", "FAILOVER"]);
        self.wait_until_primary(replica);
        self.wait_until_settled();
    }

    /// Waits until all nodes that run know this one as a primary.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn wait_until_primary(&self, index: usize) {
        wait_until("a replica that became a primary", || {
            self.running().all(|node| {
                let told = tell(node);
                let of_it = told.iter().find(|told| told.id == self.ids[index]);
                of_it.is_some_and(|told| told.is_primary && told.is_well && !told.slots.is_empty())
            })
        });
    }

    /// Waits until every slot is served by a node that is well, all nodes know so, and replicas are in step.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn wait_until_settled(&self) {
        wait_until("a cluster in order", || {
            self.nodes.iter().all(|node| {
                let told = tell(node);
                let served: u32 = told
                    .iter()
                    .flat_map(|told| &told.slots)
                    .map(|(a, b)| u32::from(b - a) + 1)
                    .sum();
                let is_replica = node.info("role").as_deref() == Some("slave");
                served == u32::from(SLOTS)
                    && takes_commands(node)
                    && told.len() == self.nodes.len()
                    && told.iter().all(|told| told.is_well)
                    && (!is_replica || node.is_in_sync())
                    && told.iter().filter(|told| told.is_primary).count() == PRIMARIES
            })
        });
    }

    /// Moves so many slots of `from` to `to` while both serve, those first that hold keys.
    ///
    /// # Panics
    /// Where a node refuses a step.
    pub fn migrate_slots(&self, from: usize, to: usize, count: usize) {
        let told = tell(&self.nodes[from]);
        let own = told
            .iter()
            .find(|told| told.id == self.ids[from])
            .expect("what a node serves");
        let mut slots: Vec<_> = own.slots.iter().flat_map(|(first, last)| *first..=*last).collect();
        slots.sort_by_cached_key(|slot| {
            self.nodes[from]
                .command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()])
                .int()
                == Some(0)
        });
        for slot in slots.into_iter().take(count) {
            self.migrate_slot(slot, from, to);
        }
    }

    /// Moves one slot and its keys while both nodes serve: a key that has gone already is asked for at the other (`ASK`).
    ///
    /// # Panics
    /// Where a node refuses a step.
    pub fn migrate_slot(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let set = |node: usize, args: [&str; 2]| {
            self.nodes[node].order(&["CLUSTER", "SETSLOT", &slot, args[0], args[1]]);
        };
        set(to, ["IMPORTING", &self.ids[from]]);
        set(from, ["MIGRATING", &self.ids[to]]);
        let port = self.nodes[to].port().to_string();
        loop {
            let keys = self.nodes[from]
                .command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"])
                .texts();
            if keys.is_empty() {
                break;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            // A key that has expired meanwhile is no mistake (NOKEY).
            let reply = self.nodes[from].command(&migrate);
            assert!(matches!(reply.text(), Some("OK" | "NOKEY")), "{migrate:?}: {reply:?}");
        }
        // The new owner first: else the slot would be nobody's for a moment. The others would hear of it in time; telling
        // them is what redis-cli does too.
        set(to, ["NODE", &self.ids[to]]);
        set(from, ["NODE", &self.ids[to]]);
        for other in self.primaries() {
            if other != to && other != from {
                set(other, ["NODE", &self.ids[to]]);
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn any<T>(&self, ask: impl Fn(&RedisServer) -> Option<T>) -> T {
        self.running().find_map(ask).expect("a node that answers")
    }

    fn index_of(&self, id: &str) -> usize {
        self.ids
            .iter()
            .position(|known| known == id)
            .expect("a node of this cluster")
    }
}

/// Whether a node serves what is its own: for a while after its start, and where it sees too few others, it does not.
fn takes_commands(node: &RedisServer) -> bool {
    let reply = node.try_command(&["CLUSTER", "INFO"]).unwrap_or(RedisReply::Nil);
    reply.text().unwrap_or_default().contains("cluster_state:ok")
}

/// What a node says of all nodes; nothing where it is gone.
///
/// A line of `CLUSTER NODES`: id, address, flags, primary or `-`, two times, epoch, state of the link, slots.
fn tell(node: &RedisServer) -> Vec<Told> {
    let reply = node.try_command(&["CLUSTER", "NODES"]).unwrap_or(RedisReply::Nil);
    let lines = reply.text().unwrap_or_default().lines();
    lines.filter_map(told).collect()
}

fn told(line: &str) -> Option<Told> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [id, _, flags, primary_id, _, _, _, link, slots @ ..] = &words[..] else {
        return None;
    };
    let flags: Vec<_> = flags.split(',').collect();
    let is = |flag| flags.contains(&flag);
    // A slot on the move stands in brackets as well, and is counted where it is.
    let settled = slots.iter().filter(|slot| !slot.starts_with('['));
    let range = |slot: &&str| {
        let (first, last) = slot.split_once('-').unwrap_or((slot, slot));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    Some(Told {
        id: (*id).to_owned(),
        is_primary: is("master"),
        is_well: (*link == "connected" || is("myself")) && !is("fail") && !is("fail?") && !is("handshake"),
        primary_id: (*primary_id).to_owned(),
        slots: settled.filter_map(range).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_takes_over_by_need_and_by_order() {
        let cluster = RedisCluster::start();
        assert_eq!(cluster.primaries().len(), 3);
        let owner = cluster.owner_of("key");
        cluster.nodes()[owner].order(&["SET", "key", "value"]);
        assert_eq!(cluster.nodes()[owner].command(&["WAIT", "1", "5000"]).int(), Some(1));
        let heir = cluster.replica_of(owner).unwrap();
        cluster.kill_node(owner);
        cluster.wait_until_primary(heir);
        assert_eq!(cluster.owner_of("key"), heir);
        assert_eq!(cluster.nodes()[heir].command(&["GET", "key"]).text(), Some("value"));

        cluster.restart_node(owner);
        cluster.wait_until_settled();
        assert_eq!(cluster.replica_of(heir), Some(owner));
        cluster.fail_over_to(owner);
        assert_eq!(cluster.owner_of("key"), owner);
        assert_eq!(cluster.nodes()[owner].command(&["GET", "key"]).text(), Some("value"));
    }

    #[test]
    fn slots_move_with_their_keys() {
        let cluster = RedisCluster::start_without_replicas();
        let from = cluster.owner_of("key");
        let to = (from + 1) % 3;
        cluster.nodes()[from].order(&["SET", "key", "value"]);
        cluster.migrate_slots(from, to, 2);
        assert_eq!(cluster.owner_of("key"), to);
        assert_eq!(cluster.nodes()[to].command(&["GET", "key"]).text(), Some("value"));
        let RedisReply::Error(moved) = cluster.nodes()[from].command(&["GET", "key"]) else {
            panic!("the old owner serves it still")
        };
        assert!(moved.starts_with("MOVED"), "{moved}");
        cluster.wait_until_settled();
    }
}

//! A primary and a replica under the eyes of three sentinels.

use super::{RedisReply, RedisServer, redis_server::Setup, wait::wait_until};

/// The name under which the sentinels know the primary.
const SERVICE: &str = "gateways";

/// What a sentinel is told: a server that is silent for half a second is down where two of three say so.
///
/// Not all after the same time: they would all ask for each other's vote at once, give their own to themselves, and begin
/// again after twice the `failover-timeout`.
const CONF: &str = "
sentinel monitor gateways 127.0.0.1 {primary} 2
sentinel down-after-milliseconds gateways {patience}
sentinel failover-timeout gateways 2000
sentinel parallel-syncs gateways 1
";
const PATIENCE: [&str; 3] = ["400", "600", "800"];

/// How often a sentinel looks and tells, in ms. Ten times as often as it would by itself: it would take a new primary for lost
/// before its first ping to it was answered, and would need 10 s to see that an old primary is back.
const PACE: [&str; 12] = [
    "ping-period",
    "100",
    "info-period",
    "500",
    "ask-period",
    "100",
    "publish-period",
    "200",
    // It takes no part in anything for a while where it was not run for some time: on a busy machine that is no sign of trouble.
    "tilt-trigger",
    "20000",
    "tilt-period",
    "100",
];

/// A primary, its replica, and three sentinels that make the replica the primary where the primary is gone for 600 ms.
///
/// Its methods block, and panic where anything goes wrong: this is for tests.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
}

impl RedisSentinels {
    /// Starts all five and waits until the sentinels know of each other, of the primary and of the replica.
    ///
    /// # Panics
    /// Where they do not come to that.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`RedisSentinels::start`], with more arguments for the two servers.
    ///
    /// # Panics
    /// Where they do not come to that.
    #[must_use]
    pub fn start_with(args: &[&str]) -> Self {
        let primary = RedisServer::start_with(args);
        let port = primary.port().to_string();
        let replica = RedisServer::start_with(&[args, &["--replicaof", "127.0.0.1", &port]].concat());
        replica.wait_until_in_sync();
        let sentinels = PATIENCE.map(|patience| {
            let conf = CONF.replace("{primary}", &port).replace("{patience}", patience);
            RedisServer::start_as(
                Setup {
                    sentinel_conf: Some(conf),
                    ..Setup::default()
                },
                None,
            )
        });
        for sentinel in &sentinels {
            sentinel.order(&[&["SENTINEL", "DEBUG"], &PACE[..]].concat());
        }
        let all = Self {
            servers: [primary, replica],
            sentinels,
        };
        all.wait_until_settled();
        all
    }

    /// `redis-sentinel://127.0.0.1:PORT,…/NAME`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self
            .sentinels
            .each_ref()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        format!("redis-sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Both servers, whatever they are now.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The port of the primary, as the first sentinel that answers has it.
    ///
    /// # Panics
    /// Where no sentinel answers.
    #[must_use]
    pub fn primary_port(&self) -> u16 {
        let told = self.sentinels.iter().find_map(primary_of);
        told.expect("a sentinel that knows the primary")
    }

    /// The server that the sentinels call the primary.
    ///
    /// # Panics
    /// Where no sentinel answers.
    #[must_use]
    pub fn primary(&self) -> &RedisServer {
        let port = self.primary_port();
        self.server(|server| server.port() == port)
    }

    /// The server that is not the primary.
    ///
    /// # Panics
    /// Where no sentinel answers.
    #[must_use]
    pub fn replica(&self) -> &RedisServer {
        let port = self.primary_port();
        self.server(|server| server.port() != port)
    }

    fn server(&self, is_it: impl Fn(&RedisServer) -> bool) -> &RedisServer {
        self.servers
            .iter()
            .find(|server| is_it(server))
            .expect("one of the two servers")
    }

    /// Ends the primary as a crash would, and says on which port it was. Nobody has taken its place yet.
    ///
    /// # Panics
    /// Where no sentinel answers.
    pub fn kill_primary(&self) -> u16 {
        let primary = self.primary();
        primary.stop();
        primary.port()
    }

    /// Waits until the sentinels agree on another primary than the one on `old`, and that one takes writes.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn wait_for_successor_of(&self, old: u16) {
        wait_until("another primary", || {
            let told = self.sentinels.iter().map(primary_of);
            let others = told.flatten().filter(|port| *port != old).count();
            others == self.sentinels.len() && self.primary().info("role").as_deref() == Some("master")
        });
    }

    /// Lets the sentinels make the replica the primary while both are well, and waits until the old one is its replica.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn failover(&self) {
        let old = self.primary_port();
        self.order_failover();
        self.wait_for_successor_of(old);
        self.wait_until_settled();
    }

    /// As [`RedisSentinels::failover`], but returns at once.
    ///
    /// # Panics
    /// Where the sentinel refuses.
    pub fn order_failover(&self) {
        // Right after another failover it refuses.
        wait_until("a sentinel that begins a failover", || {
            let reply = self.sentinels[0].try_command(&["SENTINEL", "FAILOVER", SERVICE]);
            reply.is_ok_and(|reply| reply.is_ok())
        });
    }

    /// Waits until all five are well: a primary, a replica in step with it, three sentinels that know all that.
    ///
    /// # Panics
    /// Where that does not come to be.
    pub fn wait_until_settled(&self) {
        wait_until("a primary, a replica and three sentinels in order", || {
            let ports: Vec<_> = self.sentinels.iter().filter_map(primary_of).collect();
            ports.len() == self.sentinels.len()
                && ports.iter().all(|port| *port == ports[0])
                && self.sentinels.iter().all(knows_all)
                && self.primary().info("role").as_deref() == Some("master")
                && self.replica().info("master_port") == Some(ports[0].to_string())
                && self.replica().is_in_sync()
        });
    }
}

fn primary_of(sentinel: &RedisServer) -> Option<u16> {
    let reply = sentinel
        .try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE])
        .ok()?;
    reply.texts().get(1)?.parse().ok()
}

/// Whether a sentinel knows of two others, and of a primary and a replica that are well.
fn knows_all(sentinel: &RedisServer) -> bool {
    let told = |what: &str| {
        sentinel
            .try_command(&["SENTINEL", what, SERVICE])
            .unwrap_or(RedisReply::Nil)
    };
    let field = |fields: &RedisReply, name: &str| {
        let texts = fields.texts();
        texts
            .chunks_exact(2)
            .find_map(|pair| (pair[0] == name).then(|| pair[1].clone()))
    };
    let primary = told("MASTER");
    let replicas = told("REPLICAS");
    field(&primary, "flags").as_deref() == Some("master")
        && field(&primary, "num-other-sentinels").as_deref() == Some("2")
        && replicas.items().len() == 1
        && replicas.items().iter().all(|replica| {
            field(replica, "flags").as_deref() == Some("slave")
                && field(replica, "master-link-status").as_deref() == Some("ok")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_becomes_the_primary_by_order_and_by_need() {
        let all = RedisSentinels::start();
        let first = all.primary_port();
        assert!(all.url().ends_with("/gateways"), "{}", all.url());
        all.failover();
        let second = all.primary_port();
        assert_ne!(first, second);
        all.primary().order(&["SET", "key", "value"]);
        assert!(matches!(
            all.replica().command(&["SET", "key", "value"]),
            RedisReply::Error(_)
        ));

        assert_eq!(all.kill_primary(), second);
        all.wait_for_successor_of(second);
        assert_eq!(all.primary_port(), first);
        all.replica().restart();
        all.wait_until_settled();
        assert_eq!(all.primary_port(), first);
    }
}

//! The fault matrix, for one Redis server: whatever happens to it, answers come in time, by the policy, never more pass than
//! may, and shared counting comes back by itself.
//!
//! Each test prints a line of a table; `FAULTS_TABLE=FILE` collects them.

use std::time::Duration;

use crate::support::{BURST, Gateway, Redis, Relay, Trial, pause, redis::Reply};

const SECOND: Duration = Duration::from_secs(1);

fn store(address: std::net::SocketAddr) -> String {
    format!("url: \"redis://{address}/0\", prefix: f")
}

/// A gateway that asks a server of its own.
async fn direct() -> (Redis, Gateway) {
    let redis = Redis::start().await;
    let gateway = Gateway::with(&Trial::settings(&store(redis.address()))).start().await;
    (redis, gateway)
}

/// A gateway that asks a server of its own through a relay.
async fn relayed() -> (Redis, Relay, Gateway) {
    let redis = Redis::start().await;
    let relay = Relay::to(redis.address()).await;
    let gateway = Gateway::with(&Trial::settings(&store(relay.address()))).start().await;
    (redis, relay, gateway)
}

#[tokio::test]
async fn killed_and_started_again() {
    let (redis, gateway) = direct().await;
    let begin = async || redis.kill();
    Trial::outage("kill -9, started 3 s later")
        .forgetting(BURST)
        .run(&gateway, begin, async || redis.start_again().await)
        .await;
}

#[tokio::test]
async fn restarted() {
    let (redis, gateway) = direct().await;
    let trial = Trial::blip("restart").forgetting(BURST);
    trial
        .run(&gateway, async || redis.start_again().await, async || {})
        .await;
}

#[tokio::test]
async fn frozen() {
    let (redis, gateway) = direct().await;
    Trial::outage("SIGSTOP, SIGCONT")
        .run(&gateway, async || redis.freeze(), async || redis.thaw())
        .await;
}

#[tokio::test]
async fn black_hole() {
    let (_redis, relay, gateway) = relayed().await;
    Trial::outage("black hole")
        .run(
            &gateway,
            async || relay.black_hole(true),
            async || relay.black_hole(false),
        )
        .await;
}

#[tokio::test]
async fn every_connection_closed_at_once() {
    let (_redis, relay, gateway) = relayed().await;
    let refuse = async || {
        relay.refuse(true);
        relay.cut();
    };
    Trial::outage("each connection closed at once")
        .run(&gateway, refuse, async || relay.refuse(false))
        .await;
}

#[tokio::test]
async fn connections_cut_by_the_network() {
    let (_redis, relay, gateway) = relayed().await;
    Trial::blip("every connection cut")
        .run(&gateway, async || relay.cut(), async || {})
        .await;
}

#[tokio::test]
async fn connections_cut_by_the_server() {
    let (redis, gateway) = direct().await;
    let kill = async || drop(redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await);
    Trial::blip("CLIENT KILL TYPE normal")
        .run(&gateway, kill, async || {})
        .await;
}

#[tokio::test]
async fn latency() {
    let (_redis, relay, gateway) = relayed().await;
    // There and back: half of it each.
    let slow = async || relay.delay(Duration::from_millis(100));
    Trial::outage("200 ms of latency")
        .run(&gateway, slow, async || relay.delay(Duration::ZERO))
        .await;
}

#[tokio::test]
async fn out_of_memory() {
    let (redis, gateway) = direct().await;
    let set = async |memory: &str| assert!(redis.command(&["CONFIG", "SET", "maxmemory", memory]).await.is_ok());
    let fill = async || {
        set("1").await;
        let refused = redis.command(&["SET", "key", "value"]).await;
        assert!(
            matches!(&refused, Reply::Error(error) if error.starts_with("OOM")),
            "{refused:?}"
        );
    };
    Trial::unnoticed("maxmemory reached, noeviction")
        .run(&gateway, fill, async || set("0").await)
        .await;
}

#[tokio::test]
async fn scripts_flushed() {
    let (redis, gateway) = direct().await;
    let flush = async || {
        for _ in 0..3 {
            redis.command(&["SCRIPT", "FLUSH"]).await;
            pause(SECOND).await;
        }
    };
    Trial::unnoticed("SCRIPT FLUSH each second")
        .run(&gateway, flush, async || {})
        .await;
}

#[tokio::test]
async fn wrong_password() {
    let (redis, gateway) = direct().await;
    let set = async |password: &str| {
        assert!(redis.command(&["CONFIG", "SET", "requirepass", password]).await.is_ok());
        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    };
    Trial::outage("wrong password")
        .run(&gateway, async || set("secret").await, async || set("").await)
        .await;
}

#[tokio::test]
async fn primary_becomes_a_replica() {
    let (redis, gateway) = direct().await;
    let other = Redis::start().await;
    let port = other.address().port().to_string();
    let follow = async |host: &str, port: &str| drop(redis.command(&["REPLICAOF", host, port]).await);
    // It takes over what the other holds: nothing.
    Trial::outage("primary becomes replica, and back")
        .forgetting(BURST)
        .run(
            &gateway,
            async || follow("127.0.0.1", &port).await,
            async || follow("NO", "ONE").await,
        )
        .await;
}

#[tokio::test]
async fn old_primary_keeps_the_connections() {
    let (redis, relay, gateway) = relayed().await;
    let other = redis.replica().await;
    let promote = async || {
        other.command(&["REPLICAOF", "NO", "ONE"]).await;
        relay.lead_to(other.address());
        let port = other.address().port().to_string();
        redis.command(&["REPLICAOF", "127.0.0.1", &port]).await;
    };
    // Between the two commands the old one still decides, and the new one is not told.
    let trial = Trial::blip("replica promoted, old connections stay")
        .lasting(2 * SECOND)
        .forgetting(5);
    trial.run(&gateway, promote, async || {}).await;
}

//! Against real servers that break, freeze and refuse.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::atomic::AtomicU64,
};

use super::*;
use crate::{
    clock::Timestamp,
    test_util::{RedisReply, RedisServer},
};

/// Of calls that must not come to it.
const LONG: Duration = Duration::from_secs(5);

struct Under {
    connections: Arc<Connections>,
    _tasks: Vec<TaskGuard>,
}

impl std::ops::Deref for Under {
    type Target = Arc<Connections>;

    fn deref(&self) -> &Self::Target {
        &self.connections
    }
}

fn start(port: u16, access: &Access, connections: usize, timeout: Duration) -> Under {
    let address = Address::new("127.0.0.1", port);
    let connections = Arc::new(Connections::new(&address, access, connections, timeout).unwrap());
    let _tasks = connections.supervise(&Handle::current());
    Under { connections, _tasks }
}

impl Under {
    async fn until(&self, what: &str, holds: impl Fn(&Connections) -> bool) {
        let wait = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{what}: {}", self.last_error());
    }

    async fn up(&self) {
        self.until("it is up", |c| c.list.iter().all(|slot| slot.borrow().is_some()))
            .await;
    }

    async fn down(&self) {
        self.until("it is down", |c| !c.any_up()).await;
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn ping(&self, timeout: Duration) -> Result<Bytes, Failure> {
        self.send(Call::Eval, vec!["return 'PONG'".into(), 0.into()], timeout)
            .await
    }
}

/// Asks without a pause from `askers` tasks, in a counter of the server, until dropped.
struct Load {
    asked: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    slowest_us: Arc<AtomicU64>,
    _tasks: Vec<TaskGuard>,
}

impl Load {
    fn start(under: &Under, askers: usize, timeout: Duration) -> Self {
        let (asked, answered, slowest_us) = <(Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicU64>)>::default();
        let one = |_| {
            let (asked, answered, slowest_us) = (Arc::clone(&asked), Arc::clone(&answered), Arc::clone(&slowest_us));
            let connections = Arc::clone(under);
            TaskGuard(tokio::spawn(async move {
                loop {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let began = connections.clock.now();
                    let script = "return tostring(redis.call('INCR', KEYS[1]))";
                    let args = vec![script.into(), 1.into(), "asked".into()];
                    let answer = connections.send(Call::Eval, args, timeout).await;
                    let took = connections.clock.now().since(began);
                    slowest_us.fetch_max(u64::try_from(took.as_micros()).unwrap(), Ordering::SeqCst);
                    if answer.is_ok() {
                        answered.fetch_add(1, Ordering::SeqCst);
                    } else {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }))
        };
        let _tasks = (0..askers).map(one).collect();
        Self {
            asked,
            answered,
            slowest_us,
            _tasks,
        }
    }

    async fn answers(&self, under: &Under) {
        let before = self.answered.load(Ordering::SeqCst);
        let more = |_: &Connections| self.answered.load(Ordering::SeqCst) > before + 100;
        under.until("it answers", more).await;
    }

    fn slowest(&self) -> Duration {
        Duration::from_micros(self.slowest_us.load(Ordering::SeqCst))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_loss_of_a_connection_is_seen_at_once_and_mended() {
    let server = RedisServer::start();
    let under = start(server.port(), &Access::default(), 1, LONG);
    under.up().await;
    for _ in 0..3 {
        let link = under.list[0].borrow().clone().unwrap();
        assert_eq!(under.ping(LONG).await.unwrap(), "PONG");
        // In flight while the connection is cut.
        let asked = tokio::spawn({
            let connections = Arc::clone(&under);
            async move { connections.ask("BLPOP", vec!["none".into(), 0.into()], LONG * 10).await }
        });
        under
            .until("it waits", |_| server.info("blocked_clients").as_deref() == Some("1"))
            .await;
        let cut = under.now();
        let killed = server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert!(matches!(killed, RedisReply::Int(1..)), "{killed:?}");
        let lost = asked.await.unwrap();
        assert!(matches!(lost, Err(Failure::Lost(_))), "{lost:?}");
        assert!(under.now().since(cut) < LONG);
        assert!(!link.stands(), "nobody else is sent that way");
        let is_new = |now: Arc<Link>| !Arc::ptr_eq(&now, &link);
        under
            .until("it is made anew", |c| c.list[0].borrow().clone().is_some_and(is_new))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_is_found_again() {
    let server = RedisServer::start();
    let under = start(server.port(), &Access::default(), 2, LONG);
    under.up().await;
    let load = Load::start(&under, 16, LONG);
    load.answers(&under).await;
    server.stop();
    under.down().await;
    let lost = under.ping(LONG).await;
    assert!(matches!(lost, Err(Failure::Lost(_))), "{lost:?}");
    under
        .until("it is told why", |c| c.last_error() == "Connection refused")
        .await;
    server.restart();
    under.up().await;
    load.answers(&under).await;
    assert!(
        load.slowest() < LONG,
        "nobody waited for the deadline: {:?}",
        load.slowest()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_found_dead_though_it_is_asked_all_the_time() {
    let server = RedisServer::start();
    let timeout = Duration::from_millis(50);
    let under = start(server.port(), &Access::default(), 2, timeout);
    under.up().await;
    let load = Load::start(&under, 16, timeout);
    load.answers(&under).await;
    server.pause();
    under.down().await;
    let lost = under.ping(LONG).await;
    assert!(matches!(lost, Err(Failure::Lost(_))), "{lost:?}");
    server.resume();
    under.up().await;
    load.answers(&under).await;
    drop(load._tasks);
    let sent = load.asked.load(Ordering::SeqCst);
    let ran: usize = format!("{:?}", server.command(&["GET", "asked"]))
        .chars()
        .filter(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap();
    assert!(ran <= sent, "{ran} ran of {sent}");
    assert!(ran >= load.answered.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_stuck_does_not_hide_a_dead_connection() {
    let server = RedisServer::start();
    let timeout = Duration::from_millis(50);
    let under = start(server.port(), &Access::default(), 1, timeout);
    under.up().await;
    server.pause();
    // More than the sockets between us hold.
    let large = Bytes::from(vec![0; 64 << 20]);
    let stuck = under.ask("ECHO", vec![large.into()], timeout).await;
    assert!(matches!(stuck, Err(Failure::Timeout)), "{stuck:?}");
    under.down().await;
    server.resume();
    under.up().await;
    assert_eq!(under.ping(LONG).await.unwrap(), "PONG");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_is_not_a_dead_one() {
    let server = RedisServer::start_with(&["--enable-debug-command", "local"]);
    let under = start(server.port(), &Access::default(), 1, Duration::from_secs(2));
    under.up().await;
    let link = under.list[0].borrow().clone().unwrap();
    for _ in 0..3 {
        let slow = under
            .ask("DEBUG", vec!["SLEEP".into(), "0.05".into()], Duration::from_millis(5))
            .await;
        assert!(matches!(slow, Err(Failure::Timeout)), "{slow:?}");
    }
    assert_eq!(under.ping(LONG).await.unwrap(), "PONG");
    assert!(Arc::ptr_eq(&link, &under.list[0].borrow().clone().unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_is_not_stormed() {
    let server = RedisServer::start_with(&["--maxclients", "1"]);
    let holder = RefCell::new(Holder::take(&server));
    let under = start(server.port(), &Access::default(), 1, LONG);
    let began = under.now();
    under
        .until("it was refused five times", |_| holder.borrow_mut().rejected() >= 5)
        .await;
    // At the least three quarters of 50 + 100 + 200 + 400 ms.
    let took = under.now().since(began);
    assert!(took >= Duration::from_millis(560), "five attempts in {took:?}");
    let error = under.last_error();
    assert!(error.contains("max number of clients reached"), "{error}");
    drop(holder);
    under.up().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_has_against_us_is_told() {
    let server = RedisServer::start_with_user("gw", "right", "~* +eval +ping");
    let access = |username: &str, password: &str, database| Access {
        username: Some(username.to_owned()),
        password: Some(password.to_owned()),
        database,
        tls: None,
    };
    for (access, error) in [
        (access("gw", "wrong", 0), "WRONGPASS"),
        (access("gw", "right", 1), "NOPERM"),
        (access("gw", "right", 200), "NOPERM"),
    ] {
        let under = start(server.port(), &access, 1, LONG);
        under.until(error, |c| c.last_error().contains(error)).await;
        assert!(!under.any_up());
    }
    let under = start(server.port(), &access("gw", "right", 0), 1, LONG);
    under.up().await;
    let shown = format!("{:?}", under.connections);
    assert!(!shown.contains("right"), "{shown}");
    let refused = under.ask("GET", vec!["k".into()], LONG).await;
    assert!(
        matches!(&refused, Err(Failure::Server(why)) if why.starts_with("NOPERM")),
        "{refused:?}"
    );

    let server = RedisServer::start_with_password("right");
    let under = start(server.port(), &Access::default(), 1, LONG);
    under.until("NOAUTH", |c| c.last_error().contains("NOAUTH")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn login_and_database_come_back_with_each_connection() {
    let server = RedisServer::start_with_user("gw", "right", "~* +@all");
    let access = Access {
        username: Some("gw".to_owned()),
        password: Some("right".to_owned()),
        database: 5,
        tls: None,
    };
    let under = start(server.port(), &access, 2, LONG);
    for _ in 0..3 {
        under.up().await;
        for _ in 0..2 {
            under.ask("INCR", vec!["k".into()], LONG).await.unwrap();
        }
        under.reconnect().await;
    }
    let keyspace = format!("{:?}", server.command(&["INFO", "keyspace"]));
    assert!(
        keyspace.contains("db5:keys=1") && !keyspace.contains("db0"),
        "{keyspace}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_made_anew_where_wanted() {
    let server = RedisServer::start();
    let under = start(server.port(), &Access::default(), 2, LONG);
    under.up().await;
    let links = || {
        under
            .list
            .iter()
            .map(|slot| slot.borrow().clone().unwrap())
            .collect::<Vec<_>>()
    };
    let old = links();
    under.reconnect().await;
    for (old, new) in old.iter().zip(links()) {
        assert!(!Arc::ptr_eq(old, &new));
    }
    let connected = |_: &Connections| server.info("connected_clients").as_deref() == Some("3");
    under.until("the old ones are closed", connected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_follows_asking_directly() {
    let server = RedisServer::start();
    let under = start(server.port(), &Access::default(), 1, Duration::from_millis(50));
    under.up().await;
    let args = || vec!["return ARGV[1]".into(), 0.into(), Bytes::from_static(&[0xff, 0]).into()];
    // The server says that it is no cluster; that is not the reply to the call.
    assert_eq!(
        under.send_asking(Call::Eval, args(), LONG).await.unwrap()[..],
        [0xff, 0]
    );
    server.pause();
    let late = under.send_asking(Call::Eval, args(), Duration::from_millis(50)).await;
    assert!(matches!(late, Err(Failure::Timeout)), "{late:?}");
    under.down().await;
}

mod tls {
    use std::fs::read;

    use super::*;
    use crate::store::redis::tls::{ClientIdentity, Tls};

    fn access(ca: &std::path::Path, identity: Option<ClientIdentity<'_>>) -> Access {
        Access {
            tls: Some(Tls::new(Some(&read(ca).unwrap()), identity).unwrap()),
            ..Access::default()
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_a_server_that_is_trusted_is_talked_to() {
        let server = RedisServer::start_tls();
        let of = server.certificates();
        for address in ["127.0.0.1", "localhost"] {
            let address = Address::new(address, server.tls_port());
            let connections = Connections::new(&address, &access(&of.ca(), None), 1, LONG).unwrap();
            let connections = Arc::new(connections);
            let _tasks = connections.supervise(&Handle::current());
            let under = Under { connections, _tasks };
            under.up().await;
            assert_eq!(under.ping(LONG).await.unwrap(), "PONG");
        }
        let under = start(server.tls_port(), &access(&of.stranger_ca(), None), 1, LONG);
        under
            .until("it is a stranger", |c| c.last_error().contains("UnknownIssuer"))
            .await;
        let under = start(server.port(), &access(&of.ca(), None), 1, LONG);
        under.until("no TLS there", |c| c.last_error().contains("TLS")).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_certificate_is_shown_to_who_asks_for_one() {
        let server = RedisServer::start_tls_for_certified_clients();
        let of = server.certificates();
        let (cert, key) = (read(of.client_cert()).unwrap(), read(of.client_key()).unwrap());
        let identity = ClientIdentity { cert: &cert, key: &key };
        let under = start(server.tls_port(), &access(&of.ca(), Some(identity)), 1, LONG);
        under.up().await;
        assert_eq!(under.ping(LONG).await.unwrap(), "PONG");
        let under = start(server.tls_port(), &access(&of.ca(), None), 1, LONG);
        under
            .until("it wants one", |c| c.last_error().contains("ertificate"))
            .await;
    }
}

/// The only connection that a server has room for.
struct Holder(BufReader<TcpStream>);

impl Holder {
    fn take(server: &RedisServer) -> Self {
        loop {
            let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            let mut holder = Self(BufReader::new(stream));
            // The one that came before may not have left yet.
            if holder.try_rejected().is_some() {
                return holder;
            }
        }
    }

    /// How many connections were refused.
    fn rejected(&mut self) -> usize {
        self.try_rejected().unwrap()
    }

    fn try_rejected(&mut self) -> Option<usize> {
        self.0.get_mut().write_all(b"INFO stats\r\n").ok()?;
        let mut found = None;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).ok()?;
            if let Some(number) = line.trim_end().strip_prefix("rejected_connections:") {
                found = number.parse().ok();
            }
            // The end of the reply, or of the connection.
            if matches!(&*line, "" | "\r\n") {
                return found;
            }
        }
    }
}

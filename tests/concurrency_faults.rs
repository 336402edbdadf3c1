//! Requests in flight at once, while gateways and Redis come and go.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::support::{Client, DEADLINE, Gateway, Raw, Redis, Settings, get, pause, wait_for};

/// The length of a lease, unless a layer says otherwise.
const LEASE: Duration = Duration::from_secs(1);

/// An upstream that takes its time, and counts the requests that are in flight.
struct Busy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    now: usize,
    most: usize,
    took: Duration,
}

impl Busy {
    /// Each request takes it that long.
    async fn start(took: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            took,
            ..State::default()
        }));
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream.set_nodelay(true));
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            state,
            accepting,
        }
    }

    fn in_flight(&self) -> usize {
        self.state.lock().unwrap().now
    }

    fn most(&self) -> usize {
        self.state.lock().unwrap().most
    }

    /// From now on each request takes it that long.
    fn takes(&self, took: Duration) {
        self.state.lock().unwrap().took = took;
    }

    fn behind(&self) -> Settings {
        let address = self.address;
        Settings::new()
            .upstream_with(&format!("busy: {{endpoints: \"http://{address}\", timeout: 60s}}"))
            .route(r#"{name: all, path: "/{*rest}", upstream: busy}"#)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A request in flight; no longer once it is about to be answered, for then it may be another's turn.
struct InFlight<'a>(&'a Mutex<State>);

impl<'a> InFlight<'a> {
    fn enter(state: &'a Mutex<State>) -> (Self, Duration) {
        let mut locked = state.lock().unwrap();
        locked.now += 1;
        locked.most = locked.most.max(locked.now);
        (Self(state), locked.took)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().now -= 1;
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            match stream.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(count) => head.extend_from_slice(&chunk[..count]),
            }
        }
        head.clear();
        let (in_flight, took) = InFlight::enter(&state);
        tokio::select! {
            () = sleep(took) => {}
            // The gateway has gone, and its requests with it.
            _ = stream.read(&mut chunk) => return,
        }
        drop(in_flight);
        if stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
            .await
            .is_err()
        {
            return;
        }
    }
}

/// A client that asks again and again, a moment after each refusal, until its gateway has gone; then at another.
fn insist(addresses: [SocketAddr; 2]) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut refused = 0;
        for address in addresses {
            let mut client = Client::to(address);
            while let Ok(response) = client.try_send(&get("/")).await {
                if !response.passed() {
                    refused += 1;
                    assert_eq!(response.status, 429, "after {refused}: {response:?}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_killed_takes_no_slot_with_it_for_long() {
    let (busy, redis) = (Busy::start(Duration::from_millis(300)).await, Redis::start().await);
    let settings = busy
        .behind()
        .counting_in(&redis, "killed")
        .limit("{name: flights, key: global, algorithm: concurrency, limit: 20}");
    let mut one = Gateway::with(&settings).start().await;
    let two = Gateway::with(&settings).start().await;
    let addresses = [one.address(), two.address()];
    let clients: Vec<_> = (0..200)
        .map(|number| match number % 2 {
            0 => insist(addresses),
            _ => insist([addresses[1]; 2]),
        })
        .collect();
    let is_full = || async { busy.in_flight() == 20 };
    wait_for(DEADLINE, "all slots in use", is_full).await;
    pause(3 * LEASE).await;
    wait_for(DEADLINE, "all slots in use", is_full).await;

    one.signal(Signal::KILL);
    let killed = Instant::now();
    one.exit().await;
    // For a while what it held is lost.
    wait_for(DEADLINE, "its requests to end", || async { busy.in_flight() < 20 }).await;
    wait_for(DEADLINE, "all slots in use again", is_full).await;
    let lost_for = killed.elapsed();
    assert!(lost_for < 2 * LEASE, "slots were lost for {lost_for:?}");
    pause(LEASE).await;
    wait_for(DEADLINE, "all slots in use", is_full).await;
    assert_eq!(busy.most(), 20, "in flight at the upstream");
    for client in &clients {
        client.abort();
    }
}

/// Sends a request that goes on for long; its client leaves when this is dropped.
async fn begin(address: SocketAddr) -> Raw {
    let mut client = Raw::connect(address).await;
    client.send(get("/").to_bytes()).await.unwrap();
    client
}

/// Begins so many at each gateway, one after the other, and waits until the upstream has them all.
async fn take_off(busy: &Busy, flights: &[(&Gateway, usize)]) -> Vec<Raw> {
    let mut all = Vec::new();
    for (gateway, count) in flights {
        for _ in 0..*count {
            let before = busy.in_flight();
            all.push(begin(gateway.address()).await);
            wait_for(DEADLINE, "a request in flight", || async { busy.in_flight() > before }).await;
        }
    }
    all
}

/// So many more find room at a gateway, and none beyond.
async fn takes_in(busy: &Busy, gateway: &Gateway, count: usize) -> Vec<Raw> {
    let more = take_off(busy, &[(gateway, count)]).await;
    let refused = gateway.client().get("/").await;
    assert!(refused.denied(), "{refused:?}");
    assert_eq!(refused.retry_after(), Some(1));
    more
}

/// Every gateway knows of all.
async fn know_of_each_other(gateways: &[Gateway]) {
    for gateway in gateways {
        wait_for(DEADLINE, "the other gateways", || async {
            gateway.metric("gateway_live_gateways", &[]).await >= 2.0
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_held_counts_while_redis_is_away_and_when_it_is_back() {
    let (busy, redis) = (Busy::start(Duration::from_secs(60)).await, Redis::start().await);
    let address = redis.address();
    let settings = busy
        .behind()
        .store(&format!(
            "{{redis: {{url: \"redis://{address}/0\", prefix: away, timeout: 1s, on_failure: local}}}}"
        ))
        .limit("{name: flights, key: global, algorithm: concurrency, limit: 10}");
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    let [one, two] = &gateways;
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    know_of_each_other(&gateways).await;
    let mut flights = take_off(&busy, &[(one, 4), (two, 1)]).await;

    redis.kill();
    for gateway in &gateways {
        gateway.status_says("/store/state", "down").await;
    }
    // Each has five of the ten. Redis is away for longer than a lease, and has lost everything when it comes back.
    flights.extend(takes_in(&busy, one, 1).await);
    flights.extend(take_off(&busy, &[(two, 2)]).await);
    pause(2 * LEASE).await;
    redis.start_again().await;
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    wait_for(DEADLINE, "what is held, in Redis", || async {
        held(&redis, "away").await == 8
    })
    .await;
    // The time is over in which gateways keep to their shares, since others may not be back yet.
    pause(Duration::from_millis(2_500)).await;
    flights.extend(takes_in(&busy, one, 2).await);
    assert!(two.client().get("/").await.denied());
    assert_eq!(held(&redis, "away").await, 10);

    drop(flights);
    wait_for(DEADLINE, "all slots to come back", || async {
        redis.counters("away").await.is_empty()
    })
    .await;
}

/// Slots that are held, as Redis has it.
async fn held(redis: &Redis, prefix: &str) -> u64 {
    let mut sum = 0;
    for key in redis.counters(prefix).await {
        let state = redis.command(&["GET", &key]).await;
        // A character is a byte of it.
        let bytes: Vec<u8> = state
            .text()
            .unwrap_or_default()
            .chars()
            .map(|byte| byte as u8)
            .collect();
        let doubles = bytes
            .chunks(8)
            .map(|double| f64::from_le_bytes(double.try_into().unwrap()));
        sum += doubles.skip(1).step_by(4).sum::<f64>() as u64;
    }
    sum
}

#[tokio::test]
async fn a_state_that_is_lost_is_told_anew() {
    let (busy, redis) = (Busy::start(Duration::from_secs(60)).await, Redis::start().await);
    let settings = busy
        .behind()
        .counting_in(&redis, "lost")
        .limit("{name: flights, key: global, algorithm: concurrency, limit: 3, lease: {ttl: 400ms}}");
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    let flights = take_off(&busy, &[(&gateways[0], 2), (&gateways[1], 1)]).await;
    redis.command(&["FLUSHALL"]).await;
    wait_for(DEADLINE, "what is held, in Redis", || async {
        held(&redis, "lost").await == 3
    })
    .await;
    // Leases are renewed for as long as they are needed.
    pause(Duration::from_millis(1_500)).await;
    for gateway in &gateways {
        assert!(gateway.client().get("/").await.denied());
    }
    drop(flights);
    wait_for(DEADLINE, "all slots to come back", || async {
        redis.counters("lost").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_reload_leaves_slots_with_those_who_hold_them() {
    let (busy, redis) = (Busy::start(Duration::from_secs(60)).await, Redis::start().await);
    let settings = |limit: &str| busy.behind().counting_in(&redis, "reload").limits([limit]);
    let of = |limit| format!("{{name: flights, key: global, algorithm: concurrency, limit: {limit}}}");
    let gateway = Gateway::with(&settings(&of(3))).start().await;
    let mut flights = takes_in(&busy, &gateway, 3).await;
    gateway.write_by_rename(&settings(&of(5)));
    gateway.status_says("/config/version", 2).await;
    flights.extend(takes_in(&busy, &gateway, 2).await);
    gateway.write_by_rename(&settings(&of(2)));
    gateway.status_says("/config/version", 3).await;
    assert!(gateway.client().get("/").await.denied());
    assert_eq!(held(&redis, "reload:flights").await, 5);

    // The layer goes, and with it the limit; what was held comes back all the same.
    let none = "{name: other, key: global, algorithm: fixed_window, limit: 1000, window: 1h}";
    gateway.write_by_rename(&settings(none));
    gateway.status_says("/config/version", 4).await;
    busy.takes(Duration::ZERO);
    assert!(gateway.client().get("/").await.passed());
    drop(flights);
    wait_for(DEADLINE, "all slots to come back", || async {
        held(&redis, "reload:flights").await == 0
    })
    .await;
}

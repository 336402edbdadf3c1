//! Requests in flight at once: a slot is held from the decision to the end of the answer's body.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use crate::support::{DEADLINE, Gateway, H2Client, Origin, Raw, Redis, Response, Settings, Step, get, wait_for};

/// An origin that answers when the test says so: of `/stream` the head and half of the body at once.
struct Patient {
    origin: Origin,
    signals: Arc<Mutex<HashMap<String, Arc<Notify>>>>,
}

/// A request that the origin has, and that goes on.
struct Flight {
    client: Raw,
    signal: Arc<Notify>,
}

impl Flight {
    /// Lets it end, as it will.
    async fn land(mut self) -> Response {
        self.signal.notify_one();
        self.client.response_to("GET").await.unwrap()
    }
}

impl Patient {
    async fn start() -> Self {
        let (origin, signals) = (Origin::start().await, Arc::<Mutex<HashMap<_, Arc<Notify>>>>::default());
        let known = Arc::clone(&signals);
        origin.answers(move |seen| {
            let Some(signal) = known.lock().unwrap().get(&seen.target).cloned() else {
                return vec![Step::ok("fine")];
            };
            let wait = Step::Wait(signal);
            if seen.target.starts_with("/stream") {
                let half = Step::text("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
                vec![half, wait, Step::text("rest")]
            } else if seen.target.starts_with("/broken") {
                vec![wait, Step::Reset]
            } else {
                vec![wait, Step::ok("fine")]
            }
        });
        Self { origin, signals }
    }

    /// From now on the origin waits before it answers this.
    fn names(&self, target: &str) -> String {
        let signal = Arc::new(Notify::new());
        self.signals.lock().unwrap().insert(target.to_owned(), signal);
        target.to_owned()
    }

    /// Sends a request until the origin takes it in: what others gave back a moment ago may not be known yet.
    async fn holds(&self, address: SocketAddr, kind: &str) -> Flight {
        let signal = Arc::new(Notify::new());
        let target = {
            let mut signals = self.signals.lock().unwrap();
            let target = format!("{kind}/{}", signals.len());
            signals.insert(target.clone(), Arc::clone(&signal));
            target
        };
        let what = format!("{target} at the origin");
        let is_there = || async { self.origin.executed_target(&target) == 1 };
        loop {
            let mut client = Raw::connect(address).await;
            let request = get(&target).header("x-user-id", "alice");
            client.send(request.to_bytes()).await.unwrap();
            tokio::select! {
                () = wait_for(DEADLINE, &what, is_there) => return Flight { client, signal },
                refused = client.read_until(" 429 ") => refused.unwrap(),
            }
        }
    }
}

async fn at_once(address: SocketAddr) -> Response {
    crate::support::Client::to(address)
        .send(&get("/at-once").header("x-user-id", "alice"))
        .await
}

/// What was given back is free again, at every gateway.
async fn has_room(addresses: &[SocketAddr]) {
    for address in addresses {
        wait_for(DEADLINE, "a slot", || async { at_once(*address).await.passed() }).await;
    }
}

/// As [`has_room`] says, and for one more only.
async fn has_room_for_one(patient: &Patient, addresses: &[SocketAddr]) {
    has_room(addresses).await;
    let last = patient.holds(addresses[0], "/hold").await;
    for address in addresses {
        assert!(at_once(*address).await.denied());
    }
    assert!(last.land().await.passed());
    has_room(addresses).await;
}

const THREE: &str = "{name: flights, key: \"header:x-user-id\", algorithm: concurrency, limit: 3}";

/// Three at once, whichever of the gateways they came to, and however they end.
async fn three_at_once(patient: &Patient, addresses: &[SocketAddr]) {
    let [one, two] = [addresses[0], addresses[addresses.len() - 1]];
    let held = [
        patient.holds(one, "/hold").await,
        patient.holds(two, "/hold").await,
        patient.holds(one, "/stream").await,
    ];
    for address in addresses {
        let refused = at_once(*address).await;
        assert!(refused.denied(), "{refused:?}");
        assert_eq!(refused.retry_after(), Some(1));
        let policy = "\"flights\";q=3;qu=\"concurrent-requests\"";
        assert_eq!(refused.header("ratelimit-policy"), Some(policy));
        assert_eq!(refused.header("ratelimit"), Some("\"flights\";r=0;t=1"));
        let problem = refused.json();
        assert_eq!(
            problem["detail"],
            "limit \"flights\" of 3 at once is used up; retry in 1 s"
        );
    }
    let [hold, other, mut stream] = held;
    // The head of the answer has come; its slot stays.
    stream.client.read_until("half").await.unwrap();
    assert!(at_once(one).await.denied());

    // Its end, a client that leaves, one that leaves in the middle of the answer, an upstream that fails.
    assert!(hold.land().await.passed());
    has_room_for_one(patient, addresses).await;
    drop(stream);
    drop(other);
    has_room(addresses).await;
    let broken = [patient.holds(one, "/broken").await, patient.holds(two, "/hold").await];
    has_room_for_one(patient, addresses).await;
    for client in broken {
        client.land().await;
    }
    let three = [
        patient.holds(one, "/hold").await,
        patient.holds(two, "/hold").await,
        patient.holds(two, "/hold").await,
    ];
    assert!(at_once(one).await.denied());
    for client in three {
        assert!(client.land().await.passed());
    }
}

#[tokio::test]
async fn in_memory_so_many_are_in_flight_at_once() {
    let patient = Patient::start().await;
    let settings = Settings::forwarding_to(&patient.origin).limit(THREE);
    let gateway = Gateway::with(&settings).start().await;
    three_at_once(&patient, &[gateway.address()]).await;
}

#[tokio::test]
async fn over_two_gateways_so_many_are_in_flight_at_once() {
    let (patient, redis) = (Patient::start().await, Redis::start().await);
    let settings = Settings::forwarding_to(&patient.origin)
        .counting_in(&redis, "inflight")
        .limit(THREE);
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    three_at_once(&patient, &gateways.each_ref().map(Gateway::address)).await;
    // Nothing is held, and nothing is kept.
    wait_for(DEADLINE, "no counter", || async {
        redis.counters("inflight").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn who_waits_for_its_turn_has_its_slot() {
    let patient = Patient::start().await;
    let settings = Settings::forwarding_to(&patient.origin)
        .limit("{name: flights, key: global, algorithm: concurrency, limit: 3}")
        .limit("{name: queue, key: global, algorithm: leaky_bucket, rate: 1/m, capacity: 9, max_delay: 1h}");
    let gateway = Gateway::with(&settings).start().await;
    let first = patient.holds(gateway.address(), "/hold").await;
    let mut waiting = Vec::new();
    for count in [1.0, 2.0] {
        let mut client = Raw::connect(gateway.address()).await;
        client.send(get("/").to_bytes()).await.unwrap();
        waiting.push(client);
        wait_for(DEADLINE, "a request that waits", || async {
            gateway.metric("gateway_waiting_requests", &[]).await >= count
        })
        .await;
    }
    let refused = at_once(gateway.address()).await;
    assert!(refused.denied(), "{refused:?}");
    assert_eq!(refused.json()["violated-policies"][0], "flights");
    // It leaves the queue, and its slot.
    waiting.pop();
    wait_for(DEADLINE, "one that waits", || async {
        gateway.metric("gateway_waiting_requests", &[]).await < 2.0
    })
    .await;
    assert!(first.land().await.passed());
    drop(waiting);
    wait_for(DEADLINE, "nobody in the queue", || async {
        gateway.metric("gateway_waiting_requests", &[]).await < 1.0
    })
    .await;
}

#[tokio::test]
async fn a_shadow_and_a_candidate_count_what_runs() {
    let (patient, redis) = (Patient::start().await, Redis::start().await);
    let settings = Settings::forwarding_to(&patient.origin)
        .counting_in(&redis, "tried")
        .limit("{name: seen, key: global, algorithm: concurrency, limit: 1, mode: shadow}")
        .limit(
            "{name: flights, key: global, algorithm: concurrency, limit: 5, \
             candidate: {algorithm: concurrency, limit: 2}}",
        );
    let gateway = Gateway::with(&settings).start().await;
    let denied = async |limit: &str, outcome: &str| {
        let labels = [("limit", limit), ("outcome", outcome)];
        gateway.metric("gateway_limit_decisions_total", &labels).await
    };
    for round in [1.0, 2.0] {
        let mut flights = Vec::new();
        for _ in 0..3 {
            flights.push(patient.holds(gateway.address(), "/hold").await);
        }
        assert_eq!(denied("seen", "shadow_denied").await, 2.0 * round);
        assert_eq!(denied("flights", "candidate_denied").await, round);
        for flight in flights {
            assert!(flight.land().await.passed());
        }
        wait_for(DEADLINE, "all slots to come back", || async {
            redis.counters("tried").await.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn a_request_over_http_2_holds_its_slot_too() {
    let patient = Patient::start().await;
    let settings = Settings::forwarding_to(&patient.origin).limit(THREE);
    let gateway = Gateway::with(&settings).start().await;
    let client = H2Client::connect(gateway.address()).await;
    let flights: Vec<_> = (0..3)
        .map(|number| {
            let mut client = client.clone();
            let target = patient.names(&format!("/h2/{number}"));
            tokio::spawn(async move { client.try_send(&get(&target).header("x-user-id", "alice")).await })
        })
        .collect();
    patient.origin.has_executed(3).await;
    assert!(at_once(gateway.address()).await.denied());
    // Its stream is reset.
    flights[0].abort();
    has_room(&[gateway.address()]).await;
    drop(client);
    for flight in flights {
        flight.abort();
    }
    has_room(&[gateway.address()]).await;
}

#[tokio::test]
async fn a_layer_of_one_gateway_has_slots_of_its_own() {
    let (patient, redis) = (Patient::start().await, Redis::start().await);
    let settings = Settings::forwarding_to(&patient.origin)
        .counting_in(&redis, "own")
        .limit("{name: own, key: global, algorithm: concurrency, limit: 1, scope: instance}")
        .limit("{name: all, key: global, algorithm: concurrency, limit: 2}");
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    let refused_by = async |gateway: &Gateway| {
        let refused = at_once(gateway.address()).await;
        assert!(refused.denied(), "{refused:?}");
        refused.json()["violated-policies"][0].as_str().unwrap().to_owned()
    };
    let first = patient.holds(gateways[0].address(), "/hold").await;
    assert_eq!(refused_by(&gateways[0]).await, "own");
    let second = patient.holds(gateways[1].address(), "/hold").await;
    for _ in 0..3 {
        assert_eq!(refused_by(&gateways[2]).await, "all");
    }
    assert!(first.land().await.passed());
    // What the shared layer refused has taken none of the third's own.
    let third = patient.holds(gateways[2].address(), "/hold").await;
    assert!(second.land().await.passed() && third.land().await.passed());
    has_room(&gateways.each_ref().map(Gateway::address)).await;
}

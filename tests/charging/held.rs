//! What happens between a request and its answer: bursts, clients that leave, Redis that comes and goes, reloads.

use super::*;

/// An upstream that holds each request with a `held` in its query until that one is told to go on.
struct Holding {
    origin: crate::support::Origin,
    /// By the number that a held request bears.
    signals: Arc<Mutex<Vec<Arc<Notify>>>>,
}

/// A request that waits for its answer.
struct Held {
    connection: Raw,
    go_on: Arc<Notify>,
}

impl Holding {
    async fn start() -> Self {
        let (origin, signals) = (crate::support::Origin::start().await, Arc::<Mutex<Vec<_>>>::default());
        let known = Arc::clone(&signals);
        origin.answers(move |seen| {
            let answer = answer(&seen.target);
            match parameter(&seen.target, "held") {
                Some(number) => {
                    let signal: &Arc<Notify> = &known.lock().unwrap()[number.parse::<usize>().unwrap()];
                    vec![Step::Wait(Arc::clone(signal)), answer]
                }
                None => vec![answer],
            }
        });
        Self { origin, signals }
    }

    fn behind(&self, layer: &str) -> Settings {
        Settings::forwarding_to(&self.origin).limit(layer)
    }

    /// Sends a request with this query, and waits until it is held.
    async fn send(&self, gateway: &Gateway, query: &str) -> Held {
        let go_on = Arc::new(Notify::new());
        let number = {
            let mut signals = self.signals.lock().unwrap();
            signals.push(Arc::clone(&go_on));
            signals.len() - 1
        };
        let target = format!("/?held={number}&{query}");
        let mut connection = Raw::connect(gateway.address()).await;
        connection.send(get(&target).to_bytes()).await.unwrap();
        let is_held = || async { self.origin.executed_target(&target) == 1 };
        wait_for(DEADLINE, "a request at the origin", is_held).await;
        Held { connection, go_on }
    }
}

impl Held {
    /// Lets it be answered.
    async fn release(mut self) -> Response {
        self.go_on.notify_one();
        self.connection.response_to("GET").await.unwrap()
    }
}

fn used(algorithm: Algorithm) -> String {
    let parameters = algorithm.parameters(100, "1d");
    format!("{{name: l, key: global, cost: {{response_header: x-used, estimate: 10}}, {parameters}}}")
}

#[tokio::test]
async fn a_burst_does_not_pass_before_its_answers_are_there() {
    let holding = Holding::start().await;
    for algorithm in FIVE {
        let parameters = algorithm.parameters(3, "1d");
        let settings = holding.behind(&format!(
            "{{name: l, key: global, charge: {{status: 401}}, {parameters}}}"
        ));
        for (store, gateways, _redis) in everywhere(&settings).await {
            let what = format!("{algorithm:?} {store}");
            let mut held = Vec::new();
            for number in 0..3 {
                held.push(holding.send(&gateways[number % gateways.len()], "status=200").await);
            }
            for gateway in &gateways {
                assert!(gateway.client().get("/").await.denied(), "{what}");
            }
            for connection in held {
                assert!(connection.release().await.passed());
            }
            finds_left(&gateways[0], &get("/"), 3, &what).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_keeps_the_estimate_but_is_no_failed_login() {
    let holding = Holding::start().await;
    let parameters = Algorithm::SlidingWindowCounter.parameters(100, "1d");
    let status = format!("{{name: l, key: global, charge: {{status: 200}}, cost: 10, {parameters}}}");
    for (layer, left) in [(used(Algorithm::SlidingWindowCounter), 90), (status, 100)] {
        for (store, gateways, _redis) in everywhere(&holding.behind(&layer)).await {
            drop(holding.send(&gateways[0], "n=1").await);
            finds_left(&gateways[0], &get("/?used=0&status=204"), left, store).await;
        }
    }
}

/// A gateway whose Redis is frozen and comes back.
struct Outage {
    gateway: Gateway,
    redis: Redis,
    /// Calls that were lost before it was back.
    lost: f64,
}

impl Outage {
    async fn begin(settings: &Settings) -> Self {
        let redis = Redis::start().await;
        let gateway = Gateway::with(&shared(settings, &redis)).start().await;
        gateway.status_says("/store/state", "connected").await;
        let lost = 0.0;
        Self { gateway, redis, lost }
    }

    async fn freeze(&self) {
        self.redis.freeze();
        self.gateway.status_says("/store/state", "down").await;
    }

    async fn thaw(&mut self) {
        self.lost = lost_calls(&self.gateway).await;
        self.redis.thaw();
        self.gateway.status_says("/store/state", "connected").await;
    }

    /// Whether so much is left. If not, and a call was lost since Redis is back, as may be on a busy machine, nobody knows
    /// whether it ran: then it is to be tried again.
    async fn leaves(&self, left: i64, what: &str) -> bool {
        let Err(found) = left_is(&self.gateway, &get("/?used=0"), left).await else {
            return true;
        };
        let since = lost_calls(&self.gateway).await - self.lost;
        assert!(since > 0.0, "{what}: {found:?} left, not {left}");
        false
    }
}

/// Three times at most.
async fn until_nothing_is_lost(round: impl AsyncFn() -> bool) {
    for _ in 0..3 {
        if round().await {
            return;
        }
    }
    panic!("calls were lost each time");
}

#[tokio::test]
async fn an_answer_that_comes_while_redis_is_away_is_settled_afterwards() {
    let holding = Holding::start().await;
    for algorithm in FIVE {
        until_nothing_is_lost(async || {
            let mut outage = Outage::begin(&holding.behind(&used(algorithm))).await;
            let (more, less) = (
                holding.send(&outage.gateway, "used=25").await,
                holding.send(&outage.gateway, "used=3").await,
            );
            outage.freeze().await;
            let (one, other) = tokio::join!(more.release(), less.release());
            assert!(one.passed() && other.passed());
            outage.thaw().await;
            outage.leaves(100 - 28, &format!("{algorithm:?}")).await
        })
        .await;
    }
}

#[tokio::test]
async fn what_passed_without_redis_is_settled_with_its_debt_or_after_it() {
    let holding = Holding::start().await;
    for algorithm in FIVE {
        until_nothing_is_lost(async || {
            let mut outage = Outage::begin(&holding.behind(&used(algorithm))).await;
            outage.freeze().await;
            for target in ["/?used=15", "/?used=2"] {
                assert!(outage.gateway.client().get(target).await.passed(), "{algorithm:?}");
            }
            let late = holding.send(&outage.gateway, "used=30").await;
            outage.thaw().await;
            // The debt of 27 is there.
            let is_told = outage.leaves(100 - 27, &format!("{algorithm:?}")).await;
            assert!(late.release().await.passed());
            is_told && outage.leaves(100 - 47, &format!("{algorithm:?}, late")).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_reload_in_between_settles_what_was_charged() {
    let holding = Holding::start().await;
    for algorithm in FIVE {
        let settings = holding.behind(&used(algorithm));
        for (store, gateways, _redis) in everywhere(&settings).await {
            let gateway = &gateways[0];
            let before = gateway.status().await["config"]["version"].as_i64().unwrap();
            let (more, less) = (
                holding.send(gateway, "used=25").await,
                holding.send(gateway, "used=3").await,
            );
            let parameters = algorithm.parameters(200, "1d");
            let changed =
                format!("{{name: l, key: global, cost: {{response_header: x-used, estimate: 20}}, {parameters}}}");
            let yaml = std::fs::read_to_string(gateway.config_path()).unwrap();
            let yaml = yaml.replace(&used(algorithm), &changed);
            gateway.write(crate::support::Way::Rename, &yaml).await;
            gateway.status_says("/config/version", before + 1).await;
            tokio::join!(more.release(), less.release());
            finds_left(gateway, &get("/?used=0"), 200 - 28, &format!("{algorithm:?} {store}")).await;
        }
    }
}

/// A request that waits for a token was charged it; it is given back once, and not again for having had no answer.
#[tokio::test]
async fn who_leaves_while_it_waits_is_given_back_once() {
    let holding = Holding::start().await;
    let redis = Redis::start().await;
    let layer =
        "{name: l, key: global, charge: {status: 401}, algorithm: token_bucket, rate: 1/h, burst: 2, max_wait: 1h}";
    let settings = holding.behind(layer);
    for settings in [settings.clone(), settings.counting_in(&redis, "waits")] {
        let gateway = Gateway::with(&settings).start().await;
        let waiting = async |count: f64| {
            wait_for(DEADLINE, "those who wait", || async {
                gateway.metric("gateway_waiting_requests", &[]).await == count
            })
            .await;
        };
        for _ in 0..2 {
            assert_eq!(gateway.client().get("/?status=401").await.status, 401);
        }
        for _ in 0..2 {
            // In Redis, what is given back is on its way.
            let leaves = loop {
                let mut comes = Raw::connect(gateway.address()).await;
                comes.send(get("/").to_bytes()).await.unwrap();
                let waits = tokio::select! {
                    () = waiting(1.0) => true,
                    refused = comes.response_to("GET") => !refused.unwrap().denied(),
                };
                if waits {
                    break comes;
                }
            };
            assert!(gateway.client().get("/").await.denied(), "one may wait");
            drop(leaves);
            waiting(0.0).await;
        }
    }
}

/// What a frozen Redis has been asked is charged when it goes on, whoever has left.
#[tokio::test]
async fn who_leaves_before_the_decision_was_no_failed_login() {
    let (holding, redis) = (Holding::start().await, Redis::start().await);
    let status = "charge: {status: 401}, algorithm: fixed_window, limit: 3, window: 1d";
    let cost = "cost: {response_header: x-used, estimate: 1}, algorithm: fixed_window, limit: 3, window: 1d";
    for more in [status, cost] {
        redis.command(&["FLUSHALL"]).await;
        let settings = holding
            .behind(&format!("{{name: l, key: global, {more}}}"))
            .counting_in(&redis, "leaves");
        let gateway = Gateway::with(&settings).start().await;
        gateway.status_says("/store/state", "connected").await;
        redis.freeze();
        let mut leaves = Raw::connect(gateway.address()).await;
        leaves.send(get("/").to_bytes()).await.unwrap();
        let in_flight = async |count: f64| {
            wait_for(DEADLINE, "requests in flight", || async {
                gateway.metric("gateway_in_flight_requests", &[]).await == count
            })
            .await;
        };
        in_flight(1.0).await;
        drop(leaves);
        in_flight(0.0).await;
        redis.thaw();
        gateway.status_says("/store/state", "connected").await;
        finds_left(&gateway, &get("/?used=0&status=204"), 3, more).await;
    }
}

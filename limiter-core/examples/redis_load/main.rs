//! What a decision costs that many processes share, by load: calls, CPU of Redis and of the client, and time.
//!
//! `cargo run --release -p limiter-core --example redis_load [FILE.svg [SECONDS]]` starts a redis-server of its own,
//! offers requests of four layers at several rates, each for so many seconds, and prints a table in Markdown. The chart
//! shows how calls and Redis CPU a request fall as load rises. It means something only on a machine that does nothing
//! else meanwhile.

use std::{env, error::Error, fs, sync::Arc, time::Duration};

use fred::{
    clients::Client,
    interfaces::ClientLike as _,
    types::{Builder, config::Config},
};
use limiter_core::{
    MonotonicClock, RedisConfig, RedisOptions, RedisStore,
    clock::{Clock as _, Timestamp},
    test_util::RedisServer,
};

use self::{
    chart::{Panel, draw},
    load::{Latencies, Load, offer},
    meter::{Calls, Cpu, WORKERS},
    request::Layers,
};

mod chart;
mod load;
mod meter;
mod request;

const LOADS: [Load; 7] = [
    Load::Rate(100),
    Load::Rate(1_000),
    Load::Rate(5_000),
    Load::Rate(10_000),
    Load::Rate(20_000),
    Load::Rate(40_000),
    Load::Callers(512),
];

/// What the store, and a client that only sends PING, are asked over.
struct Setup {
    runtime: tokio::runtime::Runtime,
    server: RedisServer,
    store: Arc<RedisStore>,
    calls: Arc<Calls>,
    layers: Arc<Layers>,
    pinger: Client,
    clock: Arc<MonotonicClock>,
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    load: Load,
    answered_a_second: f64,
    failed: u64,
    calls_a_request: f64,
    redis_us: f64,
    client_us: f64,
    p50: Duration,
    p99: Duration,
    ping_p50: Duration,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let file = args.next();
    let seconds = args.next().map_or(Ok(5), |text| text.parse())?;
    let setup = Setup::new()?;
    setup.warm_up();
    let idle = setup.idle(Duration::from_secs(seconds));

    println!(
        "| offered a second | answered a second | calls a request | requests a call | Redis CPU a request | \
         client CPU a request | p50 | p99 | p50 of a PING |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for load in LOADS {
        let row = setup.measure(load, Duration::from_secs(seconds), &idle);
        row.print();
        rows.push(row);
    }
    if let Some(file) = file {
        fs::write(file, chart(&rows))?;
    }
    Ok(())
}

impl Setup {
    fn new() -> Result<Self, Box<dyn Error>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(WORKERS)
            .enable_all()
            .build()?;
        let server = RedisServer::start();
        let calls = Arc::new(Calls::default());
        let options = RedisOptions {
            observer: Some(Arc::clone(&calls) as Arc<_>),
            ..RedisOptions::default()
        };
        let config = RedisConfig {
            // A machine that is slow is to be measured, not given up.
            timeout: Duration::from_secs(1),
            ..RedisConfig::from_url(&server.url())?
        };
        let store = Arc::new(RedisStore::start_with(config, runtime.handle(), options)?);
        let pinger = Builder::from_config(Config::from_url(&server.url())?)
            .with_connection_config(|c| c.tcp.nodelay = Some(true))
            .build()?;
        runtime.block_on(async {
            pinger.init().await?;
            match store.wait_connected(Duration::from_secs(10)).await {
                true => Ok(()),
                false => Err(Box::<dyn Error>::from("no connection to redis")),
            }
        })?;
        Ok(Self {
            runtime,
            server,
            store,
            calls,
            layers: Arc::new(Layers::new()?),
            pinger,
            clock: Arc::new(MonotonicClock::new()),
        })
    }

    /// Makes all counters.
    fn warm_up(&self) {
        for _ in 0..3 {
            self.decide(Load::Callers(64), Duration::from_millis(500));
        }
    }

    /// What Redis and the client use in a second in which nobody asks.
    fn idle(&self, span: Duration) -> Cpu {
        let (before, began) = (Cpu::now(&self.server), self.clock.now());
        load::pause(span);
        (Cpu::now(&self.server) - before) * self.since(began).recip()
    }

    fn measure(&self, load: Load, span: Duration, idle: &Cpu) -> Row {
        let pings = self.ping(load, span / 2);
        let (before, calls, began) = (Cpu::now(&self.server), self.calls.count(), self.clock.now());
        let latencies = self.decide(load, span);
        let seconds = self.since(began);
        let cpu = Cpu::now(&self.server) - before - *idle * seconds;
        let answered = latencies.answered() as f64;
        Row {
            load,
            answered_a_second: answered / seconds,
            failed: latencies.failed(),
            calls_a_request: (self.calls.count() - calls) as f64 / answered,
            redis_us: cpu.redis_us / answered,
            client_us: cpu.client_us / answered,
            p50: latencies.quantile(0.5),
            p99: latencies.quantile(0.99),
            ping_p50: pings.quantile(0.5),
        }
    }

    fn decide(&self, load: Load, span: Duration) -> Arc<Latencies> {
        let (store, layers) = (Arc::clone(&self.store), Arc::clone(&self.layers));
        let decide = move || {
            let (store, layers) = (Arc::clone(&store), Arc::clone(&layers));
            async move { layers.decide(&*store).await }
        };
        offer(self.runtime.handle(), &self.clock, load, span, decide)
    }

    fn ping(&self, load: Load, span: Duration) -> Arc<Latencies> {
        let pinger = self.pinger.clone();
        let ping = move || {
            let pinger = pinger.clone();
            async move { pinger.ping::<()>(None).await.is_ok() }
        };
        offer(self.runtime.handle(), &self.clock, load, span, ping)
    }

    fn since(&self, began: Timestamp) -> f64 {
        self.clock.now().since(began).as_secs_f64()
    }
}

impl Row {
    fn print(&self) {
        let offered = match self.load {
            Load::Rate(rate) => format!("{rate}"),
            Load::Callers(callers) => format!("all that {callers} callers can"),
        };
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(" ({failed} not answered)"),
        };
        println!(
            "| {offered} | {:.0}{failed} | {:.2} | {:.1} | {:.1} µs | {:.1} µs | {} | {} | {} |",
            self.answered_a_second,
            self.calls_a_request,
            1.0 / self.calls_a_request,
            self.redis_us,
            self.client_us,
            millis(self.p50),
            millis(self.p99),
            millis(self.ping_p50),
        );
    }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn chart(rows: &[Row]) -> String {
    let points = |value: fn(&Row) -> f64| rows.iter().map(|row| (row.answered_a_second, value(row))).collect();
    let panel = |title, points| Panel { title, points };
    draw(
        "requests a second, four layers each",
        &[
            panel("calls a request", points(|row| row.calls_a_request)),
            panel("Redis CPU a request, in µs", points(|row| row.redis_us)),
        ],
    )
}

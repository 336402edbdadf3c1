//! What a call of the script costs Redis, by the requests in it and by their layers: CPU time of the server's main thread.
//!
//! `cargo bench -p limiter-core --bench script`; it starts a redis-server of its own. The times are of a whole call, its
//! reading and its answer included. What they come to for a request is what falls as load rises, since calls then carry more.

use std::{
    cell::LazyCell,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::Arc,
    time::Duration,
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use limiter_core::{
    Ask, OnFailure, Policy, Rate,
    algorithm::TokenBucket,
    test_util::{RedisServer, script},
};

const BATCHES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const LAYERS: [usize; 4] = [1, 2, 4, 8];
/// Counters of each layer, over and over: everybody's, the users', the paths', and that of one address.
const COUNTERS: [usize; 4] = [1, 10_000, 20, 1];
/// Calls that differ.
const CALLS: usize = 256;

/// A server that knows the script, and a connection to it.
struct Server {
    redis: RedisServer,
    connection: BufReader<TcpStream>,
    sha1: String,
}

impl Server {
    fn start() -> Self {
        let redis = RedisServer::start();
        let sha1 = redis
            .command(&["SCRIPT", "LOAD", &script::script_text(false)])
            .into_text();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port())).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Self {
            redis,
            connection: BufReader::new(stream),
            sha1,
        }
    }

    /// CPU time of the server so far.
    fn cpu(&self) -> Duration {
        let seconds = |field| -> f64 {
            self.redis
                .info(field)
                .and_then(|text| text.trim().parse().ok())
                .expect(field)
        };
        Duration::from_secs_f64(seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread"))
    }

    fn call(&mut self, command: &[u8]) -> io::Result<()> {
        self.connection.get_mut().write_all(command)?;
        let mut head = String::new();
        self.connection.read_line(&mut head)?;
        let array = head
            .strip_prefix('$')
            .and_then(|length| length.trim().parse::<u64>().ok());
        let length = array.ok_or_else(|| io::Error::other(head))? + 2;
        io::copy(&mut self.connection.by_ref().take(length), &mut io::sink())?;
        Ok(())
    }
}

/// `CALLS` commands with so many requests each.
fn commands(sha1: &str, batch: u64, layers: usize) -> Vec<Vec<u8>> {
    let rate = Rate {
        units: 1_000_000,
        per: Duration::from_secs(1),
    };
    let bucket = TokenBucket::new(rate, 100_000_000).expect("valid");
    let policy = |layer| Arc::new(Policy::new(format!("layer-{layer}"), bucket.clone(), OnFailure::Closed));
    let policies: Vec<_> = (0..layers).map(policy).collect();
    let command = |_| {
        let mut requests = script::Batch::of(1);
        for _ in 0..batch {
            let key = |layer: usize| format!("key-{}", fastrand::usize(..COUNTERS[layer % COUNTERS.len()]));
            let keys: Vec<String> = (0..layers).map(key).collect();
            let ask = |layer: usize| Ask {
                policy: &policies[layer],
                key: &keys[layer],
                cost: 1,
            };
            let asks: Vec<Ask<'_>> = (0..layers).map(ask).collect();
            assert!(requests.add(&asks), "it has a place");
        }
        encode(sha1, &requests)
    };
    (0..CALLS).map(command).collect()
}

/// `EVALSHA`, as it is sent.
fn encode(sha1: &str, requests: &script::Batch) -> Vec<u8> {
    let (keys, args) = requests.arguments("bench", None);
    let count = keys.len().to_string();
    let words: Vec<&[u8]> = [b"EVALSHA", sha1.as_bytes(), count.as_bytes()]
        .into_iter()
        .chain(keys.iter().chain(&args).map(AsRef::as_ref))
        .collect();
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    command
}

fn script(criterion: &mut Criterion) {
    let mut server = Server::start();
    let mut group = criterion.benchmark_group("script");
    // A short one has seen all that there is: the spread is that of the machine.
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_millis(500));
    let by_batch = BATCHES.map(|batch| ("requests", batch, 4));
    let by_layers = LAYERS.map(|layers| ("layers", 16, layers));
    for (kind, batch, layers) in by_batch.into_iter().chain(by_layers) {
        let parameter = if kind == "layers" {
            layers.to_string()
        } else {
            batch.to_string()
        };
        let commands = LazyCell::new({
            let sha1 = server.sha1.clone();
            move || commands(&sha1, batch, layers)
        });
        group.throughput(Throughput::Elements(batch));
        group.bench_function(BenchmarkId::new(kind, parameter), |bencher| {
            bencher.iter_custom(|calls| {
                let before = server.cpu();
                for call in 0..calls {
                    let at = usize::try_from(call).unwrap_or_default() % CALLS;
                    server.call(&commands[at]).expect("an answer");
                }
                server.cpu().saturating_sub(before)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, script);
criterion_main!(benches);

//! What a whole request costs: a real gateway in this process, an origin, and clients on connections that stay open.
//!
//! `cargo bench -p gateway --bench request`. The time is that of 32 requests, one on each of 32 connections, from the
//! first write to the last answer: all that is on the way takes part in it, client, origin and kernel included. What a
//! limit adds is the difference to `plain`.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    thread,
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gateway::{app, config::Overrides};
use limiter_core::test_util::RedisServer;

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CONNECTIONS: usize = 32;
const USERS: usize = 10_000;

/// Answers 1 KiB to every request, on a thread for each connection, until the process ends.
fn origin() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1024\r\n\r\n{}", "x".repeat(1024));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || serve(&stream, answer.as_bytes()));
        }
    });
    Ok(port)
}

fn serve(mut stream: &TcpStream, answer: &[u8]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream).split(b'\n');
    while let Some(line) = lines.next().transpose()? {
        // The end of a head; these requests have no bodies.
        if line == b"\r" {
            stream.write_all(answer)?;
        }
    }
    Ok(())
}

/// A path for each kind of work. `little` is used up by the first request.
fn configuration(port: u16, admin: u16, origin: u16, redis: &str) -> String {
    let mut text = format!(
        "listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\nserver: {{workers: 1}}\n\
         log: {{level: error, access: false}}\n\
         store: {{redis: {{url: \"{redis}\", timeout: 1s, on_failure: closed}}}}\n\
         upstreams: {{origin: {{endpoints: \"http://127.0.0.1:{origin}\"}}}}\n\
         routes: [{{path: \"/{{*rest}}\", upstream: origin}}]\nlimits:\n"
    );
    let plenty = "algorithm: token_bucket, rate: 9000000/s";
    let kinds = [
        ("memory", "scope: instance"),
        ("redis", "scope: cluster"),
        ("refuse", "scope: instance"),
    ];
    for (kind, scope) in kinds {
        for key in ["global", "header:x-user-id", "path", "ip"] {
            let quota = if (kind, key) == ("refuse", "ip") {
                "algorithm: token_bucket, rate: 1/h"
            } else {
                plenty
            };
            let name = key.replace(':', "-");
            writeln!(
                text,
                "  - {{name: {kind}-{name}, key: \"{key}\", match: {{path: /{kind}}}, {quota}, {scope}}}"
            )
            .expect("a text takes all");
        }
    }
    text
}

/// A port that is free now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Starts a gateway that serves until the process ends, and waits for it.
fn gateway(dir: &Path, redis: &str) -> io::Result<u16> {
    let (port, config_path) = (free_port()?, dir.join("gateway.yaml"));
    fs::write(&config_path, configuration(port, free_port()?, origin()?, redis))?;
    let options = app::Options {
        config_path,
        overrides: Overrides::default(),
    };
    let running = thread::spawn(move || app::run(&options));
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(!running.is_finished(), "it starts: {:?}", running.join());
        thread::yield_now();
    }
    Ok(port)
}

/// Connections that stay open.
struct Clients(Vec<BufReader<TcpStream>>);

impl Clients {
    fn connect(port: u16) -> io::Result<Self> {
        let connect = |_| {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_nodelay(true)?;
            Ok(BufReader::new(stream))
        };
        (0..CONNECTIONS).map(connect).collect::<io::Result<_>>().map(Self)
    }

    /// A request on each, of some user, which is answered with this status.
    fn round(&mut self, path: &str, status: &str) -> io::Result<()> {
        for connection in &mut self.0 {
            let user = fastrand::usize(..USERS);
            let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nx-user-id: user-{user}\r\n\r\n");
            connection.get_mut().write_all(request.as_bytes())?;
        }
        self.0.iter_mut().try_for_each(|connection| read(connection, status))
    }
}

fn read(connection: &mut BufReader<TcpStream>, status: &str) -> io::Result<()> {
    let (mut line, mut length) = (String::new(), 0);
    connection.read_line(&mut line)?;
    assert_eq!(line.split(' ').nth(1), Some(status), "{line}");
    while line != "\r\n" {
        line.clear();
        connection.read_line(&mut line)?;
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    io::copy(&mut connection.by_ref().take(length), &mut io::sink())?;
    Ok(())
}

fn requests(criterion: &mut Criterion) {
    let (redis, dir) = (RedisServer::start(), tempfile::tempdir().expect("a folder"));
    let port = gateway(dir.path(), &redis.url()).expect("a gateway");
    let mut clients = Clients::connect(port).expect("it listens");
    // The one that is not refused.
    clients.0.truncate(1);
    clients.round("/refuse", "200").expect("an answer");
    let mut clients = Clients::connect(port).expect("it listens");

    let mut group = criterion.benchmark_group("request");
    group.throughput(Throughput::Elements(CONNECTIONS as u64));
    for (path, status) in [
        ("/plain", "200"),
        ("/memory", "200"),
        ("/redis", "200"),
        ("/refuse", "429"),
    ] {
        let mut round = || clients.round(path, status).expect("answers");
        group.bench_function(&path[1..], |bencher| bencher.iter(&mut round));
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);

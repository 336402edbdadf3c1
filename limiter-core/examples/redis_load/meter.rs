//! What is counted: calls, and CPU time.

use std::{
    fs,
    ops::{Mul, Sub},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use limiter_core::{StoreObserver, test_util::RedisServer};

/// Name of the threads that are the client. The one that keeps the pace of the requests is not among them.
pub(crate) const WORKERS: &str = "client";

/// A tick of the kernel's clock: the unit of CPU time in `/proc`.
const TICK_US: f64 = 10_000.0;

/// Counts the calls that were answered.
#[derive(Debug, Default)]
pub(crate) struct Calls(AtomicU64);

impl Calls {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl StoreObserver for Calls {
    fn answered(&self, _took: Duration, _requests: usize) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn failed(&self, kind: &'static str) {
        eprintln!("a call failed: {kind}");
    }
}

/// CPU time that was used, in µs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) redis_us: f64,
    pub(crate) client_us: f64,
}

impl Cpu {
    /// So far.
    pub(crate) fn now(server: &RedisServer) -> Self {
        let seconds = |field| -> f64 {
            server
                .info(field)
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0.0)
        };
        let redis = seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread");
        Self {
            redis_us: redis * 1e6,
            client_us: client_us(),
        }
    }
}

/// Of all threads of the runtime.
fn client_us() -> f64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter_map(|stat| ticks(&stat)).sum::<f64>() * TICK_US
}

/// User and system time in `tid (name) state …`.
fn ticks(stat: &str) -> Option<f64> {
    let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11).map_while(|field| field.parse::<f64>().ok());
    (name == WORKERS).then(|| times.next().zip(times.next()).map(|(user, system)| user + system))?
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            redis_us: self.redis_us - other.redis_us,
            client_us: self.client_us - other.client_us,
        }
    }
}

impl Mul<f64> for Cpu {
    type Output = Self;

    fn mul(self, by: f64) -> Self {
        Self {
            redis_us: self.redis_us * by,
            client_us: self.client_us * by,
        }
    }
}

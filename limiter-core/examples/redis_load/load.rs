//! Offers requests: at a rate, whatever becomes of them, or by so many callers that each wait for their answer.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use limiter_core::{
    MonotonicClock,
    clock::{Clock as _, Timestamp},
};
use tokio::runtime::Handle;

/// How much is offered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// So many a second, at random moments: as from many clients that know nothing of each other.
    Rate(u32),
    /// As many as so many callers can.
    Callers(u32),
}

/// Longer ones count as this long.
const LONGEST: usize = 2_000_000;

/// How long the answers took: how many so many µs.
pub(crate) struct Latencies {
    by_micros: Box<[AtomicU32]>,
    failed: AtomicU64,
}

impl Latencies {
    fn new() -> Self {
        Self {
            by_micros: (0..=LONGEST).map(|_| AtomicU32::new(0)).collect(),
            failed: AtomicU64::new(0),
        }
    }

    fn record(&self, took: Duration, is_ok: bool) {
        if is_ok {
            let micros = usize::try_from(took.as_micros()).unwrap_or(LONGEST);
            self.by_micros[micros.min(LONGEST)].fetch_add(1, Ordering::Relaxed);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.counts().sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The time within which this part of the answers came.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let mut left = self.answered() as f64 * part;
        let place = self.counts().position(|count| {
            left -= count as f64;
            left <= 0.0
        });
        Duration::from_micros(place.unwrap_or(LONGEST) as u64)
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.by_micros
            .iter()
            .map(|count| u64::from(count.load(Ordering::Relaxed)))
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latencies({} answered)", self.answered())
    }
}

/// Offers `load` for `span` and waits for the last answer. `ask` says whether it was answered.
pub(crate) fn offer<F>(
    runtime: &Handle,
    clock: &Arc<MonotonicClock>,
    load: Load,
    span: Duration,
    ask: impl Fn() -> F + Clone + Send + 'static,
) -> Arc<Latencies>
where
    F: Future<Output = bool> + Send + 'static,
{
    let latencies = Arc::new(Latencies::new());
    let until = clock.now().plus(span);
    let mut tasks = Vec::new();
    match load {
        Load::Rate(rate) => each_moment(clock, rate, until, || {
            let (began, request) = (clock.now(), ask());
            let (latencies, clock) = (Arc::clone(&latencies), Arc::clone(clock));
            tasks.push(runtime.spawn(async move {
                let is_ok = request.await;
                latencies.record(clock.now().since(began), is_ok);
            }));
        }),
        Load::Callers(callers) => tasks.extend((0..callers).map(|_| {
            let (latencies, clock, ask) = (Arc::clone(&latencies), Arc::clone(clock), ask.clone());
            runtime.spawn(async move {
                while clock.now() < until {
                    let began = clock.now();
                    let is_ok = ask().await;
                    latencies.record(clock.now().since(began), is_ok);
                }
            })
        })),
    }
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("no request panics");
        }
    });
    latencies
}

/// Calls `go` at random moments, `rate` a second. Those that a nap was too long for come at once after it.
fn each_moment(clock: &MonotonicClock, rate: u32, until: Timestamp, mut go: impl FnMut()) {
    let began = clock.now();
    let mut due = 0.0;
    loop {
        // From one event to the next of a Poisson process.
        due -= (1.0 - fastrand::f64()).ln() / f64::from(rate);
        let moment = began.plus(Duration::from_secs_f64(due));
        if moment >= until {
            return;
        }
        let ahead = moment.since(clock.now());
        if ahead > Duration::ZERO {
            pause(ahead);
        }
        go();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread outside the runtime that keeps the pace; a timer of the runtime only knows milliseconds"
)]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

//! Draws the pictures of docs/limits.md: what each algorithm lets pass of the same requests, as the limiter decides.
//!
//! `cargo run -p limiter-core --example what_passes` writes `docs/limits/*.svg`; as a test it tells whether they are still
//! true.

use std::{error::Error, fs, path::Path, sync::Arc, time::Duration};

use limiter_core::{
    Algorithm, AlgorithmError, Ask, Checking, Limiter, MemoryStore, OnFailure, Outcome, Policy, Rate, Timestamp,
    Verdict,
    algorithm::{Align, Concurrency, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    test_util::ManualClock,
};

mod chart;

use chart::Picture;

/// All algorithms have this quota, each in its own words: 20 at once, and 10 a second.
const AT_ONCE: u64 = 20;
const RATE: Rate = Rate {
    units: 10,
    per: Duration::from_secs(1),
};
const WINDOW: Duration = Duration::from_secs(2);

/// How long a request runs, where that matters.
const RUN: Duration = Duration::from_secs(1);

/// The pictures begin with a window of the clock.
const START: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

/// How long they are.
const SPAN_MS: u64 = 10_000;

/// When requests come, in ms: a crowd; twice the rate for a while; and a crowd on each side of the edge of a window.
fn arrivals() -> Vec<u64> {
    let crowd = |at, count| std::iter::repeat_n(at, count);
    let steady = (2_500..6_000).step_by(50);
    let all = crowd(1_000, 30)
        .chain(steady)
        .chain(crowd(7_900, 20))
        .chain(crowd(8_100, 20));
    all.collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for (name, picture) in pictures()? {
        fs::write(folder().join(name), picture)?;
    }
    Ok(())
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/limits")
}

/// Each with the name of its file.
fn pictures() -> Result<Vec<(String, String)>, AlgorithmError> {
    let algorithms: [(&str, Algorithm); 6] = [
        ("rate: 10/s, burst: 20", TokenBucket::new(RATE, AT_ONCE)?.into()),
        (
            "rate: 10/s, capacity: 20",
            LeakyBucket::queue(RATE, AT_ONCE, Duration::from_secs(10))?.into(),
        ),
        (
            "limit: 20, window: 2s",
            FixedWindow::new(AT_ONCE, WINDOW, Align::Clock)?.into(),
        ),
        (
            "limit: 20, window: 2s, buckets: 6",
            SlidingWindowCounter::new(AT_ONCE, WINDOW, 6)?.into(),
        ),
        ("limit: 20, window: 2s", SlidingWindowLog::new(AT_ONCE, WINDOW)?.into()),
        ("limit: 20", Concurrency::new(AT_ONCE, Duration::from_secs(1))?.into()),
    ];
    let pictures = algorithms.into_iter().map(|(parameters, algorithm)| {
        let name = algorithm.name();
        let (below, window) = match algorithm {
            Algorithm::Concurrency(_) => ("running, each for 1 s", RUN),
            _ => ("passed within the last 2 s", WINDOW),
        };
        let picture = Picture {
            title: format!("{name}, {parameters}"),
            span_ms: SPAN_MS,
            come: arrivals(),
            pass: passes(algorithm, &arrivals()),
            below,
            window_ms: u64::try_from(window.as_millis()).unwrap_or_default(),
            quota: AT_ONCE,
        };
        (format!("{name}.svg"), picture.draw())
    });
    Ok(pictures.collect())
}

/// When those go on, of requests that come at these times, whom the limiter lets pass.
fn passes(algorithm: Algorithm, come: &[u64]) -> Vec<u64> {
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, 10));
    let limiter = Limiter::new(Arc::clone(&store) as _, store);
    let policy = Arc::new(Policy::new("drawn", algorithm, OnFailure::Local));
    let mut pass = Vec::new();
    // What runs, and when it has ended.
    let mut running = Vec::new();
    for &at in come {
        let now = START.plus(Duration::from_millis(at));
        clock.set(now);
        running.retain(|(end, _)| *end > now);
        let ask = Ask {
            policy: &policy,
            key: "*",
            cost: 1,
        };
        if let Checking::Ready(Outcome::Decided(decision)) = limiter.check(&[ask])
            && decision.verdict == Verdict::Allowed
        {
            running.push((now.plus(RUN), decision.held));
            let delay = decision.turn.map_or(Duration::ZERO, |turn| turn.delay());
            pass.push(at + u64::try_from(delay.as_millis()).unwrap_or_default());
        }
    }
    pass
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pictures_are_true() {
        for (name, picture) in pictures().unwrap() {
            let committed = fs::read_to_string(folder().join(&name)).unwrap();
            assert!(
                committed == picture,
                "{name}: run `cargo run -p limiter-core --example what_passes`"
            );
        }
    }
}

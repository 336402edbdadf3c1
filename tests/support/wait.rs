//! Waiting with a deadline, and the few places where a test has to let real time pass.

use std::{sync::LazyLock, time::Duration};

use limiter_core::clock::{Clock, MonotonicClock, Timestamp};
use tokio::time::Instant;

/// How long anything that should happen may take before the test gives up on it: generous, since it is only ever reached by
/// a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

static CLOCK: LazyLock<MonotonicClock> = LazyLock::new(MonotonicClock::new);

/// The wall clock, to place a test within a window that is aligned to it.
pub(crate) fn wall_clock() -> Timestamp {
    CLOCK.now()
}

/// Lets `time` pass. Only for what time itself is the subject of: a window, a refill, the pace of a client.
pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets time pass until `offset` after `start`, or not at all if that is over.
pub(crate) async fn pause_until(start: Instant, offset: Duration) {
    tokio::time::sleep_until(start + offset).await;
}

/// Lets time pass until the wall clock stands `offset` into a period of `period`, and says the moment it then shows.
///
/// Clock-aligned windows begin at whole multiples of their length since the epoch.
pub(crate) async fn pause_until_phase(period: Duration, offset: Duration) -> Timestamp {
    let period_us = u64::try_from(period.as_micros()).unwrap();
    let offset_us = u64::try_from(offset.as_micros()).unwrap();
    let phase_us = wall_clock().as_micros() % period_us;
    let wait_us = (offset_us + period_us - phase_us) % period_us;
    pause(Duration::from_micros(wait_us)).await;
    wall_clock()
}

/// Asks `condition` until it holds.
///
/// # Panics
///
/// If it does not hold within `deadline`; the text says what was waited for.
pub(crate) async fn wait_for<F>(deadline: Duration, what: &str, mut condition: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let end = Instant::now() + deadline;
    while !condition().await {
        assert!(Instant::now() < end, "gave up after {deadline:?} on this: {what}");
        pause(Duration::from_millis(10)).await;
    }
}

//! Waiting for processes, and ports for them.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use crate::clock::{Clock, MonotonicClock};

/// How long anything that should happen may take: generous, since only a failing test waits that long.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Ports of servers are taken from here, below those that the system gives to outgoing connections (32768 and up on Linux).
/// Else the port of a server that is down for a while could be taken by anybody, even by a connection to itself.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Asks `condition` until it holds; says whether it did within the deadline.
#[expect(
    clippy::disallowed_methods,
    reason = "waits for a process, outside any runtime, up to a bound"
)]
pub(super) fn holds_in_time(mut condition: impl FnMut() -> bool) -> bool {
    let clock = MonotonicClock::new();
    let end = clock.now().plus(DEADLINE);
    while !condition() {
        if clock.now() > end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Asks `condition` until it holds.
///
/// # Panics
/// Where it does not hold within the deadline; the text says what was waited for.
#[track_caller]
pub(super) fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_in_time(condition), "gave up after {DEADLINE:?} on this: {what}");
}

/// A port on which nobody listens now. Another process may be faster to take it: whoever starts a server tries again.
///
/// # Panics
/// Where a thousand of them are in use.
pub(super) fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..1_000)
        .map(|_| fastrand::u16(PORTS))
        .find(is_free)
        .expect("a free port")
}

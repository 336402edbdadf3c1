//! What time it is at the server, learned from its replies.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::Timestamp;

const UNKNOWN: i64 = i64::MIN;

/// The offset θ of the server's clock against ours: server time = our time + θ.
///
/// A reply that says `server`, to a call sent at `sent` and answered at `received`, proves that θ lies in
/// `[server − received, server − sent]`: the script read its clock somewhere in between. The estimate is kept within
/// the last such bounds, and starts at the lower one. It is low rather than high: too low, a call may be late for
/// nothing, which the server says without having written; too high, a call could be charged after its deadline.
#[derive(Debug)]
pub(super) struct ServerClock(AtomicI64);

impl ServerClock {
    pub(super) const fn new() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }

    /// Takes in what a reply says.
    pub(super) fn learn(&self, sent: Timestamp, server: Timestamp, received: Timestamp) {
        let (low, high) = (offset(server, received), offset(server, sent));
        let known = self.0.load(Ordering::Relaxed);
        // Moves only where the bounds contradict. Lost updates of replies at the same moment do no harm.
        let better = if known == UNKNOWN {
            low
        } else {
            known.max(low).min(high)
        };
        if better != known {
            self.0.store(better, Ordering::Relaxed);
        }
    }

    /// Our moment `at` in the server's time. `None` while nothing is known.
    pub(super) fn at(&self, at: Timestamp) -> Option<Timestamp> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            known => Some(Timestamp::from_micros(at.as_micros().saturating_add_signed(known))),
        }
    }

    /// The server's moment `at` in our time: at most the quickest round trip too late. `None` while nothing is known.
    pub(super) fn ours(&self, at: Timestamp) -> Option<Timestamp> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            known => Some(Timestamp::from_micros(
                at.as_micros().saturating_add_signed(known.saturating_neg()),
            )),
        }
    }
}

/// Both are below 2^53, so the difference fits.
fn offset(server: Timestamp, ours: Timestamp) -> i64 {
    server.as_micros().cast_signed() - ours.as_micros().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn knows_nothing_before_the_first_reply() {
        assert_eq!(ServerClock::new().at(at(7)), None);
    }

    #[test]
    fn starts_low_and_is_raised_by_a_faster_reply() {
        let clock = ServerClock::new();
        clock.learn(at(1_000), at(6_000), at(2_000));
        assert_eq!(clock.at(at(0)), Some(at(4_000)));
        clock.learn(at(3_000), at(7_950), at(3_100));
        assert_eq!(clock.at(at(0)), Some(at(4_850)));
        clock.learn(at(4_000), at(9_000), at(9_000));
        assert_eq!(clock.at(at(0)), Some(at(4_850)), "a slow reply does not contradict");
    }

    #[test]
    fn follows_a_step_of_either_clock() {
        let clock = ServerClock::new();
        clock.learn(at(1_000), at(1_000), at(1_000));
        clock.learn(at(2_000), at(3_602_000), at(2_000));
        assert_eq!(clock.at(at(0)), Some(at(3_600_000)));
        clock.learn(at(3_000), at(1_000), at(3_010));
        assert_eq!(clock.at(at(10_000)), Some(at(8_000)));
    }
}

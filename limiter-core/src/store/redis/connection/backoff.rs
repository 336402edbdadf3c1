//! When the next attempt to connect is due.

use std::time::Duration;

/// After this long, a connection has stood: its loss says nothing of the next attempt.
const STOOD: Duration = Duration::from_secs(1);
/// From one attempt to the next, at first.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The same at most, while no connection can be made.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The same at most, while they are made, but soon lost.
const MAX_PAUSE_MADE: Duration = Duration::from_millis(500);
/// By which part of itself a pause may be shorter or longer: processes that lost the same server come back one by one.
const JITTER: f64 = 0.25;

/// Pauses that double, for one connection.
///
/// A connection counts as made once the server has let us in. One that takes everybody and then says that it has no room
/// would else be stormed.
#[derive(Debug)]
pub(super) struct Backoff {
    /// The next pause, before jitter.
    pause: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { pause: MIN_PAUSE }
    }

    /// How long after the begin of the last attempt the next one may begin. `stood` says for how long the connection
    /// stood that it made, if it made one. `random` is from 0 to 1.
    pub(super) fn next(&mut self, stood: Option<Duration>, random: f64) -> Duration {
        let at_most = match stood {
            Some(stood) if stood >= STOOD => {
                self.pause = MIN_PAUSE;
                return Duration::ZERO;
            }
            Some(_) => MAX_PAUSE_MADE,
            None => MAX_PAUSE,
        };
        let pause = self.pause.min(at_most);
        self.pause = (pause * 2).min(MAX_PAUSE);
        pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(stood: Option<Duration>) -> Vec<u128> {
        let mut backoff = Backoff::new();
        (0..8).map(|_| backoff.next(stood, 0.5).as_millis()).collect()
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        assert_eq!(pauses(None), [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(pauses(Some(Duration::ZERO)), [50, 100, 200, 400, 500, 500, 500, 500]);
    }

    #[test]
    fn pauses_differ_by_a_quarter_each_way() {
        for (random, expected) in [(0.0, 1500), (1.0, 2500)] {
            let mut backoff = Backoff { pause: MAX_PAUSE };
            assert_eq!(backoff.next(None, random).as_millis(), expected);
        }
    }

    #[test]
    fn only_a_connection_that_stood_is_replaced_at_once() {
        let mut backoff = Backoff { pause: MAX_PAUSE };
        assert!(backoff.next(Some(STOOD - Duration::from_millis(1)), 0.0) > Duration::from_millis(300));
        assert_eq!(backoff.next(Some(STOOD), 1.0), Duration::ZERO);
        assert!(backoff.next(None, 1.0) < Duration::from_millis(100), "it begins anew");
    }

    #[test]
    fn there_are_at_most_two_attempts_a_second() {
        // The worst: each connection is lost at once, as soon as it counts as one that stood, or just before.
        let just_before = STOOD - Duration::from_millis(1);
        for stood in [None, Some(Duration::ZERO), Some(just_before), Some(STOOD)] {
            let mut backoff = Backoff::new();
            let (mut now, mut attempts) = (Duration::ZERO, 0);
            while now < Duration::from_secs(60) {
                attempts += 1;
                now += backoff.next(stood, 0.5).max(stood.unwrap_or_default());
            }
            // And the first few.
            assert!(attempts <= 120 + 3, "{attempts} where connections stand for {stood:?}");
        }
    }
}

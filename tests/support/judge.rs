//! Judges the answers to one client by the model of an algorithm.
//!
//! A decision fell somewhere between a request's departure and its answer's arrival. What is in use never rises as time goes
//! on by itself, and is never less if earlier requests were admitted later; so the two ends of those intervals bound it, and
//! an answer outside the bounds is wrong however busy the machine was.

use super::{
    algorithms::{Algorithm, Quota},
    client::Client,
    http::{Request, Response},
    wait::wall_clock,
};

/// The clocks of three processes on one machine are read at slightly different moments.
const CLOCK_SLACK_US: u64 = 2_000;

/// A window that began with a request, as far as can be told from outside.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// When it began: at the earliest, at the latest.
    earliest: u64,
    latest: u64,
    used: u64,
}

/// Knows what one key of a layer must answer.
#[derive(Debug)]
pub(crate) struct Judge {
    quota: Quota,
    /// When each admitted request was decided: at the earliest, at the latest.
    earliest: Vec<u64>,
    latest: Vec<u64>,
    /// For a fixed window, all that it may be; none before the first request.
    windows: Vec<Window>,
    /// Answers that could have been either.
    open: usize,
    /// Answers that could have been only what they were.
    certain: usize,
}

impl Judge {
    /// Judges by `limit` in `window_ms`, each request taking one unit.
    pub(crate) fn new(algorithm: Algorithm, limit: u64, window_ms: u64) -> Self {
        Self::by(Quota::new(algorithm, limit, window_ms))
    }

    /// Judges by a quota.
    pub(crate) fn by(quota: Quota) -> Self {
        Self {
            quota,
            earliest: Vec::new(),
            latest: Vec::new(),
            windows: Vec::new(),
            open: 0,
            certain: 0,
        }
    }

    /// How many were admitted.
    pub(crate) fn admitted(&self) -> usize {
        self.latest.len()
    }

    /// From the first decision to the last admission, at the least and at the most.
    pub(crate) fn elapsed_us(&self) -> (u64, u64) {
        let (Some(first_early), Some(last_early)) = (self.earliest.first(), self.earliest.last()) else {
            return (0, 0);
        };
        let (Some(first_late), Some(last_late)) = (self.latest.first(), self.latest.last()) else {
            return (0, 0);
        };
        (last_early.saturating_sub(*first_late), last_late - first_early)
    }

    /// Sends `request` and judges the answer.
    ///
    /// # Panics
    ///
    /// If the algorithm allows no such answer.
    pub(crate) async fn send(&mut self, client: &mut Client, request: &Request) -> Response {
        let sent = wall_clock().as_micros() - CLOCK_SLACK_US;
        let answer = client.send(request).await;
        let received = wall_clock().as_micros() + CLOCK_SLACK_US;
        self.judge(&answer, sent, received);
        if self.quota.algorithm == Algorithm::FixedWindow {
            self.windows = self.windows_after(&answer, sent, received);
        }
        if answer.passed() {
            self.earliest.push(sent);
            self.latest.push(received);
        }
        answer
    }

    /// What may be in use when a request is decided that was sent and answered then: at the least, at the most.
    fn bounds(&self, sent: u64, received: u64) -> (u64, u64) {
        if self.quota.algorithm == Algorithm::FixedWindow {
            // An admitted request may have begun a window or belonged to the one before: each possibility is followed.
            let running = self
                .windows
                .iter()
                .filter(|window| self.may_run(window, sent))
                .map(|window| window.used);
            let over = self
                .windows
                .iter()
                .filter(|window| self.may_be_over(window, received))
                .map(|_| 0);
            let mut possible: Vec<_> = running.chain(over).collect();
            possible.sort_unstable();
            return (
                possible.first().copied().unwrap_or(0),
                possible.last().copied().unwrap_or(0),
            );
        }
        // What was admitted before was admitted by now.
        let latest: Vec<_> = self.latest.iter().map(|at| (*at).min(sent)).collect();
        (
            self.quota.used(&self.earliest, received),
            self.quota.used(&latest, sent),
        )
    }

    fn may_run(&self, window: &Window, sent: u64) -> bool {
        sent < window.latest + self.quota.window_us
    }

    fn may_be_over(&self, window: &Window, received: u64) -> bool {
        received >= window.earliest + self.quota.window_us
    }

    /// What the window may be, now that this answer is known.
    fn windows_after(&self, answer: &Response, sent: u64, received: u64) -> Vec<Window> {
        let Quota { limit, cost, .. } = self.quota;
        let running = self.windows.iter().filter(|window| self.may_run(window, sent));
        if answer.denied() {
            return running.filter(|window| window.used + cost > limit).copied().collect();
        }
        let used = limit - u64::try_from(answer.remaining()).unwrap();
        let mut after: Vec<_> = running
            .filter(|window| window.used + cost == used)
            .map(|window| Window { used, ..*window })
            .collect();
        let none = self.windows.is_empty();
        if used == cost && (none || self.windows.iter().any(|window| self.may_be_over(window, received))) {
            after.push(Window {
                earliest: sent,
                latest: received,
                used,
            });
        }
        after
    }

    fn judge(&mut self, answer: &Response, sent: u64, received: u64) {
        let (least, most) = self.bounds(sent, received);
        let (limit, cost) = (self.quota.limit, self.quota.cost);
        let admitted = self.admitted();
        let told = format!(
            "{:?}, between {least} and {most} in use, {admitted} admitted: {answer:?}",
            self.quota
        );
        let (can_pass, can_be_denied) = (least + cost <= limit, most + cost > limit);
        assert!(answer.passed() || answer.denied(), "neither passed nor denied: {told}");
        assert!(answer.passed() || can_be_denied, "must pass, but was denied: {told}");
        assert!(answer.denied() || can_pass, "must be denied, but passed: {told}");
        if can_pass && can_be_denied {
            self.open += 1;
        } else {
            self.certain += 1;
        }
        if answer.passed() {
            let left = limit - u64::try_from(answer.remaining()).unwrap();
            assert!(
                (least + cost..=(most + cost).min(limit)).contains(&left),
                "remaining is wrong: {told}"
            );
        }
    }

    /// # Panics
    ///
    /// Unless nearly all answers could have been only what they were: else the machine was too busy to tell.
    pub(crate) fn is_certain(&self) {
        let (open, certain) = (self.open, self.certain);
        let all = open + certain;
        assert!(
            certain > 3 * open,
            "{:?}: {open} of {all} answers could be neither right nor wrong",
            self.quota
        );
    }
}

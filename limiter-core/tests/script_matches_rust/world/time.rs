//! How the time goes in a random run, and what a gateway believes of it.

use std::sync::Arc;

use limiter_core::{
    Algorithm, Policy, Timestamp,
    algorithm::Calendar,
    test_util::script::{Answered, Batch},
};

use super::{World, warm_up};
use crate::redis::Value;

impl World {
    /// What time the gateway believes it is at the server: mostly not far from right. Where it is so wrong that the call
    /// has edges of other windows of a calendar, it must be told the time, and nothing done.
    pub(super) fn believed_time(&mut self, batch: &Batch, names: &[(Arc<Policy>, String)]) -> Result<u64, String> {
        let now = Timestamp::from_micros(self.now);
        let calendars: Vec<_> = names.iter().filter_map(|(policy, _)| calendar(policy)).collect();
        let Some(calendar) = self.rng.choice(&calendars) else {
            return Ok(self.now);
        };
        let (begin, end) = calendar.window_at(now);
        let before = Timestamp::from_micros(begin.as_micros() - 1);
        let about = match self.rng.u8(0..8) {
            0 | 1 => before,
            // The window before that has an end too, but not now.
            2 => Timestamp::from_micros(calendar.window_at(before).0.as_micros() - 1),
            3 => end,
            _ => now,
        };
        let is_of_now = |calendar: &&Calendar| {
            let (begin, end) = calendar.window_at(about);
            (begin..calendar.window_at(end).1).contains(&now)
        };
        if calendars.iter().all(is_of_now) {
            return Ok(about.as_micros());
        }
        self.told += 1;
        let reply = self.redis.pipeline(&[self.command(batch, about.as_micros())]).pop();
        match reply {
            Some(Value::Bytes(reply)) if matches!(batch.replay(&reply), Ok(Answered::Late(told)) if told == now) => {
                Ok(self.now)
            }
            other => Err(format!("asked as of {about:?} at {now:?}: {other:?}")),
        }
    }

    /// Mostly forwards, by a little or a lot; sometimes not at all, sometimes backwards.
    pub(super) fn move_time(&mut self) {
        let rng = &mut self.rng;
        let slot = rng.usize(0..self.policies.len());
        let algorithm = self.policies[slot].algorithm();
        let window = match (warm_up(algorithm), algorithm) {
            (_, Algorithm::Concurrency(concurrency)) => concurrency.lease(),
            (Some(time), _) if rng.bool() => time,
            (_, other) => other.window(),
        };
        let window = u64::try_from(window.as_micros()).unwrap();
        // What one unit needs, in the mean.
        let unit = (window / algorithm.limit()).max(1);
        self.now += match rng.u8(0..20) {
            0..3 => 0,
            3 => 1,
            4 => rng.u64(0..1_000),
            5..9 => rng.u64(0..=3 * unit),
            9..13 => rng.u64(0..=window / 8),
            13 => rng.u64(0..=window * 2),
            // To the edge of a window, or just before it.
            14 => {
                let end = match calendar(&self.policies[slot]) {
                    Some(calendar) => calendar.window_at(Timestamp::from_micros(self.now)).1.as_micros(),
                    None => self.now - self.now % window + window,
                };
                end - self.now - rng.u64(0..2)
            }
            // When what was taken at a former time leaves, or just before it.
            _ => (rng.choice(&self.times).unwrap() + window - rng.u64(0..2)).saturating_sub(self.now),
        };
        match rng.u8(..) {
            0..4 => self.now -= rng.u64(0..=window.min(10 * 365 * 86_400_000_000)),
            4..8 => self.now -= rng.u64(0..2_000),
            _ => {}
        }
        // Far from the epoch, and from the end of time.
        self.now = self.now.clamp(1_000_000_000_000_000, 4_000_000_000_000_000);
        let former = rng.usize(0..self.times.len());
        self.times[former] = self.now;
    }
}

fn calendar(policy: &Policy) -> Option<&Calendar> {
    match policy.algorithm() {
        Algorithm::FixedWindow(window) => window.calendar(),
        _ => None,
    }
}

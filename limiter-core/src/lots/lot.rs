//! One counter's lot: how much is in hand, until when, and how much is to be taken next.

use std::{sync::Arc, time::Duration};

use super::{Handed, more_in};
use crate::{
    clock::Timestamp,
    decision::{Reading, Wait},
    fingerprint::Fingerprint,
    policy::Policy,
    settlement::{Change, Settlement},
    store::Ask,
};

/// What is in hand of one counter.
#[derive(Debug)]
pub(super) struct Lot {
    counter: Fingerprint,
    policy: Arc<Policy>,
    key: Box<str>,
    units: u64,
    /// When they were charged, by the clock that the counter goes by: the last of them.
    at: Timestamp,
    /// When they came, and when they go back, by our clock.
    since: Timestamp,
    until: Timestamp,
    /// Whether they can go back then: not to a window that has ended.
    outlives: bool,
    /// Units that are on their way.
    coming: u64,
    /// How many the last lot was to have: it doubles while lots are used up soon, and is halved where more than half is
    /// left.
    size: u64,
    /// Something was left of it when it ended.
    was_left: bool,
    /// When somebody asked for units last.
    used: Timestamp,
    /// What the store said last: what is left there, and when there is more.
    left: u64,
    more_at: Timestamp,
}

/// Units that the store was charged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) units: u64,
    /// When, by the clock that the counter goes by.
    pub(super) at: Timestamp,
    /// When they go back, by ours.
    pub(super) until: Timestamp,
    /// Whether they can go back then: not to a window that has ended.
    pub(super) outlives: bool,
}

impl Grant {
    pub(super) fn returned(self, policy: &Arc<Policy>, key: &str) -> Settlement {
        let Self { units, at, .. } = self;
        Settlement::new(Arc::clone(policy), key, Change::GiveBack { units, at })
    }
}

impl Lot {
    /// Nothing yet: a request has just asked for a unit of its own.
    pub(super) fn new(counter: Fingerprint, ask: &Ask<'_>, now: Timestamp) -> Self {
        let never = Timestamp::from_micros(0);
        Self {
            counter,
            policy: Arc::clone(ask.policy),
            key: ask.key.into(),
            units: 0,
            at: never,
            since: never,
            until: never,
            outlives: true,
            coming: 0,
            size: 0,
            was_left: false,
            used: now,
            left: 0,
            more_at: never,
        }
    }

    pub(super) fn counter(&self) -> Fingerprint {
        self.counter
    }

    pub(super) fn is_of(&self, counter: Fingerprint) -> bool {
        self.counter == counter
    }

    #[cfg(test)]
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// Whether something is in hand, or on its way.
    pub(super) fn is_taken(&self) -> bool {
        self.units > 0 || self.coming > 0
    }

    /// Whether it says something still.
    pub(super) fn is_in_use(&self, now: Timestamp) -> bool {
        self.is_taken() || now.since(self.used) < self.ttl()
    }

    /// Hands out what a request costs. Little may be left then: the next lot is to be taken, which counts as coming.
    pub(super) fn take(&mut self, ask: &Ask<'_>, now: Timestamp) -> Option<Handed> {
        if self.until <= now || self.units < ask.cost || !self.goes_by(ask.policy) {
            return None;
        }
        self.units -= ask.cost;
        self.used = now;
        let mut wanted = 0;
        if self.units < self.size / 2 && self.coming == 0 {
            let size = self.size;
            if now.since(self.since) < self.ttl() / 2 {
                self.size = (size * 2).min(self.policy.lot_max());
            }
            wanted = self.order(ask.cost);
            if wanted == 0 {
                self.size = size;
            }
        }
        let limit = self.policy.algorithm().limit();
        let remaining = self.left.saturating_add(self.units).min(limit);
        let wait = if remaining < limit {
            self.more_at.since(now)
        } else {
            Duration::ZERO
        };
        Some(Handed {
            reading: Reading {
                fits: true,
                remaining,
                taken: ask.cost,
                wait: Wait::For(wait),
            },
            units: ask.cost,
            at: self.at,
            until: self.until,
            wanted,
        })
    }

    /// Takes units back that were not needed, of a lot that has not ended. Whether they have a place.
    pub(super) fn put_back(&mut self, policy: &Arc<Policy>, units: u64) -> bool {
        let has_room = self.units + self.coming + units <= self.policy.lot_max();
        let is_taken = has_room && self.goes_by(policy);
        if is_taken {
            self.units += units;
        }
        is_taken
    }

    /// Somebody asks the store. Says how many are to be taken besides, which count as coming: none for who comes after a
    /// quiet time. What is left of a lot that has ended, or of one under other terms, goes back.
    pub(super) fn miss(&mut self, ask: &Ask<'_>, now: Timestamp) -> (u64, Option<Settlement>) {
        let (ended, is_new) = if self.goes_by(ask.policy) {
            (self.end(now), now.since(self.used) >= self.ttl())
        } else {
            let left = self.give_up();
            self.policy = Arc::clone(ask.policy);
            (left, true)
        };
        self.used = now;
        if is_new {
            (self.size, self.was_left) = (0, false);
            return (0, ended);
        }
        if self.coming > 0 {
            return (0, ended);
        }
        let size = self.size;
        // Once: the next who misses finds that it is in use again.
        if !std::mem::take(&mut self.was_left) {
            self.size = (size.max(ask.cost) * 2).min(self.policy.lot_max());
        }
        let wanted = self.order(ask.cost);
        if wanted == 0 {
            self.size = size;
        }
        (wanted, ended)
    }

    /// So many are to be taken: no more than half of what others have left, so that the last units are not in the hands of
    /// one. 0 where that is too little.
    fn order(&mut self, cost: u64) -> u64 {
        let room = self.policy.lot_max().saturating_sub(self.units);
        let units = self.size.min(room).min(self.left / 2);
        if units < cost.max(2) {
            return 0;
        }
        self.coming = units;
        units
    }

    /// The store was charged a lot for us. Gives what goes back to it.
    pub(super) fn grant(
        &mut self,
        policy: &Arc<Policy>,
        grant: Grant,
        reading: &Reading,
        now: Timestamp,
    ) -> Vec<Settlement> {
        self.coming = 0;
        if !self.goes_by(policy) {
            return vec![grant.returned(policy, &self.key)];
        }
        let mut left = Vec::from_iter(self.end(now));
        self.learn(reading, now);
        if grant.until <= now {
            left.extend(grant.outlives.then(|| grant.returned(policy, &self.key)));
        } else {
            // What is in hand still is of the same window: else it would have ended.
            self.units += grant.units;
            (self.at, self.since, self.until) = (grant.at, now, grant.until);
            (self.outlives, self.was_left) = (grant.outlives, false);
        }
        left
    }

    /// A lot that was on its way does not come.
    pub(super) fn failed(&mut self) {
        self.coming = 0;
    }

    /// The store says this, `now`.
    pub(super) fn learn(&mut self, reading: &Reading, now: Timestamp) {
        self.left = reading.remaining;
        self.more_at = now.plus(more_in(reading));
    }

    /// Gives what is left, if the lot has ended.
    pub(super) fn end(&mut self, now: Timestamp) -> Option<Settlement> {
        if self.until > now || self.units == 0 {
            return None;
        }
        self.was_left = true;
        if self.units > self.size / 2 {
            self.size /= 2;
        }
        let left = self.give_up();
        left.filter(|_| self.outlives)
    }

    /// Gives what is left.
    pub(super) fn give_up(&mut self) -> Option<Settlement> {
        let units = std::mem::take(&mut self.units);
        let (at, until, outlives) = (self.at, self.until, self.outlives);
        let grant = Grant {
            units,
            at,
            until,
            outlives,
        };
        (units > 0).then(|| grant.returned(&self.policy, &self.key))
    }

    /// Whether it was taken under these terms.
    fn goes_by(&mut self, policy: &Arc<Policy>) -> bool {
        if Arc::ptr_eq(&self.policy, policy) {
            return true;
        }
        // A reload makes all policies anew.
        let is_same = self.policy.algorithm() == policy.algorithm() && self.policy.lots() == policy.lots();
        if is_same {
            self.policy = Arc::clone(policy);
        }
        is_same
    }

    fn ttl(&self) -> Duration {
        self.policy.lots().map_or(Duration::ZERO, |terms| terms.ttl)
    }
}

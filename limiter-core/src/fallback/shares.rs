//! The algorithms of the shares: each policy is divided once.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, Weak},
};

use crate::{algorithm::Algorithm, policy::Policy};

/// What each policy's algorithm becomes when it is divided. Does not keep policies alive.
#[derive(Debug, Default)]
pub(super) struct Shares(RwLock<HashMap<usize, Share>>);

#[derive(Debug)]
struct Share {
    /// While this is here, no other policy gets its address.
    policy: Weak<Policy>,
    by: u32,
    algorithm: Arc<Algorithm>,
}

impl Shares {
    /// The algorithm of one of `by` shares of `policy`. Room for `cost` is in it, if it is in the whole.
    pub(super) fn of(&self, policy: &Arc<Policy>, by: u32, cost: u64) -> Arc<Algorithm> {
        let share = self.find(policy, by).unwrap_or_else(|| self.divide(policy, by));
        if cost <= share.limit() || cost > policy.algorithm().limit() {
            return share;
        }
        // Costs that differ from request to request are no reason to keep an algorithm for each.
        Arc::new(policy.algorithm().divided_to_hold(by, cost))
    }

    /// Forgets the policies that are gone.
    pub(super) fn sweep(&self) {
        let mut shares = self.0.write().unwrap_or_else(PoisonError::into_inner);
        retain_used(&mut shares);
    }

    fn find(&self, policy: &Arc<Policy>, by: u32) -> Option<Arc<Algorithm>> {
        let shares = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let share = shares.get(&address(policy)).filter(|share| share.by == by)?;
        Some(Arc::clone(&share.algorithm))
    }

    fn divide(&self, policy: &Arc<Policy>, by: u32) -> Arc<Algorithm> {
        let algorithm = Arc::new(policy.algorithm().divided(by));
        let share = Share {
            policy: Arc::downgrade(policy),
            by,
            algorithm: Arc::clone(&algorithm),
        };
        let mut shares = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Not with each: of thousands, all would be looked at for each.
        if shares.len() == shares.capacity() {
            retain_used(&mut shares);
        }
        shares.insert(address(policy), share);
        algorithm
    }
}

fn retain_used(shares: &mut HashMap<usize, Share>) {
    shares.retain(|_, share| share.policy.strong_count() > 0);
}

fn address(policy: &Arc<Policy>) -> usize {
    Arc::as_ptr(policy).addr()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        algorithm::{Align, FixedWindow},
        policy::OnFailure,
    };

    fn policy(name: &str, limit: u64) -> Arc<Policy> {
        let window = FixedWindow::new(limit, Duration::from_secs(1), Align::Clock).unwrap();
        Arc::new(Policy::new(name, window, OnFailure::Local))
    }

    #[test]
    fn a_policy_is_divided_once_for_a_number_of_shares() {
        let (shares, policy) = (Shares::default(), policy("user", 10));
        let half = shares.of(&policy, 2, 1);
        assert_eq!(half.limit(), 5);
        assert!(Arc::ptr_eq(&half, &shares.of(&policy, 2, 5)));
        assert_eq!(shares.of(&policy, 5, 1).limit(), 2);
        assert_eq!(shares.0.read().unwrap().len(), 1);
    }

    #[test]
    fn a_share_has_room_for_what_the_whole_has() {
        let (shares, policy) = (Shares::default(), policy("user", 10));
        let limits = [6, 10, 11, 1].map(|cost| shares.of(&policy, 2, cost).limit());
        assert_eq!(limits, [6, 10, 5, 5]);
    }

    #[test]
    fn policies_that_are_gone_are_forgotten() {
        let shares = Shares::default();
        for round in 0..100 {
            let policy = policy("user", 10 + round);
            assert_eq!(shares.of(&policy, 1, 1).limit(), 10 + round);
            assert!(shares.0.read().unwrap().len() < 8);
        }
        shares.sweep();
        assert!(shares.0.read().unwrap().is_empty());
    }
}

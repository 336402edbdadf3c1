//! Hands the decisions of a call to those who wait for them.
//!
//! To wake a task of another runtime costs a system call each time. So the decisions go to each runtime in one piece,
//! where a task of its own hands them out.

use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::{group::Waiter, node::Moment};
use crate::decision::Decision;

/// Those of one runtime.
type Share = Vec<(Waiter, Decision)>;

/// Answers everyone, with what was decided `at` that moment.
pub(super) fn all(decisions: impl Iterator<Item = (Waiter, Decision)>, at: Moment) {
    let mut shares = SmallVec::<[(Handle, Share); 4]>::new();
    for (mut waiter, decision) in decisions {
        match waiter.home.take() {
            None => waiter.answer(Ok((decision, at))),
            Some(home) => match shares.iter_mut().find(|(runtime, _)| runtime.id() == home.id()) {
                Some((_, share)) => share.push((waiter, decision)),
                None => shares.push((home, vec![(waiter, decision)])),
            },
        }
    }
    for (runtime, share) in shares {
        runtime.spawn(async move {
            for (mut waiter, decision) in share {
                waiter.answer(Ok((decision, at)));
            }
        });
    }
}

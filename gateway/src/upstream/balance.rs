//! Weighted round robin, smooth: with weights 2 and 1 the order is a b a, not a a b.

use std::cell::RefCell;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Balance {
    /// What each endpoint gains a turn, and what it has.
    turns: RefCell<Vec<(i64, i64)>>,
}

impl Balance {
    /// Begins at a random place, so that the workers do not all begin with the same endpoint.
    pub(super) fn new(weights: impl Iterator<Item = u32>, random: &mut fastrand::Rng) -> Self {
        let turns: Vec<_> = weights.map(|weight| (i64::from(weight.max(1)), 0)).collect();
        let start = random.usize(..turns.len().max(1));
        let balance = Self {
            turns: RefCell::new(turns),
        };
        for _ in 0..start {
            balance.next();
        }
        balance
    }

    /// The index of the endpoint whose turn it is: the one that has most; it pays what all gained.
    pub(super) fn next(&self) -> usize {
        let mut turns = self.turns.borrow_mut();
        if turns.len() < 2 {
            return 0;
        }
        let (mut all, mut best) = (0, 0);
        for (gain, has) in turns.iter_mut() {
            *has += *gain;
            all += *gain;
        }
        for at in 1..turns.len() {
            if turns[at].1 > turns[best].1 {
                best = at;
            }
        }
        turns[best].1 -= all;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_endpoint_gets_its_share_and_turns_are_spread() {
        let balance = Balance::new([3, 1, 2].into_iter(), &mut fastrand::Rng::with_seed(1));
        let picked: Vec<_> = (0..6).map(|_| balance.next()).collect();
        for (endpoint, share) in [(0, 3), (1, 1), (2, 2)] {
            assert_eq!(picked.iter().filter(|&&at| at == endpoint).count(), share, "{picked:?}");
        }
        assert!(!picked.windows(3).any(|three| three == [0, 0, 0]), "{picked:?}");
    }

    #[test]
    fn workers_begin_at_different_endpoints() {
        let firsts = (0..64).map(|seed| Balance::new([1, 1].into_iter(), &mut fastrand::Rng::with_seed(seed)).next());
        let zeros = firsts.filter(|&first| first == 0).count();
        assert!((1..64).contains(&zeros), "{zeros}");
    }
}

//! Log lines at a bounded rate: an upstream that is down fails every request, and says nothing new each time.

use std::cell::Cell;

use limiter_core::Timestamp;

/// Lets one line a second through, and counts those that it holds back.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    /// The second of the last line.
    last: Cell<u64>,
    held_back: Cell<u64>,
}

impl Bounded {
    /// Whether a line may be written now, and how many were held back since the last one.
    pub(crate) fn pass(&self, now: Timestamp) -> Option<u64> {
        if self.last.replace(now.as_secs()) == now.as_secs() {
            self.held_back.set(self.held_back.get() + 1);
            return None;
        }
        Some(self.held_back.replace(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_and_a_count_of_the_others() {
        let lines = Bounded::default();
        let at = |micros| lines.pass(Timestamp::from_micros(micros));
        assert_eq!([at(5_000_000), at(5_100_000), at(5_999_999)], [Some(0), None, None]);
        assert_eq!([at(6_000_000), at(6_000_001), at(9_000_000)], [Some(2), None, Some(1)]);
    }
}

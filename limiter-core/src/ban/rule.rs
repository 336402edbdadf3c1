//! When a layer bans, and for how long.

use std::time::Duration;

/// N refusals of a key within a time ban it for a time, longer where it was banned not long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanRule {
    after: u64,
    within: Duration,
    ladder: Box<[Duration]>,
}

/// A rule that cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BanRuleError {
    /// No refusal at all, or more than [`BanRule::AFTER_MAX`].
    #[error("expected 1 to {} refusals", BanRule::AFTER_MAX)]
    After,
    /// A time that is below [`BanRule::SHORTEST`], or above [`BanRule::LONGEST`].
    #[error("expected a time of {:?} to {} days", BanRule::SHORTEST, BanRule::LONGEST.as_secs() / 86_400)]
    Time,
    /// No rung at all, or more than [`BanRule::RUNGS_MAX`].
    #[error("expected 1 to {} times", BanRule::RUNGS_MAX)]
    Rungs,
}

impl BanRule {
    /// Refusals that lead to a ban, at most.
    pub const AFTER_MAX: u64 = 1_000_000;
    /// Rungs of a ladder, at most.
    pub const RUNGS_MAX: usize = 16;
    /// The least time.
    pub const SHORTEST: Duration = Duration::from_millis(1);
    /// The longest time: ten years. What is remembered of a ban is remembered for 17 times as long at most, which is
    /// exact in µs.
    pub const LONGEST: Duration = Duration::from_secs(3650 * 86_400);

    /// The `after`th refusal of a key `within` this time bans it: for the first of `ladder`; who offends again, for the
    /// next, and the last one repeats.
    ///
    /// # Errors
    /// A number or a time is out of bounds.
    pub fn new(after: u64, within: Duration, ladder: impl Into<Box<[Duration]>>) -> Result<Self, BanRuleError> {
        let ladder = ladder.into();
        let is_time = |time: &Duration| (Self::SHORTEST..=Self::LONGEST).contains(time);
        if !(1..=Self::AFTER_MAX).contains(&after) {
            return Err(BanRuleError::After);
        }
        if !(1..=Self::RUNGS_MAX).contains(&ladder.len()) {
            return Err(BanRuleError::Rungs);
        }
        if !is_time(&within) || !ladder.iter().all(is_time) {
            return Err(BanRuleError::Time);
        }
        Ok(Self { after, within, ladder })
    }

    /// Refusals that lead to a ban.
    #[must_use]
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The time within which they come.
    #[must_use]
    pub fn within(&self) -> Duration {
        self.within
    }

    /// How long the first ban lasts, the second, and so on; at least one.
    #[must_use]
    pub fn ladder(&self) -> &[Duration] {
        &self.ladder
    }

    /// The last rung, from 0.
    pub(crate) fn last_rung(&self) -> u32 {
        // There are few.
        u32::try_from(self.ladder.len()).unwrap_or(u32::MAX).saturating_sub(1)
    }

    /// How long a ban lasts on a rung, from 0; the last one repeats.
    pub(crate) fn length(&self, rung: u32) -> Duration {
        let at = rung.min(self.last_rung()) as usize;
        self.ladder.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let second = Duration::from_secs(1);
        let rule = |after, within, ladder: &[Duration]| BanRule::new(after, within, ladder);
        assert!(rule(1, BanRule::SHORTEST, &[BanRule::LONGEST; BanRule::RUNGS_MAX]).is_ok());
        for after in [0, BanRule::AFTER_MAX + 1] {
            assert_eq!(rule(after, second, &[second]), Err(BanRuleError::After));
        }
        for rungs in [0, BanRule::RUNGS_MAX + 1] {
            assert_eq!(rule(1, second, &vec![second; rungs]), Err(BanRuleError::Rungs));
        }
        for time in [Duration::ZERO, BanRule::LONGEST + Duration::from_micros(1)] {
            assert_eq!(rule(1, time, &[second]), Err(BanRuleError::Time));
            assert_eq!(rule(1, second, &[second, time]), Err(BanRuleError::Time));
        }
    }

    #[test]
    fn the_last_rung_repeats() {
        let rule = BanRule::new(1, BanRule::LONGEST, [1, 2].map(Duration::from_secs)).unwrap();
        assert_eq!([0, 1, 2, 9].map(|rung| rule.length(rung).as_secs()), [1, 2, 2, 2]);
    }
}

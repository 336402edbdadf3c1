//! The arithmetic of bans: what refusals of a key lead to; pure. `lua/ban.lua` computes the same.

use std::time::Duration;

use super::BanRule;
use crate::clock::Timestamp;

/// So many refusals are kept each with its own time. Further ones are added to the last, if they come within this part
/// of the rule's time of it: so a tally is small, and never counts what is older than it says.
const EXACT: usize = 16;

/// What is known of one key of a layer that bans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The last ban; it is remembered for the ladder after its end.
    pub(crate) ban: Option<Served>,
    /// When it was refused, and how often, since the last ban.
    pub(crate) tally: Vec<(Timestamp, u64)>,
}

/// A ban, in force or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) until: Timestamp,
    /// From 0.
    pub(crate) rung: u32,
    /// How long it lasts as a whole.
    pub(crate) length: Duration,
}

impl Served {
    /// When it began.
    pub(super) fn began(&self) -> Timestamp {
        let length = u64::try_from(self.length.as_micros()).unwrap_or(u64::MAX);
        Timestamp::from_micros(self.until.as_micros().saturating_sub(length))
    }
}

impl Record {
    /// How long its ban lasts yet. `None`: it is not banned.
    pub(crate) fn left(&self, now: Timestamp) -> Option<Duration> {
        let ban = self.ban.as_ref()?;
        (ban.until > now).then(|| ban.until.since(now))
    }

    /// It was refused `count` times at a moment. Whether it is banned for that. What happens during a ban counts for
    /// nothing: neither for this ban nor for the next.
    pub(crate) fn refused(&mut self, rule: &BanRule, count: u64, at: Timestamp, now: Timestamp) -> bool {
        self.settle(rule, now);
        let at = at.min(now);
        if self.left(now).is_some() || at.plus(rule.within()) <= now {
            return false;
        }
        let is_full = self.tally.len() >= EXACT;
        match self.tally.last_mut() {
            Some((last, counted)) if is_full && at.since(*last) < rule.within() / 16 => {
                *last = at.min(*last);
                *counted += count;
            }
            _ => self.tally.push((at, count)),
        }
        if self.tally.iter().map(|(_, count)| count).sum::<u64>() < rule.after() {
            return false;
        }
        self.begin(rule, now, self.next_rung(rule, now));
        true
    }

    /// Somebody else banned it at a moment, on that rung at least. Whether it is banned by that, or for longer. In service
    /// only the script puts such bans together.
    ///
    /// Who was banned already in several places at once offended once: the ban that ends last is the one.
    #[cfg(test)]
    pub(crate) fn offended(&mut self, rule: &BanRule, rung: u32, began: Timestamp, now: Timestamp) -> bool {
        self.settle(rule, now);
        let began = began.min(now);
        let rung = rung.min(rule.last_rung());
        match self.ban {
            Some(ban) if ban.until > now => {
                let is_longer = began.plus(rule.length(rung)) > ban.until;
                if is_longer {
                    self.begin(rule, began, rung.max(ban.rung.min(rule.last_rung())));
                }
                is_longer
            }
            _ => {
                self.begin(rule, began, rung.max(self.next_rung(rule, began)));
                true
            }
        }
    }

    /// The rung of a ban that begins now: one above the last ban's, and one below for each time, as long as that ban,
    /// that has passed since its end.
    fn next_rung(&self, rule: &BanRule, now: Timestamp) -> u32 {
        let Some(ban) = self.ban else { return 0 };
        // Not a new offence, where the two were made in several places at once.
        let next = if now < ban.until { ban.rung } else { ban.rung + 1 };
        let lost = now.since(ban.until).as_micros() / ban.length.as_micros().max(1);
        let next = u128::from(next).saturating_sub(lost);
        u32::try_from(next).unwrap_or(u32::MAX).min(rule.last_rung())
    }

    fn begin(&mut self, rule: &BanRule, at: Timestamp, rung: u32) {
        let length = rule.length(rung);
        let until = at.plus(length);
        self.ban = Some(Served { until, rung, length });
        self.tally.clear();
    }

    /// Drops refusals that are too old to count. Where the clock stepped back, nothing freezes.
    fn settle(&mut self, rule: &BanRule, now: Timestamp) {
        if let Some(ban) = &mut self.ban {
            ban.until = ban.until.min(now.plus(ban.length));
        }
        self.tally.retain_mut(|(at, _)| {
            *at = now.min(*at);
            at.plus(rule.within()) > now
        });
    }

    /// From when on it says nothing. Time 0 where it says nothing at all.
    pub(crate) fn forget_at(&self, rule: &BanRule) -> Timestamp {
        let nothing = Timestamp::from_micros(0);
        let tally = self.tally.iter().map(|(at, _)| at.plus(rule.within())).max();
        let ban = self.ban.map(|ban| match rule.last_rung() {
            0 => ban.until,
            _ => ban.until.plus(ban.length.saturating_mul(ban.rung.saturating_add(1))),
        });
        tally.unwrap_or(nothing).max(ban.unwrap_or(nothing))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_micros(1_796_040_000_000_000 + ms * 1000)
    }

    fn rule(after: u64, within_ms: u64, ladder_s: &[u64]) -> BanRule {
        let ladder: Vec<_> = ladder_s.iter().map(|s| Duration::from_secs(*s)).collect();
        BanRule::new(after, Duration::from_millis(within_ms), ladder).unwrap()
    }

    /// Refuses once, and says whether that bans.
    fn refuse(record: &mut Record, rule: &BanRule, ms: u64) -> bool {
        record.refused(rule, 1, at(ms), at(ms))
    }

    #[test]
    fn so_many_refusals_within_the_time() {
        let rule = rule(3, 1000, &[20]);
        let mut record = Record::default();
        let banned: Vec<_> = [0, 500, 1000, 1499].map(|ms| refuse(&mut record, &rule, ms)).into();
        assert_eq!(banned, [false, false, false, true], "the first did not count any more");
        assert_eq!(record.left(at(1499)), Some(Duration::from_secs(20)));
        assert_eq!(record.left(at(21_498)), Some(Duration::from_millis(1)));
        assert_eq!(record.left(at(21_499)), None);
    }

    #[test]
    fn what_happens_during_a_ban_counts_for_nothing() {
        let rule = rule(2, 10_000, &[1]);
        let mut record = Record::default();
        assert!(!refuse(&mut record, &rule, 0));
        assert!(refuse(&mut record, &rule, 0));
        for ms in [1, 500, 999] {
            assert!(!refuse(&mut record, &rule, ms));
            assert_eq!(record.left(at(ms)), Some(Duration::from_millis(1000 - ms)));
        }
        assert!(!refuse(&mut record, &rule, 1000), "it begins anew");
        assert!(refuse(&mut record, &rule, 1001));
    }

    #[test]
    fn a_ladder_is_climbed_and_descended() {
        let rule = rule(1, 1000, &[10, 20, 40]);
        let mut record = Record::default();
        let mut now = 0;
        let mut lengths = Vec::new();
        // How long it is quiet after each ban, in s.
        for quiet in [0, 0, 0, 39, 40, 79, 80, 0] {
            assert!(refuse(&mut record, &rule, now));
            let left = record.left(at(now)).unwrap();
            lengths.push(left.as_secs());
            now += u64::try_from(left.as_millis()).unwrap() + quiet * 1000;
        }
        // After 79 s at 40 one rung is lost, after 80 two: the next is one above what is left.
        assert_eq!(lengths, [10, 20, 40, 40, 40, 40, 40, 20]);
    }

    #[test]
    fn it_is_remembered_until_the_last_rung_is_lost() {
        let ladder = rule(1, 1000, &[10, 20]);
        let mut record = Record::default();
        for ms in [0, 10_000] {
            assert!(refuse(&mut record, &ladder, ms));
        }
        let forget = record.forget_at(&ladder);
        assert_eq!(forget, at(30_000 + 40_000));
        assert_eq!(record.next_rung(&ladder, at(69_999)), 1);
        assert_eq!(record.next_rung(&ladder, forget), 0);
        assert_eq!(
            record.forget_at(&rule(1, 1000, &[10])),
            at(30_000),
            "nothing to be remembered for"
        );
    }

    #[test]
    fn bans_of_several_places_at_once_are_one() {
        let rule = rule(1, 1000, &[10, 20]);
        let mut record = Record::default();
        assert!(record.offended(&rule, 0, at(0), at(500)));
        assert!(record.offended(&rule, 0, at(300), at(600)), "it ends later");
        assert!(!record.offended(&rule, 0, at(200), at(700)));
        let ban = record.ban.unwrap();
        assert_eq!((ban.until, ban.rung), (at(10_300), 0));
        // Told of after its end.
        assert!(record.offended(&rule, 0, at(9_000), at(11_000)));
        assert_eq!((record.ban.unwrap().until, record.ban.unwrap().rung), (at(19_000), 0));
        assert!(record.offended(&rule, 0, at(19_000), at(19_000)));
        assert_eq!((record.ban.unwrap().until, record.ban.unwrap().rung), (at(39_000), 1));
    }

    #[test]
    fn a_clock_that_steps_back_freezes_nothing() {
        let rule = rule(2, 1000, &[10]);
        let mut record = Record::default();
        assert!(!refuse(&mut record, &rule, 50_000));
        assert!(refuse(&mut record, &rule, 0));
        assert!(!refuse(&mut record, &rule, 60_000));
        assert!(!refuse(&mut record, &rule, 61_000), "the first of the two is too old");
        assert!(refuse(&mut record, &rule, 61_000));
        assert!(!refuse(&mut record, &rule, 0));
        assert_eq!(record.left(at(0)), Some(Duration::from_secs(10)));
    }

    proptest! {
        /// Never banned for fewer than so many within the time; always for so many within 15/16 of it.
        #[test]
        fn coarse_tallies_ban_nobody_wrongly(
            after in 1_u64..60,
            steps in proptest::collection::vec((0_u64..120, 1_u64..4), 1..200),
        ) {
            let within = 1_600;
            let rule = rule(after, within, &[1]);
            let mut record = Record::default();
            let (mut now, mut seen) = (0, Vec::new());
            for (pause, count) in steps {
                now += pause;
                seen.push((now, count));
                let so_many = |time: u64| -> u64 {
                    seen.iter().filter(|(at, _)| at + time > now).map(|(_, count)| count).sum()
                };
                let (all, most) = (so_many(within), so_many(within * 15 / 16));
                let banned = record.refused(&rule, count, at(now), at(now));
                prop_assert!(!banned || all >= after, "{all} of {after}");
                prop_assert!(banned || most < after, "{most} of {after}");
                prop_assert!(record.tally.len() <= 2 * EXACT + 1);
                if banned {
                    record = Record::default();
                    seen.clear();
                }
            }
        }
    }
}

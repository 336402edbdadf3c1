use std::{collections::HashSet, time::Duration};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    algorithm::{FixedWindow, TokenBucket},
    fingerprint::Secret,
};

const MAX: usize = 20;

#[derive(Clone, Debug)]
enum Step {
    Charge { key: u8, window_s: u64 },
    Sweep(usize),
    Wait { secs: u64 },
    Shrink,
    SetMax(usize),
    Trim(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..60_u8, 1..100_u64).prop_map(|(key, window_s)| Step::Charge { key, window_s }),
        1 => (0..30_usize).prop_map(Step::Sweep),
        2 => (0..60_u64).prop_map(|secs| Step::Wait { secs }),
        1 => Just(Step::Shrink),
        1 => (0..=MAX).prop_map(Step::SetMax),
        1 => (0..10_usize).prop_map(Step::Trim),
    ]
}

fn charged(fingerprint: Fingerprint, window_s: u64, now: Timestamp) -> Entry {
    let algorithm = FixedWindow::new(10, Duration::from_secs(window_s), crate::algorithm::Align::FirstRequest);
    let algorithm = Algorithm::from(algorithm.unwrap());
    let mut counter = algorithm.load(None, now);
    algorithm.save(&mut counter, 1, now);
    Entry::new(fingerprint, counter, &algorithm)
}

/// Each entry is found at its slot, and nothing else is.
fn assert_consistent(shard: &Shard) {
    assert_eq!(shard.index.len(), shard.entries.len());
    for (slot, entry) in shard.entries.iter().enumerate() {
        assert_eq!(shard.find(entry.fingerprint).map(|slot| slot.0 as usize), Some(slot));
    }
}

proptest! {
    #[test]
    fn index_and_entries_agree(steps in vec(step(), 1..300)) {
        let (mut shard, secret) = (Shard::new(MAX), Secret::random());
        let mut now = Timestamp::from_micros(1_000_000);
        let (mut alive, mut lowest) = (HashSet::new(), MAX);
        for step in steps {
            match step {
                Step::Charge { key, window_s } => {
                    let fingerprint = secret.fingerprint(&key.to_string());
                    let entry = charged(fingerprint, window_s, now);
                    match shard.find(fingerprint) {
                        Some(slot) => shard.entries[slot.0 as usize] = entry,
                        None => shard.insert(entry, now),
                    }
                    prop_assert!(shard.find(fingerprint).is_some());
                    alive.insert(key);
                }
                Step::Sweep(count) => {
                    let before = shard.len();
                    prop_assert_eq!(shard.sweep(count, now), before - shard.len());
                }
                Step::Wait { secs } => now = now.plus(Duration::from_secs(secs)),
                Step::Shrink => shard.shrink(),
                Step::SetMax(max) => {
                    shard.set_max(max);
                    lowest = lowest.min(max);
                }
                Step::Trim(count) => {
                    let above = shard.len().saturating_sub(shard.max);
                    prop_assert_eq!(shard.trim(count, now), above > count);
                    prop_assert_eq!(shard.len().saturating_sub(shard.max), above.saturating_sub(count));
                }
            }
            assert_consistent(&shard);
            prop_assert!(shard.len() <= MAX);
        }
        if alive.len() <= lowest {
            prop_assert_eq!(shard.evictions(), 0);
        }
        // Twice: what a removal moves may be looked at again.
        shard.sweep(2 * shard.len(), now);
        shard.sweep(shard.len(), now);
        prop_assert!(shard.entries.iter().all(|entry| entry.expires_at > now));
    }
}

#[test]
fn a_sample_finds_one_of_the_cheapest() {
    let rate = crate::Rate {
        units: 1,
        per: Duration::from_secs(86_400),
    };
    let algorithm = Algorithm::from(TokenBucket::new(rate, 1_000).unwrap());
    let (mut shard, secret) = (Shard::new(1_000), Secret::random());
    let now = Timestamp::from_micros(1_000_000);
    for used in 0..1_000_u32 {
        let mut counter = algorithm.load(None, now);
        algorithm.save(&mut counter, u64::from(used) + 1, now);
        let fingerprint = secret.fingerprint(&used.to_string());
        shard.insert(Entry::new(fingerprint, counter, &algorithm), now);
    }
    for _ in 0..100 {
        shard.evict(now);
    }
    // The chance that a sample of 16 holds none of the cheaper half is 2^-16.
    let dear = shard.entries.iter().filter(|entry| entry.used_share > 0.75).count();
    assert_eq!(dear, 250);
}

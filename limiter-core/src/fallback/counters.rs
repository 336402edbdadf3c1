//! Counters of a whole quota and of a share of it: how one becomes the other, and what one lacks of the other.

use std::{collections::VecDeque, time::Duration};

use crate::{
    algorithm::{Algorithm, Bucket, Counter, Log, SubWindows, Summary, Warming, Window},
    clock::Timestamp,
};

/// What is to be remembered of `counter`, which a call told of just `now`, in the place of `old`.
///
/// Of a log only the number of units is known: they count as taken when the newest of them was, else now.
pub(super) fn remembered(
    algorithm: &Algorithm,
    counter: &Counter,
    old: Option<Counter>,
    now: impl FnOnce() -> Timestamp,
) -> Counter {
    match (counter, old) {
        (Counter::Log(log), old) => {
            let newest = match algorithm.expires_at(counter).as_micros() {
                0 => now(),
                expiry => Timestamp::from_micros(expiry.saturating_sub(micros(algorithm.window()))),
            };
            let mut summary = Counter::Log(match old {
                Some(Counter::Log(mut old)) => {
                    *old = Log::Summary(Summary::default());
                    old
                }
                _ => Box::new(Log::Summary(Summary::default())),
            });
            algorithm.save(&mut summary, log.live(), newest);
            summary
        }
        // Into the room that is there already.
        (Counter::SubWindows(counter), Some(Counter::SubWindows(mut old))) => {
            let SubWindows {
                grid,
                head,
                counts,
                used,
            } = &**counter;
            (old.grid, old.head, old.used) = (*grid, *head, *used);
            old.counts.clone_from(counts);
            Counter::SubWindows(old)
        }
        (counter, _) => counter.clone(),
    }
}

/// Raises `own`, a share's counter, to what is the share's part of `whole`, the remembered counter of the whole quota.
///
/// The part is rounded up and, where times are known, placed late: the shares together use no less than the whole, at
/// any later time. Raising again changes nothing.
pub(super) fn raise(
    share: &Algorithm,
    own: &mut Counter,
    (algorithm, whole): (&Algorithm, &Counter),
    by: u64,
    now: Timestamp,
) {
    if let (Counter::Log(own), Counter::Log(whole_log)) = (&mut *own, whole) {
        let taken_at = (algorithm.expires_at(whole).as_micros()).saturating_sub(micros(algorithm.window()));
        if let Log::Times(times) = &mut **own {
            raise_times(times, whole_log.live().div_ceil(by), taken_at);
        }
        return;
    }
    let part = match algorithm.load(Some(whole.clone()), now) {
        // As fractions that are finer by so much.
        Counter::Bucket(whole) => Counter::Bucket(Bucket {
            period: whole.period.saturating_mul(by),
            ..whole
        }),
        Counter::Warming(whole) => Counter::Warming(Box::new(Warming {
            period: whole.period.saturating_mul(by),
            ..*whole
        })),
        Counter::Window(whole) => Counter::Window(Window {
            count: whole.count.div_ceil(by),
            ..whole
        }),
        Counter::SubWindows(mut whole) => {
            divide_counts(&mut whole.counts, by);
            Counter::SubWindows(whole)
        }
        Counter::Log(_) | Counter::Slots(_) => return,
    };
    match (&mut *own, share.load(Some(part), now)) {
        (Counter::Bucket(own), Counter::Bucket(part)) => own.used = own.used.max(part.used),
        (Counter::Warming(_), part @ Counter::Warming(_)) => raise_warming(share, own, part, now),
        (Counter::Window(own), Counter::Window(part)) if part.count > 0 => {
            own.start = if own.count > 0 {
                own.start.max(part.start)
            } else {
                part.start
            };
            own.count = own.count.max(part.count);
        }
        (Counter::SubWindows(own_windows), Counter::SubWindows(part)) => {
            raise_counts(&mut own_windows.counts, &part.counts);
            // Weighs them anew.
            *own = share.load(Some(std::mem::take(own)), now);
        }
        _ => {}
    }
}

/// As [`raise`], of buckets that warm up, whose part is at hand. What is cold says nothing.
fn raise_warming(share: &Algorithm, own: &mut Counter, part: Counter, now: Timestamp) {
    if share.expires_at(&part) <= now {
        return;
    }
    // It goes on as warm as the whole is.
    if share.expires_at(own) <= now {
        *own = part;
    } else if let (Counter::Warming(own), Counter::Warming(part)) = (own, part) {
        own.used = own.used.max(part.used);
    }
}

/// The newest `units` of these times, oldest first, become `taken_at` at least; those that are missing are added.
fn raise_times(times: &mut VecDeque<u64>, units: u64, taken_at: u64) {
    let units = usize::try_from(units).unwrap_or(usize::MAX);
    let early = times.len().saturating_sub(units)..times.partition_point(|time| *time < taken_at);
    for at in early {
        times[at] = taken_at;
    }
    for _ in times.len()..units {
        times.push_front(taken_at);
    }
}

/// Counts, newest first, of a share: the sum of the newest, however many, is rounded up.
fn divide_counts(counts: &mut [u64], by: u64) {
    let (mut whole, mut part) = (0_u64, 0);
    for count in counts {
        whole += *count;
        *count = whole.div_ceil(by) - part;
        part += *count;
    }
}

/// Raises counts, newest first, so that the sum of the newest, however many, is no less than in `other`.
fn raise_counts(counts: &mut [u64], other: &[u64]) {
    let (mut sum, mut other_sum, mut raised) = (0, 0, 0);
    for (count, other) in counts.iter_mut().zip(other) {
        sum += *count;
        other_sum += other;
        *count = sum.max(other_sum) - raised;
        raised += *count;
    }
}

/// What still counts in `own` but not in `seed`, in whole units, rounded up. Both are settled under the same algorithm.
/// Of a log, what was taken since `began`.
pub(super) fn excess(own: &Counter, seed: Option<&Counter>, began: Timestamp) -> u64 {
    match (own, seed) {
        (Counter::Bucket(own), Some(Counter::Bucket(seed))) => {
            own.used.saturating_sub(seed.used).div_ceil(own.period.max(1))
        }
        (Counter::Warming(own), Some(Counter::Warming(seed))) => {
            own.used.saturating_sub(seed.used).div_ceil(own.period.max(1))
        }
        (Counter::Window(own), Some(Counter::Window(seed))) => own.count.saturating_sub(seed.count),
        (Counter::SubWindows(own), Some(Counter::SubWindows(seed))) => own.used.saturating_sub(seed.used),
        (Counter::Log(own), _) => match &**own {
            Log::Times(times) => times
                .iter()
                .rev()
                .take_while(|time| **time >= began.as_micros())
                .count() as u64,
            Log::Summary(_) => own.live(),
        },
        _ => u64::MAX,
    }
}

/// Windows are whole microseconds.
fn micros(window: Duration) -> u64 {
    u64::try_from(window.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Of the newest one, two, three, …
    fn sums(counts: &[u64]) -> Vec<u64> {
        let sum = |sum: &mut u64, count: &u64| {
            *sum += count;
            Some(*sum)
        };
        counts.iter().scan(0, sum).collect()
    }

    proptest! {
        #[test]
        fn a_part_of_counts_is_no_less_of_the_newest_and_less_than_a_unit_more(
            counts in vec(0_u64..1_000, 1..61),
            by in 1_u64..100,
        ) {
            let mut part = counts.clone();
            divide_counts(&mut part, by);
            let expected: Vec<u64> = sums(&counts).iter().map(|sum| sum.div_ceil(by)).collect();
            prop_assert_eq!(sums(&part), expected);
        }

        #[test]
        fn raised_counts_have_as_much_of_the_newest_as_the_higher(
            pairs in vec((0_u64..20, 0_u64..20), 1..61),
        ) {
            let (mut raised, other): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
            let expected: Vec<u64> = (sums(&raised).into_iter().zip(sums(&other))).map(|(a, b)| a.max(b)).collect();
            raise_counts(&mut raised, &other);
            prop_assert_eq!(sums(&raised), expected);
        }

        #[test]
        fn raised_times_hold_so_many_from_then_on(
            times in vec(0_u64..20, 0..12),
            units in 0_u64..12,
            taken_at in 0_u64..20,
        ) {
            let mut times = times;
            times.sort_unstable();
            let mut raised: VecDeque<u64> = times.iter().copied().collect();
            raise_times(&mut raised, units, taken_at);
            // The newest first: as many as there have to be are late enough, the others as they were.
            times.reverse();
            let missing = (units as usize).saturating_sub(times.len());
            let expected: Vec<u64> = (times.iter().copied().chain(std::iter::repeat_n(0, missing)).enumerate())
                .map(|(newer, time)| if newer < units as usize { time.max(taken_at) } else { time })
                .collect();
            prop_assert_eq!(raised.into_iter().rev().collect::<Vec<_>>(), expected);
        }
    }
}

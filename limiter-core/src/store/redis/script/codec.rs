//! Bytes: what the script is told of a policy, and what it keeps of a counter. All numbers are little-endian doubles
//! that hold whole numbers below 2^53, which both sides compute with.

use bytes::Bytes;

use crate::{
    algorithm::{Algorithm, Bucket, Counter, EXACT_MAX, Grid, Lease, Log, Slots, SubWindows, Summary, Warming, Window},
    clock::Timestamp,
    policy::{Policy, Role},
};

/// The parameters of all policies, at `about` that time of the server, each with its number of counters, after the
/// deadline (0: none). `holder` is who calls.
pub(super) fn policies<'a>(
    not_after: Option<Timestamp>,
    about: Timestamp,
    holder: u64,
    policies: impl Iterator<Item = (&'a Policy, u16)>,
) -> Bytes {
    let mut bytes = Vec::with_capacity(128);
    push(&mut bytes, not_after.map_or(0, Timestamp::as_micros));
    for (policy, keys) in policies {
        bytes.push(id(policy.algorithm()) | role(policy.role()) << 4);
        bytes.extend_from_slice(&keys.to_le_bytes());
        for parameter in policy.algorithm().parameters(about) {
            push(&mut bytes, parameter);
        }
        if policy.algorithm().holds() {
            push(&mut bytes, holder);
        }
    }
    bytes.into()
}

/// The number of an algorithm in the script.
fn id(algorithm: &Algorithm) -> u8 {
    match algorithm {
        Algorithm::TokenBucket(a) if !a.warm_up().is_zero() => 8,
        Algorithm::TokenBucket(_) => 1,
        Algorithm::LeakyBucket(_) => 2,
        Algorithm::FixedWindow(a) if a.calendar().is_some() => 6,
        Algorithm::FixedWindow(_) => 3,
        Algorithm::SlidingWindowCounter(_) => 4,
        Algorithm::SlidingWindowLog(_) => 5,
        Algorithm::Concurrency(_) => 7,
    }
}

/// The number of a role in the script.
fn role(role: Role) -> u8 {
    match role {
        Role::Enforced => 0,
        Role::ChargedAlways => 1,
        Role::Shadow => 2,
        Role::Candidate => 3,
    }
}

/// For how many ms a counter matters after it was charged, at `about` that time of the server, as Redis wants it: text.
///
/// Rounded up, and two more: Redis cuts the time to whole milliseconds, and may have read it before the script did.
pub(super) fn time_to_live(algorithm: &Algorithm, about: Timestamp) -> Bytes {
    (algorithm.lifetime_micros(about).div_ceil(1_000) + 2)
        .to_string()
        .into()
}

/// Whole numbers as flat MessagePack arrays.
#[derive(Debug)]
pub(super) struct Numbers(rmp::encode::ByteBuf);

impl Numbers {
    /// An array that will have `len` numbers.
    pub(super) fn with_len(len: usize) -> Self {
        let mut numbers = Self(rmp::encode::ByteBuf::with_capacity(5 + 2 * len));
        numbers.begin(len);
        numbers
    }

    /// After the last array is complete: another of `len` numbers.
    pub(super) fn begin(&mut self, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        rmp::encode::write_array_len(&mut self.0, len).expect("memory takes all bytes");
    }

    pub(super) fn push(&mut self, number: u64) {
        rmp::encode::write_uint(&mut self.0, number).expect("memory takes all bytes");
    }

    pub(super) fn push_signed(&mut self, number: i64) {
        rmp::encode::write_sint(&mut self.0, number).expect("memory takes all bytes");
    }

    pub(super) fn finish(self) -> Bytes {
        self.0.into_vec().into()
    }
}

/// Reads one flat MessagePack array of byte strings, and of `false` where there is none.
pub(super) fn strings(mut bytes: &[u8]) -> Option<Vec<Option<&[u8]>>> {
    const FALSE: u8 = 0xc2;
    let len = rmp::decode::read_array_len(&mut bytes).ok()?;
    // Each takes a byte at least: no length makes more room than that.
    let mut strings = Vec::with_capacity(bytes.len().min(usize::try_from(len).ok()?));
    for _ in 0..len {
        if let Some((&FALSE, rest)) = bytes.split_first() {
            bytes = rest;
            strings.push(None);
        } else {
            let len = rmp::decode::read_str_len(&mut bytes).ok()?;
            let (string, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
            bytes = rest;
            strings.push(Some(string));
        }
    }
    bytes.is_empty().then_some(strings)
}

/// The counter that was packed into `bytes`; `None` for anything else.
pub(super) fn counter(algorithm: &Algorithm, bytes: &[u8]) -> Option<Counter> {
    let numbers = doubles(bytes)?;
    match (algorithm, &*numbers) {
        (Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_), &[used, at, units, period]) => {
            Some(Counter::Bucket(Bucket {
                used,
                at,
                units,
                period,
            }))
        }
        (Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_), &[used, at, part, period, warmed, idle, time])
            if part > 0 && time > 0 && time.is_multiple_of(10) && warmed <= time && idle <= time =>
        {
            Some(Counter::Warming(Box::new(Warming {
                used,
                at,
                part,
                period,
                warmed,
                idle,
                time,
            })))
        }
        (Algorithm::FixedWindow(_), &[count, start, length]) => Some(Counter::Window(Window { count, start, length })),
        (Algorithm::SlidingWindowCounter(_), &[head, window, buckets, ref counts @ ..])
            if window > 0 && (1..=60).contains(&buckets) && counts.len() as u64 == buckets + 1 =>
        {
            Some(Counter::SubWindows(Box::new(SubWindows {
                grid: Grid { window, buckets },
                head,
                counts: counts.into(),
                used: 0,
            })))
        }
        // Not what is stored, which is a list, but what the script tells of it.
        (Algorithm::SlidingWindowLog(a), &[live, time]) => Some(Counter::Log(Box::new(Log::Summary(Summary::new(
            live,
            live.saturating_sub(a.limit()),
            time,
        ))))),
        (Algorithm::Concurrency(_), all) => slots(all).map(Counter::Slots),
        _ => None,
    }
}

/// Leases, if these are such.
fn slots(numbers: &[u64]) -> Option<Slots> {
    let (leases, []) = numbers.as_chunks::<4>() else {
        return None;
    };
    let lease = |&[holder, slots, since, span]: &[u64; 4]| {
        let lease = Lease {
            holder,
            slots,
            since,
            span,
        };
        (slots > 0 && span > 0).then_some(lease)
    };
    Some(Slots {
        held: 0,
        leases: leases.iter().map(lease).collect::<Option<_>>()?,
    })
}

/// Doubles that hold whole numbers; what they cannot hold is the nearest that they can.
fn doubles(bytes: &[u8]) -> Option<Vec<u64>> {
    let (doubles, []) = bytes.as_chunks::<8>() else {
        return None;
    };
    Some(doubles.iter().copied().map(double).collect())
}

/// One such double.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
pub(super) fn double(bytes: [u8; 8]) -> u64 {
    (f64::from_le_bytes(bytes) as u64).min(EXACT_MAX)
}

#[expect(clippy::cast_precision_loss, reason = "all numbers are below 2^53")]
fn push(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&(number as f64).to_le_bytes());
}

//! Concurrency: units in flight at once, which are called slots.
//!
//! A slot is taken by a decision and held until it is given back: time brings none. In a store that several processes
//! share, each holds its slots by a lease, which it renews. So those of a process that dies come back with the end of its
//! last lease.

use std::time::Duration;

use super::{AlgorithmError, EXACT_MAX, micros};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

/// The shortest lease: renewals have to come in time.
pub const LEASE_MIN: Duration = Duration::from_millis(100);

/// The longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// A lease, unless something else is said.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(1);

/// What is said of a wait that nobody knows: whoever holds the slots may hold them for long, or not.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// `limit` units in flight at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    lease: Duration,
}

/// The state of one counter: who holds how many slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Slots that are held here, for as long as they are not given back.
    pub(crate) held: u64,
    /// Those that are held in a shared store, by process.
    pub(crate) leases: Vec<Lease>,
}

/// The slots of one process, while it says that it holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Who holds them.
    pub(crate) holder: u64,
    /// How many, at least 1.
    pub(crate) slots: u64,
    /// When it said so last, in µs.
    pub(crate) since: u64,
    /// For how long that holds, in µs.
    pub(crate) span: u64,
}

impl Lease {
    fn ends_at(&self) -> u64 {
        self.since.saturating_add(self.span)
    }
}

impl Slots {
    /// Drops the leases that have ended. One that began ahead of now (the clock stepped back) begins now.
    pub(super) fn load(stored: Option<Self>, now: u64) -> Self {
        let mut slots = stored.unwrap_or_default();
        slots.leases.retain_mut(|lease| {
            lease.since = lease.since.min(now);
            now < lease.ends_at()
        });
        slots
    }

    fn in_use(&self) -> u64 {
        let leased = self.leases.iter().map(|lease| lease.slots);
        leased.fold(self.held, u64::saturating_add).min(EXACT_MAX)
    }

    /// Changes what is held here.
    pub(super) fn settle(&mut self, change: Change) {
        self.held = match change {
            Change::Debit(units) => self.held.saturating_add(units).min(EXACT_MAX),
            Change::GiveBack { units, .. } => self.held.saturating_sub(units),
            Change::Hold(units) => units.min(EXACT_MAX),
            Change::LeaveQueue { .. } => self.held,
        };
    }

    /// The moment from which nothing is held any more, if nobody renews a lease. What is held here has none.
    pub(super) fn expires_at(&self) -> Timestamp {
        if self.held > 0 {
            return Timestamp::MAX;
        }
        let end = self.leases.iter().map(Lease::ends_at).max();
        Timestamp::from_micros(end.unwrap_or(0))
    }
}

impl Concurrency {
    /// `limit` units in flight at once; processes that share a store hold theirs for a `lease` at a time.
    ///
    /// # Errors
    /// Zero; a limit above 2^53 − 1; a lease below 100 ms or above an hour.
    pub fn new(limit: u64, lease: Duration) -> Result<Self, AlgorithmError> {
        super::check_limit(limit, EXACT_MAX)?;
        let parameter = "lease";
        if lease < LEASE_MIN {
            let min = LEASE_MIN;
            return Err(AlgorithmError::TooShort { parameter, min });
        }
        if lease > LEASE_MAX {
            let max = LEASE_MAX;
            return Err(AlgorithmError::TooLong { parameter, max });
        }
        let lease = Duration::from_micros(micros(lease));
        Ok(Self { limit, lease })
    }

    /// Units in flight at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a process holds slots in a shared store after it last said so.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn free(&self, slots: &Slots) -> u64 {
        self.limit.saturating_sub(slots.in_use())
    }

    /// No promise: when who holds the slots gives them back, nobody knows.
    pub(super) fn wait(&self, slots: &Slots, cost: u64) -> Wait {
        if cost > self.limit {
            Wait::Never
        } else if cost <= self.free(slots) {
            Wait::For(Duration::ZERO)
        } else {
            Wait::For(TRY_AGAIN)
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, slots: &Slots) -> f32 {
        slots.in_use() as f32 / self.limit as f32
    }
}

/// How a shared store keeps what one process holds.
#[cfg(feature = "test-util")]
impl Slots {
    /// The slots that `holder` holds by a lease which still runs are held here.
    pub(crate) fn take_out(mut self, holder: u64, now: u64) -> Self {
        self = Self::load(Some(self), now);
        let own = self.leases.iter().filter(|lease| lease.holder == holder);
        self.held = own.map(|lease| lease.slots).fold(self.held, u64::saturating_add);
        self.leases.retain(|lease| lease.holder != holder);
        self
    }

    /// What is held here is held by `holder`, by a lease that begins now.
    pub(crate) fn put_back(mut self, holder: u64, now: u64, span: Duration) -> Self {
        let slots = std::mem::take(&mut self.held);
        if slots > 0 {
            self.leases.push(Lease {
                holder,
                slots,
                since: now,
                span: micros(span),
            });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_796_040_000_000_000;
    const SECOND: u64 = 1_000_000;

    fn three() -> Concurrency {
        Concurrency::new(3, LEASE_DEFAULT).unwrap()
    }

    fn lease(holder: u64, slots: u64, since: u64) -> Lease {
        let span = SECOND;
        Lease {
            holder,
            slots,
            since,
            span,
        }
    }

    #[test]
    fn what_is_held_comes_back_only_when_it_is_given_back() {
        let mut slots = Slots::load(None, NOW);
        slots.held += 3;
        let mut slots = Slots::load(Some(slots), NOW + 3_600 * SECOND);
        assert_eq!(three().free(&slots), 0);
        assert_eq!(slots.expires_at(), Timestamp::MAX);
        let at = Timestamp::from_micros(1);
        slots.settle(Change::GiveBack { units: 2, at });
        assert_eq!(three().free(&slots), 2);
        slots.settle(Change::GiveBack { units: 2, at });
        assert_eq!(three().free(&slots), 3, "never above full");
        assert_eq!(slots.expires_at(), Timestamp::from_micros(0));
        slots.settle(Change::Hold(2));
        slots.settle(Change::Hold(1));
        assert_eq!(three().free(&slots), 2, "what is said last counts");
    }

    #[test]
    fn a_lease_ends_with_its_span() {
        let slots = Slots {
            held: 0,
            leases: vec![lease(1, 2, NOW), lease(2, 1, NOW + SECOND / 2)],
        };
        let free = |now| three().free(&Slots::load(Some(slots.clone()), now));
        assert_eq!([free(NOW), free(NOW + SECOND - 1), free(NOW + SECOND)], [0, 0, 2]);
        assert_eq!(free(NOW + SECOND * 3 / 2), 3);
        assert_eq!(slots.expires_at().as_micros(), NOW + SECOND * 3 / 2);
    }

    #[test]
    fn a_lease_ahead_of_now_begins_now() {
        let slots = Slots {
            held: 0,
            leases: vec![lease(1, 3, NOW + 3_600 * SECOND)],
        };
        let slots = Slots::load(Some(slots), NOW);
        assert_eq!(slots.leases, [lease(1, 3, NOW)]);
    }

    #[test]
    fn nobody_knows_how_long_to_wait() {
        let slots = Slots {
            held: 3,
            leases: Vec::new(),
        };
        assert_eq!(three().wait(&slots, 1), Wait::For(TRY_AGAIN));
        assert_eq!(three().wait(&Slots::default(), 3), Wait::For(Duration::ZERO));
        assert_eq!(three().wait(&Slots::default(), 4), Wait::Never);
    }

    #[test]
    fn leases_have_bounds() {
        let refused = |lease| Concurrency::new(1, lease).is_err();
        assert!(refused(LEASE_MIN - Duration::from_nanos(1)) && refused(LEASE_MAX + Duration::from_nanos(1)));
        assert!(!refused(LEASE_MIN) && !refused(LEASE_MAX));
        assert!(Concurrency::new(0, LEASE_DEFAULT).is_err());
    }
}

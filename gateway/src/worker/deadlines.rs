//! Deadlines as slots that one sweeper reads, instead of a timer for each.
//!
//! A timer a request costs more than parsing its headers does. A slot costs two stores; in return a deadline is met up
//! to one sweep late, which for timeouts of a second and more nobody notices.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use limiter_core::Timestamp;

/// How often the slots are read: a deadline is met at most this much late.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// Never due.
const NEVER: u64 = u64::MAX;

/// The deadlines of one worker.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    slots: RefCell<Slots>,
    now: Cell<u64>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    due: u64,
    waker: Option<Waker>,
}

/// One deadline; its slot is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Deadline<'a> {
    of: &'a Deadlines,
    slot: u32,
}

/// What had to be done by a deadline was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdue;

impl Deadlines {
    /// The time of the last sweep: at most [`SWEEP_EVERY`] ago, and free of charge.
    pub(crate) fn last_sweep(&self) -> Timestamp {
        Timestamp::from_micros(self.now.get())
    }

    /// A deadline that is never due.
    pub(crate) fn never(&self) -> Deadline<'_> {
        let slot = self.take();
        Deadline { of: self, slot }
    }

    /// Takes a slot that is never due; [`Deadlines::give_back`] frees it.
    pub(crate) fn take(&self) -> u32 {
        let mut slots = self.slots.borrow_mut();
        if let Some(free) = slots.free.pop() {
            return free;
        }
        slots.all.push(Slot {
            due: NEVER,
            waker: None,
        });
        u32::try_from(slots.all.len() - 1).unwrap_or(u32::MAX)
    }

    /// Frees a slot.
    pub(crate) fn give_back(&self, slot: u32) {
        let mut slots = self.slots.borrow_mut();
        let waker = slots.all.get_mut(slot as usize).and_then(|entry| {
            entry.due = NEVER;
            entry.waker.take()
        });
        slots.free.push(slot);
        drop(slots);
        drop(waker);
    }

    /// Moves a slot's deadline; `None`: never due.
    pub(crate) fn set(&self, slot: u32, due: Option<Timestamp>) {
        if let Some(entry) = self.slots.borrow_mut().all.get_mut(slot as usize) {
            entry.due = due.map_or(NEVER, Timestamp::as_micros);
        }
    }

    /// Whom to wake when the slot is due.
    pub(crate) fn set_waker(&self, slot: u32, waker: &Waker) {
        if let Some(entry) = self.slots.borrow_mut().all.get_mut(slot as usize) {
            match &mut entry.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    /// Whether the slot was due at the last sweep.
    pub(crate) fn is_overdue(&self, slot: u32) -> bool {
        self.slots
            .borrow()
            .all
            .get(slot as usize)
            .is_some_and(|entry| entry.due <= self.now.get())
    }

    /// Takes `now` for the time, and wakes whoever is overdue.
    pub(crate) fn sweep(&self, now: Timestamp) {
        self.now.set(now.as_micros());
        self.wake(|slot| slot.due <= now.as_micros());
    }

    /// Wakes everybody, to look at something else than the time.
    pub(crate) fn wake_all(&self) {
        self.wake(|_| true);
    }

    fn wake(&self, which: impl Fn(&Slot) -> bool) {
        // Collected first: a waker may run code that comes back here.
        let slots = self.slots.borrow();
        let overdue: Vec<Waker> = slots
            .all
            .iter()
            .filter(|slot| which(slot))
            .filter_map(|slot| slot.waker.clone())
            .collect();
        drop(slots);
        overdue.iter().for_each(Waker::wake_by_ref);
    }
}

impl Deadline<'_> {
    /// Polls `work` until it is done or `due` has come.
    pub(crate) async fn bound<F: Future>(&self, due: Timestamp, work: F) -> Result<F::Output, Overdue> {
        let mut work = pin!(work);
        self.of.set(self.slot, Some(due));
        poll_fn(|cx: &mut Context<'_>| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if self.of.is_overdue(self.slot) {
                return Poll::Ready(Err(Overdue));
            }
            self.of.set_waker(self.slot, cx.waker());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        self.of.give_back(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        pin::pin,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_deadline_wakes_once_it_is_due_and_not_before() {
        let deadlines = Deadlines::default();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let deadline = deadlines.never();
        let mut work = pin!(deadline.bound(Timestamp::from_micros(500), pending::<()>()));

        assert_eq!(work.as_mut().poll(&mut cx), Poll::Pending);
        deadlines.sweep(Timestamp::from_micros(499));
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        assert_eq!(work.as_mut().poll(&mut cx), Poll::Pending);
        deadlines.sweep(Timestamp::from_micros(500));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(work.as_mut().poll(&mut cx), Poll::Ready(Err(Overdue)));
    }

    #[test]
    fn a_slot_is_used_again_without_its_past() {
        let deadlines = Deadlines::default();
        let first = deadlines.take();
        deadlines.set(first, Some(Timestamp::from_micros(1)));
        deadlines.give_back(first);
        let second = deadlines.take();
        assert_eq!(first, second);
        deadlines.sweep(Timestamp::from_micros(10));
        assert!(!deadlines.is_overdue(second));
    }
}

//! When a request may go on that has to wait for its turn.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    clock::Timestamp,
    settlement::{Change, Settlement},
    store::Ask,
};

/// The turn of an admitted request in the queues of its layers.
#[derive(Clone, Debug)]
pub struct Turn {
    delay: Duration,
    places: SmallVec<[Place; 1]>,
    /// What is to be given back to the store, where nobody stands behind.
    shared: Vec<Settlement>,
    /// The same for the fallback.
    local: Vec<Settlement>,
}

/// A place in the queue of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// An index into the layers that were asked.
    layer: usize,
    units: u64,
    /// When the queue is empty, if nobody comes behind.
    empty_at: Timestamp,
}

/// Who is told of the turn is no part of it.
impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.delay == other.delay && self.places == other.places
    }
}

impl Eq for Turn {}

impl Turn {
    /// How long until then, from the moment in which the decision is handed out: the longest wait of all layers.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// A layer was charged, whose turn comes after `delay`, and whose units go back another way.
    pub(crate) fn wait(turn: &mut Option<Box<Self>>, delay: Duration) {
        let turn = turn.get_or_insert_with(|| Box::new(Self::none()));
        turn.delay = turn.delay.max(delay);
    }

    /// A layer was charged `units`, whose turn comes after `delay`.
    pub(crate) fn add(
        turn: &mut Option<Box<Self>>,
        layer: usize,
        units: u64,
        (delay, empty_at): (Duration, Timestamp),
    ) {
        let turn = turn.get_or_insert_with(|| Box::new(Self::none()));
        turn.delay = turn.delay.max(delay);
        let place = Place { layer, units, empty_at };
        turn.places.push(place);
    }

    /// Both turns: that of a request that several stores decided. `layers` are those that the second was asked for.
    #[cfg(feature = "redis")]
    pub(crate) fn join(turn: &mut Option<Box<Self>>, other: Option<Box<Self>>, layers: &[usize]) {
        let Some(other) = other else {
            return;
        };
        let turn = turn.get_or_insert_with(|| Box::new(Self::none()));
        turn.delay = turn.delay.max(other.delay);
        turn.places.extend(other.places.iter().filter_map(|place| {
            let layer = *layers.get(place.layer)?;
            Some(Place { layer, ..*place })
        }));
    }

    /// So much of the wait is over.
    #[cfg(feature = "redis")]
    pub(crate) fn pass(&mut self, time: Duration) {
        self.delay = self.delay.saturating_sub(time);
    }

    /// The moment that it counts from was this much earlier.
    #[cfg(feature = "redis")]
    pub(crate) fn postpone(&mut self, time: Duration) {
        self.delay = self.delay.saturating_add(time);
    }

    /// Keeps what is needed to leave the queues of `asks` again.
    pub(crate) fn claim(&mut self, asks: &[Ask<'_>], home: Home) {
        let claims = self.places.iter().filter_map(|place| {
            let ask = asks.get(place.layer)?;
            let (units, empty_at) = (place.units, place.empty_at);
            let change = Change::LeaveQueue { units, empty_at };
            Some(Settlement::new(Arc::clone(ask.policy), ask.key, change))
        });
        match home {
            Home::Store => self.shared.extend(claims),
            Home::Fallback | Home::Share => self.local.extend(claims),
        }
    }

    /// As [`Turn::join`], of turns that are claimed already.
    pub(crate) fn merge(turn: &mut Option<Box<Self>>, other: Option<Box<Self>>) {
        match (turn, other) {
            (Some(turn), Some(other)) => {
                turn.delay = turn.delay.max(other.delay);
                turn.places.extend(other.places);
                turn.shared.extend(other.shared);
                turn.local.extend(other.local);
            }
            (turn @ None, other) => *turn = other,
            (Some(_), None) => {}
        }
    }

    /// What leaving it gives back: to the store, and to the fallback.
    pub(crate) fn into_claims(self) -> (Vec<Settlement>, Vec<Settlement>) {
        (self.shared, self.local)
    }

    fn none() -> Self {
        Self {
            delay: Duration::ZERO,
            places: SmallVec::new(),
            shared: Vec::new(),
            local: Vec::new(),
        }
    }
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Store,
    Fallback,
    /// The store; the fallback has charged its share as well, and owes nobody for that.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "the fallback is that of redis"))]
    Share,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{LeakyBucket, Rate},
        policy::{OnFailure, Policy},
    };

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A turn in the queues of these layers, each empty at its delay.
    fn turn(layers: &[(usize, u64)]) -> Option<Box<Turn>> {
        let mut turn = None;
        for &(layer, delay) in layers {
            let empty_at = Timestamp::from_micros(delay);
            Turn::add(&mut turn, layer, 1, (millis(delay), empty_at));
        }
        turn
    }

    /// Whose units go back, and to a queue that is empty when.
    fn claimed(settlements: &[Settlement]) -> Vec<(&str, u64)> {
        let claim = |settlement: &'_ Settlement| match settlement.change {
            Change::LeaveQueue { empty_at, .. } => empty_at.as_micros(),
            other => panic!("{other:?}"),
        };
        settlements.iter().map(|one| (&*one.key, claim(one))).collect()
    }

    #[test]
    fn the_longest_wait_of_all_layers_counts_and_every_queue_is_left() {
        let rate = Rate {
            units: 1,
            per: millis(1_000),
        };
        let queue = LeakyBucket::queue(rate, 9, millis(9_000)).unwrap();
        let policy = Arc::new(Policy::new("queue", queue, OnFailure::Local));
        let asks = ["a", "b", "c"].map(|key| Ask {
            policy: &policy,
            key,
            cost: 1,
        });
        let mut shared = turn(&[(0, 300), (2, 100)]);
        shared.as_mut().unwrap().claim(&asks, Home::Store);
        let mut local = turn(&[(0, 200)]);
        local.as_mut().unwrap().claim(&asks[1..], Home::Fallback);
        Turn::merge(&mut shared, local);
        let whole = shared.unwrap();
        assert_eq!(whole.delay(), millis(300));
        let (shared, local) = whole.into_claims();
        assert_eq!(claimed(&shared), [("a", 300), ("c", 100)]);
        assert_eq!(claimed(&local), [("b", 200)]);
        let mut none = None;
        Turn::merge(&mut none, turn(&[(0, 50)]));
        assert_eq!(none, turn(&[(0, 50)]));
    }

    #[cfg(feature = "redis")]
    #[test]
    fn turns_of_parts_count_from_their_own_beginnings() {
        let mut late = turn(&[(0, 100)]);
        late.as_mut().unwrap().postpone(millis(40));
        let mut whole = None;
        Turn::join(&mut whole, turn(&[(0, 120), (1, 10)]), &[3, 1]);
        Turn::join(&mut whole, late, &[2]);
        let mut whole = whole.unwrap();
        assert_eq!(whole.delay(), millis(140));
        whole.pass(millis(50));
        assert_eq!(whole.delay(), millis(90));
        whole.pass(millis(100));
        assert_eq!(whole.delay(), Duration::ZERO);
        let layers: Vec<usize> = whole.places.iter().map(|place| place.layer).collect();
        assert_eq!(layers, [3, 1, 2]);
    }
}

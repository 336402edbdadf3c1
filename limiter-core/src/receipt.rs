//! What a request was charged in layers that are settled once more is known of it.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    clock::Timestamp,
    policy::Policy,
    settlement::{Change, Settlement},
    store::Ask,
    turn::Home,
};

/// What a request was charged in the layers that [give back](Policy::gives_back): for
/// [`Limiter::settle`](crate::Limiter::settle), once what it costs is known. Dropped, the charges stay as they are.
#[derive(Clone, Debug)]
pub struct Receipt {
    items: SmallVec<[Item; 1]>,
}

/// What one layer was charged.
#[derive(Clone, Debug)]
struct Item {
    /// An index into the layers that were asked.
    layer: usize,
    units: u64,
    /// When, by the clock that its counter goes by.
    at: Timestamp,
    /// Where; `None` until whoever asked says so.
    counter: Option<Claim>,
}

/// A counter, and who has it.
#[derive(Clone, Debug)]
struct Claim {
    policy: Arc<Policy>,
    key: Box<str>,
    home: Home,
}

/// What is to be done about one charge.
#[derive(Debug)]
pub(crate) struct Correction {
    pub(crate) home: Home,
    /// When the charge was made.
    pub(crate) at: Timestamp,
    pub(crate) settlement: Settlement,
}

/// Who is told is no part of it.
impl PartialEq for Receipt {
    fn eq(&self, other: &Self) -> bool {
        let all = |receipt: &Self| -> SmallVec<[(usize, u64, Timestamp); 1]> {
            (receipt.items.iter())
                .map(|item| (item.layer, item.units, item.at))
                .collect()
        };
        all(self) == all(other)
    }
}

impl Eq for Receipt {}

impl Receipt {
    /// A layer was charged `units` at `at`.
    pub(crate) fn add(receipt: &mut Option<Box<Self>>, layer: usize, units: u64, at: Timestamp) {
        let receipt = receipt.get_or_insert_with(|| Box::new(Self { items: SmallVec::new() }));
        receipt.items.push(Item {
            layer,
            units,
            at,
            counter: None,
        });
    }

    /// Both receipts: that of a request that several stores decided. `layers` are those that the second was asked for.
    pub(crate) fn join(receipt: &mut Option<Box<Self>>, other: Option<Box<Self>>, layers: &[usize]) {
        let Some(mut other) = other else {
            return;
        };
        other.items.retain(|item| match layers.get(item.layer) {
            Some(layer) => {
                item.layer = *layer;
                true
            }
            None => false,
        });
        Self::merge(receipt, Some(other));
    }

    /// Both receipts, whose layers are those of the same request.
    pub(crate) fn merge(receipt: &mut Option<Box<Self>>, other: Option<Box<Self>>) {
        match (receipt, other) {
            (_, None) => {}
            (Some(receipt), Some(other)) => receipt.items.extend(other.items),
            (receipt @ None, other) => *receipt = other,
        }
    }

    /// Of what a layer was charged, only so much is kept: the rest has been given back.
    #[cfg(feature = "redis")]
    pub(crate) fn keep(receipt: &mut Option<Box<Self>>, layer: usize, units: u64) {
        if let Some(kept) = receipt {
            for item in kept.items.iter_mut().filter(|item| item.layer == layer) {
                item.units = item.units.min(units);
            }
            kept.items.retain(|item| item.units > 0);
            if kept.items.is_empty() {
                *receipt = None;
            }
        }
    }

    /// When a layer was charged, if it was.
    #[cfg(feature = "redis")]
    pub(crate) fn charged_at(&self, layer: usize) -> Option<Timestamp> {
        let item = self.items.iter().find(|item| item.layer == layer);
        item.map(|item| item.at)
    }

    /// Nothing of these layers is to be settled.
    #[cfg(feature = "redis")]
    pub(crate) fn forget(receipt: &mut Option<Box<Self>>, layers: impl Fn(usize) -> bool) {
        if let Some(kept) = receipt {
            kept.items.retain(|item| !layers(item.layer));
            if kept.items.is_empty() {
                *receipt = None;
            }
        }
    }

    /// Keeps what is needed to settle what `asks` were charged.
    pub(crate) fn claim(&mut self, asks: &[Ask<'_>], home: Home) {
        for item in self.items.iter_mut().filter(|item| item.counter.is_none()) {
            item.counter = asks.get(item.layer).map(|ask| Claim {
                policy: Arc::clone(ask.policy),
                key: ask.key.into(),
                home,
            });
        }
    }

    /// What makes each charge what `cost` says, which is asked once for each layer, and told what that was charged.
    pub(crate) fn corrections(self, mut cost: impl FnMut(usize, u64) -> u64) -> impl Iterator<Item = Correction> {
        let mut costs = SmallVec::<[(usize, u64); 2]>::new();
        self.items.into_iter().filter_map(move |item| {
            let Item {
                layer,
                units,
                at,
                counter,
            } = item;
            let Claim { policy, key, home } = counter?;
            let cost = match costs.iter().find(|(other, _)| *other == layer) {
                Some((_, cost)) => *cost,
                None => {
                    let cost = cost(layer, units);
                    costs.push((layer, cost));
                    cost
                }
            };
            let change = match units.checked_sub(cost) {
                Some(0) => return None,
                Some(units) => Change::GiveBack { units, at },
                None => Change::Debit(cost - units),
            };
            let settlement = Settlement::new(policy, key, change);
            Some(Correction { home, at, settlement })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        algorithm::{Align, FixedWindow},
        policy::OnFailure,
    };

    const AT: Timestamp = Timestamp::from_micros(7);

    /// A receipt over these layers and units.
    fn receipt(charges: &[(usize, u64)]) -> Option<Box<Receipt>> {
        let mut receipt = None;
        for &(layer, units) in charges {
            Receipt::add(&mut receipt, layer, units, AT);
        }
        receipt
    }

    /// The keys, homes and changes that this cost of each layer leads to.
    fn corrected(receipt: Receipt, cost: u64) -> Vec<(String, Home, Change)> {
        let corrections = receipt.corrections(|_, _| cost);
        corrections
            .map(|one| (one.settlement.key.into(), one.home, one.settlement.change))
            .collect()
    }

    #[test]
    fn the_difference_is_settled_where_it_was_charged() {
        let window = FixedWindow::new(9, Duration::from_secs(1), Align::Clock).unwrap();
        let policy = Arc::new(Policy::new("p", window, OnFailure::Local));
        let asks = ["a", "b", "c", "d"].map(|key| Ask {
            policy: &policy,
            key,
            cost: 1,
        });
        let mut shared = receipt(&[(0, 2), (1, 5)]);
        shared.as_mut().unwrap().claim(&asks, Home::Store);
        let mut local = receipt(&[(1, 3)]);
        local.as_mut().unwrap().claim(&asks[2..], Home::Fallback);
        Receipt::join(&mut shared, local, &[2, 3]);
        let whole = shared.unwrap();
        let at = AT;
        let expected = [
            ("a".to_owned(), Home::Store, Change::Debit(1)),
            ("b".to_owned(), Home::Store, Change::GiveBack { units: 2, at }),
        ];
        assert_eq!(corrected((*whole).clone(), 3), expected);
        let layers: Vec<usize> = whole.items.iter().map(|item| item.layer).collect();
        assert_eq!(layers, [0, 1, 3], "as the request has them");
        let last = corrected(*whole, 0).pop();
        assert_eq!(
            last,
            Some(("d".to_owned(), Home::Fallback, Change::GiveBack { units: 3, at }))
        );
    }

    #[test]
    fn a_layer_s_cost_is_asked_for_once() {
        let window = FixedWindow::new(9, Duration::from_secs(1), Align::Clock).unwrap();
        let policy = Arc::new(Policy::new("p", window, OnFailure::Local));
        let asks = [Ask {
            policy: &policy,
            key: "a",
            cost: 1,
        }];
        let (mut whole, mut share) = (receipt(&[(0, 3)]), receipt(&[(0, 3)]));
        whole.as_mut().unwrap().claim(&asks, Home::Store);
        share.as_mut().unwrap().claim(&asks, Home::Share);
        Receipt::merge(&mut whole, share);
        let mut asked = 0;
        let corrections = whole.unwrap().corrections(|_, _| {
            asked += 1;
            5
        });
        let homes: Vec<Home> = corrections.map(|one| one.home).collect();
        assert_eq!((homes, asked), (vec![Home::Store, Home::Share], 1));
    }

    #[test]
    fn a_charge_that_nobody_claimed_stays() {
        assert_eq!(corrected(*receipt(&[(0, 2)]).unwrap(), 0), []);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn what_was_given_back_already_is_not_given_back_again() {
        let mut one = receipt(&[(0, 2), (1, 3)]);
        Receipt::keep(&mut one, 1, 1);
        assert_eq!(one, receipt(&[(0, 2), (1, 1)]));
        Receipt::keep(&mut one, 0, 0);
        Receipt::keep(&mut one, 1, 0);
        assert_eq!(one, None);
    }
}

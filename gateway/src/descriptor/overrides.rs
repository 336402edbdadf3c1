//! Key → the terms that a layer has for it; pure.
//!
//! A layer may have thousands of overrides, and every request asks: an exact key is found by its hash, a prefix or range
//! by bisection, whatever their number.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use hashbrown::DefaultHashBuilder;
use ipnet::IpNet;
use limiter_core::{Key, KeyHasher, Part, Policy};

use crate::config::{self, KeyPattern, KeyValue};

/// How a layer takes a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// By the policy at this index: that of the layer itself is 0.
    Policy(u32),
    /// It does not apply.
    Unlimited,
    /// It refuses.
    Denied,
}

/// The overrides of a layer.
#[derive(Debug)]
pub(super) struct Overrides {
    /// By the text of the key. Clients cannot add to it, so its hash need not withstand them.
    exact: HashMap<Box<str>, Terms, DefaultHashBuilder>,
    prefixes: Nested<Box<str>>,
    networks: Nested<Block>,
}

impl Overrides {
    /// The overrides of `layer`; `None` where it has none. The policies that they name are added to `policies`.
    pub(super) fn new(layer: &config::Layer, hasher: &KeyHasher, policies: &mut Vec<Arc<Policy>>) -> Option<Box<Self>> {
        if layer.overrides.is_empty() {
            return None;
        }
        let mut exact = HashMap::<_, _, DefaultHashBuilder>::default();
        let (mut prefixes, mut networks) = (Vec::new(), Vec::new());
        let mut indices = HashMap::new();
        for config::Override { keys, terms } in &layer.overrides {
            let terms = match terms {
                config::Terms::Unlimited => Terms::Unlimited,
                config::Terms::Denied => Terms::Denied,
                config::Terms::Policy(policy) => {
                    Terms::Policy(*indices.entry(Arc::as_ptr(policy)).or_insert_with(|| {
                        policies.push(Arc::clone(policy));
                        u32::try_from(policies.len() - 1).unwrap_or(u32::MAX)
                    }))
                }
            };
            match keys {
                KeyPattern::Exact(values) => {
                    exact.entry(text(values, hasher).as_str().into()).or_insert(terms);
                }
                KeyPattern::Prefix(values, begin) => {
                    let mut key = text(values, hasher);
                    match begin {
                        KeyValue::Value(value) | KeyValue::Secret(value) => key.push_beginning(value),
                        KeyValue::Printed(text) => key.push_printed(text),
                    }
                    prefixes.push((key.as_str().into(), terms));
                }
                KeyPattern::Network(network) => networks.push((Block::from(*network), terms)),
            }
        }
        Some(Box::new(Self {
            exact,
            prefixes: Nested::new(prefixes),
            networks: Nested::new(networks),
        }))
    }

    /// The terms for `key`, of which no more is known than how it is printed.
    pub(super) fn find_printed(&self, key: &str) -> Terms {
        let address = key.split('/').next().unwrap_or(key).parse();
        // Of a key that is no address, no range says anything; of no address, neither.
        self.find(key, address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }

    /// The terms for `key`, which is that of a request of `client`.
    pub(super) fn find(&self, key: &str, client: IpAddr) -> Terms {
        let exact = || self.exact.get(key).copied();
        let by_prefix = || {
            self.prefixes
                .find(|prefix| **prefix <= *key, |prefix| key.starts_with(&**prefix))
        };
        let by_network = || {
            let client = Block::from(IpNet::from(client.to_canonical()));
            self.networks
                .find(|block| *block <= client, |block| block.holds(client))
        };
        exact()
            .or_else(by_prefix)
            .or_else(by_network)
            .unwrap_or(Terms::Policy(0))
    }
}

/// The key with these values.
fn text(values: &[KeyValue], hasher: &KeyHasher) -> Key {
    let mut key = Key::new();
    for value in values {
        match value {
            KeyValue::Value(value) => key.push(Part::Value(value), hasher),
            KeyValue::Secret(value) => key.push(Part::Secret(value), hasher),
            KeyValue::Printed(text) => key.push_printed(text),
        }
    }
    key
}

/// A range of addresses: first address and length. Ordered so that a range comes before those in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    is_v6: bool,
    first: u128,
    bits: u8,
}

impl From<IpNet> for Block {
    fn from(network: IpNet) -> Self {
        let (is_v6, first) = match network.network() {
            // In the highest bits, as those of IPv6 are.
            IpAddr::V4(address) => (false, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (true, address.to_bits()),
        };
        let bits = network.prefix_len();
        Self { is_v6, first, bits }
    }
}

impl Block {
    fn holds(&self, other: Self) -> bool {
        let differing = self.first ^ other.first;
        self.is_v6 == other.is_v6 && self.bits <= other.bits && differing.leading_zeros() >= u32::from(self.bits)
    }
}

/// Prefixes, of texts or of addresses, of which the longest is looked for.
///
/// Two prefixes either hold one another or have nothing in common. So, in order, whatever holds a text comes before it,
/// and all in between begins as that does: the longest prefix of a text is the last one before it, or holds that one.
#[derive(Debug)]
struct Nested<T>(Box<[Entry<T>]>);

#[derive(Debug)]
struct Entry<T> {
    prefix: T,
    terms: Terms,
    /// The longest other prefix that holds this one.
    within: Option<u32>,
}

trait Prefix: Ord {
    /// Whether `other` begins with it.
    fn is_prefix_of(&self, other: &Self) -> bool;
}

impl Prefix for Box<str> {
    fn is_prefix_of(&self, other: &Self) -> bool {
        other.starts_with(&**self)
    }
}

impl Prefix for Block {
    fn is_prefix_of(&self, other: &Self) -> bool {
        self.holds(*other)
    }
}

impl<T: Prefix> Nested<T> {
    /// Of equal prefixes the first counts.
    fn new(mut prefixes: Vec<(T, Terms)>) -> Self {
        // Stable: the first of equals stays the first.
        prefixes.sort_by(|(a, _), (b, _)| a.cmp(b));
        prefixes.dedup_by(|(later, _), (first, _)| later == first);
        let mut entries: Vec<Entry<T>> = Vec::with_capacity(prefixes.len());
        for (prefix, terms) in prefixes {
            let mut within = entries.len().checked_sub(1).and_then(|at| u32::try_from(at).ok());
            while let Some(entry) = within.and_then(|at| entries.get(at as usize)) {
                if entry.prefix.is_prefix_of(&prefix) {
                    break;
                }
                within = entry.within;
            }
            entries.push(Entry { prefix, terms, within });
        }
        Self(entries.into())
    }
}

impl<T> Nested<T> {
    /// The terms of the longest prefix that `holds` what is looked for; prefixes up to it are those that are
    /// `not_after` it.
    fn find(&self, not_after: impl Fn(&T) -> bool, holds: impl Fn(&T) -> bool) -> Option<Terms> {
        let mut at = self.0.partition_point(|entry| not_after(&entry.prefix)).checked_sub(1);
        while let Some(entry) = at.and_then(|at| self.0.get(at)) {
            if holds(&entry.prefix) {
                return Some(entry.terms);
            }
            at = entry.within.map(|at| at as usize);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn terms(at: usize) -> Terms {
        Terms::Policy(u32::try_from(at).unwrap())
    }

    /// The longest of those that hold, and of equal ones the first; by looking at each.
    fn plain<T>(prefixes: &[T], bits: impl Fn(&T) -> usize, holds: impl Fn(&T) -> bool) -> Option<Terms> {
        let holding = (0..prefixes.len()).filter(|at| holds(&prefixes[*at]));
        holding
            .rev()
            .max_by_key(|at| (bits(&prefixes[*at]), std::cmp::Reverse(*at)))
            .map(terms)
    }

    proptest! {
        #[test]
        fn the_longest_prefix_is_found(prefixes in vec("[ab]{0,5}", 0..24), key in "[abc]{0,7}") {
            let nested: Nested<Box<str>> = Nested::new(prefixes.iter().enumerate().map(|(at, text)| (Box::from(&**text), terms(at))).collect());
            let found = nested.find(|prefix| **prefix <= *key, |prefix| key.starts_with(&**prefix));
            prop_assert_eq!(found, plain(&prefixes, String::len, |prefix| key.starts_with(&**prefix)));
        }

        #[test]
        fn the_narrowest_range_is_found(
            ranges in vec((any::<bool>(), 0_u8..8, 0_u8..=8), 0..24),
            client in any::<(bool, u8)>(),
        ) {
            // Few bits, so that many ranges hold each other; of IPv6 also the lowest.
            let address = |is_v6: bool, byte: u8| match is_v6 {
                false => IpAddr::from([byte, 0, 0, 1]),
                true => IpAddr::from([u16::from(byte) << 8, 0, 0, 0, 0, 0, 0, 1]),
            };
            let ranges: Vec<IpNet> = (ranges.into_iter())
                .map(|(is_v6, byte, bits)| IpNet::new(address(is_v6, byte << 5), bits).unwrap().trunc())
                .collect();
            let client = address(client.0, client.1);
            let nested = Nested::new(ranges.iter().enumerate().map(|(at, range)| (Block::from(*range), terms(at))).collect());
            let block = Block::from(IpNet::from(client));
            let found = nested.find(|range| *range <= block, |range| range.holds(block));
            prop_assert_eq!(found, plain(&ranges, |range| range.prefix_len().into(), |range| range.contains(&client)));
        }
    }
}

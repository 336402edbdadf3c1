//! Key → the terms that a layer has for it; pure.
//!
//! A layer may have thousands of overrides, and every request asks. All are found by hash: an exact key at once, a prefix
//! or range after a try for each longer length that there is. Clients cannot add to the tables, so their hash need not
//! withstand them.

use std::{
    collections::{BTreeSet, HashMap},
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
#[derive(Debug, Default)]
pub(super) struct Overrides {
    /// By the text of the key.
    exact: Table<Box<str>>,
    /// By the text that keys begin with, and the lengths of these, the longest first.
    prefixes: Table<Box<str>>,
    lengths: Vec<usize>,
    networks: Table<Block>,
    /// The kinds and lengths of the ranges, the narrowest first.
    widths: Vec<(bool, u8)>,
}

/// Of several entries for one key the first counts.
type Table<K> = HashMap<K, Terms, DefaultHashBuilder>;

impl Overrides {
    /// The overrides of `layer`; `None` where it has none. The policies that they name are added to `policies`.
    pub(super) fn new(layer: &config::Layer, hasher: &KeyHasher, policies: &mut Vec<Arc<Policy>>) -> Option<Box<Self>> {
        if layer.overrides.is_empty() {
            return None;
        }
        let mut all = Self::default();
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
            all.add(keys, terms, hasher);
        }
        all.sort();
        Some(Box::new(all))
    }

    /// Notes which lengths there are.
    fn sort(&mut self) {
        self.lengths = descending(self.prefixes.keys().map(|prefix| prefix.len()));
        self.widths = descending(self.networks.keys().map(|block| (block.is_v6, block.bits)));
    }

    fn add(&mut self, keys: &KeyPattern, terms: Terms, hasher: &KeyHasher) {
        match keys {
            KeyPattern::Exact(values) => {
                let key = text(values, hasher);
                self.exact.entry(key.as_str().into()).or_insert(terms);
            }
            KeyPattern::Prefix(values, begin) => {
                let mut key = text(values, hasher);
                match begin {
                    KeyValue::Value(value) | KeyValue::Secret(value) => key.push_beginning(value),
                    KeyValue::Printed(text) => key.push_printed(text),
                }
                self.prefixes.entry(key.as_str().into()).or_insert(terms);
            }
            KeyPattern::Network(network) => {
                self.networks.entry(Block::from(*network)).or_insert(terms);
            }
        }
    }

    /// The terms for `key`, of which no more is known than how it is printed.
    pub(super) fn find_printed(&self, key: &str) -> Terms {
        let address = key.split('/').next().unwrap_or(key).parse();
        // Of a key that is no address, no range says anything; of no address, neither.
        self.find(key, address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }

    /// The terms for `key`, which is that of a request of `client`.
    pub(super) fn find(&self, key: &str, client: IpAddr) -> Terms {
        let exact = || self.exact.get(key);
        // Keys are ASCII: any length cuts between characters.
        let by_prefix = || (self.lengths.iter()).find_map(|length| self.prefixes.get(key.get(..*length)?));
        let by_network = || {
            // Of most layers there is none: the address need not be looked at.
            self.widths.first()?;
            let client = Block::from(IpNet::from(client.to_canonical()));
            self.widths
                .iter()
                .find_map(|(is_v6, bits)| self.networks.get(&client.within(*is_v6, *bits)?))
        };
        let found = exact().or_else(by_prefix).or_else(by_network);
        found.copied().unwrap_or(Terms::Policy(0))
    }
}

/// Each once, the greatest first.
fn descending<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let each: BTreeSet<T> = values.collect();
    each.into_iter().rev().collect()
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

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The range of so many bits that it lies in; `None` where it is of another kind.
    fn within(self, is_v6: bool, bits: u8) -> Option<Self> {
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        (self.is_v6 == is_v6).then_some(Self {
            first: self.first & mask,
            bits,
            ..self
        })
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
    fn plain<T>(prefixes: &[T], length: impl Fn(&T) -> usize, holds: impl Fn(&T) -> bool) -> Terms {
        let holding = (0..prefixes.len()).filter(|at| holds(&prefixes[*at]));
        let longest = holding.max_by_key(|at| (length(&prefixes[*at]), std::cmp::Reverse(*at)));
        longest.map_or(Terms::Policy(0), terms)
    }

    /// Overrides for these keys, each with terms of its own.
    fn overrides(keys: impl Iterator<Item = KeyPattern>) -> Overrides {
        let mut all = Overrides::default();
        for (at, keys) in keys.enumerate() {
            all.add(&keys, terms(at), &KeyHasher::new(None));
        }
        all.sort();
        all
    }

    proptest! {
        #[test]
        fn the_longest_prefix_is_found(prefixes in vec("[ab]{0,5}", 0..24), key in "[abc]{1,7}") {
            let pattern = |text: &String| KeyPattern::Prefix(Vec::new(), KeyValue::Value(text.clone().into()));
            let found = overrides(prefixes.iter().map(pattern)).find(&key, IpAddr::from([0; 4]));
            prop_assert_eq!(found, plain(&prefixes, String::len, |prefix| key.starts_with(&**prefix)));
        }

        #[test]
        fn the_narrowest_range_is_found(
            ranges in vec((any::<bool>(), 0_u8..8, 0_u8..=8), 0..24),
            client in any::<(bool, u8)>(),
        ) {
            // Few bits, so that many ranges hold each other.
            let address = |is_v6: bool, byte: u8| match is_v6 {
                false => IpAddr::from([byte, 0, 0, 1]),
                true => IpAddr::from([u16::from(byte) << 8, 0, 0, 0, 0, 0, 0, 1]),
            };
            let ranges: Vec<IpNet> = (ranges.into_iter())
                .map(|(is_v6, byte, bits)| IpNet::new(address(is_v6, byte << 5), bits).unwrap().trunc())
                .collect();
            let client = address(client.0, client.1);
            let found = overrides(ranges.iter().map(|range| KeyPattern::Network(*range))).find("x", client);
            prop_assert_eq!(found, plain(&ranges, |range| range.prefix_len().into(), |range| range.contains(&client)));
        }
    }
}

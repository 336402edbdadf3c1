//! `overrides` and `overrides_file` of a layer.

mod pattern;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use limiter_core::{Algorithm, Policy};

use super::{
    super::{
        ClientIp, KeyPart, KeyPattern, Override, Terms,
        place::Place,
        raw::{self, Field, Leaf, Mapping, OneOrMany, Parameters},
        units,
    },
    algorithm::algorithm,
    charging::can_give_back,
    context::Context,
    leased::can_lease,
};
use pattern::pattern;

/// The layer that has the overrides.
#[derive(Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) raw: &'a raw::Limit,
    /// Those of its algorithm.
    pub(super) parameters: &'a Parameters,
    pub(super) key: &'a [KeyPart],
    pub(super) client_ip: &'a ClientIp,
    /// Its policy and cost; `None` where they are wrong, so that parameters cannot be judged.
    pub(super) policy: Option<(&'a Policy, u64)>,
    /// What a request costs at most; `None`: whatever it says.
    pub(super) most: Option<u64>,
}

/// The overrides of the layer at `item`: of the same keys, the first goes.
pub(super) fn overrides(item: &Place<'_>, base: Base<'_>, cx: &mut Context<'_>) -> Vec<Override> {
    let mut made = Made::new(base);
    let place = item.key("overrides");
    if let Some(list) = cx.shape(&place, &base.raw.overrides) {
        made.read(&place, list, cx);
    }
    let place = item.key("overrides_file");
    if base.raw.overrides_file.is_present() {
        made.seen.clear();
        made.repeated.clear();
        cx.document(&place, &base.raw.overrides_file, |list, cx| {
            made.read(&Place::Root, list, cx)
        });
        let message = match &*made.repeated {
            [] => return made.overrides,
            [keys] => format!("`{keys}` stands in it a second time: the first goes"),
            [keys, more @ ..] => {
                format!(
                    "`{keys}` and {} more stand in it a second time: the first goes",
                    more.len()
                )
            }
        };
        cx.warn(&place, message);
    }
    made.overrides
}

/// What was made of the items so far.
struct Made<'a> {
    base: Base<'a>,
    overrides: Vec<Override>,
    /// Keys that the list at hand has named.
    seen: HashSet<KeyPattern>,
    /// Those that it has named again, as they are written.
    repeated: Vec<String>,
    /// Equal parameters are one policy, for what is held of a policy is held once then. Found by limit and window.
    policies: HashMap<(u64, Duration), Vec<Arc<Policy>>>,
}

impl<'a> Made<'a> {
    fn new(base: Base<'a>) -> Self {
        Self {
            base,
            overrides: Vec::new(),
            seen: HashSet::new(),
            repeated: Vec::new(),
            policies: HashMap::new(),
        }
    }

    fn read(&mut self, place: &Place<'_>, list: &OneOrMany<raw::Override>, cx: &mut Context<'_>) {
        cx.each(place, list, |cx, place, field| self.item(place, field, cx));
    }

    fn item(&mut self, item: &Place<'_>, field: &Field<raw::Override>, cx: &mut Context<'_>) {
        let Some(raw) = cx.mapping(item, field) else { return };
        let terms = self.terms(item, raw, cx);
        let place = item.key("values");
        if !raw.values.is_present() {
            cx.missing(item, "values", "a value of the layer's key, or a list");
        }
        let Some(list) = cx.shape(&place, &raw.values) else {
            return;
        };
        cx.not_empty(&place, list, "at least one value");
        let Base { key, client_ip, .. } = self.base;
        cx.each(&place, list, |cx, place, field| {
            let read = |scalar| pattern(units::text(scalar)?, key, client_ip);
            let Some(keys) = cx.read(place, field, read) else {
                return;
            };
            if !self.seen.insert(keys.clone()) {
                let written = field.value().map(|text| text.scalar().to_string()).unwrap_or_default();
                cx.warn(
                    place,
                    format!("`{written}` stands in an earlier override: the first goes"),
                );
                self.repeated.push(written);
            }
            if let Some(terms) = &terms {
                let terms = terms.clone();
                self.overrides.push(Override { keys, terms });
            }
        });
    }

    /// What an item says of its values; `None` where that is wrong, or cannot be judged.
    fn terms(&mut self, item: &Place<'_>, raw: &raw::Override, cx: &mut Context<'_>) -> Option<Terms> {
        let unlimited = flag(&item.key("unlimited"), &raw.unlimited, cx);
        let deny = flag(&item.key("deny"), &raw.deny, cx);
        const EXPECTED: &str = "expected parameters of the algorithm, `unlimited: true` or `deny: true`";
        match (unlimited?, deny?, !raw.parameters.written().is_empty()) {
            (true, false, false) => Some(Terms::Unlimited),
            (false, true, false) => Some(Terms::Denied),
            (false, false, true) => self.policy(item, &raw.parameters, cx).map(Terms::Policy),
            (false, false, false) => {
                // What is misspelled was told already.
                if raw.other().is_empty() {
                    cx.wrong(item, format!("says nothing of its values, {EXPECTED}"));
                }
                None
            }
            _ => {
                cx.wrong(item, format!("says several things at once, {EXPECTED}"));
                None
            }
        }
    }

    /// The layer's policy with `parameters` in place of its own.
    fn policy(&mut self, item: &Place<'_>, parameters: &Parameters, cx: &mut Context<'_>) -> Option<Arc<Policy>> {
        let (base, cost) = self.base.policy?;
        let layer = self.base.raw;
        let algorithm = algorithm(
            item,
            &layer.algorithm,
            &parameters.over(self.base.parameters),
            self.base.most,
            cx,
        )?;
        if cost > algorithm.limit() {
            let message = format!(
                "the layer's cost of {cost} never fits, expected at least that much to pass at once, not {}",
                algorithm.limit()
            );
            cx.wrong(item, message);
            return None;
        }
        if !can_lease(item, base, &algorithm, cx) || !can_give_back(item, base, &algorithm, cx) {
            return None;
        }
        Some(self.interned(base, algorithm))
    }

    fn interned(&mut self, base: &Policy, algorithm: Algorithm) -> Arc<Policy> {
        let alike = self
            .policies
            .entry((algorithm.limit(), algorithm.window()))
            .or_default();
        if let Some(policy) = alike.iter().find(|policy| *policy.algorithm() == algorithm) {
            return Arc::clone(policy);
        }
        let policy = Arc::new(base.with_algorithm(algorithm));
        alike.push(Arc::clone(&policy));
        policy
    }
}

/// Whether it is `true`; `None` where it is neither.
fn flag(place: &Place<'_>, field: &Field<raw::Flag>, cx: &mut Context<'_>) -> Option<bool> {
    match field.is_present() {
        true => cx.read(place, field, units::flag),
        false => Some(false),
    }
}

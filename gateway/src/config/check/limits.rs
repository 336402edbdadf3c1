//! `limits`.

use std::sync::Arc;

use limiter_core::{OnFailure, Policy, Scope};

use super::{
    super::{
        ClientIp, Cost, Layer, OnMissingKey,
        place::Place,
        raw::{self, Field},
    },
    Names,
    algorithm::algorithm,
    ban::ban,
    charging::{can_charge_all, can_give_back, charge, cost, fits},
    context::{Context, name},
    key::key,
    leased::{self, is_leased, leased, small},
    matching::matches,
    overrides::{Base, overrides},
    responses::rejection,
    store::ON_FAILURE,
    upstreams,
};

/// Decisions name layers in 16 bits.
const MAX_LAYERS: usize = u16::MAX as usize;

/// `on_failure` is what layers do without the store unless they say otherwise; and whether gateways share it.
pub(super) fn limits(
    raw: &raw::Config,
    (on_failure, is_shared): (OnFailure, bool),
    client_ip: &ClientIp,
    cx: &mut Context<'_>,
) -> Vec<Layer> {
    let place = Place::Root.key("limits");
    let mut names = Names::default();
    let around = Around {
        on_failure,
        is_shared,
        upstreams: upstreams::names(raw),
        client_ip,
        has_jwt: raw.jwt.is_present(),
    };
    let mut layers = Vec::new();
    if let Some(list) = cx.shape(&place, &raw.limits) {
        if list.items.len() > MAX_LAYERS {
            cx.wrong(
                &place,
                format!("{} layers, expected at most {MAX_LAYERS}", list.items.len()),
            );
        }
        cx.each(&place, list, |cx, place, field| {
            layers.extend(layer(place, field, &around, &mut names, cx));
        });
    }
    layers
}

/// What the layers need of the rest of the file.
struct Around<'a> {
    on_failure: OnFailure,
    is_shared: bool,
    upstreams: Vec<&'a str>,
    client_ip: &'a ClientIp,
    has_jwt: bool,
}

fn layer(
    place: &Place<'_>,
    field: &Field<raw::Limit>,
    around: &Around<'_>,
    names: &mut Names,
    cx: &mut Context<'_>,
) -> Option<Layer> {
    let raw = cx.mapping(place, field)?;
    let name = cx.required(place, "name", &raw.name, name);
    if let Some(name) = name {
        names.note(name, place, &place.key("name"), cx);
    }
    let key = key(place, raw, around.has_jwt, cx);
    let on_missing = [
        ("ip", OnMissingKey::Ip),
        ("skip", OnMissingKey::Skip),
        ("deny", OnMissingKey::Deny),
    ];
    let on_missing_key = cx.word(&place.key("on_missing_key"), &raw.on_missing_key, &on_missing);
    let matches = matches(&place.key("match"), &raw.r#match, cx);
    let cost = cost(&place.key("cost"), &raw.cost, cx);
    let told = cx.told();
    let most = cost.as_ref().map_or(Some(1), Cost::most);
    let is_leased = is_leased(place, raw, cx);
    let parameters = match is_leased {
        true => raw.parameters.without_lease(),
        false => raw.parameters.clone(),
    };
    let algorithm = algorithm(place, &raw.algorithm, &parameters, most, cx);
    let is_sound = cx.told() == told;
    if let Some((cost, algorithm)) = cost.as_ref().zip(algorithm.as_ref()) {
        fits(&place.key("cost"), cost, algorithm, cx);
    }
    let on_store_failure = cx.word(&place.key("on_store_failure"), &raw.on_store_failure, ON_FAILURE);
    let rejection = rejection(&place.key("rejection"), &raw.rejection, &around.upstreams, cx);
    let ban = ban(&place.key("ban"), &raw.ban, cx);
    let scopes = [("cluster", Scope::Cluster), ("instance", Scope::Instance)];
    let scope = cx.word(&place.key("scope"), &raw.scope, &scopes);
    if scope == Some(Scope::Instance) && raw.on_store_failure.is_present() {
        let message = "the layer is counted in memory, whatever the store does: this has no effect";
        cx.warn(&place.key("on_store_failure"), message);
    }
    let charge = charge(place, raw, cx);
    let terms = match (is_leased, &algorithm, &cost) {
        (true, Some(algorithm), Some(cost)) => {
            let around = leased::Around {
                algorithm,
                cost,
                scope: scope.unwrap_or_default(),
                is_shared: around.is_shared,
            };
            leased(place, raw, &around, cx)
        }
        _ => None,
    };
    let policy = algorithm.zip(charge.as_ref()).map(|(algorithm, (role, statuses))| {
        let on_failure = on_store_failure.unwrap_or(around.on_failure);
        let policy = Policy::new(name.unwrap_or_default(), algorithm, on_failure)
            .with_role(*role)
            .with_scope(scope.unwrap_or_default());
        if !statuses.is_empty() || matches!(cost, Some(Cost::Response { .. })) {
            return policy.giving_back();
        }
        match terms {
            Some(terms) => policy.leased(terms),
            None => policy,
        }
    });
    if let Some(policy) = &policy {
        can_give_back(&place.key("algorithm"), policy, policy.algorithm(), cx);
        small(place, policy, cx);
        can_charge_all(&place.key("charge"), policy.role(), policy.algorithm(), cx);
    }
    let known = cost.as_ref().map(Cost::known);
    let candidate = candidate(&place.key("candidate"), raw, policy.as_ref().zip(known), most, cx);
    let base = Base {
        raw,
        parameters: &parameters,
        key: &key,
        client_ip: around.client_ip,
        policy: policy.as_ref().zip(known).filter(|_| is_sound),
        most,
    };
    let overrides = overrides(place, base, cx);
    name?;
    Some(Layer {
        policy: Arc::new(policy?),
        key,
        on_missing_key: on_missing_key.unwrap_or_default(),
        matches,
        cost: cost?,
        charged_statuses: charge?.1,
        candidate,
        rejection,
        overrides,
        ban,
    })
}

/// What is tried out beside the layer of this policy and cost.
fn candidate(
    place: &Place<'_>,
    raw: &raw::Limit,
    live: Option<(&Policy, u64)>,
    most: Option<u64>,
    cx: &mut Context<'_>,
) -> Option<Arc<Policy>> {
    let raw = cx.mapping(place, &raw.candidate)?;
    let algorithm = algorithm(place, &raw.algorithm, &raw.parameters, most, cx)?;
    let (policy, cost) = live?;
    if cost > algorithm.limit() {
        let message = format!(
            "the layer's cost of {cost} never fits, expected at least that much to pass at once, not {}",
            algorithm.limit()
        );
        cx.wrong(place, message);
    }
    can_give_back(place, policy, &algorithm, cx);
    Some(Arc::new(policy.candidate(algorithm)))
}

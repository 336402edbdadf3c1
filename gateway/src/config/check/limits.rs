//! `limits`.

use std::sync::Arc;

use limiter_core::{OnFailure, Policy, Role};

use super::{
    super::{
        ClientIp, Layer, OnMissingKey,
        place::Place,
        raw::{self, Field, Scalar, Short},
        units,
    },
    Names,
    algorithm::algorithm,
    context::{Context, name, one_of},
    key::key,
    matching::matches,
    overrides::{Base, overrides},
    responses::rejection,
    store::ON_FAILURE,
    upstreams,
};

/// Decisions name layers in 16 bits.
const MAX_LAYERS: usize = u16::MAX as usize;

pub(super) fn limits(
    raw: &raw::Config,
    on_failure: OnFailure,
    client_ip: &ClientIp,
    cx: &mut Context<'_>,
) -> Vec<Layer> {
    let place = Place::Root.key("limits");
    let mut names = Names::default();
    let around = Around {
        on_failure,
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
    let told = cx.told();
    let algorithm = algorithm(place, &raw.algorithm, &raw.parameters, cx);
    let is_sound = cx.told() == told;
    let cost = cost(&place.key("cost"), &raw.cost, cx);
    if let Some((cost, algorithm)) = cost.zip(algorithm.as_ref())
        && cost > algorithm.limit()
    {
        let message = format!(
            "{cost} never fits, expected at most {}, which is all that passes at once",
            algorithm.limit()
        );
        cx.wrong(&place.key("cost"), message);
    }
    let on_store_failure = cx.word(&place.key("on_store_failure"), &raw.on_store_failure, ON_FAILURE);
    let rejection = rejection(&place.key("rejection"), &raw.rejection, &around.upstreams, cx);
    unbuilt(place, raw, cx);
    let role = role(place, raw, cx);
    let policy = algorithm.zip(role).map(|(algorithm, role)| {
        Policy::new(
            name.unwrap_or_default(),
            algorithm,
            on_store_failure.unwrap_or(around.on_failure),
        )
        .with_role(role)
    });
    let candidate = candidate(&place.key("candidate"), raw, policy.as_ref().zip(cost), cx);
    let base = Base {
        raw,
        key: &key,
        client_ip: around.client_ip,
        policy: policy.as_ref().zip(cost).filter(|_| is_sound),
    };
    let overrides = overrides(place, base, cx);
    name?;
    Some(Layer {
        policy: Arc::new(policy?),
        key,
        on_missing_key: on_missing_key.unwrap_or_default(),
        matches,
        cost: cost?,
        candidate,
        rejection,
        overrides,
    })
}

/// What is tried out beside the layer of this policy and cost.
fn candidate(
    place: &Place<'_>,
    raw: &raw::Limit,
    live: Option<(&Policy, u64)>,
    cx: &mut Context<'_>,
) -> Option<Arc<Policy>> {
    let raw = cx.mapping(place, &raw.candidate)?;
    let algorithm = algorithm(place, &raw.algorithm, &raw.parameters, cx)?;
    let (policy, cost) = live?;
    if cost > algorithm.limit() {
        let message = format!(
            "the layer's cost of {cost} never fits, expected at least that much to pass at once, not {}",
            algorithm.limit()
        );
        cx.wrong(place, message);
    }
    Some(Arc::new(policy.candidate(algorithm)))
}

/// Keys of which only the default is built.
fn unbuilt(place: &Place<'_>, raw: &raw::Limit, cx: &mut Context<'_>) {
    cx.only(&place.key("precision"), &raw.precision, "exact", &["leased"]);
    cx.only(&place.key("scope"), &raw.scope, "cluster", &["instance"]);
}

/// What the layer's word counts for, and when it is charged; `None` where that is wrong.
fn role(place: &Place<'_>, raw: &raw::Limit, cx: &mut Context<'_>) -> Option<Role> {
    let modes = [("enforce", Role::Enforced), ("shadow", Role::Shadow)];
    let mode = cx.word(&place.key("mode"), &raw.mode, &modes).unwrap_or_default();
    let place = place.key("charge");
    let charge = match cx.shape(&place, &raw.charge) {
        None if raw.charge.is_present() => return None,
        None => return Some(mode),
        Some(Short::Long(_)) => {
            cx.unsupported(&place, "status", "`allowed` or `all`");
            return None;
        }
        Some(Short::Short(word)) => {
            let choices = [("allowed", Role::Enforced), ("all", Role::ChargedAlways)];
            cx.scalar(&place, word, |scalar| one_of(scalar, &choices))?
        }
    };
    if mode == Role::Shadow && charge == Role::ChargedAlways {
        cx.wrong(
            &place,
            "a shadow refuses nothing that it could be charged for, expected `allowed`",
        );
        return None;
    }
    Some(if mode == Role::Shadow { mode } else { charge })
}

/// Units a request takes, 0 to check and take nothing; 1 where nothing is written, `None` where it is wrong.
fn cost(place: &Place<'_>, field: &Field<Short<raw::Whole, raw::Anything>>, cx: &mut Context<'_>) -> Option<u64> {
    if !field.is_present() {
        return Some(1);
    }
    match cx.shape(place, field)? {
        Short::Short(leaf) => cx.scalar(place, leaf, fixed_cost),
        Short::Long(_) => {
            cx.wrong(
                place,
                "a cost taken from headers is not supported by this version yet, expected a whole number",
            );
            None
        }
    }
}

fn fixed_cost(scalar: &Scalar) -> Result<u64, String> {
    if matches!(scalar, Scalar::Text(text) if text.starts_with("header:")) {
        return Err("a cost taken from headers is not supported by this version yet, expected a whole number".into());
    }
    units::whole(scalar)
}

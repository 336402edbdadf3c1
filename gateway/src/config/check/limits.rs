//! `limits`.

use std::sync::Arc;

use limiter_core::{OnFailure, Policy};

use super::{
    super::{
        Layer, OnMissingKey,
        place::Place,
        raw::{self, Field, Scalar, Short},
        units,
    },
    Names,
    algorithm::algorithm,
    context::{Context, name, one_of},
    key::key,
    matching::matches,
    responses::rejection,
    store::ON_FAILURE,
    upstreams,
};

/// Decisions name layers in 16 bits.
const MAX_LAYERS: usize = u16::MAX as usize;

pub(super) fn limits(raw: &raw::Config, on_failure: OnFailure, cx: &mut Context<'_>) -> Vec<Layer> {
    let place = Place::Root.key("limits");
    let mut names = Names::default();
    let upstreams = upstreams::names(raw);
    let mut layers = Vec::new();
    if let Some(list) = cx.shape(&place, &raw.limits) {
        if list.items.len() > MAX_LAYERS {
            cx.wrong(
                &place,
                format!("{} layers, expected at most {MAX_LAYERS}", list.items.len()),
            );
        }
        cx.each(&place, list, |cx, place, field| {
            layers.extend(layer(place, field, on_failure, &upstreams, &mut names, cx));
        });
    }
    layers
}

fn layer(
    place: &Place<'_>,
    field: &Field<raw::Limit>,
    on_failure: OnFailure,
    upstreams: &[&str],
    names: &mut Names,
    cx: &mut Context<'_>,
) -> Option<Layer> {
    let raw = cx.mapping(place, field)?;
    let name = cx.required(place, "name", &raw.name, name);
    if let Some(name) = name {
        names.note(name, place, &place.key("name"), cx);
    }
    let key = key(place, raw, cx);
    let on_missing = [
        ("ip", OnMissingKey::Ip),
        ("skip", OnMissingKey::Skip),
        ("deny", OnMissingKey::Deny),
    ];
    let on_missing_key = cx.word(&place.key("on_missing_key"), &raw.on_missing_key, &on_missing);
    let matches = matches(&place.key("match"), &raw.r#match, cx);
    let algorithm = algorithm(place, raw, cx);
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
    let rejection = rejection(&place.key("rejection"), &raw.rejection, upstreams, cx);
    unbuilt(place, raw, cx);
    let policy = Policy::new(name?, algorithm?, on_store_failure.unwrap_or(on_failure));
    Some(Layer {
        policy: Arc::new(policy),
        key,
        on_missing_key: on_missing_key.unwrap_or_default(),
        matches,
        cost: cost?,
        rejection,
    })
}

/// Keys of which only the default is built.
fn unbuilt(place: &Place<'_>, raw: &raw::Limit, cx: &mut Context<'_>) {
    cx.only(&place.key("mode"), &raw.mode, "enforce", &["shadow"]);
    cx.only(&place.key("precision"), &raw.precision, "exact", &["leased"]);
    cx.only(&place.key("scope"), &raw.scope, "cluster", &["instance"]);
    let charge = place.key("charge");
    match cx.shape(&charge, &raw.charge) {
        Some(Short::Short(word)) => {
            let choices = [("allowed", "allowed"), ("all", "all")];
            let word = cx.scalar(&charge, word, |scalar| one_of(scalar, &choices));
            if word == Some("all") {
                cx.unsupported(&charge, "all", "`allowed`");
            }
        }
        Some(Short::Long(_)) => cx.unsupported(&charge, "status", "`allowed`"),
        None => {}
    }
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

//! Raw → checked: every problem at once.
//!
//! Each function reads one section, tells the [`Context`] what is wrong and goes on with what is right. What it returns
//! is only used when nothing was wrong anywhere, so the stand-ins for wrong values are never seen.

mod algorithm;
mod ban;
mod charging;
mod context;
mod fixed_window;
mod jwt;
mod key;
mod leased;
mod limits;
mod listeners;
mod matching;
mod overrides;
mod responses;
mod routes;
mod sections;
mod store;
mod upstreams;

use std::collections::HashMap;

pub(super) use context::Context;

use super::{Config, Store, description, place::Place, raw, warnings};

/// The checked configuration; `None` where something was wrong, which `cx` knows.
pub(super) fn check(raw: &raw::Config, cx: &mut Context<'_>) -> Option<Config> {
    let root = Place::Root;
    cx.unknown_keys(&root, raw);
    let listen = listeners::listen(raw, cx);
    let admin = listeners::admin(raw, cx);
    listeners::distinct(&listen, &admin, raw, cx);
    let (store, on_failure) = store::store(raw, cx);
    let is_shared = matches!(store, Store::Redis(_));
    let upstreams = upstreams::upstreams(raw, cx);
    let client_ip = sections::client_ip(raw, cx);
    let mut config = Config {
        files: Vec::new(),
        warnings: Vec::new(),
        descriptions: Vec::new(),
        listen,
        admin,
        store,
        routes: routes::routes(raw, cx),
        jwt: jwt::jwt(raw, cx),
        limits: limits::limits(raw, (on_failure, is_shared), &client_ip, cx),
        client_ip,
        responses: responses::responses(raw, cx),
        server: sections::server(raw, cx),
        log: sections::log(raw, cx),
        upstreams,
    };
    if !cx.is_clean() {
        return None;
    }
    warnings::find(raw, &config, cx);
    config.descriptions = description::describe(raw, &config);
    config.files = cx.take_files();
    config.warnings = cx.take_warnings();
    Some(config)
}

/// Finds names that are used twice in a section.
#[derive(Debug, Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// Notes the name of the item at `item`, which stands at `place`; tells of one that was there before.
    fn note(&mut self, name: &str, item: &Place<'_>, place: &Place<'_>, cx: &mut Context<'_>) {
        match self.0.get(name) {
            Some(first) => cx.wrong(
                place,
                format!("`{name}` is the name of {first} too, expected another name"),
            ),
            None => {
                self.0.insert(name.to_owned(), item.to_string());
            }
        }
    }
}

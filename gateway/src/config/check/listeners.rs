//! `listen` and `admin`.

use std::net::{Ipv4Addr, SocketAddr};

use super::{
    super::{
        Admin,
        place::Place,
        raw::{self, Short},
        units,
    },
    context::{Context, address},
};

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

pub(super) fn listen(raw: &raw::Config, cx: &mut Context<'_>) -> Vec<SocketAddr> {
    let place = Place::Root.key("listen");
    let Some(list) = cx.shape(&place, &raw.listen) else {
        return vec![DEFAULT_LISTEN];
    };
    cx.not_empty(&place, list, "at least one address");
    let mut addresses: Vec<SocketAddr> = Vec::new();
    cx.each(&place, list, |cx, place, field| {
        let Some(item) = cx.shape(place, field) else { return };
        let address = match item {
            Short::Short(leaf) => cx.scalar(place, leaf, address),
            Short::Long(listener) => {
                cx.unknown_keys(place, listener);
                cx.only(&place.key("mode"), &listener.mode, "proxy", &["check"]);
                cx.required(place, "address", &listener.address, address)
            }
        };
        let Some(address) = address else { return };
        if addresses.contains(&address) && address.port() != 0 {
            cx.wrong(
                place,
                format!("`{address}` stands here a second time, expected it once"),
            );
        } else if let Some(other) = addresses.iter().find(|other| meet(**other, address)) {
            cx.wrong(
                place,
                format!("`{address}` and `{other}` cover each other, expected one of them"),
            );
        }
        addresses.push(address);
    });
    addresses
}

pub(super) fn admin(raw: &raw::Config, cx: &mut Context<'_>) -> Admin {
    let place = Place::Root.key("admin");
    let mut admin = Admin {
        address: DEFAULT_ADMIN,
        token: None,
    };
    match cx.shape(&place, &raw.admin) {
        None => {}
        Some(Short::Short(leaf)) => {
            if let Some(address) = cx.scalar(&place, leaf, address) {
                admin.address = address;
                needs_token(&place, address, cx);
            }
        }
        Some(Short::Long(long)) => {
            cx.unknown_keys(&place, long);
            if let Some(address) = cx.read(&place.key("address"), &long.address, address) {
                admin.address = address;
                if !long.token.is_present() {
                    needs_token(&place.key("address"), address, cx);
                }
            }
            admin.token = cx.read(&place.key("token"), &long.token, token).map(str::to_owned);
        }
    }
    admin
}

fn needs_token(place: &Place<'_>, address: SocketAddr, cx: &mut Context<'_>) {
    if !address.ip().is_loopback() {
        cx.wrong(
            place,
            format!(
                "`{address}` can be reached from outside, expected `{{address: \"{address}\", token: …}}` or 127.0.0.1"
            ),
        );
    }
}

/// A bearer token; never shown.
fn token(scalar: &raw::Scalar) -> Result<&str, String> {
    match units::text(scalar).map_err(|_| "is not a text, expected one in quotes".to_owned())? {
        "" => Err("is empty, expected a token".into()),
        token if token.bytes().all(|b| b.is_ascii_graphic()) => Ok(token),
        _ => Err("has characters that a header cannot carry, expected visible ASCII".into()),
    }
}

/// No two listeners can have one address.
pub(super) fn distinct(listen: &[SocketAddr], admin: &Admin, raw: &raw::Config, cx: &mut Context<'_>) {
    let address = admin.address;
    if let Some(other) = listen.iter().find(|other| meet(**other, address)) {
        let key = if raw.admin.is_present() { "admin" } else { "listen" };
        let message = if *other == address {
            format!("`{address}` is both `listen` and `admin`, expected different addresses")
        } else {
            format!("`listen` at `{other}` and `admin` at `{address}` cover each other, expected different ports")
        };
        cx.wrong(&Place::Root.key(key), message);
    }
}

/// Whether two listeners would have one address: a wildcard has all of them, and the one of IPv6 those of IPv4 as well.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |wide: SocketAddr, narrow: SocketAddr| {
        wide.ip().is_unspecified() && (wide.is_ipv6() || wide.is_ipv4() == narrow.is_ipv4())
    };
    one.port() == other.port() && one.port() != 0 && (one == other || covers(one, other) || covers(other, one))
}

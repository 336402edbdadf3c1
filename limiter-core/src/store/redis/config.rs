//! How to reach Redis.

use std::{fmt, num::NonZeroU16, str::FromStr, time::Duration};

use super::{
    tls::Tls,
    url::{RedisUrl, UrlError},
};
use crate::store::StoreError;

/// How to reach Redis, and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfig {
    /// Which servers.
    pub servers: Servers,
    /// How the servers that hold the counters let us in.
    pub access: Access,
    /// Deadline of one decision, waiting included. Zero fails every decision.
    pub timeout: Duration,
    /// Connections to each server; 0 counts as 1. More than one, so that a stuck one does not stop all.
    pub connections: usize,
    /// Begins every key, followed by a colon. Processes that share it, and a policy's name, share counters.
    pub prefix: String,
}

impl RedisConfig {
    /// What a [URL](RedisUrl) says, and for the rest: 50 ms, 2 connections, prefix `gw`, for `rediss` the certificates
    /// that the system trusts.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the text is no such URL, or the system has no certificates.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let config = |text: String| StoreError::Config(text.into());
        let mut url: RedisUrl = url.parse().map_err(|error: UrlError| config(error.to_string()))?;
        if url.secure {
            url.set_tls(&Tls::with_system_roots().map_err(|error| config(error.to_string()))?);
        }
        let RedisUrl { servers, access, .. } = url;
        Ok(Self {
            servers,
            access,
            timeout: Duration::from_millis(50),
            connections: 2,
            prefix: "gw".to_owned(),
        })
    }
}

/// Which servers hold the counters, and how they are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One server.
    Standalone(Address),
    /// A primary that sentinels watch, and replace by a replica where it fails.
    Sentinel {
        /// The sentinels, at least one.
        sentinels: Vec<Address>,
        /// The name that the sentinels have for the primary.
        service: String,
        /// How the sentinels let us in.
        access: Access,
    },
    /// A cluster. At least one of its nodes; the others are learnt from it.
    Cluster(Vec<Address>),
}

impl fmt::Display for Servers {
    /// Fit for a log: addresses only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, addresses: &[Address]| {
            for (i, address) in addresses.iter().enumerate() {
                write!(f, "{}{address}", if i == 0 { "" } else { "," })?;
            }
            Ok(())
        };
        match self {
            Self::Standalone(address) => address.fmt(f),
            Self::Sentinel { sentinels, service, .. } => {
                write!(f, "{service}, of the sentinels ")?;
                list(f, sentinels)
            }
            Self::Cluster(nodes) => {
                f.write_str("the cluster of ")?;
                list(f, nodes)
            }
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name, an IPv4 address, or an IPv6 address without brackets. With TLS, the certificate must be for it.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

impl Address {
    /// An address of its two parts, which are not checked.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
        }
    }

    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port`.
    pub(super) fn parse(text: &str, default_port: u16) -> Result<Self, AddressError> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(text) => {
                let (host, rest) = text.split_once(']').ok_or(AddressError::Host)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| AddressError::Host)?;
                (host, rest)
            }
            None => {
                let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                if host.is_empty() {
                    return Err(AddressError::NoHost);
                }
                if !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
                    return Err(AddressError::Host);
                }
                (host, rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => default_port,
            None => return Err(AddressError::Host),
            // Without the check of the digits, a sign would do.
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse::<NonZeroU16>().map_err(|_| AddressError::Port)?.get()
            }
            Some(_) => return Err(AddressError::Port),
        };
        Ok(Self::new(host, port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `host:port` or `[v6]:port`; port 6379 where none is said.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text, super::url::PORT)
    }
}

/// Why a text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Nothing before the port.
    #[error("a host is missing")]
    NoHost,
    /// Not a name or an IP address.
    #[error("a host is not a name, an IPv4 address, or an IPv6 address in brackets")]
    Host,
    /// Not a port.
    #[error("a port is not a number from 1 to 65535")]
    Port,
}

/// How a server lets us in.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The user of the ACL; `default` where none is said. Says nothing without a password.
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// The database that holds the counters. 0 in a cluster.
    pub database: u8,
    /// Whether the connection is encrypted, and whom we trust.
    pub tls: Option<Tls>,
}

impl fmt::Debug for Access {
    /// Shows no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("tls", &self.tls)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, host, port) in [
            ("redis.internal:6380", "redis.internal", 6380),
            ("10.0.0.9", "10.0.0.9", 6379),
            ("[::1]:1", "::1", 1),
            ("[fe80::1]", "fe80::1", 6379),
            ("a_b-c", "a_b-c", 6379),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address, Address::new(host, port), "{text}");
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        assert_eq!(Address::new("::1", 6379).to_string(), "[::1]:6379");
    }

    #[test]
    fn what_is_no_address_is_told() {
        use AddressError::{Host, NoHost, Port};
        for (text, error) in [
            ("", NoHost),
            (":6379", NoHost),
            ("a b", Host),
            ("::1", NoHost),
            ("a::1", Port),
            ("[::1", Host),
            ("[::1]6379", Host),
            ("[10.0.0.1]", Host),
            ("h:", Port),
            ("h:0", Port),
            ("h:+1", Port),
            ("h:65536", Port),
            ("h:port", Port),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let config =
            RedisConfig::from_url("redis-sentinel://u:hunter2@h/n?sentinel_user=s&sentinel_password=hunter2").unwrap();
        let text = format!("{config:?} {}", config.servers);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(r#"username: Some("u")"#), "{text}");
        assert!(text.ends_with("n, of the sentinels h:26379"), "{text}");
    }
}

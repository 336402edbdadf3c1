//! The forms of URL that Redis is named by.

use std::str::FromStr;

use super::{
    config::{Access, Address, AddressError, Servers},
    tls::Tls,
};

/// Where a server listens unless the URL says otherwise.
pub(super) const PORT: u16 = 6379;
/// The same, of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// What a URL says of Redis:
///
/// - `redis://[user:pass@]host[:port][/db]`
/// - `redis-sentinel://[user:pass@]host[:port][,host[:port]…]/NAME[?db=0&sentinel_user=…&sentinel_password=…]`, with
///   the addresses of the sentinels, and the name that they have for the primary
/// - `redis-cluster://[user:pass@]host[:port][,host[:port]…]`, with the addresses of some nodes
///
/// and each with `rediss` for TLS. User, password and values are percent-encoded; IPv6 addresses stand in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// Which servers.
    pub servers: Servers,
    /// How they let us in; without TLS as yet.
    pub access: Access,
    /// Whether the connections are to be encrypted: [`RedisUrl::set_tls`].
    pub secure: bool,
}

impl RedisUrl {
    /// Encrypts the connections, those to sentinels too.
    pub fn set_tls(&mut self, tls: &Tls) {
        self.access.tls = Some(tls.clone());
        if let Servers::Sentinel { access, .. } = &mut self.servers {
            access.tls = Some(tls.clone());
        }
    }
}

/// Why a text is no [`RedisUrl`]. Shows nothing of the text but the scheme: the rest may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// No `://`.
    #[error("is not a URL")]
    NotAUrl,
    /// The scheme is none of ours.
    #[error("`{0}://` is not Redis")]
    Scheme(String),
    /// A character that ends a part of the URL stands in a user, a password or a value.
    #[error("in a user, a password or a value, `/`, `?`, `#` and `@` must be percent-encoded")]
    Unencoded,
    /// A percent-encoding that cannot be decoded.
    #[error("a `%` is not followed by two hexadecimal digits, or what they encode is not UTF-8")]
    Encoding,
    /// A user alone.
    #[error("it names a user without a password")]
    NoPassword,
    /// An address that is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// More than one address where one is due.
    #[error("it names several hosts: that needs `redis-cluster://` or `redis-sentinel://`")]
    SeveralHosts,
    /// Not a number of a database.
    #[error("the database is not a number from 0 to 255")]
    Database,
    /// A database, of a cluster.
    #[error("a cluster has no databases but 0")]
    ClusterDatabase,
    /// Sentinels, but of what?
    #[error("the name that the sentinels have for the primary is missing after the `/`")]
    NoService,
    /// Parameters where there are none.
    #[error("nothing may follow a `?` but in `redis-sentinel://` and `rediss-sentinel://`")]
    Parameters,
    /// A parameter that there is not.
    #[error("a parameter is none of `db`, `sentinel_user` and `sentinel_password`")]
    Parameter,
    /// A parameter twice.
    #[error("the parameter `{0}` occurs twice")]
    Repeated(&'static str),
}

impl FromStr for RedisUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NotAUrl)?;
        // What is no scheme may be a secret.
        if !scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
            return Err(UrlError::NotAUrl);
        }
        let (secure, kind) = kind(scheme).ok_or_else(|| UrlError::Scheme(scheme.to_owned()))?;
        let Parts {
            credentials,
            hosts,
            path,
            query,
        } = Parts::split(rest)?;
        let mut access = credentials.map_or(Ok(Access::default()), self::credentials)?;
        let servers = match kind {
            Kind::Standalone => {
                if hosts.contains(',') {
                    return Err(UrlError::SeveralHosts);
                }
                access.database = database(path)?;
                Servers::Standalone(Address::parse(hosts, PORT)?)
            }
            Kind::Cluster => {
                if database(path)? != 0 {
                    return Err(UrlError::ClusterDatabase);
                }
                Servers::Cluster(addresses(hosts, PORT)?)
            }
            Kind::Sentinel => {
                let sentinels = addresses(hosts, SENTINEL_PORT)?;
                let service = decoded(path)?;
                if service.is_empty() {
                    return Err(UrlError::NoService);
                }
                let parameters = Parameters::read(query.unwrap_or(""))?;
                access.database = parameters.database.map_or(Ok(0), database)?;
                Servers::Sentinel {
                    sentinels,
                    service,
                    access: login(
                        decoded(parameters.user.unwrap_or(""))?,
                        decoded(parameters.password.unwrap_or(""))?,
                    )?,
                }
            }
        };
        if query.is_some() && kind != Kind::Sentinel {
            return Err(UrlError::Parameters);
        }
        Ok(Self {
            servers,
            access,
            secure,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Standalone,
    Sentinel,
    Cluster,
}

/// Whether a scheme means TLS, and what is behind it.
fn kind(scheme: &str) -> Option<(bool, Kind)> {
    let (base, kind) = match scheme.split_once('-') {
        None => (scheme, Kind::Standalone),
        Some((base, "sentinel")) => (base, Kind::Sentinel),
        Some((base, "cluster")) => (base, Kind::Cluster),
        Some(_) => return None,
    };
    match base {
        "redis" => Some((false, kind)),
        "rediss" => Some((true, kind)),
        _ => None,
    }
}

/// `[credentials@]hosts[/path][?query]`
struct Parts<'a> {
    credentials: Option<&'a str>,
    hosts: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, UrlError> {
        let (authority, after) = text.split_at(text.find(['/', '?']).unwrap_or(text.len()));
        // A `#` would begin a fragment, which means nothing here.
        if text.contains('#') || after.contains('@') {
            return Err(UrlError::Unencoded);
        }
        let (path, query) = match after.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (after, None),
        };
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        Ok(Self {
            credentials,
            hosts,
            path: path.strip_prefix('/').unwrap_or(path),
            query,
        })
    }
}

fn credentials(text: &str) -> Result<Access, UrlError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    login(decoded(user)?, decoded(password)?)
}

/// Both empty means neither: a password that is put in from outside may be empty where none is needed.
fn login(username: String, password: String) -> Result<Access, UrlError> {
    if password.is_empty() && !username.is_empty() {
        return Err(UrlError::NoPassword);
    }
    let given = |text: String| (!text.is_empty()).then_some(text);
    Ok(Access {
        username: given(username),
        password: given(password),
        ..Access::default()
    })
}

fn addresses(list: &str, default_port: u16) -> Result<Vec<Address>, AddressError> {
    list.split(',').map(|text| Address::parse(text, default_port)).collect()
}

fn database(text: &str) -> Result<u8, UrlError> {
    match text {
        "" => Ok(0),
        // Without this, a sign would do.
        _ if !text.bytes().all(|b| b.is_ascii_digit()) => Err(UrlError::Database),
        _ => text.parse().map_err(|_| UrlError::Database),
    }
}

/// What follows the `?`, not yet decoded.
#[derive(Default)]
struct Parameters<'a> {
    database: Option<&'a str>,
    user: Option<&'a str>,
    password: Option<&'a str>,
}

impl<'a> Parameters<'a> {
    fn read(query: &'a str) -> Result<Self, UrlError> {
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, place) = match name {
                "db" => ("db", &mut parameters.database),
                "sentinel_user" => ("sentinel_user", &mut parameters.user),
                "sentinel_password" => ("sentinel_password", &mut parameters.password),
                _ => return Err(UrlError::Parameter),
            };
            if place.replace(value).is_some() {
                return Err(UrlError::Repeated(name));
            }
        }
        Ok(parameters)
    }
}

/// Decodes `%41` and the like.
fn decoded(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (high, low) = digit().zip(digit()).ok_or(UrlError::Encoding)?;
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| UrlError::Encoding)?);
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding)
}

#[cfg(test)]
mod tests;

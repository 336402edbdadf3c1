//! The checked configuration: what `gateway.yaml` says, with every reference resolved and every value in its unit.
//!
//! `raw` mirrors the file, `check` turns it into these types and reports every problem at once, `error` says where.

mod check;
mod cost;
mod description;
mod document;
mod env;
mod error;
mod files;
mod index;
mod overrides;
mod place;
mod raw;
mod responses;
mod schema;
mod suggest;
mod terms;
#[cfg(test)]
mod tests;
mod units;
mod upstream;
mod warnings;

use std::{fmt, fs::File, io::Read, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;
use limiter_core::{Access, BanRule, Policy, Servers};

use crate::{
    jwt,
    path::{Glob, Template},
    rejection::Rejection,
};

pub use cost::Cost;
pub use description::Description;
pub use document::MAX_BYTES;
pub use error::{ConfigError, Problem, Spot, render_warnings};
pub use files::UsedFile;
pub use overrides::Overrides;
pub use responses::{LegacyReset, Responses};
pub use schema::{docs, schema};
pub use terms::{KeyPattern, KeyValue, Override, Terms};
pub use upstream::{AdaptiveConcurrency, Endpoint, Upstream};

/// Reads and checks a file.
///
/// # Errors
/// Every problem of the file at once, each with its place.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    parse(&path.display().to_string(), &read(path)?)
}

/// Reads a file, bounded.
///
/// # Errors
/// Where it cannot be read, is too large, or is not UTF-8.
pub fn read(path: &Path) -> Result<Arc<str>, ConfigError> {
    let unreadable =
        |error: std::io::Error| ConfigError::whole_file(path.display().to_string(), format!("cannot be read: {error}"));
    let mut bytes = Vec::new();
    // A pipe would be waited for, and with it every later change of the file.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(ConfigError::whole_file(
            path.display().to_string(),
            "is not a file, expected one",
        ));
    }
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    decode(path, bytes)
}

/// The text of the file at `path`, which holds `bytes`.
///
/// # Errors
/// Where it is too large, or is not UTF-8.
pub fn decode(path: &Path, bytes: Vec<u8>) -> Result<Arc<str>, ConfigError> {
    let name = path.display().to_string();
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ConfigError::whole_file(name, document::too_large()));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..at].split(|byte| *byte == b'\n').count();
            Err(ConfigError::whole_file(
                name,
                format!("is not UTF-8, first at line {line}"),
            ))
        }
    }
}

/// Checks the text of a file called `file`; the files that it names are looked for from its folder on, and variables are taken from the process's environment.
///
/// # Errors
/// Every problem of the text at once, each with its place.
pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    parse_with(file, text, &|name| std::env::var(name).ok())
}

/// As [`parse`], with variables from `lookup`.
///
/// # Errors
/// Every problem of the text at once, each with its place.
pub fn parse_with(file: &str, text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    // Editors of Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut problems = Vec::new();
    let document = match document::read(text, "a configuration", lookup, &mut problems) {
        Ok(document) => document,
        Err(problem) => {
            problems.push(problem);
            return Err(ConfigError::new(file, text, problems));
        }
    };
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut cx = check::Context::new(&document.index, folder, lookup, problems, document.unreplaced);
    let checked = match raw::Field::<raw::Config>::read(document.value) {
        raw::Field::Is(raw) => check::check(&raw, &mut cx),
        wrong => {
            cx.whole(&wrong);
            None
        }
    };
    checked.ok_or_else(|| cx.into_error(file, text))
}

/// A whole `gateway.yaml`, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that serve traffic. At least one.
    pub listen: Vec<SocketAddr>,
    /// The admin listener.
    pub admin: Admin,
    /// Where counters live.
    pub store: Store,
    /// How the client's address is found.
    pub client_ip: ClientIp,
    /// Named groups of endpoints.
    pub upstreams: Vec<Upstream>,
    /// Where requests go.
    pub routes: Vec<Route>,
    /// The layers, in the order in which they are checked.
    pub limits: Vec<Layer>,
    /// What the file says of each of them.
    pub descriptions: Vec<Description>,
    /// Which tokens are believed, where layers count by claims.
    pub jwt: Option<jwt::Settings>,
    /// How answers look.
    pub responses: Responses,
    /// Bounds of the listeners.
    pub server: Server,
    /// The log.
    pub log: Log,
    /// The files that it names.
    pub files: Vec<UsedFile>,
    /// What is right, but hardly what was meant; in the order of the file.
    pub warnings: Vec<Problem>,
}

/// `admin`.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// Its address. Default: `127.0.0.1:9090`.
    pub address: SocketAddr,
    /// What calls that change something must bear.
    pub token: Option<String>,
}

// The token stays out of logs.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// `store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// In this process.
    Memory {
        /// Counters held at most. Default: 1,000,000.
        max_keys: usize,
    },
    /// In Redis.
    Redis(Box<Redis>),
}

/// `store.redis`.
#[derive(Clone, PartialEq, Eq)]
pub struct Redis {
    /// `url`: which servers.
    pub servers: Servers,
    /// `url` and `tls`: how they let us in.
    pub access: Access,
    /// Deadline of one decision, waiting included. Default: 50 ms.
    pub timeout: Duration,
    /// Default: 2.
    pub connections: usize,
    /// Begins every key. Default: `gw`.
    pub prefix: String,
    /// Key of the HMAC that replaces secret and long values.
    pub key_secret: Option<String>,
}

// The secret stays out of logs.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("servers", &self.servers)
            .field("access", &self.access)
            .field("timeout", &self.timeout)
            .field("connections", &self.connections)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// `client_ip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Peers whose forwarding header is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Which header they send.
    pub header: ForwardingHeader,
    /// Bits of an IPv4 address that are counted apart. Default: 32.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address that are counted apart. Default: 64.
    pub ipv6_prefix: u8,
}

/// The header that trusted proxies send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// `x-forwarded-for`.
    #[default]
    XForwardedFor,
    /// `forwarded` (RFC 7239).
    Forwarded,
}

/// An entry of `routes`.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name: unique among those that are written. The path where none is, which routes that differ in methods or
    /// hosts may share.
    pub name: Arc<str>,
    /// `/v1/orders/{id}`, `/{*rest}`.
    pub path: Template,
    /// Empty: every method.
    pub methods: Vec<Method>,
    /// Lower case, without port. Empty: every host.
    pub hosts: Vec<String>,
    /// What becomes of the request.
    pub target: Target,
    /// Instead of the upstream's `timeout`.
    pub timeout: Option<Duration>,
    /// Orders shedding: the lowest goes first. -1000 to 1000. Default: 0.
    pub priority: i32,
}

/// What becomes of a request that a route takes.
#[derive(Clone, Debug)]
pub enum Target {
    /// An index into [`Config::upstreams`].
    Upstream(usize),
    /// A fixed answer.
    Respond(Respond),
}

/// `respond`.
#[derive(Clone, Debug)]
pub struct Respond {
    /// Default: 200.
    pub status: StatusCode,
    /// Default: empty.
    pub body: String,
    /// Added to the answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// An entry of `limits`.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Name, algorithm and failure policy, for the limiter.
    pub policy: Arc<Policy>,
    /// What is counted apart: at least one part.
    pub key: Vec<KeyPart>,
    /// Where a part of the key is absent, empty or blank.
    pub on_missing_key: OnMissingKey,
    /// Where it applies.
    pub matches: Match,
    /// Units a request takes.
    pub cost: Cost,
    /// Only requests that are answered with one of these stay charged. Empty: with anything.
    pub charged_statuses: Vec<StatusCode>,
    /// Tried out beside it.
    pub candidate: Option<Arc<Policy>>,
    /// What a request gets that it refuses. `None`: as [`Responses`] say.
    pub rejection: Option<Rejection>,
    /// Other terms for some of its keys. Of those for one key the first goes; exact ones before prefixes, longer prefixes
    /// before shorter ones, and all of these before ranges of addresses.
    pub overrides: Vec<Override>,
    /// When it bans a key, and for how long.
    pub ban: Option<Arc<BanRule>>,
}

/// A part of a layer's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// `global`
    Global,
    /// `ip`
    Ip,
    /// `path`: the normalised path.
    Path,
    /// `route`: the route's name.
    Route,
    /// `method`
    Method,
    /// `host`: lower case, without port.
    Host,
    /// `header:NAME`
    Header {
        /// Its name.
        name: HeaderName,
        /// Whether its values must not be seen (authorization, cookie, anything with key, token or secret).
        secret: bool,
    },
    /// `cookie:NAME`. Its values are always secret.
    Cookie(String),
    /// `query:NAME`
    Query {
        /// Its name, decoded.
        name: String,
        /// Whether its values must not be seen.
        secret: bool,
    },
    /// `jwt:CLAIM`, of a verified bearer token.
    Jwt {
        /// The claim's name.
        claim: String,
        /// Whether its values must not be seen.
        secret: bool,
    },
}

/// `on_missing_key`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingKey {
    /// The client's address, in a name space of its own.
    #[default]
    Ip,
    /// The layer does not apply.
    Skip,
    /// 403.
    Deny,
}

/// `match`. Every condition given must hold; an empty list is a condition not given.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// Any of these.
    pub paths: Vec<Glob>,
    /// Any of these.
    pub methods: Vec<Method>,
    /// Any of these, lower case, without port.
    pub hosts: Vec<String>,
    /// All of these, each with exactly this value.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Any of these holds the client's address.
    pub ips: Vec<IpNet>,
    /// This, as a whole, must not hold.
    pub not: Option<Box<Match>>,
}

/// `server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// For a request head to arrive whole. Default: 10 s.
    pub header_timeout: Duration,
    /// Of a connection between requests. Default: 75 s.
    pub idle_timeout: Duration,
    /// Default: 32 KiB.
    pub max_header_bytes: usize,
    /// Over all listeners. Default: 20,000.
    pub max_connections: usize,
    /// How long requests in flight may take to end after SIGTERM. Default: 30 s.
    pub drain: Duration,
    /// 0: one a core, the default.
    pub workers: usize,
}

/// `log`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Default: text.
    pub format: LogFormat,
    /// A line a request. Default: true.
    pub access: bool,
    /// Least severe level that is written. Default: info.
    pub level: tracing::Level,
}

/// `log.format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: an object a line.
    Json,
}

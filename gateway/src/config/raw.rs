//! The mirror of `gateway.yaml`: its keys and the shape of their values, nothing of their meaning.
//!
//! Every value is a [`Field`], which keeps what is wrong with it instead of failing, so that `check` can tell of every
//! problem at once. `later` lists keys of the contract that this version knows by name and refuses.

mod field;

pub(super) use field::{Field, Leaf, Mapping, Named, OneOrMany, Scalar, Shape, Short, key_text};

use field::{leaf, mapping};
use serde_yaml::Value;

leaf! {
    /// Any text.
    Text: "a text";
    /// A name of the file's own.
    Name: "a name of letters, digits, `_`, `.` and `-`";
    /// `true` or `false`.
    Flag: "`true` or `false`";
    /// A whole number.
    Whole: "a whole number";
    /// A time.
    Span: "a duration such as `250ms`, `10s` or `1h`";
    /// So many in a time.
    Rate: "a rate such as `100/s` or `3/10s`";
    /// Bytes.
    Size: "a size such as `64KiB`";
    /// IP address and port.
    Address: "an address such as `127.0.0.1:8080`";
    /// `http://host:port`.
    Url: "a URL such as `http://127.0.0.1:8000`";
    /// `redis://host:port/db`.
    RedisUrl: "a URL such as `redis://127.0.0.1:6379/0`";
    /// An address range.
    Cidr: "an address range such as `10.0.0.0/8`";
    /// A path, a path template or a glob.
    PathText: "a path such as `/v1/orders`";
    /// An HTTP method.
    Verb: "an HTTP method such as `GET`";
    /// One of a few words.
    Word: "a word";
    /// A part of a key.
    KeyText: "a key such as `ip` or `header:x-user-id`";
}

/// Anything: what stands at a key that is only known by name.
#[derive(Debug)]
pub(super) struct Anything;

impl Shape for Anything {
    fn expected() -> String {
        "a value".into()
    }

    fn read(_: Value) -> Option<Self> {
        Some(Self)
    }
}

mapping! {
    /// The whole file.
    Config: "a mapping with keys such as `listen`, `upstreams`, `routes` and `limits`" {
        listen: OneOrMany<Short<Address, Listener>>,
        admin: Short<Address, Admin>,
        store: Short<Word, Store>,
        client_ip: ClientIp,
        upstreams: Named<Upstream>,
        routes: OneOrMany<Route>,
        limits: OneOrMany<Limit>,
        responses: Responses,
        server: Server,
        log: Log,
    } later [jwt, tracing]
}

mapping! {
    /// An item of `listen`.
    Listener: "an address such as `127.0.0.1:8080`, or a mapping with `address`" {
        address: Address,
        mode: Word,
    } later [tls, proxy_protocol]
}

mapping! {
    /// `admin`.
    Admin: "an address such as `127.0.0.1:9090`, or a mapping with `address` and `token`" {
        address: Address,
        token: Text,
    } later []
}

mapping! {
    /// `store`.
    Store: "`memory`, or a mapping with `memory` or `redis`" {
        memory: Memory,
        redis: Redis,
    } later []
}

mapping! {
    /// `store.memory`.
    Memory: "a mapping with `max_keys`" {
        max_keys: Whole,
    } later []
}

mapping! {
    /// `store.redis`.
    Redis: "a mapping with `url`" {
        url: RedisUrl,
        timeout: Span,
        connections: Whole,
        prefix: Text,
        key_secret: Text,
        on_failure: Word,
    } later [tls]
}

mapping! {
    /// `client_ip`.
    ClientIp: "a mapping with `trusted_proxies`" {
        trusted_proxies: OneOrMany<Cidr>,
        header: Word,
        ipv4_prefix: Whole,
        ipv6_prefix: Whole,
    } later []
}

mapping! {
    /// `upstreams.NAME`.
    Upstream: "a mapping with `endpoints`" {
        endpoints: OneOrMany<Short<Url, Endpoint>>,
        balance: Word,
        protocol: Word,
        connect_timeout: Span,
        timeout: Span,
        idle_timeout: Span,
        max_connections: Whole,
    } later [hash_key, tls, health, circuit_breaker, retries, ejection, adaptive_concurrency]
}

mapping! {
    /// An item of `endpoints`.
    Endpoint: "a URL such as `http://127.0.0.1:8000`, or a mapping with `url` and `weight`" {
        url: Url,
        weight: Whole,
    } later []
}

mapping! {
    /// An item of `routes`.
    Route: "a mapping with `path`, and `upstream` or `respond`" {
        name: Name,
        path: PathText,
        methods: OneOrMany<Verb>,
        hosts: OneOrMany<Text>,
        upstream: Name,
        respond: Respond,
        timeout: Span,
    } later [strip_prefix, rewrite, max_body_bytes, priority, request_headers, response_headers]
}

mapping! {
    /// `routes[].respond`.
    Respond: "a mapping with `status`, `body` and `headers`" {
        status: Whole,
        body: Text,
        headers: Named<OneOrMany<Text>>,
    } later []
}

mapping! {
    /// An item of `limits`.
    Limit: "a mapping with `name`, `key` and `algorithm`" {
        name: Name,
        key: OneOrMany<KeyText>,
        on_missing_key: Word,
        r#match: Match,
        algorithm: Word,
        rate: Rate,
        burst: Whole,
        max_wait: Anything,
        warm_up: Anything,
        capacity: Whole,
        delay: Flag,
        max_delay: Anything,
        limit: Whole,
        window: Span,
        align: Word,
        timezone: Text,
        buckets: Whole,
        cost: Short<Whole, Anything>,
        mode: Word,
        precision: Word,
        scope: Word,
        on_store_failure: Word,
        charge: Short<Word, Anything>,
    } later [candidate, overrides, overrides_file, lease, ban, rejection]
}

mapping! {
    /// `limits[].match`.
    Match: "a mapping with `path`, `methods`, `hosts`, `headers`, `ip` or `not`" {
        path: OneOrMany<PathText>,
        methods: OneOrMany<Verb>,
        hosts: OneOrMany<Text>,
        headers: Named<Text>,
        ip: OneOrMany<Cidr>,
        not: Box<Match>,
    } later []
}

mapping! {
    /// `responses`.
    Responses: "a mapping with `ratelimit_headers` and `legacy_reset`" {
        ratelimit_headers: OneOrMany<Word>,
        legacy_reset: Word,
    } later [rejection, cors]
}

mapping! {
    /// `server`.
    Server: "a mapping with keys such as `header_timeout` and `drain`" {
        header_timeout: Span,
        idle_timeout: Span,
        max_header_bytes: Size,
        max_body_bytes: Size,
        max_connections: Whole,
        drain: Span,
        workers: Whole,
    } later []
}

mapping! {
    /// `log`.
    Log: "a mapping with keys such as `format` and `level`" {
        format: Word,
        access: Flag,
        level: Word,
        output: Text,
    } later [sample_refusals]
}

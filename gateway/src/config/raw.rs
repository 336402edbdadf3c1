//! The mirror of `gateway.yaml`: its keys and the shape of their values, nothing of their meaning.
//!
//! Every value is a [`Field`], which keeps what is wrong with it instead of failing, so that `check` can tell of every
//! problem at once. `later` lists keys of the contract that this version knows by name and refuses.
//!
//! What stands beside a key is what the JSON Schema and docs/configuration.md say of it: its comment, and [`Facts`].

mod charging;
mod declare;
mod describe;
mod field;
mod leaves;
mod limit;
mod parameters;
mod responses;
mod store;

pub(super) use charging::{Charge, Cost};
pub(super) use describe::{Definitions, Facts, Key};
pub(super) use field::{Field, Leaf, Mapping, Named, OneOrMany, Scalar, Shape, Short, key_text};
pub(super) use leaves::{
    Address, Cidr, CostText, FileName, Flag, KeyText, KeysUrl, MediaType, Name, Origin, PathText, Rank, RedisUrl, Size,
    Span, Text, Url, Verb, Whole, Word,
};
pub(super) use limit::{Ban, Limit, Match, Override};
pub(super) use parameters::Parameters;
pub(super) use responses::{Cors, Rejection, RejectionBody, Responses};
pub(super) use store::{Redis, Store};

use declare::mapping;

mapping! {
    /// The whole file.
    Config: "a mapping with keys such as `listen`, `upstreams`, `routes` and `limits`" {
        /// Where requests are served: HTTP/1.1 and cleartext HTTP/2. A change needs a restart.
        listen: OneOrMany<Short<Address, Listener>> { default: "127.0.0.1:8080", example: "0.0.0.0:8080" },
        /// Where health, metrics and status are served. Anything but loopback needs a token. A change of the address
        /// needs a restart.
        admin: Short<Address, Admin> {
            default: "127.0.0.1:9090", example: r#"{address: "0.0.0.0:9090", token: "${ADMIN_TOKEN}"}"#,
        },
        /// Where counters live.
        store: Short<Word, Store> {
            words: &["memory"], default: "memory", example: r#"{redis: {url: "redis://127.0.0.1:6379/0"}}"#,
        },
        /// How the client's address is found.
        client_ip: ClientIp { example: "{trusted_proxies: [10.0.0.0/8]}" },
        /// Named groups of endpoints.
        upstreams: Named<Upstream> { otherwise: "none", example: r#"{orders: {endpoints: "http://10.0.0.1:8000"}}"# },
        /// Where requests go.
        routes: OneOrMany<Route> { otherwise: "none", example: r#"[{path: "/{*rest}", upstream: orders}]"# },
        /// The layers, in the order in which they are checked.
        limits: OneOrMany<Limit> {
            otherwise: "none", example: "[{name: all, key: global, algorithm: token_bucket, rate: 100/s}]",
        },
        /// Which bearer tokens are believed, for keys `jwt:CLAIM`.
        jwt: Jwt { otherwise: "none", example: "{jwks_file: jwks.json}" },
        /// What answers tell about the limits.
        responses: Responses { example: "{legacy_reset: delta}" },
        /// Bounds of the listeners.
        server: Server { example: "{drain: 10s}" },
        /// The log.
        log: Log { example: "{format: json}" },
    } later [tracing]
}

mapping! {
    /// An item of `listen`.
    Listener: "an address such as `127.0.0.1:8080`, or a mapping with `address`" {
        /// IP address and port. Port 0 takes any free port.
        address: Address { required: true, example: "0.0.0.0:8080" },
        /// `proxy` forwards requests: the one value that this version has.
        mode: Word { words: &["proxy"], default: "proxy", example: "proxy" },
    } later [tls, proxy_protocol]
}

mapping! {
    /// `admin`.
    Admin: "an address such as `127.0.0.1:9090`, or a mapping with `address` and `token`" {
        /// IP address and port.
        address: Address { default: "127.0.0.1:9090", example: "127.0.0.1:9091" },
        /// What calls that change something must bear: `Authorization: Bearer TOKEN`.
        token: Text { otherwise: "none", example: r#""${ADMIN_TOKEN}""# },
    } later []
}

mapping! {
    /// `client_ip`.
    ClientIp: "a mapping with `trusted_proxies`" {
        /// Peers whose forwarding header is believed.
        trusted_proxies: OneOrMany<Cidr> { otherwise: "nobody", example: "[10.0.0.0/8, 2001:db8::/32]" },
        /// The header that they send.
        header: Word { words: &["x-forwarded-for", "forwarded"], default: "x-forwarded-for", example: "forwarded" },
        /// Bits of an IPv4 address that are counted apart.
        ipv4_prefix: Whole { range: (1, 32), default: "32", example: "24" },
        /// Bits of an IPv6 address that are counted apart.
        ipv6_prefix: Whole { range: (1, 128), default: "64", example: "56" },
    } later []
}

mapping! {
    /// `upstreams.NAME`.
    Upstream: "a mapping with `endpoints`" {
        /// Who answers; several take turns.
        endpoints: OneOrMany<Short<Url, Endpoint>> {
            required: true, example: r#"["http://10.0.0.1:8000", {url: "http://10.0.0.2:8000", weight: 2}]"#,
        },
        /// How an endpoint is picked: `round_robin` is the one value that this version has.
        balance: Word { words: &["round_robin"], default: "round_robin", example: "round_robin" },
        /// How endpoints are spoken to: `http1` is the one value that this version has.
        protocol: Word { words: &["http1"], default: "http1", example: "http1" },
        /// For one connection to be made.
        connect_timeout: Span { default: "1s", example: "250ms" },
        /// To the head of the response, all attempts together; it has to cover the upload of a body.
        timeout: Span { default: "30s", example: "5s" },
        /// Of a pooled connection; below the 5 s that backends commonly have.
        idle_timeout: Span { default: "4s", example: "60s" },
        /// Connections to each endpoint at most.
        max_connections: Whole { range: (1, 1_000_000), default: "1024", example: "100" },
        /// Finds out how many requests at once it answers without a queue, and sheds what is above: 503, the lowest
        /// `priority` of route first.
        adaptive_concurrency: AdaptiveConcurrency { otherwise: "nothing is shed", example: "{min: 10, max: 1000}" },
    } later [hash_key, tls, health, circuit_breaker, retries, ejection]
}

mapping! {
    /// `upstreams.NAME.adaptive_concurrency`.
    AdaptiveConcurrency: "a mapping with `min` and `max`" {
        /// Requests at once that it is always sent; what it is like at ease is measured with no fewer.
        min: Whole { range: (1, 1_000_000), default: "10", example: "20" },
        /// Requests at once at most.
        max: Whole { range: (1, 1_000_000), default: "1000", example: "400" },
    } later []
}

mapping! {
    /// An item of `endpoints`.
    Endpoint: "a URL such as `http://127.0.0.1:8000`, or a mapping with `url` and `weight`" {
        /// Scheme, host and port; the request's path is forwarded.
        url: Url { required: true, example: r#""http://10.0.0.2:8000""# },
        /// Its share of the requests.
        weight: Whole { range: (1, 65_535), default: "1", example: "2" },
    } later []
}

mapping! {
    /// An item of `routes`.
    Route: "a mapping with `path`, and `upstream` or `respond`" {
        /// What limits and metrics call it.
        name: Name { otherwise: "the path", example: "orders" },
        /// `{name}` is one segment, `{*rest}` the rest, which may be empty; `/{*rest}` is every path.
        path: PathText { required: true, example: r#""/v1/orders/{id}""# },
        /// Any of these; `GET` stands for `HEAD` as well.
        methods: OneOrMany<Verb> { otherwise: "every method", example: "[GET, POST]" },
        /// Any of these, without port.
        hosts: OneOrMany<Text> { otherwise: "every host", example: "[www.example.org]" },
        /// Where it goes. Either this or `respond`.
        upstream: Name { example: "orders" },
        /// A fixed answer.
        respond: Respond { example: "{status: 200, body: pong}" },
        /// In place of the upstream's.
        timeout: Span { otherwise: "the upstream's", example: "60s" },
        /// -1000 to 1000. Where an upstream sheds, requests of the lowest go first. It orders nothing else.
        priority: Rank { default: "0", example: "-1" },
    } later [strip_prefix, rewrite, max_body_bytes, request_headers, response_headers]
}

mapping! {
    /// `routes[].respond`.
    Respond: "a mapping with `status`, `body` and `headers`" {
        /// The status.
        status: Whole { range: (200, 599), default: "200", example: "404" },
        /// The body.
        body: Text { otherwise: "empty", example: "pong" },
        /// Header fields, each with a text or a list of them.
        headers: Named<OneOrMany<Text>> { otherwise: "none", example: "{content-type: text/plain}" },
    } later []
}

mapping! {
    /// `jwt`.
    Jwt: "a mapping with `jwks_file` or `jwks_url`" {
        /// The keys that sign tokens: a set of keys (JWKS) as JSON. It is watched as this file is. Either this or `jwks_url`.
        jwks_file: FileName { example: "jwks.json" },
        /// Where the set is: asked every 5 minutes, and when a token names an unknown key, 5 s after the last time at the
        /// earliest. While it does not answer, the last keys stay.
        jwks_url: KeysUrl { example: r#""https://id.example.com/jwks.json""# },
        /// Who may have issued a token: any of these, exactly as `iss` says it.
        issuer: OneOrMany<Text> { otherwise: "anybody", example: "https://id.example.com" },
        /// Whom a token is meant for: any of these is in `aud`.
        audience: OneOrMany<Text> { otherwise: "anybody", example: "orders" },
    } later []
}

mapping! {
    /// `server`.
    Server: "a mapping with keys such as `header_timeout` and `drain`" {
        /// For the head of a request to arrive, the first of a connection included; then 408.
        header_timeout: Span { default: "10s", example: "5s" },
        /// Of a connection between requests.
        idle_timeout: Span { default: "75s", example: "30s" },
        /// 8KiB to 16MiB; then 431. So are more than 100 header lines.
        max_header_bytes: Size { default: "32KiB", example: "64KiB" },
        /// 0, unlimited, is the one value that this version has.
        max_body_bytes: Size { default: "0", example: "0" },
        /// Clients' connections at most; more wait in the listen queue.
        max_connections: Whole { range: (1, 10_000_000), default: "20000", example: "5000" },
        /// What SIGTERM leaves to requests in flight.
        drain: Span { default: "30s", example: "5m" },
        /// Threads that serve; 0 is one a core. A change needs a restart.
        workers: Whole { range: (0, 1024), default: "0", example: "4" },
    } later []
}

mapping! {
    /// `log`.
    Log: "a mapping with keys such as `format` and `level`" {
        /// For people or for machines.
        format: Word { words: &["text", "json"], default: "text", example: "json" },
        /// A line for each request, target `access`, whatever `level` says.
        access: Flag { default: "true", example: "false" },
        /// The least severe that is written; the variable `RUST_LOG` takes its place where it is set.
        level: Word { words: &["error", "warn", "info", "debug", "trace"], default: "info", example: "debug" },
        /// `stdout` is the one value that this version has.
        output: Text { words: &["stdout"], default: "stdout", example: "stdout" },
    } later [sample_refusals]
}

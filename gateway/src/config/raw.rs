//! The mirror of `gateway.yaml`: its keys and the shape of their values, nothing of their meaning.
//!
//! Every value is a [`Field`], which keeps what is wrong with it instead of failing, so that `check` can tell of every
//! problem at once. `later` lists keys of the contract that this version knows by name and refuses.
//!
//! What stands beside a key is what the JSON Schema and docs/configuration.md say of it: its comment, and [`Facts`].

mod describe;
mod field;

pub(super) use describe::{Definitions, Facts, Key};
pub(super) use field::{Field, Leaf, Mapping, Named, OneOrMany, Scalar, Shape, Short, key_text};

use describe::Form;
use field::{leaf, mapping};
use serde_json::Value as Json;
use serde_yaml::Value;

leaf! {
    /// Any text.
    Text: "a text" { "text", Form::Text };
    /// A name of the file's own.
    Name: "a name of letters, digits, `_`, `.` and `-`" { "name", Form::Pattern("^[A-Za-z0-9_.-]{1,64}$") };
    /// `true` or `false`.
    Flag: "`true` or `false`" { "`true` or `false`", Form::Flag };
    /// A whole number.
    Whole: "a whole number" { "number", Form::Whole };
    /// A time.
    Span: "a duration such as `250ms`, `10s` or `1h`"
        { "duration", Form::Pattern("^(0|[1-9][0-9]*)(ms|s|m|h|d|w)$") };
    /// How long a window is.
    Length: "a duration such as `10s` or `1d`, or `1mo`"
        { "duration or `1mo`", Form::Pattern("^(1mo|(0|[1-9][0-9]*)(ms|s|m|h|d|w))$") };
    /// So many in a time.
    Rate: "a rate such as `100/s` or `3/10s`"
        { "rate", Form::Pattern("^[1-9][0-9]*/([1-9][0-9]*)?(ms|s|m|h|d|w)$") };
    /// Bytes.
    Size: "a size such as `64KiB`" { "size", Form::Size };
    /// IP address and port.
    Address: "an address such as `127.0.0.1:8080`" { "address", Form::Pattern(":[0-9]{1,5}$") };
    /// `http://host:port`.
    Url: "a URL such as `http://127.0.0.1:8000`" { "URL", Form::Pattern("^[Hh][Tt][Tt][Pp]://[^/]+/?$") };
    /// `redis://host:port/db`, and the like.
    RedisUrl: "a URL such as `redis://127.0.0.1:6379/0`" { "URL", Form::Pattern("^rediss?(-cluster|-sentinel)?://.") };
    /// Where keys are.
    KeysUrl: "a URL such as `https://id.example.com/jwks.json`"
        { "URL", Form::Pattern("^[Hh][Tt][Tt][Pp][Ss]?://[^/]+(/.*)?$") };
    /// Where a file is.
    FileName: "the path of a file" { "path of a file", Form::Pattern(".") };
    /// An address range.
    Cidr: "an address range such as `10.0.0.0/8`" { "address range", Form::Pattern("^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$") };
    /// A path, a path template or a glob.
    PathText: "a path such as `/v1/orders`" { "path", Form::Pattern("^(/|[*][*]$)") };
    /// An HTTP method.
    Verb: "an HTTP method such as `GET`" { "method", Form::Pattern("^[^a-z ]+$") };
    /// One of a few words.
    Word: "a word" { "word", Form::Text };
    /// The type of a body.
    MediaType: "a media type such as `text/html; charset=utf-8`" { "media type", Form::Pattern("^[^/ ]+/[^/ ]+") };
    /// Who serves a page, as browsers say it.
    Origin: "`*`, or an origin such as `https://app.example.org`" {
        "origin", Form::Pattern("^([*]|[a-z][a-z0-9+.-]*://[^/]+)$")
    };
    /// A part of a key.
    KeyText: "a key such as `ip` or `header:x-user-id`" {
        "key",
        Form::Pattern("^(global|ip|path|route|method|host|(header|cookie|query|jwt):.+)$")
    };
}

/// Anything: what stands at a key that is only known by name.
#[derive(Clone, Debug)]
pub(super) struct Anything;

impl Shape for Anything {
    fn expected() -> String {
        "a value".into()
    }

    fn read(_: Value) -> Option<Self> {
        Some(Self)
    }

    fn kind(_: &Facts) -> Option<String> {
        None
    }

    fn schema(_: &mut Definitions, _: &Facts) -> Option<Json> {
        None
    }
}

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
    /// `store`.
    Store: "`memory`, or a mapping with `memory` or `redis`" {
        /// In this process. Either this or `redis`.
        memory: Memory { example: "{max_keys: 100000}" },
        /// In Redis, where gateways share them.
        redis: Redis { example: r#"{url: "redis://127.0.0.1:6379/0", on_failure: closed}"# },
    } later []
}

mapping! {
    /// `store.memory`.
    Memory: "a mapping with `max_keys`" {
        /// Counters held at most; beyond it those go first that say least, as when it is lowered.
        max_keys: Whole { range: (1, 4_294_967_295), default: "1000000", example: "100000" },
    } later []
}

mapping! {
    /// `store.redis`.
    Redis: "a mapping with `url`" {
        /// Which servers, and how they let us in.
        url: RedisUrl { required: true, example: r#""redis://:${REDIS_PASSWORD}@10.0.0.9:6379/0""# },
        /// Whom we trust, and who we are, where the URL begins with `rediss`.
        tls: RedisTls { otherwise: "what the system trusts", example: "{ca: redis-ca.pem}" },
        /// Deadline of one decision, waiting included.
        timeout: Span { default: "50ms", example: "20ms" },
        /// Connections to Redis.
        connections: Whole { range: (1, 64), default: "2", example: "4" },
        /// Begins every key; gateways that share counters share it.
        prefix: Text { default: "gw", example: "edge" },
        /// Makes the hashes of secret and long values HMACs; the same on all gateways.
        key_secret: Text { otherwise: "none", example: r#""${KEY_SECRET}""# },
        /// What a layer does while Redis cannot answer: count in this process (`local`), let pass (`open`), or answer
        /// 503 (`closed`).
        on_failure: Word { words: &["local", "open", "closed"], default: "local", example: "closed" },
    } later []
}

mapping! {
    /// `store.redis.tls`.
    RedisTls: "a mapping with `ca`, or with `cert` and `key`" {
        /// Certificates (PEM) of the authorities that are trusted, in place of the system's.
        ca: FileName { otherwise: "what the system trusts", example: "redis-ca.pem" },
        /// The certificate (PEM) that is shown to a server that asks for one, then those between it and the authority.
        cert: FileName { otherwise: "none", example: "redis-client.pem" },
        /// The private key (PEM) of that certificate.
        key: FileName { otherwise: "none", example: "redis-client.key" },
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
    } later [hash_key, tls, health, circuit_breaker, retries, ejection, adaptive_concurrency]
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
    } later [strip_prefix, rewrite, max_body_bytes, priority, request_headers, response_headers]
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
    /// An item of `limits`.
    Limit: "a mapping with `name`, `key` and `algorithm`" {
        /// Its identity: counters follow it across reloads, whatever its place in the list.
        name: Name { required: true, example: "user" },
        /// What is counted apart: `global`, `ip`, `path`, `route`, `method`, `host`, `header:NAME`, `cookie:NAME`,
        /// `query:NAME`, `jwt:CLAIM`, or a list of these.
        key: OneOrMany<KeyText> { required: true, example: r#"[route, "header:x-user-id"]"# },
        /// Where a part of the key is absent, empty or blank: `ip` (the client's address, apart from all others), `skip`
        /// (the layer does not apply) or `deny` (403).
        on_missing_key: Word { words: &["ip", "skip", "deny"], default: "ip", example: "skip" },
        /// Where it applies; all that is given must hold.
        r#match: Match { otherwise: "everywhere", example: r#"{path: "/v1/**", methods: POST}"# },
        /// How it counts.
        algorithm: Word {
            words: &["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"],
            required: true, example: "token_bucket",
        },
        /// What comes back in a time. `token_bucket`, `leaky_bucket`: required.
        rate: Rate { example: "100/s" },
        /// What passes at once after a pause. `token_bucket`.
        burst: Whole { range: (1, MAX), otherwise: "the number in the rate, as written", example: "200" },
        /// The longest that a request waits for its token, where there is none at once; then it is refused at once.
        /// `token_bucket`.
        max_wait: Span { otherwise: "no wait", example: "2s" },
        warm_up: Anything {},
        /// What passes at once, or is taken into the queue. `leaky_bucket`.
        capacity: Whole { range: (1, MAX), otherwise: "one second's worth, at least 1", example: "4" },
        /// Whether admitted requests wait for their turn and leave `1/rate` apart; `false` only measures and refuses.
        /// `leaky_bucket`.
        delay: Flag { default: "true", example: "false" },
        /// A request whose turn is later is refused. `leaky_bucket` with `delay: true`.
        max_delay: Span { default: "10s", example: "2s" },
        /// What passes in a window; of a log at most 100,000. `fixed_window`, `sliding_window_log`,
        /// `sliding_window_counter`: required.
        limit: Whole { range: (1, MAX), example: "500" },
        /// The window's length; `1mo`, a month of the calendar, only of `fixed_window`. `fixed_window`,
        /// `sliding_window_log`, `sliding_window_counter`: required.
        window: Length { example: "1m" },
        /// Where windows begin: with the clock's, or with the first request. `fixed_window`.
        align: Word { words: &["clock", "first_request"], default: "clock", example: "first_request" },
        /// Whose days, weeks and months: the name of a time zone. `fixed_window` with `align: clock` and a window of whole
        /// days or weeks, or `1mo`.
        timezone: Text { default: "UTC", example: "Europe/Berlin" },
        /// Parts that the window is counted in. `sliding_window_counter`.
        buckets: Whole { range: (1, 60), default: "6", example: "10" },
        /// Units that one request takes; 0 checks and takes nothing.
        cost: Short<Whole, Anything> { range: (0, MAX), default: "1", example: "2" },
        /// `shadow`: the layer is counted and reported, and refuses nothing. It is charged where every enforced layer has
        /// room, and so has it. Its counts are kept when it is enforced.
        mode: Word { words: &["enforce", "shadow"], default: "enforce", example: "shadow" },
        /// `exact` is the one value that this version has.
        precision: Word { words: &["exact"], default: "exact", example: "exact" },
        /// Who counts together: `cluster`, all gateways that share the store, is the one value that this version has.
        scope: Word { words: &["cluster"], default: "cluster", example: "cluster" },
        /// In place of the store's `on_failure`.
        on_store_failure: Word { words: &["local", "open", "closed"], otherwise: "the store's", example: "open" },
        /// `allowed`: a refused request costs nothing. `all`: it is charged where it was checked, with what is left at
        /// most; so who goes on while refused is refused for longer.
        charge: Short<Word, Anything> { words: &["allowed", "all"], default: "allowed", example: "all" },
        /// What the requests get that it refuses, in place of `responses.rejection`.
        rejection: Rejection { otherwise: "as `responses.rejection`", example: "{status: 503}" },
        /// Other terms for listed keys; an exact value goes before a prefix, a longer prefix before a shorter one, and both
        /// before an address range. Counters stay those of the layer's name and key.
        overrides: OneOrMany<Override> {
            otherwise: "none", example: "[{values: [partner-7], limit: 900}, {values: [abuser-3], deny: true}]",
        },
        /// More of them: a file with a list of the same form, in YAML or JSON, at most 16 MiB. It is watched as this file
        /// is. What `overrides` says of a value goes first.
        overrides_file: FileName { otherwise: "none", example: "overrides.yaml" },
        /// Another algorithm, or other parameters, tried out beside the layer: counted on the same requests as if it stood
        /// in its place, and never enforced. Not for keys with `overrides`.
        candidate: Candidate { otherwise: "none", example: "{algorithm: fixed_window, limit: 100, window: 1m}" },
    } later [lease, ban]
}

mapping! {
    /// `limits[].candidate`.
    Candidate: "a mapping with `algorithm` and its parameters" {
        /// How it counts.
        algorithm: Word {
            words: &["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"],
            required: true, example: "token_bucket",
        },
        /// What comes back in a time. `token_bucket`, `leaky_bucket`: required.
        rate: Rate { example: "100/s" },
        /// What passes at once after a pause. `token_bucket`.
        burst: Whole { range: (1, MAX), otherwise: "the number in the rate, as written", example: "200" },
        /// The longest that a request waits for its token, where there is none at once; then it is refused at once.
        /// `token_bucket`.
        max_wait: Span { otherwise: "no wait", example: "2s" },
        warm_up: Anything {},
        /// What passes at once, or is taken into the queue. `leaky_bucket`.
        capacity: Whole { range: (1, MAX), otherwise: "one second's worth, at least 1", example: "4" },
        /// Whether admitted requests wait for their turn and leave `1/rate` apart; `false` only measures and refuses.
        /// `leaky_bucket`.
        delay: Flag { default: "true", example: "false" },
        /// A request whose turn is later is refused. `leaky_bucket` with `delay: true`.
        max_delay: Span { default: "10s", example: "2s" },
        /// What passes in a window; of a log at most 100,000. `fixed_window`, `sliding_window_log`,
        /// `sliding_window_counter`: required.
        limit: Whole { range: (1, MAX), example: "500" },
        /// The window's length; `1mo`, a month of the calendar, only of `fixed_window`. `fixed_window`,
        /// `sliding_window_log`, `sliding_window_counter`: required.
        window: Length { example: "1m" },
        /// Where windows begin: with the clock's, or with the first request. `fixed_window`.
        align: Word { words: &["clock", "first_request"], default: "clock", example: "first_request" },
        /// Whose days, weeks and months: the name of a time zone. `fixed_window` with `align: clock` and a window of whole
        /// days or weeks, or `1mo`.
        timezone: Text { default: "UTC", example: "Europe/Berlin" },
        /// Parts that the window is counted in. `sliding_window_counter`.
        buckets: Whole { range: (1, 60), default: "6", example: "10" },
    } later []
}

impl Candidate {
    /// A layer of this algorithm and no more.
    pub(super) fn alone(&self) -> Limit {
        let mut alone = Limit::default();
        macro_rules! put {
            ($($key:ident),*) => {$( alone.$key = self.$key.clone(); )*};
        }
        put!(
            algorithm, rate, burst, max_wait, warm_up, capacity, delay, max_delay, limit, window, align, timezone,
            buckets
        );
        alone
    }
}

mapping! {
    /// An item of `limits[].overrides`, or of the list in an `overrides_file`.
    Override: "a mapping with `values`, and parameters of the algorithm, `unlimited: true` or `deny: true`" {
        /// Whose terms these are, as keys are printed: the value itself, parts of a composite joined by `|`, `~ip:ADDRESS`
        /// for a missing one, `#` and 32 hex digits for a hashed one. `prefix*` is every key that begins so. Where the
        /// layer's key is `ip`, also an address range.
        values: OneOrMany<Text> { required: true, example: r#"[partner-7, "beta-*"]"# },
        /// The layer does not apply to them.
        unlimited: Flag { default: "false", example: "true" },
        /// They are refused, 403, before anything is charged.
        deny: Flag { default: "false", example: "true" },
        /// Buckets.
        rate: Rate { otherwise: "the layer's", example: "1000/s" },
        /// `token_bucket`.
        burst: Whole { range: (1, MAX), otherwise: "as the layer says", example: "2000" },
        /// `token_bucket`.
        max_wait: Span { otherwise: "the layer's", example: "2s" },
        warm_up: Anything {},
        /// `leaky_bucket`.
        capacity: Whole { range: (1, MAX), otherwise: "as the layer says", example: "40" },
        /// `leaky_bucket`.
        delay: Flag { otherwise: "the layer's", example: "false" },
        /// `leaky_bucket`.
        max_delay: Span { otherwise: "the layer's", example: "2s" },
        /// Windows.
        limit: Whole { range: (1, MAX), otherwise: "the layer's", example: "5000" },
        /// Windows.
        window: Length { otherwise: "the layer's", example: "1h" },
        /// `fixed_window`.
        align: Word { words: &["clock", "first_request"], otherwise: "the layer's", example: "first_request" },
        /// `fixed_window`.
        timezone: Text { otherwise: "the layer's", example: "America/New_York" },
        /// `sliding_window_counter`.
        buckets: Whole { range: (1, 60), otherwise: "the layer's", example: "10" },
    } later []
}

impl Override {
    /// The algorithm of `limit` with the parameters that are written here in place of its own; `None` where none is.
    pub(super) fn over(&self, limit: &Limit) -> Option<Limit> {
        let mut over = Limit {
            algorithm: limit.algorithm.clone(),
            ..Limit::default()
        };
        let mut is_written = false;
        macro_rules! put {
            ($($key:ident),*) => {$(
                is_written |= self.$key.is_present();
                over.$key = if self.$key.is_present() { &self.$key } else { &limit.$key }.clone();
            )*};
        }
        put!(
            rate, burst, max_wait, warm_up, capacity, delay, max_delay, limit, window, align, timezone, buckets
        );
        is_written.then_some(over)
    }
}

mapping! {
    /// `limits[].match`.
    Match: "a mapping with `path`, `methods`, `hosts`, `headers`, `ip` or `not`" {
        /// Any of these globs: `*` is one segment, `**` any number, also none.
        path: OneOrMany<PathText> { otherwise: "every path", example: r#"[/v1/orders, "/v1/orders/**"]"# },
        /// Any of these; `GET` stands for `HEAD` as well.
        methods: OneOrMany<Verb> { otherwise: "every method", example: "[POST, PUT, DELETE]" },
        /// Any of these, without port.
        hosts: OneOrMany<Text> { otherwise: "every host", example: "api.example.com" },
        /// All of these, each with exactly this value.
        headers: Named<Text> { otherwise: "any", example: "{x-plan: free}" },
        /// The client's address is in any of these.
        ip: OneOrMany<Cidr> { otherwise: "every address", example: "10.0.0.0/8" },
        /// What is left out. It has the same keys, and must hold as a whole.
        not: Box<Match> { otherwise: "nothing", example: "{path: /ping, methods: GET}" },
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
    /// `responses`.
    Responses: "a mapping with keys such as `rejection` and `ratelimit_headers`" {
        /// `draft-11` (`RateLimit-Policy`, `RateLimit`), `legacy` (`X-RateLimit-Limit`, `-Remaining`, `-Reset`), both, or
        /// `[]`.
        ratelimit_headers: OneOrMany<Word> {
            words: &["draft-11", "legacy"], default: "[draft-11, legacy]", example: "[draft-11]",
        },
        /// What `X-RateLimit-Reset` says: seconds since 1970 (`epoch`), or from now (`delta`).
        legacy_reset: Word { words: &["epoch", "delta"], default: "epoch", example: "delta" },
        /// What a request gets that a layer refuses, unless the layer has a `rejection` of its own.
        rejection: Rejection {
            otherwise: "429 and a problem document",
            example: r#"{body: {content_type: text/plain, template: "retry in {{retry_after}} s"}}"#,
        },
        /// Lets scripts of other origins read the gateway's own answers.
        cors: Cors { otherwise: "none", example: r#"{allow_origin: "https://app.example.org"}"# },
    } later []
}

mapping! {
    /// `responses.rejection`, and a layer's own.
    Rejection: "a mapping with `status` and `body`, or with `upstream`" {
        /// The status of a refusal.
        status: Whole { range: (400, 599), default: "429", example: "503" },
        /// `problem`, a problem document, or a body of your own.
        body: Short<Word, RejectionBody> {
            words: &["problem"], default: "problem",
            example: r#"{content_type: application/json, template: '{"layer": {{layer}}, "retry": {{retry_after}}}'}"#,
        },
        /// Where the request goes instead of being refused. It stands alone.
        upstream: Name { otherwise: "nowhere", example: "fallback" },
    } later []
}

mapping! {
    /// `rejection.body`.
    RejectionBody: "`problem`, or a mapping with `content_type` and `template`" {
        /// Of the body; it also says how values are escaped.
        content_type: MediaType { required: true, example: r#""text/html; charset=utf-8""# },
        /// The body. `{{NAME}}` is a value of the refusal.
        template: Text { required: true, example: r#""<p>Too many requests: retry in {{retry_after}} s.""# },
    } later []
}

mapping! {
    /// `responses.cors`.
    Cors: "a mapping with `allow_origin`" {
        /// Whose scripts: `*` (everybody's), an origin, or a list of origins.
        allow_origin: OneOrMany<Origin> {
            required: true, example: r#"["https://app.example.org", "https://admin.example.org:8443"]"#,
        },
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

/// The largest number that the limiter can work with.
const MAX: u64 = (1 << 53) - 1;

//! `limits`: a layer, and the mappings in it.

use super::{
    Cidr, Definitions, FileName, Flag, KeyText, Name, PathText, Span, Text, Verb, Word,
    charging::{Charge, Cost},
    declare::mapping,
    describe::Facts,
    field::{self, Field, Mapping, Named, OneOrMany, Shape, Short},
    leaves::{CostText, LotText, Whole},
    parameters::{ALGORITHMS, Parameters},
    responses::Rejection,
};

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
        algorithm: Word { words: ALGORITHMS, required: true, example: "token_bucket" },
        ..parameters: Parameters = Parameters::of_layer;
        /// Units that one request takes; 0 checks and takes nothing. `header:NAME`: the request says it, and 1 where it
        /// does not.
        cost: Short<CostText, Cost> { default: "1", example: "{header: x-tokens, default: 10, max: 1000}" },
        /// `shadow`: the layer is counted and reported, and refuses nothing. It is charged where every enforced layer has
        /// room, and so has it. Its counts are kept when it is enforced.
        mode: Word { words: &["enforce", "shadow"], default: "enforce", example: "shadow" },
        /// `exact`: every request is counted when it comes. `leased`: each gateway takes units from Redis in lots, ahead of
        /// their use, and hands them out by itself; `lease` says how many, and for how long.
        precision: Word { words: &["exact", "leased"], default: "exact", example: "leased" },
        /// Who counts together: all gateways that share the store (`cluster`), or each gateway for itself, in memory
        /// (`instance`).
        scope: Word { words: &["cluster", "instance"], default: "cluster", example: "instance" },
        /// In place of the store's `on_failure`.
        on_store_failure: Word { words: &["local", "open", "closed"], otherwise: "the store's", example: "open" },
        /// `allowed`: a refused request costs nothing. `all`: it is charged where it was checked, with what is left at
        /// most; so who goes on while refused is refused for longer. `{status: …}`: only requests answered so stay charged.
        charge: Short<Word, Charge> { words: &["allowed", "all"], default: "allowed", example: "{status: [401, 403]}" },
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
        /// Keys that it refuses too often are banned: refused outright for a time, by all gateways, before any layer is asked.
        /// Not of a layer in the shadow, which refuses nothing.
        ban: Ban { otherwise: "none", example: "{after: 20, within: 1m, for: [1m, 10m, 1h]}" },
    } later []
}

mapping! {
    /// `limits[].ban`.
    Ban: "a mapping with `after`, `within` and `for`" {
        /// Refusals of a key that lead to a ban.
        after: Whole { range: (1, 1_000_000), required: true, example: "20" },
        /// The time within which they come; at most 3650 days.
        within: Span { required: true, example: "1m" },
        /// How long a ban lasts; at most 3650 days. A list, of at most 16, is the ladder for who offends again: each new ban
        /// lasts for the next time, and the last one repeats. A rung is lost for each time, as long as the last ban, that
        /// passes after it without a new one.
        r#for: OneOrMany<Span> { required: true, example: "[1m, 10m, 1h]" },
    } later []
}

mapping! {
    /// `limits[].candidate`.
    Candidate: "a mapping with `algorithm` and its parameters" {
        /// How it counts.
        algorithm: Word { words: ALGORITHMS, required: true, example: "token_bucket" },
        ..parameters: Parameters = Parameters::of_layer;
    } later []
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
        ..parameters: Parameters = Parameters::of_override;
    } later []
}

mapping! {
    /// `limits[].lease`.
    #[derive(Clone)]
    Lease: "a mapping with `size` or `ttl`" {
        /// With `precision: leased`: the most units of a key that a gateway has in hand. A number, or a percentage of what
        /// passes at once.
        size: LotText { default: "1%", example: "50" },
        /// With `precision: leased`, 100ms to 1m: for how long units are in hand that nobody asks for. Of `concurrency`, 100ms
        /// to 1h: a gateway that dies gives back what it held after this, at the latest; what it holds it says anew four times
        /// in it.
        ttl: Span { default: "1s", example: "3s" },
    } later []
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

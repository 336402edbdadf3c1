//! `store`.

use super::{
    Definitions, Facts, FileName, RedisUrl, Span, Text, Whole, Word,
    declare::mapping,
    field::{self, Field, Mapping, Shape},
};

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

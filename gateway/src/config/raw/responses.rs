//! `responses`, and `rejection` of a layer.

use super::{
    Definitions, Facts, MediaType, Name, Origin, Text, Whole, Word,
    declare::mapping,
    field::{self, Field, Mapping, OneOrMany, Shape, Short},
};

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

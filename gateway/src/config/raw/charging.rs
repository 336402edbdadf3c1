//! `limits[].cost` and `limits[].charge`, where they are mappings.

use super::{
    Definitions, OneOrMany, Text,
    declare::mapping,
    describe::Facts,
    field::{self, Field, Mapping, Shape},
    leaves::{MAX, Whole},
};

mapping! {
    /// `limits[].cost`.
    Cost: "a whole number, `header:NAME`, or a mapping with `header` or `response_header`" {
        /// The header of the request that says it: a whole number. Either this or `response_header`.
        header: Text { example: "x-tokens" },
        /// Of a request without that header.
        default: Whole { range: (0, MAX), default: "1", example: "10" },
        /// A request that says more gets 400.
        max: Whole { range: (1, MAX), otherwise: "what the layer has at most", example: "1000" },
        /// The header of the answer that says it. The difference to `estimate` is charged, or given back, when it is there.
        response_header: Text { example: "x-tokens-used" },
        /// What the request is charged when it comes, and where its answer says nothing.
        estimate: Whole { range: (1, MAX), default: "1", example: "50" },
    } later []
}

mapping! {
    /// `limits[].charge`.
    Charge: "`allowed`, `all`, or a mapping with `status`" {
        /// Only requests that are answered so stay charged; the others get back what they were charged. A single code may
        /// stand for a list.
        status: OneOrMany<Whole> { range: (200, 599), required: true, example: "[401, 403]" },
    } later []
}

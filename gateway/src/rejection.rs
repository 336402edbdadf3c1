//! What a request gets that a layer refuses; pure.

use http::{HeaderValue, StatusCode};

mod template;

pub use template::{BadTemplate, Template, Values};

/// `rejection`, of all layers or of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// An answer of the gateway's own.
    Answer(Answer),
    /// The request goes to another upstream than its route's, and is not charged.
    Degrade {
        /// An index into the upstreams of the configuration.
        upstream: usize,
    },
}

/// The answer to a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Any of 400 to 599.
    pub status: StatusCode,
    /// `None`: a problem document.
    pub body: Option<Body>,
}

/// A body of the operator's design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Its media type.
    pub content_type: HeaderValue,
    /// What it is made from.
    pub template: Template,
}

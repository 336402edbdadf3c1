//! `responses`: what answers of the gateway's own say.

use crate::{cors::Cors, rejection::Rejection};

/// `responses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responses {
    /// `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11). Default: true.
    pub draft_11: bool,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`. Default: true.
    pub legacy: bool,
    /// Default: epoch.
    pub legacy_reset: LegacyReset,
    /// For layers without one of their own. `None`: 429 and a problem document.
    pub rejection: Option<Rejection>,
    /// Who may read the gateway's own answers. `None`: nothing is said of that.
    pub cors: Option<Cors>,
}

/// What `X-RateLimit-Reset` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LegacyReset {
    /// Seconds since the Unix epoch.
    #[default]
    Epoch,
    /// Seconds from now.
    Delta,
}

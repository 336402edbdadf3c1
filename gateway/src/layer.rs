//! What happens to every request around routing and forwarding, a file each. [`crate::service`] has the order.

pub(crate) mod in_flight;
pub(crate) mod observe;
pub(crate) mod queue;
pub(crate) mod rate_limit;
pub(crate) mod rescue;

//! Request → the layers it meets, with their keys and costs; pure.
use crate::config;
use http::{HeaderMap, Method};
use limiter_core::{Key, Policy};
use std::{net::IpAddr, sync::Arc};
/// What matching and keys look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a Method,
    /// Lower case, without port.
    pub host: &'a str,
    /// Normalised.
    pub path: &'a str,
    /// Without the question mark.
    pub query: Option<&'a str>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub client: IpAddr,
    /// The route's name.
    pub route: &'a str,
}
/// The layers of a configuration, ready to be applied.
#[derive(Debug)]
pub struct Layers {}
/// One layer that a request meets.
#[derive(Debug)]
pub struct Applied {
    /// An index into the layers of the configuration.
    pub layer: usize,
    /// Its counter.
    pub key: Key,
    /// Units.
    pub cost: u64,
}
/// A request that a layer's key refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A header that is a key comes on several lines: 400.
    #[error("a header that is counted by comes on several lines")]
    Repeated {
        /// An index into the layers.
        layer: usize,
    },
    /// `on_missing_key: deny`: 403.
    #[error("a value that is counted by is missing")]
    Missing {
        /// An index into the layers.
        layer: usize,
    },
}
/// A reusable list of the layers that a request meets: its memory is kept between requests.
#[derive(Debug, Default)]
pub struct Descriptor {}
impl Layers {
    /// The layers of a configuration.
    #[must_use]
    pub fn build(limits: &[config::Layer], client_ip: &config::ClientIp, key_secret: Option<&str>) -> Self {
        let _ = (limits, client_ip, key_secret);
        unimplemented!()
    }
    /// The policy of a layer.
    #[must_use]
    pub fn policy(&self, layer: usize) -> &Arc<Policy> {
        let _ = layer;
        unimplemented!()
    }
    /// Fills `to` with the layers that apply, in order.
    pub fn describe(&self, facts: &Facts<'_>, to: &mut Descriptor) -> Result<(), KeyError> {
        let _ = (facts, to);
        unimplemented!()
    }
}
impl Descriptor {
    /// The layers that apply, in order.
    #[must_use]
    pub fn applied(&self) -> &[Applied] {
        unimplemented!()
    }
}

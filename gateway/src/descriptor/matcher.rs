//! `match` of a layer; pure.

use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;

use super::Facts;
use crate::{config, path::Glob};

/// Where a layer applies; an empty list is a condition not given.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    paths: Box<[Glob]>,
    methods: Box<[Method]>,
    hosts: Box<[Box<str>]>,
    headers: Box<[(HeaderName, HeaderValue)]>,
    ips: Box<[IpNet]>,
    not: Option<Box<Matcher>>,
}

impl Matcher {
    /// `None` where no condition is given.
    pub(super) fn new(config: &config::Match) -> Option<Self> {
        let all = Self {
            paths: config.paths.clone().into(),
            methods: config.methods.clone().into(),
            hosts: config.hosts.iter().map(|host| host.as_str().into()).collect(),
            headers: config.headers.clone().into(),
            ips: config.ips.clone().into(),
            // What excludes all requests still does.
            not: config
                .not
                .as_deref()
                .map(|not| Box::new(Self::new(not).unwrap_or_default())),
        };
        (!all.is_empty()).then_some(all)
    }

    fn is_empty(&self) -> bool {
        self.paths.is_empty()
            && self.methods.is_empty()
            && self.hosts.is_empty()
            && self.headers.is_empty()
            && self.ips.is_empty()
            && self.not.is_none()
    }

    /// Whether every condition that is given holds, and `not`, as a whole, does not.
    pub(super) fn holds(&self, facts: &Facts<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(facts.method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|host| **host == *facts.host))
            && (self.paths.is_empty() || self.paths.iter().any(|glob| glob.matches(facts.path)))
            && (self.ips.is_empty() || self.ips.iter().any(|net| net.contains(&facts.client)))
            && self
                .headers
                .iter()
                .all(|(name, value)| facts.headers.get_all(name).iter().any(|own| own == value))
            && self.not.as_deref().is_none_or(|not| !not.holds(facts))
    }
}

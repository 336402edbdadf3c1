//! Which route takes a request; pure.
//!
//! A tree of path segments, walked from the most specific branch to the least: a route whose hosts or methods do not
//! match gives way to the next one, which a router that knows one best path cannot do.

use std::collections::HashMap;

use http::Method;

use crate::{
    config,
    path::{Segment, Template},
};

/// Finds the most specific route whose hosts and methods match; among equal paths the first in the file.
///
/// Paths are compared segment by segment, from the left: a literal is more specific than `{name}`, and that more than
/// `{*rest}`. `{name}` takes one segment, which is not empty. `{*rest}` takes all that is left, also nothing: `/a/{*rest}`
/// takes `/a/` and everything below it, not `/a`, and `/{*rest}` takes every path.
#[derive(Debug, Default)]
pub struct Router {
    root: Node,
}

/// The routes and branches below one prefix.
#[derive(Debug, Default)]
struct Node {
    /// By the next segment, as a normalised path spells it.
    literals: HashMap<Box<str>, Node>,
    /// Whatever the next segment is.
    any: Option<Box<Node>>,
    /// Routes whose path ends here, in the order of the file.
    here: Vec<Candidate>,
    /// Routes that take whatever is left, in the order of the file.
    rest: Vec<Candidate>,
}

/// A route under one path, and what else it asks for.
#[derive(Debug)]
struct Candidate {
    route: usize,
    methods: Box<[Method]>,
    hosts: Box<[Box<str>]>,
}

impl Router {
    /// A router over `routes`.
    #[must_use]
    pub fn new(routes: &[config::Route]) -> Self {
        let mut router = Self::default();
        for (index, route) in routes.iter().enumerate() {
            router.root.insert(&route.path, Candidate::new(index, route));
        }
        router
    }

    /// The index of the route that takes the request. `host`: lower case, without port; `path`: normalised.
    #[must_use]
    pub fn find(&self, method: &Method, host: &str, path: &str) -> Option<usize> {
        self.root.find(method, host, path.strip_prefix('/')?)
    }
}

impl Node {
    fn insert(&mut self, template: &Template, candidate: Candidate) {
        let mut node = self;
        for segment in template.segments() {
            node = match segment {
                Segment::Literal(text) => node.literals.entry(text.clone()).or_default(),
                Segment::Any => node.any.get_or_insert_default(),
                Segment::Rest => return node.rest.push(candidate),
            };
        }
        node.here.push(candidate);
    }

    /// `left` is what follows the slash behind this node's prefix. Every node is visited once at most, however the request
    /// is spelled: its prefix is reached in one way only.
    fn find(&self, method: &Method, host: &str, left: &str) -> Option<usize> {
        let (segment, below) = match left.split_once('/') {
            Some((segment, below)) => (segment, Some(below)),
            None => (left, None),
        };
        let descend = |node: &Self| match below {
            Some(below) => node.find(method, host, below),
            None => pick(&node.here, method, host),
        };
        self.literals
            .get(segment)
            .and_then(descend)
            .or_else(|| self.any.as_deref().filter(|_| !segment.is_empty()).and_then(descend))
            .or_else(|| pick(&self.rest, method, host))
    }
}

impl Candidate {
    fn new(index: usize, route: &config::Route) -> Self {
        Self {
            route: index,
            methods: route.methods.clone().into(),
            hosts: route.hosts.iter().map(|host| host.as_str().into()).collect(),
        }
    }

    fn takes(&self, method: &Method, host: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method))
            && (self.hosts.is_empty() || self.hosts.iter().any(|own| **own == *host))
    }
}

fn pick(candidates: &[Candidate], method: &Method, host: &str) -> Option<usize> {
    candidates
        .iter()
        .find(|candidate| candidate.takes(method, host))
        .map(|candidate| candidate.route)
}

#[cfg(test)]
mod tests;

//! Which routes a layer can meet.

use std::collections::{HashMap, HashSet};

use crate::path::{Glob, GlobSegment, Segment};

use super::super::{Match, Route};

/// Steps of all searches together. A file that takes more is too large or too odd to be told of.
const MAX_STEPS: usize = 2_000_000;

/// The routes by the segments of their paths: layers and routes come in thousands, so that not every layer can be held
/// against every route.
#[derive(Debug)]
pub(super) struct Routes<'a> {
    routes: &'a [Route],
    nodes: Vec<Node<'a>>,
    hosts: HashSet<&'a str>,
    steps_left: usize,
}

#[derive(Debug, Default)]
struct Node<'a> {
    literals: HashMap<&'a str, usize>,
    any: Option<usize>,
    /// Routes that end here.
    here: Vec<usize>,
    /// Routes that end in `{*rest}`.
    rest: Vec<usize>,
}

impl<'a> Routes<'a> {
    pub(super) fn new(routes: &'a [Route]) -> Self {
        let mut this = Self {
            routes,
            nodes: vec![Node::default()],
            hosts: routes
                .iter()
                .flat_map(|route| &route.hosts)
                .map(String::as_str)
                .collect(),
            steps_left: MAX_STEPS,
        };
        for (index, route) in routes.iter().enumerate() {
            this.insert(index, route);
        }
        this
    }

    fn insert(&mut self, index: usize, route: &'a Route) {
        let mut at = 0;
        for segment in route.path.segments() {
            let new = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else { return };
            at = match segment {
                Segment::Literal(text) => *node.literals.entry(text).or_insert(new),
                Segment::Any => *node.any.get_or_insert(new),
                Segment::Rest => return node.rest.push(index),
            };
            if at == new {
                self.nodes.push(Node::default());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.here.push(index);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'a Route> {
        self.routes.iter()
    }

    /// Whether some route takes requests to `host`.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.hosts.contains(host) || self.routes.iter().any(|route| route.hosts.is_empty())
    }

    /// Whether some route takes requests that `matches` holds for.
    pub(super) fn takes(&mut self, matches: &Match) -> bool {
        let is_met = |route: &Route| share_method(route, matches) && share_host(route, matches);
        if matches.paths.is_empty() {
            return self.routes.iter().any(is_met);
        }
        matches.paths.iter().any(|glob| self.any(glob, is_met))
    }

    /// Whether `is_met` by some route that has a path which `glob` matches; also where that takes too long to find out.
    pub(super) fn any(&mut self, glob: &Glob, is_met: impl Fn(&Route) -> bool) -> bool {
        let mut search = Search {
            routes: self.routes,
            nodes: &self.nodes,
            steps_left: self.steps_left,
            is_met,
        };
        let found = search.finds(0, glob.segments());
        self.steps_left = search.steps_left;
        found
    }
}

struct Search<'a, F> {
    routes: &'a [Route],
    nodes: &'a [Node<'a>],
    steps_left: usize,
    is_met: F,
}

impl<F: Fn(&Route) -> bool> Search<'_, F> {
    /// Whether a route below the node `at` is what is looked for, or the search is given up.
    fn finds(&mut self, at: usize, left: &[GlobSegment]) -> bool {
        let nodes = self.nodes;
        let Some(node) = nodes.get(at) else { return false };
        let Some((first, below)) = left.split_first() else {
            return self.has(&node.here);
        };
        // `{*rest}` takes whatever is left.
        if self.has(&node.rest) {
            return true;
        }
        let any = node.any.iter().copied();
        match first {
            GlobSegment::Literal(text) => {
                let literal = node.literals.get(&**text).copied();
                let any = any.filter(|_| !text.is_empty());
                literal.into_iter().chain(any).any(|next| self.finds(next, below))
            }
            GlobSegment::Wild(_) if !self.spend(node.literals.len()) => true,
            GlobSegment::Wild(_) => {
                let literals = node.literals.iter().filter(|(text, _)| first.takes(text));
                let literals = literals.map(|(_, next)| *next);
                literals.chain(any).any(|next| self.finds(next, below))
            }
            GlobSegment::AnyNumber => {
                let next = node.literals.values().copied().chain(any);
                self.finds(at, below) || { next }.any(|next| self.finds(next, left))
            }
        }
    }

    /// Whether one of these is what is looked for, or the search is given up.
    fn has(&mut self, candidates: &[usize]) -> bool {
        if !self.spend(candidates.len() + 1) {
            return true;
        }
        let mut routes = candidates.iter().filter_map(|index| self.routes.get(*index));
        routes.any(&self.is_met)
    }
}

impl<F> Search<'_, F> {
    /// Whether so many steps are left; takes them.
    fn spend(&mut self, steps: usize) -> bool {
        match self.steps_left.checked_sub(steps) {
            Some(left) => {
                self.steps_left = left;
                true
            }
            None => false,
        }
    }
}

pub(super) fn share_method(route: &Route, matches: &Match) -> bool {
    share(&route.methods, &matches.methods)
}

fn share_host(route: &Route, matches: &Match) -> bool {
    share(&route.hosts, &matches.hosts)
}

/// Whether two lists, of which an empty one holds everything, have something in common.
fn share<T: PartialEq>(some: &[T], others: &[T]) -> bool {
    some.is_empty() || others.is_empty() || some.iter().any(|one| others.contains(one))
}

//! A policy: one entry of `limits`, as far as deciding goes.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use crate::{
    algorithm::Algorithm,
    fingerprint::{Fingerprint, Secret},
};

/// What a layer does while its store cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// The layer is decided by this process alone, in memory.
    #[default]
    Local,
    /// The layer lets everything pass.
    Open,
    /// The layer refuses everything.
    Closed,
}

/// What a layer's word counts for, and when it is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// It refuses. It is charged where every enforced layer has room.
    #[default]
    Enforced,
    /// It refuses. It is charged also for what is refused, by itself or by a layer after it: at most what is free.
    ChargedAlways,
    /// It refuses nothing: what it would have refused is told. It is charged where every enforced layer has room, and so
    /// has it.
    Shadow,
    /// Other parameters for the enforced layer before it, tried out. It refuses nothing, and is charged where it has room
    /// and so has every enforced layer but that one.
    Candidate,
}

impl Role {
    /// Whether the layer can refuse.
    #[must_use]
    pub fn is_enforced(self) -> bool {
        matches!(self, Self::Enforced | Self::ChargedAlways)
    }
}

/// Who counts together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All processes that share the store.
    #[default]
    Cluster,
    /// This process alone, in memory, where the limiter [has a store](crate::Limiter::with_own) for that.
    Instance,
}

/// How units of a policy are taken from a shared store ahead of their use: in lots, of which this process then hands out by
/// itself. What is left of a lot goes back when its time is over, and at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LotTerms {
    /// The most units of a counter that this process has in hand.
    pub size: LotSize,
    /// For how long a lot is in hand.
    pub ttl: Duration,
}

/// The most units of a counter that one process has in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LotSize {
    /// So many hundredths of what passes at one moment, rounded down.
    Percent(u8),
    /// So many.
    Units(u64),
}

impl LotSize {
    /// So many units, where `limit` pass at one moment: 1 at least, and that at most.
    fn of(self, limit: u64) -> u64 {
        let units = match self {
            Self::Units(units) => units,
            Self::Percent(part) => limit / 100 * u64::from(part) + limit % 100 * u64::from(part) / 100,
        };
        units.clamp(1, limit.max(1))
    }
}

/// One layer: a name, how it counts, and what happens without its store.
///
/// The name is the identity: counters follow it when the other fields change.
#[derive(Clone)]
pub struct Policy {
    name: Arc<str>,
    algorithm: Algorithm,
    on_failure: OnFailure,
    role: Role,
    gives_back: bool,
    scope: Scope,
    lots: Option<LotTerms>,
    lot_max: u64,
    /// `name:tag:`, the name escaped, which begins the name of every counter of this policy.
    key_prefix: Box<str>,
    /// What their fingerprints are made with.
    secret: Secret,
}

impl Policy {
    /// A policy named `name` that counts by `algorithm`. Any text is a name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, algorithm: impl Into<Algorithm>, on_failure: OnFailure) -> Self {
        let (name, algorithm) = (name.into(), algorithm.into());
        let key_prefix: Box<str> = format!("{}:{}:", escape(&name), algorithm.tag()).into();
        Self {
            name,
            algorithm,
            on_failure,
            role: Role::default(),
            gives_back: false,
            scope: Scope::default(),
            secret: Secret::of_prefix(&key_prefix),
            lots: None,
            lot_max: 0,
            key_prefix,
        }
    }

    /// A candidate for this policy's place, with an algorithm of its own.
    ///
    /// Its counters are its own. Where the algorithm is another, they are those that the policy itself would have under it:
    /// a candidate that is promoted keeps its counts. Where it is the same with other parameters, the policy's own counts
    /// are the better ones, and go on.
    #[must_use]
    pub fn candidate(&self, algorithm: impl Into<Algorithm>) -> Self {
        let algorithm = algorithm.into();
        let own = if algorithm.tag() == self.algorithm.tag() {
            "c"
        } else {
            ""
        };
        let key_prefix: Box<str> = format!("{}:{}{own}:", escape(&self.name), algorithm.tag()).into();
        Self {
            secret: Secret::of_prefix(&key_prefix),
            key_prefix,
            algorithm,
            role: Role::Candidate,
            lots: None,
            lot_max: 0,
            ..self.clone()
        }
    }

    /// The same policy in another role. Its counters are the same: a shadow that is promoted keeps what it counted.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The same policy, whose charges may be changed once more is known of the request: the decision has a
    /// [`Receipt`](crate::Receipt) for them. Its counters are the same.
    ///
    /// Not for a leaky bucket that is a queue: those who wait have their turns, and units that came back would give their
    /// places to others.
    #[must_use]
    pub fn giving_back(self) -> Self {
        let gives_back = true;
        Self { gives_back, ..self }
    }

    /// The same policy, counted by these. Its counters there are others.
    #[must_use]
    pub fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// The same policy, whose units are taken [in lots](LotTerms) where the limiter
    /// [keeps some](crate::Limiter::with_lots). Its counters are the same.
    ///
    /// For enforced policies that all processes count together, by an algorithm that [knows lots](Algorithm::knows_lots).
    #[must_use]
    pub fn leased(self, terms: LotTerms) -> Self {
        let lot_max = terms.size.of(self.algorithm.limit());
        let lots = Some(terms);
        Self { lots, lot_max, ..self }
    }

    /// The same policy with other parameters of its algorithm, for some of its counters: those are named as ever.
    #[must_use]
    pub fn with_algorithm(&self, algorithm: impl Into<Algorithm>) -> Self {
        let algorithm = algorithm.into();
        debug_assert_eq!(
            algorithm.tag(),
            self.algorithm.tag(),
            "another algorithm has other counters"
        );
        Self {
            lot_max: (self.lots).map_or(0, |terms| terms.size.of(algorithm.limit())),
            algorithm,
            ..self.clone()
        }
    }

    /// Its name, unique among the policies that share a store.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How it counts.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// What it does while its store cannot answer.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// Who counts together.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// What its word counts for.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// How its units are taken in lots; `None`: each request asks for its own.
    #[must_use]
    pub fn lots(&self) -> Option<&LotTerms> {
        self.lots.as_ref()
    }

    /// Whether its units are taken in lots: not where a lot would be of one unit.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        self.lot_max > 1
    }

    /// The most units of a counter that one process has in hand: 1 at least, and what passes at one moment at most. 0 where
    /// they are not taken in lots.
    #[must_use]
    pub fn lot_max(&self) -> u64 {
        self.lot_max
    }

    /// Whether units can come back before time brings them: its charges are settled afterwards, or what is left of lots
    /// goes back.
    #[must_use]
    pub fn gives_back(&self) -> bool {
        self.gives_back || self.is_leased()
    }

    /// Whether a refusal stands until the wait that it told is over, whatever happens meanwhile: nobody gives units back
    /// early, and nobody else is to count the request.
    #[must_use]
    pub fn refuses_for_good(&self) -> bool {
        self.role == Role::Enforced && !self.gives_back() && !self.algorithm.has_turns() && !self.algorithm.holds()
    }

    /// `name:tag:`: what the names of this policy's counters begin with, after the store's own prefix. The tag of the
    /// algorithm keeps a changed algorithm from meeting the old state.
    ///
    /// In the name a backslash escapes a colon, a backslash, and a `~` at the beginning. So two policies never share a
    /// counter, and the name of none begins with `~`.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    /// What stands for the name of its counter `key` in this process's memory.
    pub(crate) fn fingerprint(&self, key: &str) -> Fingerprint {
        self.secret.fingerprint(key)
    }

    /// What stands for so many units of one of its counters.
    pub(crate) fn fingerprint_of(&self, key: &str, units: u64) -> Fingerprint {
        self.secret.fingerprint_of(key, units)
    }
}

/// The name as text without a bare colon.
pub(crate) fn escape(name: &str) -> Cow<'_, str> {
    if !name.contains([':', '\\']) && !name.starts_with('~') {
        return name.into();
    }
    let mut escaped = String::with_capacity(name.len() + 2);
    for (at, char) in name.char_indices() {
        if matches!(char, ':' | '\\') || (char == '~' && at == 0) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped.into()
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .field("on_failure", &self.on_failure)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::{Align, FixedWindow, SlidingWindowLog};

    fn algorithms() -> [Algorithm; 2] {
        let second = Duration::from_secs(1);
        [
            FixedWindow::new(1, second, Align::Clock).unwrap().into(),
            SlidingWindowLog::new(1, second).unwrap().into(),
        ]
    }

    fn prefix(name: &str) -> String {
        let [window, _] = algorithms();
        Policy::new(name, window, OnFailure::Open).key_prefix().to_owned()
    }

    #[test]
    fn a_name_begins_the_names_of_its_counters() {
        assert_eq!(prefix("per-client"), "per-client:fw:");
        assert_eq!(prefix("a:b"), "a\\:b:fw:");
        assert_eq!(prefix("a\\"), "a\\\\:fw:");
        assert_eq!(prefix("~a~"), "\\~a~:fw:");
        assert_eq!(prefix(""), ":fw:");
    }

    #[test]
    fn a_candidate_has_counters_of_its_own_or_those_that_it_will_have() {
        let [window, log] = algorithms();
        let policy = Policy::new("p", window.clone(), OnFailure::Open);
        assert_eq!(policy.candidate(window).key_prefix(), "p:fwc:");
        let promoted = Policy::new("p", log.clone(), OnFailure::Open);
        assert_eq!(policy.candidate(log).key_prefix(), promoted.key_prefix());
    }

    /// The name and the tag that the name of a counter begins with: reading them back is possible only if no two
    /// policies share a counter.
    fn read_back(counter: &str) -> (String, String) {
        let (mut name, mut chars) = (String::new(), counter.chars());
        loop {
            match chars.next().unwrap() {
                ':' => break,
                '\\' => name.push(chars.next().unwrap()),
                char => name.push(char),
            }
        }
        (name, chars.take_while(|char| *char != ':').collect())
    }

    proptest! {
        #[test]
        fn no_two_policies_share_a_counter(
            name in "(a|:|~|\\\\|fw|sl){0,5}",
            key in "(:|~|\\\\|fw|sl){0,5}",
            kind in 0..2_usize,
        ) {
            let algorithm = algorithms()[kind].clone();
            let policy = Policy::new(&*name, algorithm, OnFailure::Open);
            let counter = policy.key_prefix().to_owned() + &key;
            prop_assert_eq!(read_back(&counter), (name, policy.algorithm().tag().to_owned()));
            prop_assert!(!counter.starts_with('~'), "that name space is the gateways' own");
        }
    }
}

//! What a test writes into gateway.yaml.

use std::fmt::Write as _;

use super::{algorithms::FIVE, origin::Origin, redis::Redis};

/// A gateway.yaml in the making. Its parts are YAML of the contract, in flow style, so that a test reads as an operator's
/// file does.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    listen: String,
    store: Option<String>,
    upstreams: Vec<String>,
    routes: Vec<String>,
    limits: Vec<String>,
    more: Vec<String>,
}

impl Settings {
    /// Listens on free ports, and does nothing else yet.
    pub(crate) fn new() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            store: None,
            upstreams: Vec::new(),
            routes: Vec::new(),
            limits: Vec::new(),
            more: Vec::new(),
        }
    }

    /// Answers every path itself with a 200, where no upstream matters.
    pub(crate) fn answering() -> Self {
        Self::new().route(r#"{name: all, path: "/{*rest}", respond: {status: 200, body: fine}}"#)
    }

    /// Forwards every path to `origin`.
    pub(crate) fn forwarding_to(origin: &Origin) -> Self {
        Self::new()
            .upstream("origin", &[origin])
            .route(r#"{name: all, path: "/{*rest}", upstream: origin}"#)
    }

    /// Listens on this address instead.
    pub(crate) fn listen(mut self, address: &str) -> Self {
        address.clone_into(&mut self.listen);
        self
    }

    /// Counts in `redis`, under a prefix. The deadline of a decision is out of the way, so that a slow machine does not turn
    /// exact counting into the failure policy; tests of that policy set their own.
    pub(crate) fn counting_in(self, redis: &Redis, prefix: &str) -> Self {
        let address = redis.address();
        self.store(&format!(
            "{{redis: {{url: \"redis://{address}/0\", prefix: {prefix}, timeout: 10s}}}}"
        ))
    }

    /// Counts there: the value of `store`.
    pub(crate) fn store(mut self, value: &str) -> Self {
        self.store = Some(value.to_owned());
        self
    }

    /// Adds an upstream over these origins.
    pub(crate) fn upstream(self, name: &str, origins: &[&Origin]) -> Self {
        let urls: Vec<_> = origins
            .iter()
            .map(|origin| format!("\"http://{}\"", origin.address()))
            .collect();
        self.upstream_with(&format!("{name}: {{endpoints: [{}]}}", urls.join(", ")))
    }

    /// Adds an upstream: `NAME: {…}`.
    pub(crate) fn upstream_with(mut self, entry: &str) -> Self {
        self.upstreams.push(entry.to_owned());
        self
    }

    /// Adds a route.
    pub(crate) fn route(mut self, entry: &str) -> Self {
        self.routes.push(entry.to_owned());
        self
    }

    /// Adds a layer, to be checked after those that are there.
    pub(crate) fn limit(mut self, entry: &str) -> Self {
        self.limits.push(entry.to_owned());
        self
    }

    /// Adds a layer for each algorithm under a path of its own, as in `/tb/anything`.
    pub(crate) fn five_limits(self, key: &str, limit: u64, window: &str) -> Self {
        FIVE.iter().fold(self, |settings, algorithm| {
            settings.limit(&algorithm.layer(key, limit, window))
        })
    }

    /// Replaces the layers.
    pub(crate) fn limits<'a>(mut self, entries: impl IntoIterator<Item = &'a str>) -> Self {
        self.limits = entries.into_iter().map(str::to_owned).collect();
        self
    }

    /// Adds a section as it is.
    pub(crate) fn section(mut self, text: &str) -> Self {
        self.more.push(text.to_owned());
        self
    }

    /// The file.
    pub(crate) fn to_yaml(&self) -> String {
        let mut yaml = format!("listen: {}\nadmin: 127.0.0.1:0\n", self.listen);
        if let Some(store) = &self.store {
            writeln!(yaml, "store: {store}").unwrap();
        }
        for section in &self.more {
            writeln!(yaml, "{section}").unwrap();
        }
        for (name, entries, bullet) in [
            ("upstreams", &self.upstreams, "  "),
            ("routes", &self.routes, "  - "),
            ("limits", &self.limits, "  - "),
        ] {
            if !entries.is_empty() {
                writeln!(yaml, "{name}:").unwrap();
            }
            for entry in entries {
                writeln!(yaml, "{bullet}{entry}").unwrap();
            }
        }
        yaml
    }
}

//! The script that decides in Redis: its text, what it is asked, and what it answers.
//!
//! One call takes a [`Batch`] of requests, and of settlements, which ask nothing. The script loads every counter once,
//! settles, decides the requests in order, and answers with the counters as they were before the first. From those, [`Batch::replay`] repeats the decisions with the same
//! arithmetic in Rust, and so knows what remains and how long to wait at every layer of every request.
//!
//! `lua/README.md` has the calling convention.

mod batch;
mod codec;
mod replay;
#[cfg(feature = "test-util")]
pub mod testing;

pub(crate) use batch::{Added, Arguments, Batch, KEYS_MAX, LAYERS_MAX, REQUESTS_MAX};
pub(crate) use replay::{Replay, Reply};

/// Which time the script goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ScriptClock {
    /// The server's.
    #[default]
    Server,
    /// The one given as an additional last argument, as decimal µs: for tests.
    Given,
}

/// The text of the script, and the name that Redis knows it by.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    text: String,
    sha1: String,
}

/// The parts after the clock, in the order in which they need each other.
const PARTS: [&str; 9] = [
    include_str!("../../../lua/bucket.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/warm_up.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window_counter.lua"),
    include_str!("../../../lua/sliding_window_log.lua"),
    include_str!("../../../lua/concurrency.lua"),
    include_str!("../../../lua/decide.lua"),
];

impl Script {
    /// The script, going by `clock`.
    pub(crate) fn new(clock: ScriptClock) -> Self {
        let clock = match clock {
            ScriptClock::Server => include_str!("../../../lua/clock.lua"),
            ScriptClock::Given => include_str!("../../../lua/clock_given.lua"),
        };
        let text = [include_str!("../../../lua/head.lua"), clock]
            .into_iter()
            .chain(PARTS)
            .collect();
        Self::from_text(text)
    }

    /// A gateway's heartbeat.
    pub(crate) fn beat() -> Self {
        Self::from_text(include_str!("../../../lua/beat.lua").to_owned())
    }

    /// What counts refusals, and bans.
    pub(crate) fn ban() -> Self {
        Self::from_text(include_str!("../../../lua/ban.lua").to_owned())
    }

    fn from_text(text: String) -> Self {
        let sha1 = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, sha1 }
    }

    /// For `EVAL` and `SCRIPT LOAD`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// For `EVALSHA`: 40 hex digits.
    pub(crate) fn sha1(&self) -> &str {
        &self.sha1
    }
}

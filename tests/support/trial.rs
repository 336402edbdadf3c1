//! A gateway under load while something happens to its Redis, and what to hold of its answers.

use std::{fs::OpenOptions, io::Write as _, time::Duration};

use super::{
    gateway::Gateway,
    load::{Answered, Load},
    settings::Settings,
    wait::{DEADLINE, pause, wait_for},
};

/// The deadline of a decision: the default.
const TIMEOUT: Duration = Duration::from_millis(50);
/// What is promised on top of it, where the machine is idle.
const MARGIN: Duration = Duration::from_millis(10);
/// What a busy machine may add to any wait, in the worst case.
const BUSY: Duration = Duration::from_millis(400);
/// Shared counting is back so soon after the server is well.
const RECOVERY: Duration = Duration::from_secs(5);
/// What a decision without the store takes at most, once the outage is known.
const AT_ONCE: Duration = Duration::from_millis(5);
/// From then on the outage is known, and every answer is the policy's.
const NOTICED: Duration = Duration::from_secs(1);

/// One path for each policy, one that meets all three, one that is not limited. Each is asked for 40 times a second.
const PATHS: [&str; 5] = ["/local", "/open", "/closed", "/all", "/free"];
const CLIENTS: u32 = 8;
const PER_SECOND: u32 = 200;
/// A layer lets 30 a second pass of the 80 that it is asked for, and a burst of as many.
const RATE: u32 = 30;
pub(crate) const BURST: u32 = 30;
const POLICIES: [&str; 3] = ["local", "open", "closed"];

/// How much the gateway has to notice of what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing.
    None,
    /// Some decisions are the policy's, within a second of its beginning.
    Blip,
    /// While it lasts, and until the gateway has found its way, a decision is the store's or the policy's.
    Change,
    /// While it lasts, all decisions are the policy's.
    Outage,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// As the table calls it.
    name: &'static str,
    effect: Effect,
    /// How much of what was used the servers may forget: that may pass again.
    forgotten: u32,
    /// How long it lasts.
    lasts: Duration,
}

/// What was seen of a trial, to be judged.
#[derive(Debug)]
struct Seen {
    trial: Trial,
    answers: Vec<Answered>,
    /// The longest time for which the clients did not run.
    stall: Duration,
    /// Since the load began: when the trouble began, when it ended.
    began: Duration,
    ended: Duration,
    /// From then on `/api/status` and the metrics said that the store is connected.
    connected: Duration,
    /// For each policy: what its layer let pass without the store.
    fallback: [f64; 3],
}

impl Trial {
    /// For 3 s the store cannot be asked.
    pub(crate) fn outage(name: &'static str) -> Self {
        Self {
            name,
            effect: Effect::Outage,
            forgotten: 0,
            lasts: Duration::from_secs(3),
        }
    }

    /// Something that is over in a moment.
    pub(crate) fn blip(name: &'static str) -> Self {
        Self {
            effect: Effect::Blip,
            lasts: Duration::from_secs(1),
            ..Self::outage(name)
        }
    }

    /// Something that is not to be noticed.
    pub(crate) fn unnoticed(name: &'static str) -> Self {
        Self {
            effect: Effect::None,
            ..Self::outage(name)
        }
    }

    /// Another server takes over, for as long as that takes.
    pub(crate) fn change(name: &'static str) -> Self {
        Self {
            effect: Effect::Change,
            lasts: Duration::ZERO,
            ..Self::outage(name)
        }
    }

    /// The servers may forget so many units of what was used.
    pub(crate) fn forgetting(self, units: u32) -> Self {
        Self {
            forgotten: units,
            ..self
        }
    }

    /// It lasts so long.
    pub(crate) fn lasting(self, lasts: Duration) -> Self {
        Self { lasts, ..self }
    }

    /// A gateway with the three policies that counts in this `store`: what stands behind `store: {redis: {`.
    pub(crate) fn settings(store: &str) -> Settings {
        let layer = |policy: &str| {
            format!(
                "{{name: {policy}, key: global, match: {{path: [/{policy}, /all]}}, on_store_failure: {policy}, \
                 algorithm: token_bucket, rate: {RATE}/s, burst: {BURST}}}"
            )
        };
        let settings = Settings::answering()
            .section("log: {access: false}")
            .store(&format!("{{redis: {{{store}}}}}"));
        POLICIES
            .iter()
            .fold(settings, |settings, policy| settings.limit(&layer(policy)))
    }

    /// Puts the gateway under load, lets `begin` and then `end` happen, waits until shared counting is back, and judges.
    pub(crate) async fn run(self, gateway: &Gateway, begin: impl AsyncFnOnce(), end: impl AsyncFnOnce()) {
        gateway.status_says("/store/state", "connected").await;
        let load = Load::start(gateway.address(), &PATHS, CLIENTS, PER_SECOND);
        pause(Duration::from_secs(1)).await;
        let began = load.elapsed();
        begin().await;
        let left = (began + self.lasts).saturating_sub(load.elapsed());
        pause(left).await;
        end().await;
        let ended = load.elapsed();
        is_connected(gateway).await;
        let connected = load.elapsed();
        pause(Duration::from_millis(1500)).await;
        is_connected(gateway).await;
        let (answers, stall) = load.stop_and_measure().await;
        let mut fallback = [0.0; 3];
        for (count, policy) in fallback.iter_mut().zip(POLICIES) {
            let labels = [("limit", policy), ("outcome", "fallback_allowed")];
            *count = gateway.metric("gateway_limit_decisions_total", &labels).await;
        }
        let seen = Seen {
            trial: self,
            answers,
            stall,
            began,
            ended,
            connected,
            fallback,
        };
        seen.tell();
        seen.judge();
    }
}

/// Units that come back to a layer in this time.
fn back_in(time: Duration) -> f64 {
    f64::from(RATE) * time.as_secs_f64()
}

async fn is_connected(gateway: &Gateway) {
    wait_for(
        DEADLINE,
        "a connected store in /api/status and in the metrics",
        || async {
            let state = [("state", "connected")];
            gateway.status().await.pointer("/store/state") == Some(&"connected".into())
                && gateway.metric("gateway_store_state", &state).await > 0.0
        },
    )
    .await;
}

impl Seen {
    /// Answers to these paths.
    fn to<'a>(&'a self, paths: &'a [&'a str]) -> impl Iterator<Item = &'a Answered> {
        self.answers.iter().filter(|answered| paths.contains(&answered.path))
    }

    /// The worst wait at these paths.
    fn worst(&self, paths: &[&str]) -> Duration {
        self.to(paths).map(|answered| answered.waited).max().unwrap()
    }

    fn count(&self, status: u16) -> usize {
        self.answers
            .iter()
            .filter(|answered| answered.status == Some(status))
            .count()
    }

    /// From the end of the trouble until the store decided again: ten decisions in a row.
    fn recovery(&self) -> Duration {
        let since = match self.trial.effect {
            Effect::Outage | Effect::Change => self.ended,
            Effect::None | Effect::Blip => self.began,
        };
        let decided: Vec<_> = self
            .to(&["/closed"])
            .filter(|answered| answered.sent >= since)
            .collect();
        let by_store = |answered: &&Answered| answered.status != Some(503);
        let back = decided.windows(10).find(|ten| ten.iter().all(by_store));
        let back = back.map_or(Duration::MAX, |ten| ten[0].sent);
        match self.trial.effect {
            Effect::Outage | Effect::Change => back.max(self.connected).saturating_sub(since),
            Effect::None | Effect::Blip => back.saturating_sub(since),
        }
    }

    /// How many requests passed the layer of a policy, and how many may have.
    fn passed_and_allowed(&self, policy: usize) -> (usize, f64) {
        let path = ["/local", "/open", "/closed"][policy];
        let passed = self
            .to(&[path, "/all"])
            .filter(|answered| answered.status == Some(200))
            .count();
        let allowed = match POLICIES[policy] {
            // One gateway: without the store it goes on from what it last saw, and the store is told of it.
            "local" => self.always_asked(),
            "open" if self.trial.effect == Effect::Outage => self.store_allows() + self.fallback[policy],
            // It was not away for all layers alike.
            "open" => self.always_asked() + self.fallback[policy],
            _ => self.store_allows(),
        };
        (passed, allowed)
    }

    /// Decisions lie between the first departure and the last arrival.
    fn time(&self) -> Duration {
        let arrivals = self.answers.iter().map(|answered| answered.sent + answered.waited);
        arrivals.max().unwrap() - self.answers[0].sent
    }

    /// What the store lets pass of a layer: what comes back in the time, and a burst. While nobody asked it, no more than a
    /// burst came back, whatever it forgot.
    fn store_allows(&self) -> f64 {
        let silence = self.longest_silence();
        if back_in(silence) > f64::from(BURST) {
            back_in(self.time() - silence) + f64::from(2 * BURST)
        } else {
            self.always_asked()
        }
    }

    /// What passes where the store decides all along; as much again as it forgot of what was used.
    fn always_asked(&self) -> f64 {
        back_in(self.time()) + f64::from(BURST + self.trial.forgotten)
    }

    /// The longest time in which the store decided nothing, as far as one layer shows.
    fn longest_silence(&self) -> Duration {
        let mut last = Duration::ZERO;
        let mut longest = Duration::ZERO;
        for answered in self.to(&["/closed"]).filter(|answered| answered.status != Some(503)) {
            longest = longest.max(answered.sent.saturating_sub(last));
            last = last.max(answered.sent + answered.waited);
        }
        // Other layers were asked for a little longer, and again a little earlier.
        longest.saturating_sub(Duration::from_millis(100))
    }

    /// Prints a line of a Markdown table, and adds it to the file that the environment names.
    fn tell(&self) {
        const HEAD: &str = "| fault | worst wait, ms (of the route without limits) | 200 / 429 / 503 | shared again after, ms \
             | admitted / allowed: `local` | `open` | `closed` |\n|---|---|---|---|---|---|---|\n";
        let shares: Vec<_> = (0..POLICIES.len())
            .map(|policy| self.passed_and_allowed(policy))
            .map(|(passed, allowed)| format!("{passed} / {allowed:.0}"))
            .collect();
        let line = format!(
            "| {} | {} ({}) | {} / {} / {} | {} | {} |\n",
            self.trial.name,
            self.worst(&PATHS[..4]).as_millis(),
            self.worst(&["/free"]).as_millis(),
            self.count(200),
            self.count(429),
            self.count(503),
            match self.trial.effect {
                Effect::None => "–".to_owned(),
                Effect::Blip | Effect::Change | Effect::Outage => self.recovery().as_millis().to_string(),
            },
            shares.join(" | "),
        );
        print!("{line}");
        if let Some(file) = std::env::var_os("FAULTS_TABLE") {
            let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
            let head = if file.metadata().unwrap().len() == 0 { HEAD } else { "" };
            write!(file, "{head}{line}").unwrap();
        }
    }

    fn judge(&self) {
        for answered in &self.answers {
            self.is_allowed(answered);
        }
        self.waits_are_bounded();
        self.policies_applied();
        let recovery = self.recovery();
        assert!(recovery <= RECOVERY, "{}: back after {recovery:?}", self.trial.name);
        for (index, policy) in POLICIES.into_iter().enumerate() {
            let (passed, allowed) = self.passed_and_allowed(index);
            let what = format!("{}: {passed} passed {policy}, {allowed} may", self.trial.name);
            assert!(passed as f64 <= allowed, "{what}");
            // More is asked for than may pass: what comes back is used, but for a decision that a busy machine made late.
            assert!(passed as f64 >= 0.6 * allowed, "{what}");
        }
    }

    /// Every request has an answer, and one that its route may give.
    fn is_allowed(&self, answered: &Answered) {
        let expected: &[u16] = match answered.path {
            "/free" => &[200],
            "/local" | "/open" => &[200, 429],
            _ => &[200, 429, 503],
        };
        let told = || format!("{}: {answered:?}", self.trial.name);
        let status = answered.status.unwrap_or_else(|| panic!("lost: {}", told()));
        assert!(expected.contains(&status), "{}", told());
        assert!(status == 200 || answered.has_retry_after, "no Retry-After: {}", told());
    }

    /// What the machine adds to a wait: as much as where nothing is asked of the store, and what the clients did not see.
    fn noise(&self) -> Duration {
        self.worst(&["/free"]) + self.stall
    }

    /// The deadline holds, but for what the machine adds.
    fn waits_are_bounded(&self) {
        let noise = self.noise();
        let mut waits: Vec<_> = self.to(&PATHS[..4]).map(|answered| answered.waited).collect();
        waits.sort();
        let (most, worst) = (waits[waits.len() * 99 / 100], waits[waits.len() - 1]);
        let told = format!(
            "{}: {most:?} for 99 %, {worst:?} at worst; the machine {noise:?}",
            self.trial.name
        );
        assert!(most <= TIMEOUT + MARGIN + noise.max(BUSY / 4), "{told}");
        assert!(worst <= TIMEOUT + MARGIN + noise.max(BUSY), "{told}");
    }

    /// Once the outage is known, no request waits for it: only a probe does.
    fn nobody_waits<'a>(&self, answers: impl Iterator<Item = &'a Answered>) {
        let mut waits: Vec<_> = answers.map(|answered| answered.waited).collect();
        waits.sort();
        let most = waits[waits.len() * 95 / 100];
        let noise = self.noise();
        assert!(
            most <= AT_ONCE + noise,
            "{}: {most:?} for 95 %; the machine {noise:?}",
            self.trial.name
        );
    }

    fn policies_applied(&self) {
        let (trial, name) = (self.trial, self.trial.name);
        let is_503 = |answered: &&Answered| answered.status == Some(503);
        match trial.effect {
            Effect::Outage => {
                let within = |answered: &&Answered| (self.began + NOTICED..self.ended).contains(&answered.sent);
                for answered in self.to(&["/closed", "/all"]).filter(within) {
                    assert_eq!(answered.status, Some(503), "{name}: {answered:?}");
                }
                for answered in self.to(&["/open"]).filter(within) {
                    assert_eq!(answered.status, Some(200), "{name}: {answered:?}");
                }
                let passed = self
                    .to(&["/local"])
                    .filter(within)
                    .filter(|a| a.status == Some(200))
                    .count();
                assert!(passed > 0, "{name}: nothing passed locally");
                self.nobody_waits(self.to(&PATHS[..4]).filter(within));
            }
            Effect::Blip => {
                let over = self.began + NOTICED;
                let late = self
                    .to(&["/closed", "/all"])
                    .filter(is_503)
                    .filter(|a| a.sent > over + trial.lasts);
                few(late.count(), self.to(&["/closed", "/all"]).count(), name);
            }
            Effect::Change => {}
            Effect::None => few(self.count(503), self.to(&["/closed", "/all"]).count(), name),
        }
    }
}

/// Decisions that come late on a busy machine are the policy's as well, and after a few of them more are.
fn few(late: usize, of: usize, name: &str) {
    assert!(late * 8 <= of, "{name}: {late} of {of} decisions were the policy's");
}

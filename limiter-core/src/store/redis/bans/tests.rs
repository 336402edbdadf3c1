//! The script and the reference in Rust count and ban alike: random calls go to both, with a given time that may step
//! back, and what is stored and told is compared.
//!
//! All times are whole minutes: keys expire in real time, which a run does not last.

use std::collections::HashMap;

use fastrand::Rng;

use super::*;
use crate::{
    ban::record::Record,
    test_util::{RedisReply, RedisServer},
};

mod log;

const LOG: &str = "gw:~{bans}";
const STEPS: u32 = 3_000;
const MINUTE: u64 = 60_000_000;

fn minutes(number: u64) -> Duration {
    Duration::from_micros(number * MINUTE)
}

/// Two layers, with a ladder and without.
fn rules() -> [Arc<BanRule>; 2] {
    let rule = |after, within, ladder: &[u64]| {
        let ladder: Vec<_> = ladder.iter().map(|time| minutes(*time)).collect();
        Arc::new(BanRule::new(after, minutes(within), ladder).unwrap())
    };
    [rule(5, 32, &[10, 30, 120]), rule(45, 64, &[20])]
}

/// The reference, and a server that runs the script.
struct World {
    server: RedisServer,
    script: String,
    random: Rng,
    rules: [Arc<BanRule>; 2],
    now: Timestamp,
    /// The state of each key that has one.
    known: HashMap<String, Record>,
    version: u64,
    /// What was seen, for the comparison to be worth something.
    seen: [u32; 6],
}

/// What the reference makes of a call.
#[derive(Default)]
struct Applied {
    /// Keys whose bans have changed.
    changed: Vec<String>,
    /// Keys that have a state now, and until when.
    written: Vec<(String, Timestamp)>,
    /// Bans that were lifted.
    lifted: u64,
}

/// As the script stores it.
fn stored(record: &Record) -> String {
    let (until, rung, length) = record
        .ban
        .map_or((0, 0, 0), |ban| (ban.until.as_micros(), ban.rung, micros(ban.length)));
    let tally = record.tally.iter();
    let tally = tally.map(|(at, count)| format!(" {} {count}", at.as_micros()));
    format!("{until} {rung} {length}{}", tally.collect::<String>())
}

impl World {
    fn new(seed: u64, script: &str) -> Self {
        Self {
            server: RedisServer::start(),
            script: script.to_owned(),
            random: Rng::with_seed(seed),
            rules: rules(),
            now: Timestamp::from_micros(29_934_000 * MINUTE),
            known: HashMap::new(),
            version: 0,
            seen: [0; 6],
        }
    }

    fn advance(&mut self) {
        let now = self.now.as_micros();
        let by = match self.random.u32(..120) {
            0 => 600,
            1..4 => 90,
            4..50 => self.random.u64(1..4),
            _ => 0,
        };
        self.now = Timestamp::from_micros(now + by * MINUTE);
        if self.random.u32(..30) == 0 {
            self.now = Timestamp::from_micros(now - self.random.u64(1..40) * MINUTE);
        }
    }

    fn news(&mut self) -> Vec<News> {
        let mut news: Vec<News> = Vec::new();
        for _ in 0..self.random.usize(..8) {
            let layer = self.random.usize(..2);
            let key: Box<str> = ["a", "b|c", "~ip:::/64"][self.random.usize(..3)].into();
            let ago = [0, 0, 0, 0, 1, 30, 40, 70][self.random.usize(..8)];
            let at = Timestamp::from_micros(self.now.as_micros() - ago * MINUTE);
            let what = match self.random.u32(..40) {
                0 => What::Lifted,
                1..5 => What::Banned(self.random.u32(..4), at),
                _ => What::Refused(self.random.u64(1..3), at),
            };
            let limit: Arc<str> = ["l:\\", "m"][layer].into();
            if news.iter().all(|other| other.limit != limit || other.key != key) {
                news.push(News {
                    limit,
                    rule: (what != What::Lifted).then(|| Arc::clone(&self.rules[layer])),
                    key,
                    what,
                });
            }
        }
        news
    }

    /// What the reference makes of it.
    fn apply(&mut self, news: &[News]) -> Applied {
        let now = self.now;
        let mut applied = Applied::default();
        for news in news {
            let key = format!("{LOG}:{}:{}", policy::escape(&news.limit), news.key);
            let known = self.known.get(&key);
            let mut record = known.cloned().unwrap_or_default();
            let (writes, changes) = match (news.what, &news.rule) {
                (What::Refused(count, at), Some(rule)) => {
                    let is_banned = record.refused(rule, count, at, now);
                    let is_ignored = record.left(now).is_some() && !is_banned || at.plus(rule.within()) <= now;
                    self.seen[usize::from(is_banned)] += 1;
                    self.seen[2] += u32::from(is_ignored);
                    (!is_ignored, is_banned)
                }
                (What::Banned(rung, began), Some(rule)) => {
                    let changes = record.offended(rule, rung, began, now);
                    self.seen[3] += u32::from(!changes);
                    (changes, changes)
                }
                _ => {
                    applied.lifted += u64::from(record.left(now).is_some());
                    self.seen[4] += u32::from(known.is_some());
                    self.known.remove(&key);
                    (false, true)
                }
            };
            if writes && let Some(rule) = &news.rule {
                if record.forget_at(rule) > now {
                    applied.written.push((key.clone(), record.forget_at(rule)));
                    self.known.insert(key.clone(), record);
                } else {
                    self.seen[5] += 1;
                    self.known.remove(&key);
                }
            }
            if changes {
                applied.changed.push(key);
            }
        }
        applied
    }

    fn step(&mut self) -> Result<(), String> {
        self.advance();
        let news = self.news();
        let keys: Vec<_> = (news.iter())
            .map(|news| format!("{LOG}:{}:{}", policy::escape(&news.limit), news.key))
            .collect();
        let mut call = vec![
            "EVAL".to_owned(),
            self.script.clone(),
            (keys.len() + 1).to_string(),
            LOG.to_owned(),
        ];
        call.extend(keys);
        let times = [self.now.as_micros(), 0];
        let arguments = arguments(times, self.version, &news, self.now);
        call.extend(arguments.iter().map(|value| value.as_string().unwrap()));
        let reply = self
            .server
            .command(&call.iter().map(String::as_str).collect::<Vec<_>>());
        let Applied {
            mut changed,
            written,
            lifted,
        } = self.apply(&news);
        self.compare_reply(&reply, &mut changed, lifted)?;
        self.compare_state()?;
        written.iter().try_for_each(|written| self.compare_expiry(written))
    }

    fn compare_reply(&mut self, reply: &RedisReply, changed: &mut [String], lifted: u64) -> Result<(), String> {
        let told = reply.texts();
        if told.len() < 4 {
            return Err(format!("{reply:?}"));
        }
        let newest: u64 = told[1].parse().unwrap();
        if told[1] != told[2] || told[3] != lifted.to_string() || newest < self.version {
            return Err(format!("{told:?} after {} and {lifted} lifted", self.version));
        }
        self.version = newest;
        let mut changes: Vec<Vec<String>> = told[4..].chunks(4).map(<[String]>::to_vec).collect();
        changes.sort();
        changed.sort();
        let expected: Vec<Vec<String>> = (changed.iter())
            .map(|key| match self.known.get(key).and_then(|record| record.ban) {
                Some(ban) => {
                    let left = ban.until.as_micros().cast_signed() - self.now.as_micros().cast_signed();
                    vec![
                        key.clone(),
                        left.to_string(),
                        ban.rung.to_string(),
                        micros(ban.length).to_string(),
                    ]
                }
                None => vec![key.clone(), String::new(), String::new(), String::new()],
            })
            .collect();
        match changes == expected {
            true => Ok(()),
            false => Err(format!("told {changes:?}, expected {expected:?}")),
        }
    }

    fn compare_state(&self) -> Result<(), String> {
        let limits = ["l\\:\\\\", "m"];
        let of = |limit: &str| ["a", "b|c", "~ip:::/64"].map(|key| format!("{LOG}:{limit}:{key}"));
        let keys: Vec<_> = limits.into_iter().flat_map(of).collect();
        let all = ["MGET"].into_iter().chain(keys.iter().map(String::as_str));
        let reply = self.server.command(&all.collect::<Vec<_>>());
        for (key, reply) in keys.iter().zip(reply.items()) {
            let expected = self.known.get(key).map(stored);
            if reply.text() != expected.as_deref() {
                return Err(format!("{key} is {reply:?}, expected {expected:?}"));
            }
        }
        Ok(())
    }

    /// Of a key that was just written.
    fn compare_expiry(&self, (key, forget_at): &(String, Timestamp)) -> Result<(), String> {
        let live = self.server.command(&["PTTL", key]).int().unwrap();
        let expected = i64::try_from(forget_at.since(self.now).as_millis()).unwrap();
        match (expected - 60_000..=expected).contains(&live) {
            true => Ok(()),
            false => Err(format!("{key} lives for {live} ms, expected {expected}")),
        }
    }
}

fn script() -> String {
    Script::ban().text().to_owned()
}

#[test]
fn script_and_reference_agree() {
    let seed = match std::env::var("SCRIPT_SEED") {
        Ok(seed) => seed.parse().expect("SCRIPT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    let mut world = World::new(seed, &script());
    for step in 0..STEPS {
        if let Err(difference) = world.step() {
            panic!("SCRIPT_SEED={seed}, step {step}: {difference}");
        }
    }
    assert!(
        world.seen.iter().all(|seen| *seen > 3),
        "SCRIPT_SEED={seed}: {:?}",
        world.seen
    );
}

/// What the comparison must find out.
const ALTERATIONS: &[(&str, &str)] = &[
    ("sum >= rule.after", "sum > rule.after"),
    (
        "entry[1] + rule.within > now then",
        "entry[1] + rule.within >= now then",
    ),
    ("entry[1] = math.min(entry[1], now)", ""),
    ("state.till = math.min(state.till, now + state.length)", ""),
    ("or state.rung + 1", "or state.rung"),
    (
        "time < state.till and state.rung",
        "time < state.till and state.rung + 1",
    ),
    ("math.max(rung - lost, 0)", "math.max(rung, 0)"),
    ("last[1] = math.min(last[1], time)", ""),
    ("last[2] + count", "count"),
    ("local EXACT = 16", "local EXACT = 15"),
    ("math.floor(rule.within / 16)", "math.floor(rule.within / 15)"),
    (
        "time + rule.ladder[rung] > state.till",
        "time + rule.ladder[rung] >= state.till",
    ),
    (
        "math.max(rung, next_rung(state, rule, time))",
        "next_rung(state, rule, time)",
    ),
    ("math.max(rung, math.min(state.rung, rule.last))", "rung"),
    ("state.length * (state.rung + 1)", "state.length * state.rung"),
    ("lifted = lifted + 1", "lifted = lifted + 2"),
    ("math.max(version + 1, now)", "now"),
    ("text(state.till - now)", "text(state.till - now + 1)"),
    ("'(' .. text(since)", "text(since)"),
];

#[test]
fn an_altered_script_is_found_out() {
    let script = script();
    let mut missed = Vec::new();
    for (from, to) in ALTERATIONS {
        assert_eq!(script.matches(from).count(), 1, "{from:?} is not once in the script");
        let mut world = World::new(7, &script.replace(from, to));
        if (0..STEPS).all(|_| world.step().is_ok()) {
            missed.push((from, to));
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}

#[test]
fn the_names_of_layers_are_read_back() {
    for name in ["ip", "a:b", "~a\\", ""] {
        let member = format!("{}:k:\\x", policy::escape(name));
        assert_eq!(split(&member), Some((name.to_owned(), "k:\\x")));
    }
    assert_eq!(split("without"), None);
}

//! Random calls, decided by the script and by the reference, and compared.

use std::{collections::HashMap, sync::Arc, time::Duration};

use fastrand::Rng;
use limiter_core::{
    Algorithm, Ask, Decision, OnFailure, Policy, Role, Timestamp, Verdict,
    algorithm::EXACT_MAX,
    test_util::script::{Answered, Batch, Model, Settle, Stored, script_text},
};

use crate::{
    random::{Kind, algorithm, cost},
    redis::{Redis, Value},
};

mod time;

/// A time to live that never ends a key: the time of the test is not that of the server.
const FOREVER_MS: &str = "1000000000000";

const PREFIX: &str = "t";

/// The script whose time is given.
pub(crate) fn script() -> String {
    script_text(true)
}

/// Policies under change, a clock, and both sides.
pub(crate) struct World {
    rng: Rng,
    kinds: Vec<Kind>,
    policies: Vec<Arc<Policy>>,
    now: u64,
    /// Times of former calls: to come back to when what they took leaves.
    times: [u64; 16],
    model: Model,
    redis: Redis,
    sha1: Vec<u8>,
    allowed: u32,
    denied: u32,
    shared: u32,
    settled: u32,
    /// Calls that had edges of other windows of a calendar.
    told: u32,
}

/// One request: for each layer, the policy's index, the key, the cost.
type Request = Vec<(usize, String, u64)>;

/// One settlement: the policy's index, the key, the change.
type Settlement = (usize, String, Settle);

impl World {
    pub(crate) fn new(kinds: &[Kind], seed: u64, script: &str) -> Self {
        let mut redis = Redis::start();
        let Value::Bytes(sha1) = redis.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]) else {
            panic!("the script does not load");
        };
        let mut world = Self {
            rng: Rng::with_seed(seed),
            kinds: kinds.to_vec(),
            policies: Vec::new(),
            now: 1_796_040_000_000_000,
            times: [0; 16],
            model: Model::default(),
            redis,
            sha1,
            allowed: 0,
            denied: 0,
            shared: 0,
            settled: 0,
            told: 0,
        };
        for slot in 0..5 {
            let policy = world.policy(slot);
            world.policies.push(policy);
        }
        world
    }

    /// One call: one request or several.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        if self.rng.u8(..) < 8 {
            let slot = self.rng.usize(0..self.policies.len());
            self.policies[slot] = self.policy(slot);
        }
        self.move_time();
        let settlements = self.settlements();
        let requests = self.requests(settlements.is_empty());
        // Few, so that they come again while their leases run.
        let holder = self.rng.u64(0..3);
        self.model.set_holder(holder);
        let mut batch = Batch::of(holder);
        let mut names = Vec::new();
        for (slot, key, settle) in &settlements {
            let policy = &self.policies[*slot];
            if !batch.settle(policy, key, *settle) {
                return Err("a settlement has no place".to_owned());
            }
            names.push((Arc::clone(policy), key.clone()));
        }
        for request in &requests {
            let asks = asks(&self.policies, request);
            if !batch.add(&asks) {
                return Err("a small request has no place".to_owned());
            }
            names.extend(asks.iter().map(|ask| (ask.policy.clone(), ask.key.to_owned())));
        }
        names.sort_by(|a, b| (a.0.name(), &a.1).cmp(&(b.0.name(), &b.1)));
        let all = names.len();
        names.dedup_by(|a, b| a.0.name() == b.0.name() && a.1 == b.1);
        self.shared += u32::from(names.len() < all);
        self.settled += u32::from(!settlements.is_empty());
        let found = self.compare(&settlements, &requests, &batch, &names);
        found.map_err(|difference| format!("{difference}\nafter {settlements:?}"))
    }

    fn compare(
        &mut self,
        settlements: &[Settlement],
        requests: &[Request],
        batch: &Batch,
        names: &[(Arc<Policy>, String)],
    ) -> Result<(), String> {
        let about = self.believed_time(batch, names)?;
        let mut commands = vec![self.command(batch, about)];
        commands.extend(names.iter().map(|(policy, key)| {
            let name = format!("{PREFIX}:{}{key}", policy.key_prefix()).into_bytes();
            match policy.algorithm() {
                Algorithm::SlidingWindowLog(_) => {
                    vec![b"LRANGE".to_vec(), name, b"0".to_vec(), b"-1".to_vec()]
                }
                _ => vec![b"GET".to_vec(), name],
            }
        }));
        let mut replies = self.redis.pipeline(&commands).into_iter();
        let reply = replies.next().ok_or("no reply")?;
        let Value::Bytes(reply) = reply else {
            return Err(format!("the script failed: {reply:?}"));
        };
        let now = Timestamp::from_micros(self.now);
        for (slot, key, settle) in settlements {
            let (policy, cost) = (&self.policies[*slot], 0);
            self.model.settle(&Ask { policy, key, cost }, *settle, now);
        }
        let expected: Vec<Decision> = requests
            .iter()
            .map(|request| self.model.decide(&asks(&self.policies, request), now))
            .collect();
        self.decisions(requests, batch, &reply, &expected)?;
        match batch.replaced(&reply) {
            Ok(0) => {}
            other => return Err(format!("nothing foreign was there, yet replaced: {other:?}")),
        }
        let free_after: HashMap<_, _> = batch
            .free_after(&reply)
            .map_err(|e| e.to_string())?
            .into_iter()
            .collect();
        for ((policy, key), reply) in names.iter().zip(replies) {
            let ask = Ask { policy, key, cost: 0 };
            let (expected, found) = (
                self.model.free(&ask, now),
                free_after.get(&[policy.key_prefix(), key].concat()),
            );
            if Some(&expected) != found {
                return Err(format!("{key} of {policy:?}: {expected} free, found {found:?}"));
            }
            let (expected, found) = (self.model.stored(&ask), stored(reply));
            if expected != found {
                let policy = policy.algorithm();
                return Err(format!(
                    "{key} of {policy:?} at {now:?}: expected {expected:?}, found {found:?}"
                ));
            }
        }
        Ok(())
    }

    /// The call of a gateway that believes it is `about` that time at the server.
    fn command(&self, batch: &Batch, about: u64) -> Vec<Vec<u8>> {
        let (keys, mut args) = batch.arguments_about(PREFIX, None, Timestamp::from_micros(about));
        args[2..].fill(FOREVER_MS.into());
        args.push(self.now.to_string().into());
        let count = keys.len().to_string();
        [b"EVALSHA".to_vec(), self.sha1.clone(), count.into_bytes()]
            .into_iter()
            .chain(keys.iter().chain(&args).map(|bytes| bytes.to_vec()))
            .collect()
    }

    fn decisions(
        &mut self,
        requests: &[Request],
        batch: &Batch,
        reply: &[u8],
        expected: &[Decision],
    ) -> Result<(), String> {
        let (now, decisions) = match batch.replay(reply) {
            Ok(Answered::Decided(now, decisions, 0)) => (now, decisions),
            other => return Err(format!("{other:?}, at {} for {requests:?}", self.now)),
        };
        if now.as_micros() != self.now {
            return Err(format!("the time {} was {now:?}", self.now));
        }
        for ((request, expected), found) in requests.iter().zip(expected).zip(&decisions) {
            if expected != found {
                let layers: Vec<_> = request
                    .iter()
                    .map(|(slot, ..)| self.policies[*slot].algorithm())
                    .collect();
                return Err(format!(
                    "{request:?} over {layers:?} at {now:?}:\nexpected {expected:?}\nfound    {found:?}"
                ));
            }
            match expected.verdict {
                Verdict::Allowed => self.allowed += 1,
                Verdict::Denied { .. } => self.denied += 1,
            }
        }
        Ok(())
    }

    /// That the run was worth its time.
    pub(crate) fn assert_saw_everything(&self) {
        let Self {
            allowed,
            denied,
            shared,
            settled,
            told,
            ..
        } = self;
        let has_calendars = self.kinds.contains(&Kind::FixedWindow);
        assert!(!has_calendars || *told > 100, "{told} told the time");
        assert!(
            *allowed > 1_000 && *denied > 1_000 && *shared > 1_000 && *settled > 1_000,
            "{allowed} allowed, {denied} denied, {shared} with shared keys, {settled} with settlements"
        );
    }

    /// In every fourth call a few.
    fn settlements(&mut self) -> Vec<Settlement> {
        let rng = &mut self.rng;
        let count = if rng.u8(0..4) == 0 { rng.usize(1..=5) } else { 0 };
        let mut settlement = |_| {
            let slot = rng.usize(0..self.policies.len());
            let limit = self.policies[slot].algorithm().limit();
            let units = match rng.u8(0..64) {
                0 => u64::MAX,
                1 => EXACT_MAX,
                2 => 2 * limit,
                _ => cost(rng, limit),
            };
            let (policy, key) = (&self.policies[slot], format!("k{}", rng.u8(0..3)));
            let taken = match self.model.stored(&Ask {
                policy,
                key: &key,
                cost: 0,
            }) {
                Stored::Times(times) => times,
                _ => self.times.to_vec(),
            };
            let at = match rng.u8(0..8) {
                0 => self.now + rng.u64(0..2),
                1 => *rng.choice(&self.times).unwrap(),
                2 => rng.choice(&taken).unwrap() + 1,
                _ => *rng.choice(&taken).unwrap(),
            };
            let ask = Ask {
                policy,
                key: &key,
                cost: 0,
            };
            let settle = match (rng.u8(0..5), self.model.stored(&ask), policy.algorithm()) {
                (2.., _, Algorithm::Concurrency(_)) if rng.bool() => Settle::Hold(units),
                (0..2, ..) => Settle::Debit(units),
                // By the last of the queue, and by one before it.
                (2, Stored::Numbers(state), Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_)) => {
                    let empty_at = state[1].saturating_add(state[0].div_ceil(state[2])) - rng.u64(0..2);
                    Settle::LeaveQueue(units, Timestamp::from_micros(empty_at))
                }
                _ => Settle::GiveBack(units, Timestamp::from_micros(at)),
            };
            (slot, key, settle)
        };
        (0..count).map(&mut settlement).collect()
    }

    /// One or several; beside settlements, sometimes none.
    fn requests(&mut self, at_least_one: bool) -> Vec<Request> {
        let rng = &mut self.rng;
        let count = match rng.u8(0..8) {
            0 if !at_least_one => 0,
            0..5 => 1,
            _ => rng.usize(1..=12),
        };
        (0..count)
            .map(|_| {
                let mut slots: Vec<usize> = (0..self.policies.len()).collect();
                rng.shuffle(&mut slots);
                slots.truncate(rng.usize(1..=4));
                let mut layer = |slot: usize| {
                    let key = format!("k{}", rng.u8(0..3));
                    let ask = Ask {
                        policy: &self.policies[slot],
                        key: &key,
                        cost: 0,
                    };
                    // All that is free, or one more: then the least error changes the verdict.
                    let cost = match rng.u8(0..8) {
                        0 => self.model.free(&ask, Timestamp::from_micros(self.now)),
                        1 => self.model.free(&ask, Timestamp::from_micros(self.now)) + 1,
                        _ => cost(rng, ask.policy.algorithm().limit()),
                    };
                    (slot, key, cost)
                };
                slots.into_iter().map(&mut layer).collect()
            })
            .collect()
    }

    /// A policy for a slot: its name and kind stay, its parameters do not.
    fn policy(&mut self, slot: usize) -> Arc<Policy> {
        let algorithm = algorithm(self.kinds[slot % self.kinds.len()], &mut self.rng);
        let roles = [Role::ChargedAlways, Role::Shadow, Role::Candidate];
        let role = match self.rng.u8(0..4) {
            0 => *self.rng.choice(&roles).unwrap(),
            _ => Role::Enforced,
        };
        Arc::new(Policy::new(format!("p{slot}"), algorithm, OnFailure::Open).with_role(role))
    }
}

fn asks<'a>(policies: &'a [Arc<Policy>], request: &'a Request) -> Vec<Ask<'a>> {
    let ask = |(slot, key, cost): &'a (usize, String, u64)| Ask {
        policy: &policies[*slot],
        key,
        cost: *cost,
    };
    request.iter().map(ask).collect()
}

/// What a GET or LRANGE found.
fn stored(reply: Value) -> Stored {
    let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap()) as u64;
    match reply {
        Value::Nil => Stored::Nothing,
        Value::Bytes(bytes) => Stored::Numbers(bytes.chunks(8).map(double).collect()),
        Value::List(items) if items.is_empty() => Stored::Nothing,
        Value::List(items) => Stored::Times(
            (items.iter())
                .map(|item| match item {
                    Value::Bytes(bytes) => double(bytes),
                    other => panic!("not in a log: {other:?}"),
                })
                .collect(),
        ),
        other => panic!("neither a string nor a list: {other:?}"),
    }
}

/// How long a bucket takes to warm up, if it has to.
fn warm_up(algorithm: &Algorithm) -> Option<Duration> {
    match algorithm {
        Algorithm::TokenBucket(bucket) => Some(bucket.warm_up()).filter(|time| !time.is_zero()),
        _ => None,
    }
}

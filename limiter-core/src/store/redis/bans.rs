//! Bans in Redis: what happens here is told, and what happened elsewhere is asked for, four times a second.
//!
//! Off the path of decisions, and only while any layer bans. `lua/ban.lua` counts, for all; while the server is away,
//! the tables go on alone, and their bans are told when it is back.

use std::{sync::Arc, time::Duration};

use fred::{interfaces::Resp3Frame, types::Value};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{
    RedisStore, Topology,
    connection::TaskGuard,
    context::Context,
    failure::Failure,
    frame::{items, text},
    node::Node,
    script::Script,
};
use crate::{
    ban::{
        BanRule, Bans,
        record::Served,
        shared::{News, What},
    },
    clock::Timestamp,
    policy,
    store::StoreError,
};

/// Time between two questions.
const PAUSE: Duration = Duration::from_millis(250);
/// The least pause, however much happens.
const LEAST: Duration = Duration::from_millis(20);
/// How long one may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// Keys that one call tells of, at most: the script takes 5 to 30 µs for each, and decisions wait meanwhile.
const NEWS_MAX: usize = 32;
/// Changes that one call asks for, at most.
const PAGE: usize = 128;
/// Calls one after the other, at most; what is left waits for the next time.
const CALLS_MAX: usize = 32;

/// Bans are shared with all who count in the same Redis, for as long as this lives.
#[derive(Debug)]
pub struct BanSharing {
    link: Arc<Link>,
    _task: TaskGuard,
}

#[derive(Debug)]
struct Link {
    context: Arc<Context>,
    topology: Arc<Topology>,
    bans: Arc<Bans>,
    script: Script,
    /// The log of changes. Its name and those of the keys have a part in braces, so that in a cluster they lie in one slot.
    log: String,
}

/// What is known of the log.
#[derive(Debug, Default)]
struct Known {
    /// When it was begun.
    begun: u64,
    /// Changes up to this one.
    version: u64,
}

/// What a call answered.
#[derive(Debug, PartialEq, Eq)]
struct Told<'a> {
    /// When the log of changes was begun.
    begun: u64,
    /// The version of the newest change.
    newest: u64,
    /// The changes up to this one are told.
    read_to: u64,
    /// Bans that were lifted by this call.
    lifted: u64,
    changes: Vec<(String, &'a str, Option<Served>)>,
}

impl RedisStore {
    /// Shares `bans` with all who count here.
    #[must_use]
    pub fn share_bans(&self, bans: &Arc<Bans>) -> BanSharing {
        let link = Arc::new(Link {
            context: Arc::clone(&self.context),
            topology: Arc::clone(&self.topology),
            bans: Arc::clone(bans),
            script: Script::ban(),
            log: format!("{}:~{{bans}}", self.context.config.prefix),
        });
        bans.set_shared(true);
        let task = TaskGuard(self.context.runtime.spawn(run(Arc::clone(&link))));
        BanSharing { link, _task: task }
    }
}

impl BanSharing {
    /// Ends a ban everywhere, with its tally and rung. Whether there was one.
    ///
    /// # Errors
    /// Where the server does not answer: then it is over in this process only.
    pub async fn lift(&self, limit: &str, key: &str) -> Result<bool, StoreError> {
        let news = News {
            limit: limit.into(),
            rule: None,
            key: key.into(),
            what: What::Lifted,
        };
        let node = self.link.node();
        let answer = match &node {
            // Nothing is asked that was not asked for.
            Some(node) => self.link.send(node, u64::MAX, std::slice::from_ref(&news)).await,
            None => Err(Failure::Lost("the server is away".into())),
        };
        let was_here = self.link.bans.lift(limit, key);
        let reply = answer.map_err(|failure| failure.to_error())?;
        let told = self.link.read(&reply, self.link.bans.time());
        let told = told.ok_or(StoreError::Protocol("the answer about bans cannot be read"))?;
        Ok(was_here || told.lifted > 0)
    }
}

impl Drop for BanSharing {
    fn drop(&mut self) {
        self.link.bans.set_shared(false);
    }
}

async fn run(link: Arc<Link>) {
    let mut known = Known::default();
    loop {
        if link.bans.has_business() {
            if link.bans.take_behind() {
                known.version = 0;
            }
            link.exchange(&mut known).await;
            drop(timeout(PAUSE, link.bans.hurried()).await);
        } else {
            link.bans.hurried().await;
        }
        sleep(LEAST).await;
    }
}

impl Link {
    /// The server to ask, while it is asked.
    fn node(&self) -> Option<Arc<Node>> {
        let node = self.topology.owner_of(&self.log)?;
        node.breaker.is_closed().then_some(node)
    }

    /// Tells all news, and asks for all changes that are not known.
    async fn exchange(&self, known: &mut Known) {
        for _ in 0..CALLS_MAX {
            let Some(node) = self.node() else { return };
            let news = self.bans.take_news(NEWS_MAX);
            let reply = match self.send(&node, known.version, &news).await {
                Ok(reply) => reply,
                Err(failure) => {
                    debug!(server = %node.address, %failure, "bans were not shared");
                    if failure.is_harmless() {
                        // Another server may be the one to ask by now.
                        self.context.doubted.notify_one();
                    }
                    return self.bans.put_back(&news, failure.is_harmless());
                }
            };
            let Some(told) = self.read(&reply, self.bans.time()) else {
                let was_late = is_late(&reply);
                debug!(server = %node.address, was_late, "an answer about bans came too late, or cannot be read");
                // What was read there was counted there, whatever is wrong with the answer.
                return self.bans.put_back(&news, was_late);
            };
            let is_all = told.changes.len() < PAGE && news.len() < NEWS_MAX;
            // It was started empty, or a replica that was behind took its place.
            let is_lost = told.begun != known.begun && known.begun != 0 || told.newest < known.version;
            *known = Known {
                begun: told.begun,
                version: told.read_to,
            };
            self.bans.learn(told.changes);
            if is_lost {
                self.bans.share_all();
                known.version = 0;
            } else if is_all {
                return;
            }
        }
    }

    async fn send(&self, node: &Node, since: u64, news: &[News]) -> Result<Resp3Frame, Failure> {
        let not_after = node.server_clock.at(self.context.now());
        let arguments = |script: &str| -> Vec<Value> {
            let not_after = not_after.map_or(0, |at| at.plus(PATIENCE).as_micros());
            let mut all = vec![script.into(), count(news.len() + 1), self.log.as_str().into()];
            all.extend(news.iter().map(|news| self.key(news).into()));
            // The time is the server's.
            all.extend(arguments([0, not_after], since, news, self.bans.time()));
            all
        };
        let ask = |name, script| node.connections.ask(name, arguments(script), PATIENCE);
        match ask("EVALSHA", self.script.sha1()).await {
            Err(Failure::NoScript) => ask("EVAL", self.script.text()).await,
            reply => reply,
        }
    }

    fn key(&self, news: &News) -> String {
        format!("{}:{}:{}", self.log, policy::escape(&news.limit), news.key)
    }

    /// `None` where it came too late, or cannot be read.
    fn read<'a>(&self, reply: &'a Resp3Frame, now: Timestamp) -> Option<Told<'a>> {
        let all = items(reply)?.iter().map(text).collect::<Option<Vec<_>>>()?;
        let (head, changes) = all.split_at_checked(4)?;
        let number = |text: &str| text.parse::<u64>().ok();
        let change = |change: &[&'a str]| {
            let [key, left, rung, length] = change.try_into().ok()?;
            let (limit, key) = split(key.strip_prefix(&self.log)?.strip_prefix(':')?)?;
            let ban = match left.parse::<i64>() {
                Ok(left) => Some(Served {
                    until: Timestamp::from_micros(now.as_micros().saturating_add_signed(left)),
                    rung: rung.parse().ok()?,
                    length: Duration::from_micros(number(length)?),
                }),
                Err(_) => None,
            };
            Some((limit, key, ban))
        };
        Some(Told {
            begun: number(head[0])?,
            newest: number(head[1])?,
            read_to: number(head[2])?,
            lifted: number(head[3])?,
            // What stands there of others is passed over.
            changes: changes.chunks(4).filter_map(change).collect(),
        })
    }
}

/// Whether the call came too late: nothing was done. The next one asks again.
fn is_late(reply: &Resp3Frame) -> bool {
    items(reply).is_some_and(<[_]>::is_empty)
}

/// The arguments of the script, as lua/README.md has them.
fn arguments(times: [u64; 2], since: u64, news: &[News], now: Timestamp) -> Vec<Value> {
    let mut rules: Vec<&Arc<BanRule>> = Vec::new();
    let mut told = Vec::with_capacity(4 * news.len());
    for news in news {
        let rule = news.rule.as_ref().map_or(0, |rule| {
            let known = rules.iter().position(|known| Arc::ptr_eq(known, rule));
            known.unwrap_or_else(|| {
                rules.push(rule);
                rules.len() - 1
            }) + 1
        });
        let ago = |at: Timestamp| micros(now.since(at));
        let (what, value, ago) = match news.what {
            What::Refused(times, since) => ("refused", times, ago(since)),
            What::Banned(rung, began) => ("banned", u64::from(rung), ago(began)),
            What::Lifted => ("lifted", 0, 0),
        };
        told.extend([what.into(), count(rule), whole(value), whole(ago)]);
    }
    let mut all: Vec<_> = times.map(whole).into();
    all.extend([whole(since), count(PAGE), count(rules.len())]);
    for rule in rules {
        all.extend([
            whole(rule.after()),
            whole(micros(rule.within())),
            count(rule.ladder().len()),
        ]);
        all.extend(rule.ladder().iter().map(|time| whole(micros(*time))));
    }
    all.extend(told);
    all
}

/// The name of a layer, and a key of it.
fn split(member: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = member.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            ':' => return Some((name, &member[at + 1..])),
            '\\' => name.push(chars.next()?.1),
            char => name.push(char),
        }
    }
    None
}

/// As text: the script reads no other.
fn whole(number: u64) -> Value {
    number.to_string().into()
}

fn count(number: usize) -> Value {
    number.to_string().into()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

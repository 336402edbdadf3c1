//! Redis Sentinel: which server is the primary is asked of the sentinels, again and again.
//!
//! fred's own sentinel client is not used: it looks for the primary only when a connection breaks, and after a failover
//! by hand it went on writing to the old one for seconds.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::{ArcSwapOption, Guard};
use fred::interfaces::Resp3Frame;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{
    asker::Asker,
    config::{Access, Address},
    context::Context,
    frame::{items, text},
    node::Running,
};
use crate::store::Health;

/// How often the sentinels are asked: what is charged at an old primary meanwhile is lost with it.
const PAUSE: Duration = Duration::from_millis(250);
/// The least pause, however much fails.
const LEAST: Duration = Duration::from_millis(50);
/// How long a sentinel may take to tell.
const PATIENCE: Duration = Duration::from_millis(200);

/// The primary that the sentinels name.
#[derive(Debug)]
pub(super) struct Sentinels {
    context: Arc<Context>,
    primary: ArcSwapOption<Running>,
}

/// What a sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    primary: Address,
    /// Counts the failovers. One that was cut off from the others stays behind.
    epoch: u64,
}

impl Sentinels {
    /// Nothing is known yet.
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            primary: ArcSwapOption::empty(),
        }
    }

    /// The present primary.
    pub(super) fn primary(&self) -> Guard<Option<Arc<Running>>> {
        self.primary.load()
    }

    pub(super) fn health(&self) -> Health {
        self.primary.load().as_ref().map_or(Health::Down, |node| node.health())
    }

    /// Goes over to the server at `address`, if that is another.
    fn follow(&self, address: &Address) {
        let old = self.primary.load_full();
        if old.as_ref().is_some_and(|old| old.address == *address) {
            return;
        }
        let new = match Running::start(address.clone(), &self.context, Weak::new()) {
            Ok(new) => new,
            Err(error) => return warn!(server = %address, %error, "the primary that the sentinels name cannot be used"),
        };
        info!(server = %address, "the sentinels name this primary");
        if old.as_ref().is_some_and(|old| old.breaker.announce_return()) {
            // Its outage ends with the new one's first answer.
            new.breaker.announce_loss();
        }
        self.primary.store(Some(Arc::clone(&new)));
        if let Some(old) = old {
            new.settle(old.leave());
        }
        self.context.changed.notify_waiters();
    }
}

/// Asks for ever.
pub(super) async fn watch(sentinels: Arc<Sentinels>, addresses: Vec<Address>, service: String, access: Access) {
    let context = &sentinels.context;
    let askers: Vec<Arc<Asker>> = (addresses.into_iter())
        .filter_map(|address| Asker::start(address, context, &access).ok().map(Arc::new))
        .collect();
    let (mut told, mut attempts) = (false, 0_u32);
    loop {
        match ask(&askers, &service).await {
            Ok(named) => {
                sentinels.follow(&named.primary);
                told = false;
                attempts = 0;
            }
            // The first attempts come before there is a connection.
            Err(error) if attempts > 2 && !told => {
                warn!(error, service, "no sentinel names a primary");
                told = true;
            }
            Err(_) => attempts += 1,
        }
        drop(timeout(PAUSE, context.doubted.notified()).await);
        sleep(LEAST).await;
    }
}

/// What the sentinel says that knows of most failovers.
async fn ask(askers: &[Arc<Asker>], service: &str) -> Result<Named, String> {
    let mut answers = JoinSet::new();
    for asker in askers {
        let (asker, service) = (Arc::clone(asker), service.to_owned());
        answers.spawn(async move { ask_one(&asker, &service).await });
    }
    let (mut best, mut error) = (None::<Named>, "none is configured".to_owned());
    while let Some(answer) = answers.join_next().await {
        match answer.map_err(|error| error.to_string()).flatten() {
            Ok(named) if best.as_ref().is_none_or(|best| best.epoch < named.epoch) => best = Some(named),
            Ok(_) => {}
            Err(why) => error = why,
        }
    }
    best.ok_or(error)
}

/// The address is that of a promoted replica as soon as it has taken over; `SENTINEL MASTER`, which alone tells the
/// epoch, goes on naming the old primary until its replicas follow the new one.
async fn ask_one(asker: &Asker, service: &str) -> Result<Named, String> {
    let ask = |question: &'static str| asker.ask("SENTINEL", vec![question.into(), service.into()], PATIENCE);
    let told = |error| format!("{}: {error}", asker.address());
    let (address, state) =
        tokio::try_join!(ask("GET-MASTER-ADDR-BY-NAME"), ask("MASTER")).map_err(|failure| told(failure.to_string()))?;
    let named = read_address(&address).zip(read_epoch(&state));
    let (primary, epoch) = named.ok_or_else(|| told("its answer cannot be read".to_owned()))?;
    Ok(Named { primary, epoch })
}

fn read_address(reply: &Resp3Frame) -> Option<Address> {
    let [host, port] = items(reply)? else {
        return None;
    };
    Some(Address {
        host: text(host)?.to_owned(),
        port: text(port)?.parse().ok()?,
    })
}

/// Names and values, in turn.
fn read_epoch(reply: &Resp3Frame) -> Option<u64> {
    let mut pairs = items(reply)?.as_chunks::<2>().0.iter();
    let [_, epoch] = pairs.find(|[name, _]| text(name) == Some("config-epoch"))?;
    text(epoch)?.parse().ok()
}

//! A steady load, and every answer to it with its time.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

use super::{client::Client, http::Response, http::get, wait::pause_until};

/// After so long without an answer a request counts as lost.
const LOST: Duration = Duration::from_secs(10);

/// Clients that send at a steady pace whatever becomes of their requests, until they are told to stop.
#[derive(Debug)]
pub(crate) struct Load {
    began: Instant,
    stop: watch::Sender<bool>,
    clients: Vec<JoinHandle<Vec<Answered>>>,
    stall: JoinHandle<Duration>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) path: &'static str,
    /// Since the load began.
    pub(crate) sent: Duration,
    pub(crate) waited: Duration,
    /// None where no whole answer came.
    pub(crate) status: Option<u16>,
    pub(crate) has_retry_after: bool,
}

impl Load {
    /// `clients` clients send `per_second` requests a second altogether, to these paths in turn.
    pub(crate) fn start(address: SocketAddr, paths: &'static [&'static str], clients: u32, per_second: u32) -> Self {
        let began = Instant::now();
        let stop = watch::Sender::new(false);
        let pace = Duration::from_secs(1) * clients / per_second;
        let clients = (0..clients)
            .map(|number| {
                let first = Duration::from_secs(1) * number / per_second;
                let stopped = stop.subscribe();
                tokio::spawn(async move {
                    let mut client = Client::to(address);
                    let mut answers = Vec::new();
                    while !*stopped.borrow() {
                        let turn = u32::try_from(answers.len()).unwrap();
                        pause_until(began, first + pace * turn).await;
                        let path = paths[(turn + number) as usize % paths.len()];
                        answers.push(Answered::to(&mut client, path, began).await);
                    }
                    answers
                })
            })
            .collect();
        Self {
            began,
            stall: tokio::spawn(worst_stall(stop.subscribe())),
            stop,
            clients,
        }
    }

    /// How long it has been going on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends it, and gives all that became of it, in the order of sending.
    pub(crate) async fn stop(self) -> Vec<Answered> {
        self.stop_and_measure().await.0
    }

    /// As `stop`, with the longest time for which the machine did not let the clients run.
    pub(crate) async fn stop_and_measure(self) -> (Vec<Answered>, Duration) {
        self.stop.send_replace(true);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.await.unwrap());
        }
        all.sort_by_key(|answered| answered.sent);
        (all, self.stall.await.unwrap())
    }
}

/// By how much a pause of 5 ms was longer, at worst.
async fn worst_stall(stopped: watch::Receiver<bool>) -> Duration {
    const TICK: Duration = Duration::from_millis(5);
    let mut worst = Duration::ZERO;
    while !*stopped.borrow() {
        let began = Instant::now();
        tokio::time::sleep(TICK).await;
        worst = worst.max(began.elapsed().saturating_sub(TICK));
    }
    worst
}

impl Answered {
    async fn to(client: &mut Client, path: &'static str, began: Instant) -> Self {
        let (sent, request) = (began.elapsed(), get(path));
        let answer = timeout(LOST, client.try_send(&request)).await;
        let answer = answer.ok().and_then(Result::ok).filter(|answer| answer.complete);
        Self {
            path,
            sent,
            waited: began.elapsed() - sent,
            status: answer.as_ref().map(|answer| answer.status),
            has_retry_after: answer.as_ref().and_then(Response::retry_after).is_some(),
        }
    }
}

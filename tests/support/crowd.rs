//! Many clients at once, and how their requests went.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{
    client::Client,
    http::{Request, Response},
};

/// Connections that share out a number of requests.
#[derive(Debug)]
pub(crate) struct Crowd {
    connections: usize,
    addresses: Vec<SocketAddr>,
}

impl Crowd {
    /// So many connections.
    pub(crate) fn of(connections: usize) -> Self {
        Self {
            connections,
            addresses: Vec::new(),
        }
    }

    /// They go to these addresses in turn.
    pub(crate) fn to(mut self, addresses: &[SocketAddr]) -> Self {
        self.addresses.extend_from_slice(addresses);
        self
    }

    /// Sends `count` requests, the i-th being `make(i)`, as fast as the connections take them.
    pub(crate) async fn send(&self, count: usize, make: impl Fn(usize) -> Request + Send + Sync + 'static) -> Tally {
        let (make, next) = (Arc::new(make), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<_> = (0..self.connections)
            .map(|index| {
                let mut client = Client::to(self.addresses[index % self.addresses.len()]);
                let (make, next) = (Arc::clone(&make), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut tally = Tally::default();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return tally;
                        }
                        tally.add(&client.send(&make(number)).await);
                    }
                })
            })
            .collect();
        let mut total = Tally::default();
        for client in clients {
            total.merge(&client.await.unwrap());
        }
        total
    }
}

/// How many responses there were of each status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally(pub(crate) BTreeMap<u16, usize>);

impl Tally {
    /// Counts one.
    pub(crate) fn add(&mut self, response: &Response) {
        *self.0.entry(response.status).or_default() += 1;
    }

    /// Counts all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (status, count) in &other.0 {
            *self.0.entry(*status).or_default() += count;
        }
    }

    /// How many had this status.
    pub(crate) fn of(&self, status: u16) -> usize {
        self.0.get(&status).copied().unwrap_or_default()
    }

    /// How many passed.
    pub(crate) fn passed(&self) -> usize {
        self.of(200)
    }

    /// How many a layer refused.
    pub(crate) fn denied(&self) -> usize {
        self.of(429)
    }

    /// # Panics
    ///
    /// Unless exactly `passed` passed, `denied` were denied, and nothing else happened.
    #[track_caller]
    pub(crate) fn expect(&self, passed: usize, denied: usize, what: &str) {
        let total: usize = self.0.values().sum();
        assert!(
            self.passed() == passed && self.denied() == denied && total == passed + denied,
            "{what}: expected {passed} to pass and {denied} to be denied, but saw {:?}",
            self.0
        );
    }
}

impl<'a> FromIterator<&'a Response> for Tally {
    fn from_iter<I: IntoIterator<Item = &'a Response>>(responses: I) -> Self {
        let mut tally = Self::default();
        for response in responses {
            tally.add(response);
        }
        tally
    }
}

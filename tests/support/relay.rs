//! A TCP relay that stands between two processes and makes trouble.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::Instant,
};

/// What the relay does to the connections through it.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    /// Where new connections lead to.
    target: SocketAddr,
    /// Held back for that long, each way.
    delay: Duration,
    /// Nothing gets through, and nothing is closed.
    black_hole: bool,
    /// New connections are closed at once, after this was said.
    refuses: Option<&'static str>,
    /// Raised to cut all connections that are open.
    cuts: usize,
}

/// Passes bytes on to a target.
#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    trouble: watch::Sender<Trouble>,
    arrivals: Arc<Mutex<Vec<Instant>>>,
}

impl Relay {
    /// A relay to `target` that does nothing to what it passes on.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let trouble = watch::Sender::new(Trouble {
            target,
            delay: Duration::ZERO,
            black_hole: false,
            refuses: None,
            cuts: 0,
        });
        let watched = trouble.subscribe();
        let arrivals = Arc::<Mutex<Vec<_>>>::default();
        let noted = Arc::clone(&arrivals);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                noted
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Instant::now());
                let refuses = watched.borrow().refuses;
                let watched = watched.clone();
                tokio::spawn(async move {
                    match refuses {
                        // Who is refused may be gone before it hears why.
                        Some(text) => drop(client.write_all(text.as_bytes()).await),
                        None => carry(client, watched).await,
                    }
                });
            }
        });
        Self {
            address,
            trouble,
            arrivals,
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds every piece back for `delay`, each way.
    pub(crate) fn delay(&self, delay: Duration) {
        self.trouble.send_modify(|trouble| trouble.delay = delay);
    }

    /// Leads new connections there; those that are open stay as they are.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.trouble.send_modify(|trouble| trouble.target = target);
    }

    /// Cuts all connections that are open; new ones are carried.
    pub(crate) fn cut(&self) {
        self.trouble.send_modify(|trouble| trouble.cuts += 1);
    }

    /// Swallows everything from now on without closing anything, or ceases to.
    pub(crate) fn black_hole(&self, on: bool) {
        self.trouble.send_modify(|trouble| trouble.black_hole = on);
    }

    /// Closes new connections at once from now on, or ceases to.
    pub(crate) fn refuse(&self, on: bool) {
        self.trouble.send_modify(|trouble| trouble.refuses = on.then_some(""));
    }

    /// Says this to new connections from now on, and closes them.
    pub(crate) fn refuse_with(&self, text: &'static str) {
        self.trouble.send_modify(|trouble| trouble.refuses = Some(text));
    }

    /// When each connection arrived, be it refused.
    pub(crate) fn arrivals(&self) -> Vec<Instant> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn carry(client: TcpStream, mut trouble: watch::Receiver<Trouble>) {
    let trouble_at_start = *trouble.borrow();
    let Ok(server) = TcpStream::connect(trouble_at_start.target).await else {
        return;
    };
    let (client, server) = (client.into_split(), server.into_split());
    let both = Arc::new(trouble.clone());
    let there = pass(client.0, server.1, Arc::clone(&both));
    let back = pass(server.0, client.1, both);
    tokio::select! {
        () = there => {}
        () = back => {}
        _ = trouble.wait_for(|now| now.cuts != trouble_at_start.cuts) => {}
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    trouble: Arc<watch::Receiver<Trouble>>,
) {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut chunk).await.unwrap_or_default();
        // An end is as invisible as everything else behind a black hole.
        let mut watched = watch::Receiver::clone(&trouble);
        if watched.wait_for(|now| !now.black_hole).await.is_err() || count == 0 {
            return;
        }
        let delay = trouble.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

//! One connection, from when it stands until it breaks.
//!
//! fred is given no policy to reconnect by. With one, it says for a while after a loss that it is connected, and calls
//! wait in its queue for the next connection, where nobody wants their answers any more. Without, its router task ends
//! with the connection, so that a loss is known at once, and the queue ends with its client.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use fred::{
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::{ClientLike, Resp3Frame},
    types::{
        Builder, ClusterHash, CustomCommand, Value,
        config::{Config, Options, Server, ServerConfig, TlsConnector},
    },
};
use tokio::{sync::Notify, task::JoinError, time::timeout};

use super::{
    super::{
        config::{Access, Address},
        failure::Failure,
    },
    TaskGuard,
};
use crate::store::StoreError;

/// Bound of a connect, and of the commands that follow it (login and database).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How often fred is looked at while it connects.
const LOOK: Duration = Duration::from_millis(10);

/// The task in which fred reads and writes. It ends with the connection, and the connection with it.
pub(super) type Router = TaskGuard<Result<(), Error>>;

/// What fred has to know to connect.
pub(super) struct Settings {
    config: Config,
    default_timeout: Duration,
}

impl fmt::Debug for Settings {
    /// fred's own shows the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl Settings {
    /// # Errors
    /// [`StoreError::Config`] where fred would not take them.
    pub(super) fn new(address: &Address, access: &Access, default_timeout: Duration) -> Result<Self, StoreError> {
        let config = Config {
            server: ServerConfig::Centralized {
                server: Server::new(address.host.as_str(), address.port),
            },
            username: access.username.clone(),
            password: access.password.clone(),
            // Every connection begins in database 0; a user of a cluster need not be allowed to SELECT.
            database: (access.database != 0).then_some(access.database),
            tls: access
                .tls
                .as_ref()
                .map(|tls| TlsConnector::from(tls.client().clone()).into()),
            // One attempt, which tells why it failed.
            fail_fast: true,
            ..Config::default()
        };
        let settings = Self {
            config,
            default_timeout,
        };
        settings.client()?;
        Ok(settings)
    }

    fn refused(&self, ended: Result<Result<(), Error>, JoinError>) -> Refused {
        let is_told = match &ended {
            // rustls tells of what it finds wrong as of a mistake in the data.
            Ok(Err(error)) if *error.kind() == ErrorKind::IO => error.details().contains("InvalidData"),
            Ok(Err(error)) => !matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Canceled),
            _ => false,
        };
        let why = match ended {
            // A server that does not speak TLS waits for the end of what it takes for a command.
            Ok(Err(error)) if *error.kind() == ErrorKind::Timeout && self.config.tls.is_some() => {
                format!("no connection within {CONNECT_TIMEOUT:?}; does the server speak TLS there?")
            }
            Ok(Err(error)) if *error.kind() == ErrorKind::Timeout => {
                format!("no connection within {CONNECT_TIMEOUT:?}")
            }
            ended => why(ended),
        };
        Refused { why, is_told }
    }

    fn client(&self) -> Result<Client, StoreError> {
        Builder::from_config(self.config.clone())
            .with_connection_config(|c| {
                c.connection_timeout = CONNECT_TIMEOUT;
                c.internal_command_timeout = CONNECT_TIMEOUT;
                // More would run a script again that may have run.
                c.max_command_attempts = 1;
                // Bounded by the calls in flight instead.
                c.max_command_buffer_len = 0;
                c.tcp.nodelay = Some(true);
            })
            .with_performance_config(|p| p.default_command_timeout = self.default_timeout)
            .build()
            .map_err(|error| StoreError::Config(error.details().into()))
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct Refused {
    /// In words for the log: of the server, where it said something.
    pub(super) why: String,
    /// Whether the server said so, or the keeper of its certificate: it is there, but not for us.
    pub(super) is_told: bool,
}

/// A client of fred's that has connected once, and never connects again.
#[derive(Debug)]
pub(super) struct Link {
    client: Client,
    /// A call had no answer in time.
    doubted: Notify,
    unwanted: Notify,
    /// A call was told of the loss, before its router ended.
    is_lost: AtomicBool,
}

impl Link {
    /// Connects, once.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) async fn connect(settings: &Settings) -> Result<(Self, Router), Refused> {
        let client = settings.client().map_err(|error| Refused {
            why: error.to_string(),
            is_told: true,
        })?;
        let mut router = TaskGuard(client.connect());
        tokio::select! {
            ended = &mut router.0 => return Err(settings.refused(ended)),
            () = connected(&client) => {}
        }
        let link = Self {
            client,
            doubted: Notify::new(),
            unwanted: Notify::new(),
            is_lost: AtomicBool::new(false),
        };
        Ok((link, router))
    }

    /// Waits until the connection breaks, or no longer answers. Gives the reason, for the log.
    ///
    /// Doubts arise with a call that is not answered in time. Then a PING must be, `within` so long: whatever the server
    /// was asked before, it answers in order. (fred's own check would look at the last write, and so never find a server
    /// dead that is written to all the time; and it does not look while it is stuck in a write.)
    pub(super) async fn broken(&self, mut router: Router, within: Duration) -> String {
        let silent = async {
            loop {
                self.doubted.notified().await;
                let ping = self.ask("PING", Vec::new(), within);
                if let Err(Failure::Timeout) = ping.await {
                    return;
                }
            }
        };
        tokio::select! {
            ended = &mut router.0 => why(ended),
            () = silent => format!("no answer for {within:?}"),
            () = self.unwanted.notified() => match timeout(LOOK, &mut router.0).await {
                Ok(ended) => why(ended),
                Err(_) => "it was given up for a new one".to_owned(),
            },
        }
    }

    /// Whether it can be asked, as far as is known.
    pub(super) fn stands(&self) -> bool {
        !self.is_lost.load(Ordering::Relaxed)
    }

    /// Ends the connection.
    pub(super) fn give_up(&self) {
        self.unwanted.notify_one();
    }

    /// Sends a command once; what the server says against it is a [`Failure`].
    pub(super) async fn ask(
        &self,
        name: &'static str,
        args: Vec<Value>,
        timeout: Duration,
    ) -> Result<Resp3Frame, Failure> {
        // Not `evalsha()` and the like: they ignore the options.
        let client = self.client.with_options(&options(timeout));
        match self.seen(client.custom_raw(command(name), args).await)? {
            Resp3Frame::SimpleError { data, .. } => {
                Err(Failure::from(&Error::new(ErrorKind::Unknown, data.to_string())))
            }
            reply => Ok(reply),
        }
    }

    /// Sends a command once, directly after ASKING.
    pub(super) async fn ask_asking(
        &self,
        name: &'static str,
        args: Vec<Value>,
        timeout: Duration,
    ) -> Result<Value, Failure> {
        let pipeline = self.client.pipeline().with_options(&options(timeout));
        let reply = async {
            // Each is only queued here; then both are written with nothing in between.
            let _: Value = pipeline.custom(command("ASKING"), Vec::<Value>::new()).await?;
            let _: Value = pipeline.custom(command(name), args).await?;
            pipeline.last().await
        };
        self.seen(reply.await)
    }

    fn seen<T>(&self, reply: Result<T, Error>) -> Result<T, Failure> {
        reply.map_err(|error| {
            let failure = Failure::from(&error);
            match failure {
                Failure::Timeout => self.doubted.notify_one(),
                Failure::Lost(_) => {
                    self.is_lost.store(true, Ordering::Relaxed);
                    self.give_up();
                }
                _ => {}
            }
            failure
        })
    }
}

/// Waits until fred is connected; for ever where it cannot connect, which its router says, and why.
async fn connected(client: &Client) {
    // It first looks, then waits: a connect in between is missed, and seen by the next look.
    while !matches!(timeout(LOOK, client.wait_for_connect()).await, Ok(Ok(()))) {}
}

/// The slot plays no part with a single server.
fn command(name: &'static str) -> CustomCommand {
    CustomCommand::new_static(name, ClusterHash::Custom(0), false)
}

fn options(timeout: Duration) -> Options {
    Options {
        fail_fast: true,
        max_attempts: Some(1),
        // Zero would mean none.
        timeout: Some(timeout.max(Duration::from_millis(1))),
        ..Options::default()
    }
}

fn why(ended: Result<Result<(), Error>, JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "the connection was closed".to_owned(),
        Ok(Err(error)) => message(error.details()),
        Err(error) => error.to_string(),
    }
}

/// fred tells of the system's errors, and of those of TLS, as Rust prints them for programmers:
/// `Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }`,
/// `Custom { kind: InvalidData, error: InvalidCertificate(UnknownIssuer) }`.
fn message(details: &str) -> String {
    let inner = details.strip_suffix(" }").unwrap_or(details);
    if let Some((_, message)) = inner
        .strip_prefix("Os { ")
        .and_then(|inner| inner.split_once("message: "))
    {
        return message.trim_matches('"').to_owned();
    }
    let custom = inner.strip_prefix("Custom { kind: ");
    match custom.and_then(|inner| inner.split_once(", error: ")) {
        Some(("InvalidData", error)) => format!("TLS: {error}"),
        Some((_, error)) => error.trim_matches('"').to_owned(),
        None => details.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_to_people() {
        let refused = std::io::Error::from_raw_os_error(111);
        assert_eq!(message(&format!("{refused:?}")), "Connection refused");
        let unknown = std::io::Error::other("failed to lookup address information");
        assert_eq!(message(&format!("{unknown:?}")), "failed to lookup address information");
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let untrusted = std::io::Error::new(std::io::ErrorKind::InvalidData, untrusted);
        assert_eq!(
            message(&format!("{untrusted:?}")),
            "TLS: InvalidCertificate(UnknownIssuer)"
        );
        assert_eq!(message("WRONGPASS invalid { }"), "WRONGPASS invalid { }");
    }
}

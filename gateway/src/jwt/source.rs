//! Where keys come from: a file, or a URL that is asked again and again.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header, uri::Authority};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
    sync::Notify,
    time,
};
use tokio_rustls::TlsConnector;

use super::Keys;

/// A set of keys is a few KiB.
const LONGEST: usize = 1 << 20;
/// For one answer, from the connection on.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks while all is well: issuers announce a key well before they sign with it.
const EVERY: Duration = Duration::from_secs(300);
/// Between two looks where one failed, or a token names a key that is not known.
const SOON: Duration = Duration::from_secs(5);

/// The keys that are in force.
#[derive(Debug)]
pub struct Source {
    keys: ArcSwap<Keys>,
    /// A token named a key that is not among them.
    wanted: Arc<Notify>,
    /// The first answer came.
    first: Arc<Notify>,
}

impl Source {
    /// Keys that stay.
    #[must_use]
    pub fn fixed(keys: Arc<Keys>) -> Arc<Self> {
        Arc::new(Self {
            keys: ArcSwap::new(keys),
            wanted: Arc::default(),
            first: Arc::default(),
        })
    }

    /// The keys at `url`, for as long as somebody holds this; none until they come. Where they cannot be had any more, the
    /// last ones stay.
    #[must_use]
    pub fn follow(url: Uri, control: &Handle) -> Arc<Self> {
        let source = Self::fixed(Arc::new(Keys::none()));
        control.spawn(refresh(url, Arc::downgrade(&source), Arc::clone(&source.wanted)));
        source
    }

    /// Waits until there are keys, at most for so long; says whether there are.
    pub async fn wait(&self, at_most: Duration) -> bool {
        let come = self.first.notified();
        self.has_keys() || time::timeout(at_most, come).await.is_ok()
    }

    fn has_keys(&self) -> bool {
        !self.keys.load().is_empty()
    }

    /// The keys.
    pub(super) fn keys(&self) -> arc_swap::Guard<Arc<Keys>> {
        self.keys.load()
    }

    /// A token names a key that is not known: it may be a new one.
    pub(super) fn want(&self) {
        self.wanted.notify_one();
    }
}

/// Asks for the keys until nobody wants them any more.
async fn refresh(url: Uri, source: Weak<Source>, wanted: Arc<Notify>) {
    let mut known = None;
    loop {
        let found = match time::timeout(TIMEOUT, fetch(&url)).await {
            Ok(found) => found,
            Err(_elapsed) => Err(io::Error::from(io::ErrorKind::TimedOut)),
        };
        let Some(source) = source.upgrade() else { return };
        let parsed = found.and_then(|text| match Keys::parse(&text) {
            // The same keys stay the same: what is known of tokens stays known.
            _ if known.as_ref() == Some(&text) => Ok(()),
            Ok(keys) => {
                known = Some(text);
                source.keys.store(Arc::new(keys));
                tracing::info!("the keys of tokens were read from {url}");
                Ok(())
            }
            Err(error) => Err(io::Error::other(error)),
        });
        let is_well = parsed.is_ok();
        if let Err(error) = parsed {
            let what = if source.has_keys() {
                "the last ones stay"
            } else {
                "no token is believed"
            };
            tracing::warn!("the keys of tokens cannot be had from {url}, {what}: {error}");
        } else {
            source.first.notify_waiters();
        }
        drop(source);
        time::sleep(SOON).await;
        if is_well {
            // Whoever asked while it was too soon is heard now.
            drop(time::timeout(EVERY - SOON, wanted.notified()).await);
        }
    }
}

/// What is answered there.
async fn fetch(url: &Uri) -> io::Result<Bytes> {
    let authority = url.authority().ok_or(io::ErrorKind::InvalidInput)?;
    let is_secure = url.scheme_str() == Some("https");
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await?;
    if !is_secure {
        return get(url, authority, stream).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    // Reads the system's authorities: files.
    let connector = tokio::task::spawn_blocking(connector)
        .await
        .map_err(io::Error::other)??;
    get(url, authority, connector.connect(name, stream).await?).await
}

/// TLS to servers that the system's authorities vouch for.
fn connector() -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    // One of them that is odd must not keep us from the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn get(
    url: &Uri,
    authority: &Authority,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Bytes> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(header::HOST, authority.as_str())
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        if response.status() != StatusCode::OK {
            return Err(io::Error::other(format!("the answer is {}", response.status())));
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        body.map(|body| body.to_bytes()).map_err(io::Error::other)
    };
    // The connection has to be driven while its answer is read; it ends with the answer.
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(io::Error::other(error)),
        },
    }
}

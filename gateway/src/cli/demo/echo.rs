//! A backend that answers with what it was asked.

use std::{convert::Infallible, io, net::SocketAddr, thread};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};

/// Starts it on a free port of loopback, on a thread of its own, for as long as the process lives.
pub(super) fn start() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    thread::Builder::new().name("echo".into()).spawn(move || {
        runtime.block_on(async {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => serve(listener).await,
                Err(error) => eprintln!("gateway: the demo's backend ended: {error}"),
            }
        });
    })?;
    Ok(address)
}

async fn serve(listener: tokio::net::TcpListener) {
    loop {
        // A connection that cannot be taken is the client's loss; the next one may do.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo)));
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body_bytes = count(body).await;
    let seen = json!({
        "method": head.method.as_str(),
        "path": head.uri.to_string(),
        "headers": headers(&head.headers),
        "body_bytes": body_bytes,
    });
    let mut response = Response::new(Full::from(format!("{seen:#}\n")));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Reads the body to its end, or to where it breaks off; keeps none of it.
async fn count(mut body: Incoming) -> usize {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    bytes
}

fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let mut seen = Map::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match seen.get_mut(name.as_str()) {
            Some(Value::String(before)) => {
                before.push_str(", ");
                before.push_str(&value);
            }
            _ => {
                seen.insert(name.as_str().to_owned(), Value::String(value));
            }
        }
    }
    seen
}

//! A client that sends exact bytes.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use super::{DEADLINE, http::Response};

/// A connection on which a test says every byte itself.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: TcpStream,
    /// Read, but not yet taken.
    buffer: Vec<u8>,
}

impl Raw {
    /// Connects to `address`.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_from(None, address).await.unwrap()
    }

    /// Connects to `address`, from a certain address of this machine (any of 127.0.0.0/8) if one is given.
    pub(crate) async fn connect_from(from: Option<IpAddr>, address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        if let Some(from) = from {
            socket.bind(SocketAddr::new(from, 0))?;
        }
        let stream = timeout(DEADLINE, socket.connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Sends `bytes`.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        timeout(DEADLINE, self.stream.write_all(bytes.as_ref())).await?
    }

    /// Goes away with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Reads what comes next; `false` at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let count = timeout(DEADLINE, self.stream.read(&mut chunk)).await??;
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(count > 0)
    }

    /// Whether the other side closes within `deadline`.
    pub(crate) async fn closes_within(&mut self, deadline: Duration) -> bool {
        let drain = async { while matches!(self.fill().await, Ok(true)) {} };
        timeout(deadline, drain).await.is_ok()
    }

    /// What was read and not yet taken.
    pub(crate) fn received(&self) -> &[u8] {
        &self.buffer
    }

    /// Reads until what was read and not yet taken contains `text`.
    pub(crate) async fn read_until(&mut self, text: &str) -> io::Result<()> {
        while !contains(&self.buffer, text.as_bytes()) {
            self.more().await?;
        }
        Ok(())
    }

    async fn more(&mut self) -> io::Result<()> {
        if self.fill().await? {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buffer.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(io::Error::other);
            }
            self.more().await?;
        }
    }

    async fn take(&mut self, count: usize, body: &mut Vec<u8>) -> io::Result<()> {
        let mut missing = count;
        while missing > 0 {
            if self.buffer.is_empty() {
                self.more().await?;
            }
            let part = missing.min(self.buffer.len());
            body.extend(self.buffer.drain(..part));
            missing -= part;
        }
        Ok(())
    }

    /// Reads the head of a response: one that is final, interim ones (1xx) are passed over.
    pub(crate) async fn head(&mut self) -> io::Result<Response> {
        loop {
            let status_line = self.line().await?;
            let status = status_line
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3))
                .and_then(|code| code.parse().ok())
                .ok_or_else(|| io::Error::other(format!("no status line: {status_line:?}")))?;
            let headers = self.header_lines().await?;
            if status >= 200 {
                return Ok(Response {
                    status,
                    headers,
                    body: Vec::new(),
                    complete: false,
                });
            }
        }
    }

    async fn header_lines(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok(headers);
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| io::Error::other(format!("no header line: {line:?}")))?;
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Reads a whole response to a request with `method`. A body that is cut short gives a response that is not `complete`.
    ///
    /// # Errors
    ///
    /// If no whole head comes.
    pub(crate) async fn response_to(&mut self, method: &str) -> io::Result<Response> {
        let mut response = self.head().await?;
        let mut body = Vec::new();
        response.complete = self.body(method, &response, &mut body).await.is_ok();
        response.body = body;
        Ok(response)
    }

    /// The framing of RFC 9112 section 6.3.
    async fn body(&mut self, method: &str, head: &Response, body: &mut Vec<u8>) -> io::Result<()> {
        if method == "HEAD" || matches!(head.status, 204 | 304) {
            return Ok(());
        }
        if head
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            return self.chunks(body).await;
        }
        if let Some(length) = head.number("content-length") {
            return self.take(usize::try_from(length).unwrap(), body).await;
        }
        while self.fill().await? {}
        body.append(&mut self.buffer);
        Ok(())
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let line = self.line().await?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
                .map_err(|_| io::Error::other(format!("no chunk size: {line:?}")))?;
            if size == 0 {
                self.header_lines().await?;
                return Ok(());
            }
            self.take(size, body).await?;
            self.line().await?;
        }
    }
}

/// Whether `part` stands anywhere in `whole`.
pub(crate) fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

//! An upstream that does what a test tells it, and remembers every byte.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

use super::{
    http::lines_named,
    wait::{DEADLINE, wait_for},
};

/// A request as the origin read it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// In order, as spelled on the wire.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// All values of a header, in order.
    pub(crate) fn header_lines(&self, name: &str) -> Vec<&str> {
        lines_named(&self.headers, name)
    }

    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.header_lines(name).first().copied()
    }
}

/// What the origin does once it has read a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits for that long.
    Pause(Duration),
    /// Waits until the test says so.
    Wait(Arc<Notify>),
    /// Says and does nothing more, and keeps the connection.
    Stall,
    /// Closes the connection in order.
    Close,
    /// Resets it.
    Reset,
}

impl Step {
    /// Sends a 200 with this body.
    pub(crate) fn ok(body: &str) -> Self {
        Self::Send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }

    /// Sends this text.
    pub(crate) fn text(text: &str) -> Self {
        Self::Send(text.as_bytes().to_vec())
    }
}

type Behaviour = Arc<dyn Fn(&Seen) -> Vec<Step> + Send + Sync>;

struct State {
    behaviour: Behaviour,
    /// Whether it answers as soon as it has the head, before the body.
    early: bool,
    requests: Vec<Seen>,
    /// What came on each connection, byte for byte.
    bytes: Vec<Vec<u8>>,
    open: usize,
}

/// The upstream: answers 200 with `METHOD TARGET` as the body unless it is told otherwise. It ends with this guard.
pub(crate) struct Origin {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

impl Origin {
    /// Starts one on a free port.
    pub(crate) async fn start() -> Self {
        Self::start_on("127.0.0.1:0").await
    }

    /// Starts one on this address.
    pub(crate) async fn start_on(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            behaviour: Arc::new(|seen| vec![Step::ok(&format!("{} {}", seen.method, seen.target))]),
            early: false,
            requests: Vec::new(),
            bytes: Vec::new(),
            open: 0,
        }));
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream.set_nodelay(true));
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            state,
            accepting,
        }
    }

    /// Answers every request with these steps from now on.
    pub(crate) fn answers(&self, behaviour: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) {
        lock(&self.state).behaviour = Arc::new(behaviour);
    }

    /// Answers as soon as it has the head of a request, whatever becomes of its body.
    pub(crate) fn answers_early(&self, behaviour: impl Fn(&Seen) -> Vec<Step> + Send + Sync + 'static) {
        self.answers(behaviour);
        lock(&self.state).early = true;
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests it has read whole.
    pub(crate) fn executed(&self) -> usize {
        lock(&self.state).requests.len()
    }

    /// How many requests for this target it has read.
    pub(crate) fn executed_target(&self, target: &str) -> usize {
        lock(&self.state)
            .requests
            .iter()
            .filter(|seen| seen.target == target)
            .count()
    }

    /// The requests that it has read, in the order in which they were complete.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        lock(&self.state).requests.clone()
    }

    /// The last request that it has read.
    pub(crate) fn last(&self) -> Seen {
        self.requests().pop().expect("the origin saw no request")
    }

    /// How many connections were ever opened to it.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.state).bytes.len()
    }

    /// How many connections to it are open.
    pub(crate) fn open_connections(&self) -> usize {
        lock(&self.state).open
    }

    /// What came on a connection so far.
    pub(crate) fn bytes(&self, connection: usize) -> Vec<u8> {
        lock(&self.state).bytes.get(connection).cloned().unwrap_or_default()
    }

    /// Waits until it has read so many requests.
    pub(crate) async fn has_executed(&self, count: usize) {
        let enough = || async { self.executed() >= count };
        wait_for(DEADLINE, &format!("{count} requests at the origin"), enough).await;
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lowers the count of open connections even if the task is dropped.
struct Open(Arc<Mutex<State>>);

impl Drop for Open {
    fn drop(&mut self) {
        lock(&self.0).open -= 1;
    }
}

async fn serve(stream: TcpStream, state: Arc<Mutex<State>>) {
    let number = {
        let mut state = lock(&state);
        state.open += 1;
        state.bytes.push(Vec::new());
        state.bytes.len() - 1
    };
    let open = Open(Arc::clone(&state));
    let mut connection = Connection {
        stream,
        number,
        buffer: Vec::new(),
        state,
    };
    // A peer that goes away in the middle is for the test to notice, in the counters.
    drop(connection.run().await);
    drop(open);
}

struct Connection {
    stream: TcpStream,
    number: usize,
    buffer: Vec<u8>,
    state: Arc<Mutex<State>>,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        while let Some(mut seen) = self.head().await? {
            let (behaviour, early) = {
                let state = lock(&self.state);
                (Arc::clone(&state.behaviour), state.early)
            };
            if !early {
                seen.body = self.body(&seen).await?;
            }
            lock(&self.state).requests.push(seen.clone());
            for step in behaviour(&seen) {
                if !self.perform(step).await? {
                    return Ok(());
                }
            }
            if early {
                self.body(&seen).await?;
            }
        }
        Ok(())
    }

    /// Does one step; `false` where the connection is over.
    async fn perform(&mut self, step: Step) -> io::Result<bool> {
        match step {
            Step::Send(bytes) => self.stream.write_all(&bytes).await?,
            Step::Pause(time) => self.unless_left(tokio::time::sleep(time)).await?,
            Step::Wait(signal) => {
                let signal = Arc::clone(&signal);
                self.unless_left(signal.notified()).await?;
            }
            Step::Stall => self.unless_left(std::future::pending()).await?,
            Step::Close => return Ok(false),
            Step::Reset => {
                self.stream.set_zero_linger()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for `time`, but ends with an error as soon as the peer closes.
    async fn unless_left(&mut self, time: impl Future<Output = ()>) -> io::Result<()> {
        let mut time = std::pin::pin!(time);
        loop {
            tokio::select! {
                () = &mut time => return Ok(()),
                more = self.fill() => if !more? { return Err(io::ErrorKind::UnexpectedEof.into()) },
            }
        }
    }

    async fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let count = self.stream.read(&mut chunk).await?;
        self.buffer.extend_from_slice(&chunk[..count]);
        lock(&self.state).bytes[self.number].extend_from_slice(&chunk[..count]);
        Ok(count > 0)
    }

    async fn until(&mut self, enough: impl Fn(&[u8]) -> Option<usize>) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = enough(&self.buffer) {
                return Ok(self.buffer.drain(..end).collect());
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next head; none where the peer is done.
    async fn head(&mut self) -> io::Result<Option<Seen>> {
        let end = |buffer: &[u8]| buffer.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let head = match self.until(end).await {
            Ok(head) => head,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && self.buffer.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        };
        // Bytes that are no UTF-8 are kept, a char each.
        let head: String = head.iter().map(|byte| char::from(*byte)).collect();
        let mut lines = head.split("\r\n").filter(|line| !line.is_empty());
        let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_owned(), value.trim().to_owned())
        };
        Ok(Some(Seen {
            method,
            target,
            headers: lines.map(header).collect(),
            body: Vec::new(),
        }))
    }

    async fn body(&mut self, head: &Seen) -> io::Result<Vec<u8>> {
        if head.header("transfer-encoding").is_some() {
            let mut body = Vec::new();
            loop {
                let line = self.line().await?;
                let size =
                    usize::from_str_radix(line.split(';').next().unwrap_or_default(), 16).map_err(io::Error::other)?;
                if size == 0 {
                    while !self.line().await?.is_empty() {}
                    return Ok(body);
                }
                body.extend(self.exactly(size).await?);
                self.exactly(2).await?;
            }
        }
        let length = head
            .header("content-length")
            .map_or(Ok(0), str::parse)
            .map_err(io::Error::other)?;
        self.exactly(length).await
    }

    async fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        self.until(|buffer| (buffer.len() >= count).then_some(count)).await
    }

    async fn line(&mut self) -> io::Result<String> {
        let end = |buffer: &[u8]| buffer.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2);
        let line = self.until(end).await?;
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}

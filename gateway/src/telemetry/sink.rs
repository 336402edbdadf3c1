//! Where lines are written to: a buffer in between, so that nobody who logs waits for whoever reads.

use std::{
    fmt,
    io::{self, Write},
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tracing_subscriber::fmt::MakeWriter;

/// Access lines may wait this long for others, so that a write carries many.
const GATHER: Duration = Duration::from_millis(50);
/// But not for more than this, in bytes.
const GATHER_BYTES: usize = 64 * 1024;
/// If the reader is slower than the log, lines are lost beyond this.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The buffer, and the thread that empties it. The thread ends with the last clone.
#[derive(Clone)]
pub(super) struct Sink(Arc<Handle>);

struct Handle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the thread.
    filled: Condvar,
    /// Nothing is left to write.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    /// The buffer must not wait for more.
    prompt: bool,
    /// The thread has taken something that is not written yet.
    writing: bool,
    lost: u64,
    closed: bool,
}

impl Sink {
    /// Writes to `to`, in a thread of its own.
    pub(super) fn start(to: impl Write + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let started = thread::Builder::new().name("log".to_owned()).spawn(move || own.run(to));
        if started.is_err() {
            shared.lock().closed = true;
        }
        Self(Arc::new(Handle(shared)))
    }

    /// Takes so many whole lines, which may wait for others.
    pub(super) fn push(&self, text: &[u8], lines: u64) {
        self.0.0.push(text, lines, false);
    }

    /// Waits until everything that was logged before is written, for `at_most`.
    pub(super) fn flush(&self, at_most: Duration) {
        let Handle(shared) = &*self.0;
        let mut state = shared.lock();
        state.prompt = true;
        shared.filled.notify_one();
        let pending = |state: &mut State| !state.closed && (state.writing || !state.buffer.is_empty());
        drop(shared.emptied.wait_timeout_while(state, at_most, pending));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.filled.notify_one();
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, text: &[u8], lines: u64, prompt: bool) {
        let mut state = self.lock();
        if state.closed || state.buffer.len() + text.len() > MAX_BYTES {
            state.lost += lines;
            return;
        }
        // Waking is a system call: only where the thread has reason to look again.
        let before = state.buffer.len();
        state.buffer.extend_from_slice(text);
        let fills = before < GATHER_BYTES && state.buffer.len() >= GATHER_BYTES;
        let wakes = before == 0 || fills || (prompt && !state.prompt);
        state.prompt |= prompt;
        drop(state);
        if wakes {
            self.filled.notify_one();
        }
    }

    fn run(&self, mut to: impl Write) {
        let mut lines = Vec::new();
        while let Some(lost) = self.take(&mut lines) {
            // Nobody is left to be told of an error.
            drop(to.write_all(&lines).and_then(|()| to.flush()));
            if lost > 0 {
                tracing::warn!(lost, "the log was written faster than it was read: lines are lost");
            }
        }
    }

    /// Swaps the buffer with `lines` once it should be written, and says how many lines were lost. `None` at the end.
    fn take(&self, lines: &mut Vec<u8>) -> Option<u64> {
        lines.clear();
        let mut state = self.lock();
        state.writing = false;
        if state.buffer.is_empty() {
            self.emptied.notify_all();
        }
        let idle = |state: &mut State| state.buffer.is_empty() && !state.closed;
        state = self
            .filled
            .wait_while(state, idle)
            .unwrap_or_else(PoisonError::into_inner);
        let gathering = |state: &mut State| !state.prompt && !state.closed && state.buffer.len() < GATHER_BYTES;
        (state, _) = self
            .filled
            .wait_timeout_while(state, GATHER, gathering)
            .unwrap_or_else(PoisonError::into_inner);
        if state.buffer.is_empty() && state.closed {
            return None;
        }
        mem::swap(&mut state.buffer, lines);
        (state.prompt, state.writing) = (false, true);
        Some(mem::take(&mut state.lost))
    }
}

/// Takes one line, which the formatter writes in one piece.
pub(super) struct Line<'a>(&'a Shared);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line, 1, true);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0.0)
    }
}

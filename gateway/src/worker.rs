//! What a worker owns: one thread, one runtime, one view of the snapshot with its own connections to the upstreams.
//!
//! Nothing here is shared with another thread, so nothing is locked, and a task is only ever woken by its own thread.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
    sync::Arc,
};

use arc_swap::{ArcSwap, Cache};
use bytes::{Bytes, BytesMut};
use hyper_util::server::conn::auto;
use limiter_core::{Clock, Timestamp};
use tokio::{
    sync::Notify,
    task::spawn_local,
    time::{MissedTickBehavior, interval},
};

use crate::{
    descriptor::Descriptor,
    ratelimit_fields::Fields,
    snapshot::{Shared, Snapshot},
    telemetry::AccessLog,
    upstream::Upstream,
};

pub(crate) mod deadlines;

use deadlines::{Deadlines, SWEEP_EVERY};

/// hyper's bound on the read buffer must be at least this.
const LEAST_BUFFER: usize = 8 * 1024;
/// Streams that an HTTP/2 client may have open at once.
const HTTP2_STREAMS: u32 = 256;
/// Hex digits of a request id.
const ID_LEN: usize = 32;

/// One worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) deadlines: Deadlines,
    /// Filled and read within one step of a request.
    pub(crate) descriptor: RefCell<Descriptor>,
    /// Writes how full a request's layers are.
    pub(crate) fields: RefCell<Fields>,
    pub(crate) access_log: RefCell<AccessLog>,
    current: RefCell<Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>>,
    view: RefCell<Rc<View>>,
    draining: Cell<bool>,
    /// Connections of this worker.
    open: Cell<usize>,
    closed: Notify,
    random: RefCell<fastrand::Rng>,
    ids: RefCell<BytesMut>,
    /// How many workers there are: bounds that hold for all are divided by it.
    workers: usize,
}

/// The snapshot, as one worker runs it.
pub(crate) struct View {
    pub(crate) snapshot: Arc<Snapshot>,
    /// In the order of the configuration.
    pub(crate) upstreams: Vec<Upstream>,
    /// Serves connections by these bounds.
    pub(crate) http: Rc<auto::Builder<LocalExecutor>>,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, current: &Arc<ArcSwap<Snapshot>>, workers: usize) -> Self {
        let snapshot = current.load_full();
        let mut random = fastrand::Rng::new();
        let now = shared.clock.now();
        let view = View::build(snapshot, None, workers, &mut random, now);
        let deadlines = Deadlines::default();
        deadlines.sweep(now);
        Self {
            shared: Arc::clone(shared),
            deadlines,
            descriptor: RefCell::default(),
            fields: RefCell::default(),
            access_log: RefCell::new(shared.access_log()),
            current: RefCell::new(Cache::new(Arc::clone(current))),
            view: RefCell::new(Rc::new(view)),
            draining: Cell::new(false),
            open: Cell::new(0),
            closed: Notify::new(),
            random: RefCell::new(random),
            ids: RefCell::default(),
            workers,
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The running snapshot. A request asks once and keeps the answer.
    pub(crate) fn view(&self) -> Rc<View> {
        let mut current = self.current.borrow_mut();
        let snapshot = current.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(&view.snapshot, snapshot) {
            let (snapshot, random) = (Arc::clone(snapshot), &mut self.random.borrow_mut());
            *view = Rc::new(View::build(snapshot, Some(&view), self.workers, random, self.now()));
        }
        Rc::clone(&view)
    }

    /// A request id: 128 random bits in hex.
    pub(crate) fn request_id(&self) -> Bytes {
        let bits = self.random.borrow_mut().u128(..);
        let mut id = [0; ID_LEN];
        for (digits, at) in id.chunks_exact_mut(8).zip(0..) {
            #[expect(clippy::cast_possible_truncation, reason = "a quarter at a time")]
            let quarter = (bits >> (32 * at)) as u32;
            digits.copy_from_slice(&hex(quarter));
        }
        // Cut from one buffer: no allocation an id, and its clones cost a count only.
        let mut ids = self.ids.borrow_mut();
        if ids.capacity() < ID_LEN {
            ids.reserve(128 * ID_LEN);
        }
        ids.extend_from_slice(&id);
        ids.split().freeze()
    }

    /// A connection has come.
    pub(crate) fn on_open(&self) {
        self.open.set(self.open.get() + 1);
    }

    /// A connection has gone.
    pub(crate) fn on_close(&self) {
        self.open.set(self.open.get() - 1);
        if self.is_draining() {
            self.closed.notify_one();
        }
    }

    /// Waits until no connection is left.
    pub(crate) async fn all_closed(&self) {
        while self.open.get() > 0 {
            self.closed.notified().await;
        }
    }

    /// From now on connections end with the request that they carry.
    pub(crate) fn start_drain(&self) {
        self.draining.set(true);
        self.deadlines.wake_all();
    }

    /// Whether connections are to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Meets deadlines, hands on access lines, closes idle upstream connections, and lets go of a snapshot that was replaced.
    pub(crate) async fn sweep(self: Rc<Self>) {
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = self.now();
            self.deadlines.sweep(now);
            self.access_log.borrow_mut().hand_on();
            for upstream in &self.view().upstreams {
                upstream.evict(now);
            }
        }
    }
}

/// The eight hex digits of `bits`, all at once: the least of them first.
fn hex(bits: u32) -> [u8; 8] {
    // A digit a byte.
    let mut digits = u64::from(bits);
    digits = (digits | (digits << 16)) & 0x0000_ffff_0000_ffff;
    digits = (digits | (digits << 8)) & 0x00ff_00ff_00ff_00ff;
    digits = (digits | (digits << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 where a digit is ten or more.
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (digits + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'0' - 10)).to_le_bytes()
}

impl View {
    fn build(
        snapshot: Arc<Snapshot>,
        old: Option<&View>,
        workers: usize,
        random: &mut fastrand::Rng,
        now: Timestamp,
    ) -> Self {
        let upstream = |config| {
            let old = old.and_then(|view| view.upstreams.iter().find(|old| old.is_named(config)));
            Upstream::build(config, old, workers, random, now)
        };
        let upstreams = snapshot.config.upstreams.iter().map(upstream).collect();
        let http = Rc::new(http_builder(snapshot.config.server.max_header_bytes));
        Self {
            snapshot,
            upstreams,
            http,
        }
    }
}

fn http_builder(max_header_bytes: usize) -> auto::Builder<LocalExecutor> {
    let mut builder = auto::Builder::new(LocalExecutor);
    builder.http1().max_buf_size(max_header_bytes.max(LEAST_BUFFER));
    let max_list = u32::try_from(max_header_bytes).unwrap_or(u32::MAX);
    builder
        .http2()
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(max_list);
    builder
}

/// Runs hyper's tasks (HTTP/2 streams) on this thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        // The task ends by itself; its handle is not needed.
        drop(spawn_local(async {
            task.await;
        }));
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View")
            .field("version", &self.snapshot.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn hex_digits_are_those_of_the_number() {
        for bits in [0, 9, 10, 0x0123_4567, 0x89ab_cdef, 0xfedc_ba98, u32::MAX] {
            let digits = hex(bits).into_iter().rev().collect();
            assert_eq!(String::from_utf8(digits).unwrap(), format!("{bits:08x}"));
        }
    }
}

//! Counters that workers add to without meeting.
//!
//! A worker's additions go to cells of its own, a cache line apart from the others'; whoever reads adds them up. A
//! reading is not a moment in time: counters that belong together may differ by what is being counted meanwhile.

use std::{
    array,
    sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
};

/// More shards than this cost memory for nothing: each route, limit and upstream has its own.
const MAX_SHARDS: usize = 16;

thread_local! {
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed)
    };
}

/// Two cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// One `T` for each processor; a thread always uses the same.
#[derive(Debug)]
pub(super) struct Sharded<T>(Box<[Padded<T>]>);

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let shards = processors.next_power_of_two().min(MAX_SHARDS);
        Self((0..shards).map(|_| Padded::default()).collect())
    }
}

impl<T> Sharded<T> {
    /// The calling thread's own, which it may share with others.
    pub(super) fn own(&self) -> &T {
        &self.0[SHARD.with(|shard| *shard) & (self.0.len() - 1)].0
    }

    /// The sum over all.
    pub(super) fn sum(&self, read: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.0.iter().map(|Padded(cells)| read(cells).load(Relaxed)).sum()
    }
}

/// Something that is entered and left.
#[derive(Debug, Default)]
pub(super) struct Level(Sharded<AtomicI64>);

impl Level {
    pub(super) fn add(&self, by: i64) {
        self.0.own().fetch_add(by, Relaxed);
    }

    pub(super) fn get(&self) -> i64 {
        self.0
            .0
            .iter()
            .map(|Padded(cell)| cell.load(Relaxed))
            .sum::<i64>()
            .max(0)
    }
}

/// Adds one.
pub(super) fn count(cell: &AtomicU64) {
    cell.fetch_add(1, Relaxed);
}

/// A histogram of whole numbers: `N` cells, the last of them for what is above all bounds.
#[derive(Debug)]
pub(super) struct Histogram<const N: usize> {
    pub(super) buckets: [AtomicU64; N],
    pub(super) sum: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self {
            buckets: array::from_fn(|_| AtomicU64::new(0)),
            sum: AtomicU64::new(0),
        }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts `value` under the first of the `N` − 1 ascending `bounds` that it does not pass.
    pub(super) fn observe(&self, bounds: &[u64], value: u64) {
        let bucket = bounds.partition_point(|bound| *bound < value);
        if let Some(cell) = self.buckets.get(bucket) {
            count(cell);
        }
        self.sum.fetch_add(value, Relaxed);
    }
}

/// A histogram, added up over all shards.
#[derive(Debug)]
pub(super) struct Summed {
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bounds, and what lies between them: not cumulated.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Summed {
    /// Reads the histograms that `of` finds. `unit` of their whole numbers are one of what is reported.
    pub(super) fn read<T, const N: usize>(
        shards: &Sharded<T>,
        bounds: &[u64],
        unit: f64,
        of: impl Fn(&T) -> &Histogram<N>,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a metric is read to a few digits")]
        let scaled = |value: u64| value as f64 / unit;
        let bounds = bounds.iter().map(|bound| scaled(*bound)).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds
            .zip((0..N).map(|i| shards.sum(|cells| &of(cells).buckets[i])))
            .collect();
        Self {
            sum: scaled(shards.sum(|cells| &of(cells).sum)),
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let shards = Sharded::<AtomicU64>::default();
        let level = Level::default();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        count(shards.own());
                        level.add(1);
                    }
                });
            }
        });
        assert_eq!(shards.sum(|cell| cell), 8_000);
        assert_eq!(level.get(), 8_000);
        thread::scope(|scope| {
            scope.spawn(|| level.add(-8_000));
        });
        assert_eq!(level.get(), 0, "left on another thread than entered");
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let shards = Sharded::<Histogram<4>>::default();
        let bounds = [10, 20, 30];
        for value in [0, 10, 11, 20, 30, 31, 1_000] {
            shards.own().observe(&bounds, value);
        }
        let summed = Summed::read(&shards, &bounds, 10.0, |histogram| histogram);
        assert_eq!(summed.buckets, [(1.0, 2), (2.0, 2), (3.0, 1), (f64::INFINITY, 2)]);
        assert_eq!((summed.count, summed.sum), (7, 110.2));
    }
}

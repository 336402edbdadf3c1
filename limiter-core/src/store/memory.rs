//! Counters in this process: sharded, bounded.
use super::{Answer, Ask, Health, Store};
use crate::clock::Clock;
use std::sync::Arc;
/// Counters in this process.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    max_keys: usize,
}
impl MemoryStore {
    /// A store of at most `max_keys` counters.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, max_keys: usize) -> Self {
        Self { clock, max_keys }
    }
    /// Counters held now.
    #[must_use]
    pub fn len(&self) -> usize {
        let _ = (&self.clock, self.max_keys);
        unimplemented!()
    }
    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
impl Store for MemoryStore {
    fn decide(&self, _asks: &[Ask<'_>]) -> Answer {
        unimplemented!()
    }
    fn health(&self) -> Health {
        Health::Connected
    }
}

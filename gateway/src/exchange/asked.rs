//! A question to the limiter whose client may leave before the answer.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use limiter_core::Outcome;
use tokio::runtime::Handle;

use super::owed::Owed;
use crate::{error::LayerIds, snapshot::Snapshot};

/// The limiter's answer, on its way.
type Pending = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A question over layers that are settled by the answer to the request. Dropped before the limiter has said anything, it
/// is waited for elsewhere, and what was charged is settled as of a client that left.
pub(crate) struct Asked {
    /// `None` once it is answered.
    pending: Option<Pending>,
    layers: LayerIds,
    snapshot: Arc<Snapshot>,
}

impl Asked {
    /// The question `pending` over `layers`.
    pub(crate) fn new(pending: Pending, layers: &LayerIds, snapshot: &Arc<Snapshot>) -> Self {
        Self {
            pending: Some(pending),
            layers: layers.clone(),
            snapshot: Arc::clone(snapshot),
        }
    }
}

impl Future for Asked {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let Some(pending) = &mut self.pending else {
            // Nobody asks twice.
            return Poll::Pending;
        };
        let outcome = ready!(pending.as_mut().poll(cx));
        self.pending = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        // Without a runtime the process ends.
        let Ok(runtime) = Handle::try_current() else { return };
        let (layers, snapshot) = (std::mem::take(&mut self.layers), Arc::clone(&self.snapshot));
        runtime.spawn(async move {
            if let Some(owed) = Owed::of(&mut pending.await, &layers) {
                owed.settle(&snapshot, None, |_, _, _| ());
            }
        });
    }
}

//! A connection for questions about where the servers are.

use std::{sync::Arc, time::Duration};

use fred::{interfaces::Resp3Frame, types::Value};

use super::{
    config::{Access, Address},
    connection::{Connections, TaskGuard},
    context::Context,
    failure::Failure,
};
use crate::store::StoreError;

/// One connection to a sentinel, or to a server of a cluster, kept for as long as this lives.
#[derive(Debug)]
pub(super) struct Asker {
    address: Address,
    connections: Arc<Connections>,
    _tasks: Vec<TaskGuard>,
}

impl Asker {
    /// Starts connecting.
    ///
    /// # Errors
    /// [`StoreError::Config`] where the settings cannot be used.
    pub(super) fn start(address: Address, context: &Context, access: &Access) -> Result<Self, StoreError> {
        let connections = Arc::new(Connections::new(&address, access, 1, context.config.timeout)?);
        let tasks = connections.supervise(&context.runtime);
        Ok(Self {
            address,
            connections,
            _tasks: tasks,
        })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Asks once.
    ///
    /// # Errors
    /// Where there is no connection, or no answer within `patience`.
    pub(super) async fn ask(
        &self,
        command: &'static str,
        args: Vec<Value>,
        patience: Duration,
    ) -> Result<Resp3Frame, Failure> {
        self.connections.ask(command, args, patience).await
    }

    /// Why there is no connection.
    pub(super) fn last_error(&self) -> String {
        self.connections.last_error()
    }
}

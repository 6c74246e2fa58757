//! Handlers whose bodies the processor of this process calls.

use std::sync::Arc;

use punctual_engine::{CallError, EngineGone, Upcall};
use punctual_ipc::ring::{InboxWriter, OutboxReader};
use punctual_proto::api::{RtuSending, RtuTerms};

use super::{BoxedBody, Grant, RtuError, Status};
use crate::connection::Connection;
use crate::processor::is_processor;

/// A handler on the processor.
pub(super) struct Direct {
    /// Dropped first: what follows may be the last that holds the engine.
    upcall: Upcall<OutboxReader, InboxWriter>,
    _connection: Arc<Connection>,
}

impl Direct {
    pub(super) fn register(
        connection: &Arc<Connection>,
        terms: RtuTerms,
        body: BoxedBody,
    ) -> Result<Self, RtuError> {
        let embedded = connection.embedded.as_ref().ok_or(RtuError::NotEmbedded)?;
        let upcall = embedded.register(terms, body)?.map_err(RtuError::Refused)?;
        Ok(Self { upcall, _connection: Arc::clone(connection) })
    }

    /// Registers one that sends what is put into the ring behind `outbox`.
    pub(super) fn register_sender(
        connection: &Arc<Connection>,
        terms: RtuTerms,
        sending: RtuSending,
        outbox: OutboxReader,
        body: BoxedBody,
    ) -> Result<Self, RtuError> {
        let embedded = connection.embedded.as_ref().ok_or(RtuError::NotEmbedded)?;
        let upcall = embedded.register_sender(terms, sending, outbox, body)?.map_err(RtuError::Refused)?;
        Ok(Self { upcall, _connection: Arc::clone(connection) })
    }

    pub(super) fn make_ready(&self) -> Result<(), RtuError> {
        Ok(self.upcall.make_ready().map_err(CallError::Gone)?)
    }

    pub(super) const fn grant(&self) -> Grant {
        self.upcall.grant()
    }

    pub(super) fn status(&self) -> Result<Status, RtuError> {
        Ok(self.upcall.status()?.ok_or(CallError::Gone(EngineGone))?)
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // The processor cannot wait for itself: it lets the handler go as soon as it has time.
        if is_processor() {
            self.upcall.let_go();
        } else {
            // An error means that the engine is gone, and the body with it.
            let _ = self.upcall.remove();
        }
    }
}

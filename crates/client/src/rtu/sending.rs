//! What a handler on the processor of this process sends: into a ring of its own, which the processor takes out of when the call
//! has ended.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use punctual_ipc::ring::outgoing::PushError;
use punctual_ipc::ring::{OutboxWriter, RingShape, now, outbox_within};
use punctual_ipc::wake::Alarm;
use punctual_proto::api::{RtuSending, RtuTarget};
use punctual_proto::ids::Address;

use super::direct::Direct;
use super::{Place, Progress, Rtu, RtuError, Terms, guarded};
use crate::endsystem::Endsystem;
use crate::error::Error;

/// Messages that a ring holds for each packet of a budget: those that are on their way, and those of the next calls.
const RING_FACTOR: u32 = 4;
/// Messages that a ring holds at least, and at most.
const RING_MESSAGES: (u32, u32) = (64, 16_384);

/// Takes what a body sends.
pub struct Sender {
    ring: OutboxWriter,
}

impl Sender {
    /// Sends a message: it leaves behind those that were sent before, as many in a period as the budget's data units may send
    /// with the promise of [`Grant::sent`](super::Grant), more of a low-delay handler as best effort.
    ///
    /// # Errors
    /// [`PushError::Full`] where the link has not sent enough of what was sent before, [`PushError::TooLong`] for more than
    /// was declared.
    pub fn send(&mut self, message: &[u8]) -> Result<(), PushError> {
        // The processor checks the ring when the call has ended.
        self.ring.push_beside(message, now()).map(drop)
    }
}

impl Endsystem {
    /// Does what [`Endsystem::register`] does for a body that sends to `peer` (`port@host`, a port of best effort), `packets`
    /// messages for each data unit at most, none longer than `payload_bytes`. On this host's link they have slots of their
    /// own, and leave within [`Grant::sent`](super::Grant) of the data unit's release; on later hosts they are best effort.
    ///
    /// # Errors
    /// See [`Endsystem::register`]; [`RtuError::NotEmbedded`] through a daemon.
    pub fn register_sending(
        &self,
        terms: Terms,
        peer: &str,
        (packets, payload_bytes): (u32, u32),
        mut body: impl FnMut(u32, &mut Sender) -> Progress + Send + 'static,
    ) -> Result<Rtu, RtuError> {
        let to = peer.parse::<Address>().map_err(Error::from)?;
        let budget = terms.budget().map_or(terms.quantum, |(units, _)| units).saturating_mul(packets);
        let slots = budget.saturating_mul(RING_FACTOR).clamp(RING_MESSAGES.0, RING_MESSAGES.1);
        let (reader, ring) = ring(slots, payload_bytes)?;
        let mut sender = Sender { ring };
        let panicked = Arc::new(AtomicBool::new(false));
        let body = guarded(move |units| body(units, &mut sender), &panicked);
        let sending = RtuSending { to: RtuTarget::Port(to), packets, payload_bytes };
        let direct = Direct::register_sender(&self.connection, terms, sending, reader, body)?;
        Ok(Rtu { at: Place::Processor(direct), panicked })
    }
}

/// A ring whose both ends are in this process.
fn ring(slots: u32, bytes: u32) -> Result<(punctual_ipc::ring::OutboxReader, OutboxWriter), Error> {
    let (shape, alarm) = (RingShape::new(slots, bytes)?, Alarm::new().map_err(Error::Socket)?);
    Ok(outbox_within(shape, &alarm)?)
}

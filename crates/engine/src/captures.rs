//! Captures of packets, begun from any thread (see [`crate::capture`]).

use punctual_proto::ids::ChannelId;
use punctual_proto::memory::{Inbox, Outbox};

use crate::capture::{Capture, CaptureBusy, CaptureFilter};
use crate::handle::{CallError, EngineHandle};

impl<O: Outbox + 'static, I: Inbox + Send + 'static> EngineHandle<O, I> {
    /// Copies packets into `inbox`, whose messages have `message_bytes` each, until [`Self::end_capture`] of the same id: a
    /// handle that the node has reserved.
    ///
    /// # Errors
    /// Inside, if a capture runs already; outside, that of [`EngineHandle::call`].
    pub fn capture(
        &self,
        id: ChannelId,
        filter: CaptureFilter,
        (inbox, message_bytes): (I, u32),
    ) -> Result<Result<(), CaptureBusy>, CallError> {
        let capture = Capture::new(id, filter, (inbox, message_bytes));
        let refused = self.ask(move |processor, _| processor.begin_capture(capture))?;
        // The refused ring is dropped here, not by the processor.
        Ok(refused.map_or(Ok(()), |_inbox| Err(CaptureBusy)))
    }

    /// Ends a capture; without effect if it has ended.
    ///
    /// # Errors
    /// See [`EngineHandle::call`].
    pub fn end_capture(&self, id: ChannelId) -> Result<(), CallError> {
        // The ring is dropped here, not by the processor.
        self.ask(move |processor, _| processor.end_capture(id)).map(drop)
    }
}

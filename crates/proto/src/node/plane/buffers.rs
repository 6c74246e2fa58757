//! How many messages of a channel may be at each place of this host.

/// Buffers of a channel here, in messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// Waiting for the processor: the ring at a source, packets elsewhere.
    pub cpu_messages: u32,
    /// Waiting for the link.
    pub link_messages: u32,
    /// Being put together, or held for their deadline.
    pub sink_messages: u32,
}

impl Buffers {
    /// Waiting for the processor or the link.
    pub fn waiting_messages(self) -> u32 {
        self.cpu_messages.saturating_add(self.link_messages)
    }
}

//! What waits in a link's queues: references to payload, never payload (HARTS 5.1).

use punctual_analysis::Instant;

use crate::ids::{ChannelId, LinkId};
use crate::wire::Header;

/// A packet reference. The bytes are copied into the driver's frame when the link scheduler picks it.
#[derive(Debug)]
pub(super) enum Packet<F> {
    /// A fragment of a message that starts here.
    Source {
        /// The channel.
        channel: ChannelId,
        /// Message number.
        number: u64,
        /// Fragment index.
        fragment: u16,
        /// n of the link stage.
        nominal: Instant,
    },
    /// A fragment of a source's demoted message.
    Demoted {
        /// The channel.
        channel: ChannelId,
        /// Its place in the demoted queue.
        number: u64,
        /// Fragment index.
        fragment: u16,
    },
    /// A fragment of a best-effort message that starts here.
    Flow {
        /// The flow.
        channel: ChannelId,
        /// Message number.
        number: u64,
        /// Fragment index.
        fragment: u16,
    },
    /// A guaranteed packet that passes through.
    Forward {
        /// The channel.
        channel: ChannelId,
        /// As it came.
        header: Header,
        /// With its payload.
        frame: F,
        /// n of the link stage.
        nominal: Instant,
    },
    /// A best-effort or demoted packet that passes through.
    Pass {
        /// Where it came in: whose frame it keeps.
        link_in: LinkId,
        /// As it came; `demoted` is set where we demoted it.
        header: Header,
        /// With its payload.
        frame: F,
    },
    /// One that only fills the link.
    Filler {
        /// Which.
        link: LinkId,
    },
    /// The next packet of signalling, whatever it is by then.
    Signal,
}

//! Packets in a link's queues: references to payload, never payload (HARTS 5.1).

use punctual_analysis::Instant;

use crate::api::RtuId;
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
        /// Place of the message in the demoted queue.
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
        /// Header as it was received.
        header: Header,
        /// Received frame, which holds the payload.
        frame: F,
        /// n of the link stage.
        nominal: Instant,
    },
    /// A best-effort or demoted packet that passes through.
    Pass {
        /// Link over which the packet came in, and whose frame it occupies.
        link_in: LinkId,
        /// Header as it was received, except that `demoted` is set if this host demoted the packet.
        header: Header,
        /// Received frame, which holds the payload.
        frame: F,
    },
    /// A message of a program's handler.
    Upcall {
        /// The handler.
        id: RtuId,
        /// Message number.
        number: u64,
    },
    /// A packet that only fills the link, to measure its rate.
    Filler {
        /// The link that is measured.
        link: LinkId,
    },
    /// The next signalling packet, whose content is decided when it is written.
    Signal,
}

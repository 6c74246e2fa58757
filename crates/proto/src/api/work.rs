//! Tasks of a node for its driver: work on the processor, and packets for a link.

use punctual_analysis::Nanos;

use super::RtuId;
use crate::config::{CpuCosts, WorkKind};
use crate::ids::HandlerId;

/// One unit of protocol work, which the processor does without being pre-empted.
#[derive(Debug, PartialEq, Eq)]
pub struct Work {
    /// Handler that the work belongs to.
    pub handler: HandlerId,
    /// Path through the code, for the cost model.
    pub kind: WorkKind,
    /// Packets in this unit.
    pub packets: u32,
    /// Payload bytes that it copies.
    pub bytes: u32,
    /// Whether it begins or ends a message (the extra per message).
    pub message_edge: bool,
    /// Declared time of the application's handler that runs within the unit.
    pub application: Nanos,
}

impl Work {
    /// The cost that admission assumes for the unit; unbounded if it counts as interference.
    pub fn declared_cost(&self, costs: &CpuCosts) -> Nanos {
        match self.kind {
            WorkKind::Signalling => Nanos::MAX,
            kind => costs.of_unit(kind, self.packets, self.bytes, self.message_edge) + self.application,
        }
    }
}

/// A packet to hand to a link's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<F> {
    /// Which of the two ports the packet goes to.
    pub port: Port,
    /// Bytes that it takes on the wire; pass them to `handle_sent`.
    pub wire_bytes: u32,
    /// The packet's bytes, or where to find them.
    pub packet: PacketOut<F>,
}

/// The bytes of an outgoing packet, from our header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOut<F> {
    /// The node wrote this many bytes to the buffer that the caller gave.
    Written(usize),
    /// A received frame that passes through, with its new header. Send it as it is.
    Frame(F),
    /// The node wrote a packet of a program's handler to the buffer, as the handler made it: it has no header of ours, and
    /// the caller knows where it goes by the handler and the tag ([`RtuTarget::Link`](super::RtuTarget::Link)).
    Raw {
        /// The handler.
        handler: RtuId,
        /// The tag that the handler wrote behind the packet.
        tag: u64,
        /// Bytes of the packet.
        len: usize,
    },
}

impl<F: AsRef<[u8]>> PacketOut<F> {
    /// Copies the packet to `out`, the buffer that was given, and returns its length: for drivers that send
    /// only from their own buffers.
    pub fn copy_to(&self, out: &mut [u8]) -> usize {
        match self {
            Self::Written(len) | Self::Raw { len, .. } => *len,
            Self::Frame(frame) => {
                let bytes = frame.as_ref();
                out[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            }
        }
    }
}

/// The two well-known ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// Data of channels and best effort.
    Data,
    /// RTCOP and HELLO.
    Signalling,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the unit's packets cost, and what its application declares; signalling is interference without a
    /// bound.
    #[test]
    fn a_unit_declares_its_packets_and_its_application() {
        let costs = CpuCosts::default();
        let work = |kind, application| Work {
            handler: HandlerId(1),
            kind,
            packets: 3,
            bytes: 4_000,
            message_edge: true,
            application: Nanos(application),
        };
        for kind in [WorkKind::Send, WorkKind::Forward, WorkKind::Receive, WorkKind::BestEffort] {
            let packets = costs.of_unit(kind, 3, 4_000, true);
            for application in [0, 1, 70_000] {
                assert_eq!(work(kind, application).declared_cost(&costs), packets + Nanos(application));
            }
        }
        assert_eq!(work(WorkKind::Signalling, 0).declared_cost(&costs), Nanos::MAX);
    }

    /// A packet that is written already stays as it is; one that passes through is copied.
    #[test]
    fn a_frame_is_copied_and_what_is_written_stays() {
        let mut out = [9; 8];
        assert_eq!(PacketOut::<[u8; 3]>::Written(5).copy_to(&mut out), 5);
        let handler = RtuId(1);
        assert_eq!(PacketOut::<[u8; 3]>::Raw { handler, tag: 7, len: 6 }.copy_to(&mut out), 6);
        assert_eq!(out, [9; 8]);
        assert_eq!(PacketOut::Frame([1, 2, 3]).copy_to(&mut out), 3);
        assert_eq!(out, [1, 2, 3, 9, 9, 9, 9, 9]);
    }
}

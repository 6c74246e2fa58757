//! Rings between threads of this process: of segments, and of an embedding program.

use std::sync::Arc;

use punctual_engine::direct;
use punctual_engine::tcp::Segments;
use punctual_ipc::ring::outgoing::OutboxHealth;
use punctual_ipc::ring::{LocalWriter, OutboxReader, RingShape, local_outbox, now};
use punctual_ipc::wake::Alarm;
use punctual_link::Pool;
use punctual_proto::ids::ChannelId;
use punctual_proto::limits::RAW_TAG_BYTES;

use super::TcpError;

/// The end of a ring of segments that an output handler fills.
pub(super) struct SegmentRing(LocalWriter);

impl Segments for SegmentRing {
    fn has_room(&self) -> bool {
        !self.0.is_full()
    }

    fn put(&mut self, packet: &[u8], address: u64) {
        // There is room (`has_room`), and no segment is longer than the connection's MTU.
        let _ = self.0.push(&[packet, &address.to_le_bytes()], now());
    }
}

/// The end of an outgoing channel's ring that an output handler fills.
pub(super) struct ChannelRing {
    ring: LocalWriter,
    channel: ChannelId,
}

impl Segments for ChannelRing {
    fn has_room(&self) -> bool {
        !self.ring.is_full()
    }

    fn put(&mut self, packet: &[u8], _: u64) {
        // There is room (`has_room`), and no segment is longer than the connection's MTU, which is the channel's message size.
        let _ = self.ring.push(&[packet], now());
        direct::ring_outbox(self.channel);
    }
}

/// A ring for a channel that takes packets of at most `bytes`: the processor's end, that of the output handler, and what keeps
/// it and the buffers of what comes.
pub(super) fn channel_ring(
    channel: ChannelId,
    (slots, bytes): (u32, u32),
    buffers: Arc<Pool>,
    alarm: &Alarm,
) -> Result<(OutboxReader, ChannelRing, Keep), TcpError> {
    let (reader, ring) = local_outbox(RingShape::new(slots, bytes)?, alarm)?;
    let keep = Keep(reader.health(), alarm.clone(), Some(buffers));
    Ok((reader, ChannelRing { ring, channel }, keep))
}

/// Keeps a ring's memory, its alarm, and buffers, until the processor has dropped its end: the processor closes nothing.
#[derive(Clone)]
pub(super) struct Keep(
    OutboxHealth,
    #[allow(dead_code, reason = "it is only held")] Alarm,
    Option<Arc<Pool>>,
);

impl Keep {
    /// Whether the processor has dropped its end.
    pub fn is_alone(&self) -> bool {
        self.0.is_alone() && self.2.as_ref().is_none_or(|buffers| Arc::strong_count(buffers) == 1)
    }
}

/// A ring of segments of at most `segment_bytes`: the processor's end, that of the output handler, and what keeps it. Both ends
/// are on the processor, so it takes no descriptor of its own; all such rings may have one alarm, which never rings.
pub(super) fn segment_ring(
    slots: u32,
    segment_bytes: u32,
    alarm: &Alarm,
) -> Result<(OutboxReader, SegmentRing, Keep), TcpError> {
    let shape = RingShape::new(slots, segment_bytes + RAW_TAG_BYTES as u32)?;
    let (reader, writer) = local_outbox(shape, alarm)?;
    let keep = Keep(reader.health(), alarm.clone(), None);
    Ok((reader, SegmentRing(writer), keep))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of the longest frames, too, reach the node whole, with their tag behind them.
    #[test]
    fn a_segment_of_any_length_goes_into_its_ring() {
        use punctual_proto::memory::{MessageRead, Outbox};
        for bytes in [1_usize, 1_456, 3_768] {
            let alarm = Alarm::new().expect("an eventfd");
            let (mut reader, mut ring, keep) = segment_ring(4, bytes as u32, &alarm).expect("a ring");
            assert!(ring.has_room());
            ring.put(&vec![7; bytes], 0x0a0b);
            let (message, _) = reader.take(now()).expect("a segment");
            let mut copy = vec![0; message.len() as usize];
            message.copy_to(0, &mut copy);
            assert!(!keep.is_alone(), "the reader is there");
            assert!(copy == [vec![7; bytes], 0x0a0b_u64.to_le_bytes().to_vec()].concat(), "{bytes}");
        }
    }
}

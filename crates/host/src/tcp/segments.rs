//! Rings between threads of this process: of segments, and of an embedding program.

use std::sync::Arc;

use punctual_engine::direct;
use punctual_engine::tcp::Segments;
use punctual_ipc::ring::outgoing::OutboxHealth;
use punctual_ipc::ring::{
    InboxReader, InboxWriter, OutboxReader, OutboxWriter, RingShape, inbox, now, outbox,
};
use punctual_ipc::wake::{Alarm, RingPath};
use punctual_link::Pool;
use punctual_proto::ids::ChannelId;
use punctual_proto::limits::RAW_TAG_BYTES;

use super::TcpError;

/// The end of a ring of segments that an output handler fills.
pub(super) struct SegmentRing {
    ring: OutboxWriter,
    /// Buffer for a segment and its tag, with room for the longest segment.
    message: Vec<u8>,
}

impl SegmentRing {
    /// For segments of at most `segment_bytes`.
    fn new(ring: OutboxWriter, segment_bytes: u32) -> Self {
        Self { ring, message: Vec::with_capacity(segment_bytes as usize + RAW_TAG_BYTES) }
    }
}

impl Segments for SegmentRing {
    fn has_room(&self) -> bool {
        !self.ring.is_full()
    }

    fn put(&mut self, packet: &[u8], address: u64) {
        self.message.clear();
        self.message.extend_from_slice(packet);
        self.message.extend_from_slice(&address.to_le_bytes());
        // There is room (`has_room`), and no segment is longer than the connection's MTU.
        let _ = self.ring.push_beside(&self.message, now());
    }
}

/// The end of an outgoing channel's ring that an output handler fills.
pub(super) struct ChannelRing {
    ring: OutboxWriter,
    channel: ChannelId,
}

impl Segments for ChannelRing {
    fn has_room(&self) -> bool {
        !self.ring.is_full()
    }

    fn put(&mut self, packet: &[u8], _: u64) {
        // There is room (`has_room`), and no segment is longer than the connection's MTU, which is the channel's message size.
        let _ = self.ring.push_beside(packet, now());
        direct::ring_outbox(self.channel);
    }
}

/// A ring for a channel that takes packets of at most `bytes`: the processor's end, that of the output handler, and what keeps
/// it and the buffers of what comes.
pub(super) fn channel_ring(
    channel: ChannelId,
    (slots, bytes): (u32, u32),
    buffers: Arc<Pool>,
) -> Result<(OutboxReader, ChannelRing, Keep), TcpError> {
    let alarm = Alarm::new()?;
    let (reader, ring) = ring_with(&alarm, slots, bytes)?;
    let keep = Keep(reader.health(), alarm, Some(buffers));
    Ok((reader, ChannelRing { ring, channel }, keep))
}

/// Keeps a ring's memory and descriptors, and buffers, until the processor has dropped its end: the processor closes nothing.
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

/// A ring of segments of at most `segment_bytes`: the processor's end, that of the output handler, and what keeps it.
pub(super) fn segment_ring(
    slots: u32,
    segment_bytes: u32,
) -> Result<(OutboxReader, SegmentRing, Keep), TcpError> {
    let alarm = Alarm::new()?;
    let (reader, writer) = ring_with(&alarm, slots, segment_bytes + RAW_TAG_BYTES as u32)?;
    let keep = Keep(reader.health(), alarm, None);
    Ok((reader, SegmentRing::new(writer, segment_bytes), keep))
}

/// A ring between two threads of this process, for what leaves.
pub(crate) fn out_ring(slots: u32, bytes: u32) -> Result<(OutboxReader, OutboxWriter), TcpError> {
    ring_with(&Alarm::new()?, slots, bytes)
}

fn ring_with(alarm: &Alarm, slots: u32, bytes: u32) -> Result<(OutboxReader, OutboxWriter), TcpError> {
    let shape = RingShape::new(slots, bytes)?;
    let (reader, handles, _doorbell) = outbox(shape, alarm, &RingPath::Direct)?;
    let writer = OutboxWriter::attach(handles)?;
    reader.health().accept()?;
    Ok((reader, writer))
}

/// The ring for bytes from the peer.
pub(crate) fn in_ring(slots: u32, bytes: u32) -> Result<(InboxWriter, InboxReader), TcpError> {
    let (writer, handles) = inbox(RingShape::new(slots, bytes)?, &Alarm::new()?, &RingPath::Direct)?;
    let reader = InboxReader::attach(handles)?;
    writer.health().accept()?;
    Ok((writer, reader))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of the longest frames, too, reach the node whole, with their tag behind them.
    #[test]
    fn a_segment_of_any_length_goes_into_its_ring() {
        use punctual_proto::memory::{MessageRead, Outbox};
        for bytes in [1_usize, 1_456, 3_768] {
            let (mut reader, mut ring, keep) = segment_ring(4, bytes as u32).expect("a ring");
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

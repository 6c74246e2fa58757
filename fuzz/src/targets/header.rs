//! The header of data packets: a parsed header is consistent, and is written as the same bytes again.

use punctual_proto::Instant;
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Age, ClockError, Header, Kind};

/// A datagram on the data port.
pub fn run(data: &[u8]) {
    let Ok((header, payload)) = Header::parse(data) else { return };
    assert_eq!(payload.len(), header.payload_bytes as usize);
    assert!(header.fragment < header.fragments);
    let size = header.fragment_bytes().expect("a parsed header knows its fragment size");
    let end = u64::from(header.fragment) * u64::from(size) + u64::from(header.payload_bytes);
    assert!(end <= u64::from(header.message_bytes), "a fragment ends within its message");
    assert_eq!(end == u64::from(header.message_bytes), header.fragment + 1 == header.fragments);
    let mut again = [0; HEADER_BYTES];
    header.write(&mut again);
    assert_eq!(again, data[..HEADER_BYTES]);
}

/// A packet of message 3: `fragment` of a message of `message_bytes` in fragments of `size`.
pub fn packet(kind: Kind, fragment: u16, message_bytes: u32, size: u32) -> Vec<u8> {
    let fragments = message_bytes.div_ceil(size).max(1) as u16;
    let payload_bytes = (message_bytes - u32::from(fragment) * size).min(size);
    let header = Header {
        kind,
        demoted: kind == Kind::Guaranteed && fragment % 2 == 1,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(2), epoch: Epoch(1) },
        cookie: Cookie(0x1234_5678),
        message: 3,
        fragment,
        fragments,
        message_bytes,
        slack_ns: -5,
        logical_arrival: Instant(1_000_000_000),
        age: Age::NONE,
        payload_bytes,
        clock_error: ClockError::NONE,
        destination: NodeId(if kind == Kind::BestEffort { 9 } else { 0 }),
    };
    let mut bytes = vec![0x55; HEADER_BYTES + payload_bytes as usize];
    header.write(&mut bytes);
    bytes
}

/// Packets as nodes write them.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for kind in [Kind::Guaranteed, Kind::BestEffort] {
        seeds.push(packet(kind, 0, 0, 100));
        seeds.push(packet(kind, 0, 100, 100));
        seeds.extend((0..3).map(|fragment| packet(kind, fragment, 250, 100)));
    }
    seeds
}

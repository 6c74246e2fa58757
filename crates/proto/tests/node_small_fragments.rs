//! A best-effort message that is cut into fragments of less than 64 B is refused before any state is kept for
//! its sender, whatever the number of its fragments; an unfragmented one may have any length.

use punctual_proto::BitRate;
use punctual_proto::Instant;
use punctual_proto::api::Port;
use punctual_proto::ids::{ChannelNumber, Cookie, LinkId, NodeId, PathId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_rig::{TestInbox, World, name};

/// All fragments of a message of `message_bytes`, cut into pieces of `size`.
fn packets(flow: u32, message_bytes: u32, size: u32) -> Vec<Vec<u8>> {
    let fragments = message_bytes.div_ceil(size);
    let packet = |fragment: u32| {
        let payload_bytes = size.min(message_bytes - fragment * size);
        let header = Header {
            kind: Kind::BestEffort,
            demoted: false,
            unpromised: false,
            path: PathId { node: NodeId(1), channel: ChannelNumber(flow), ..PathId::default() },
            cookie: Cookie(name("bulk").port_hash()),
            message: 0,
            fragment: fragment as u16,
            fragments: fragments as u16,
            message_bytes,
            slack_ns: 0,
            logical_arrival: Instant(0),
            age: Age::NONE,
            payload_bytes,
            clock_error: ClockError::NONE,
            destination: NodeId(2),
        };
        let mut bytes = vec![7; HEADER_BYTES + payload_bytes as usize];
        header.write(&mut bytes);
        bytes
    };
    (0..fragments).map(packet).collect()
}

#[test]
fn fragments_below_64_bytes_are_refused_of_messages_of_any_length() {
    let cases = [
        (1, 1, true),
        (63, 63, true),
        (64, 63, false),
        (126, 63, false),
        (65, 64, true),
        (128, 64, true),
        (189, 63, false),
        (192, 64, true),
        (640, 64, true),
        (640, 32, false),
    ];
    for (flow, (message_bytes, size, taken)) in (1..).zip(cases) {
        let mut world = World::line(2, BitRate(1_000_000_000));
        let inbox = TestInbox::new(4, 1_000);
        world.nodes[1].bind_best_effort(name("bulk"), 1_000, inbox.clone()).expect("free");
        for bytes in packets(flow, message_bytes, size) {
            world.inject(1, LinkId(0), Port::Data, &bytes);
        }
        let mut read = Vec::new();
        while inbox.recv(|bytes, info| read.push((bytes.len() as u32, info.len))) {}
        let refused = if taken { 0 } else { u64::from(message_bytes.div_ceil(size)) };
        // The last fragment may be as short as the rest of the message: alone it does not show the size.
        let drops = world.nodes[1].status(world.now).drops;
        let what = format!("{message_bytes} B in {size} B: {drops:?}");
        assert_eq!(read, if taken { vec![(message_bytes, message_bytes)] } else { vec![] }, "{what}");
        assert_eq!(drops.malformed, refused, "{what}");
    }
}

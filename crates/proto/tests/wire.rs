//! The wire format: golden bytes, every refusal, the round trip, and no panic on any bytes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use punctual_proto::Instant;
use punctual_proto::fragment::Fragmentation;
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Age, ClockError, Header, Kind, MESSAGE_BYTES_MAX, Malformed, WireError};

/// The second of three fragments of 1,000 bytes of a message of 2,500.
fn second_of_three() -> Header {
    Header {
        kind: Kind::Guaranteed,
        demoted: true,
        unpromised: false,
        path: PathId {
            node: NodeId(7),
            channel: ChannelNumber(0x0102_0304),
            epoch: Epoch(0x1122_3344_5566_7788),
        },
        cookie: Cookie(0xdead_beef),
        message: 0x0a0b,
        fragment: 1,
        fragments: 3,
        message_bytes: 2_500,
        slack_ns: -2,
        logical_arrival: Instant(0x0102_0304_0506_0708),
        age: Age::from_bits(0x1234),
        payload_bytes: 1_000,
        clock_error: ClockError::from_bits(0x1234_5678),
        destination: NodeId(0),
    }
}

fn packet(header: &Header) -> Vec<u8> {
    let mut bytes = vec![0x5a; HEADER_BYTES + header.payload_bytes as usize];
    assert_eq!(header.write(&mut bytes), HEADER_BYTES);
    bytes
}

/// A change that makes a valid header invalid.
type Change = fn(&mut Header);

fn refused(change: impl FnOnce(&mut Header)) -> WireError {
    let mut header = second_of_three();
    change(&mut header);
    Header::parse(&packet(&header)).expect_err("must be refused")
}

#[test]
fn golden_bytes() {
    #[rustfmt::skip]
    let expected: [u8; HEADER_BYTES] = [
        2, 1, 1, 0, 7, 0, 0, 0,
        0x04, 0x03, 0x02, 0x01, 0xef, 0xbe, 0xad, 0xde,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
        0x0b, 0x0a, 0, 0, 0, 0, 0, 0,
        1, 0, 3, 0, 0xc4, 0x09, 0, 0,
        0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
        0xe8, 0x03, 0x34, 0x12, 0x78, 0x56, 0x34, 0x12,
    ];
    let bytes = packet(&second_of_three());
    assert_eq!(bytes[..HEADER_BYTES], expected);
    let (header, payload) = Header::parse(&bytes).expect("well-formed");
    assert_eq!(header, second_of_three());
    assert_eq!(payload, &[0x5a; 1_000]);
    assert_eq!(header.fragment_bytes(), Some(1_000));
}

#[test]
fn golden_bytes_of_best_effort() {
    let header = Header {
        kind: Kind::BestEffort,
        demoted: false,
        unpromised: false,
        age: Age::NONE,
        clock_error: ClockError::UNKNOWN,
        destination: NodeId(0x0a0b_0c0d),
        fragment: 2,
        payload_bytes: 500,
        ..second_of_three()
    };
    let bytes = packet(&header);
    assert_eq!(bytes[..4], [2, 2, 0, 0]);
    assert_eq!(bytes[56..64], [0xf4, 1, 0, 0, 0x0d, 0x0c, 0x0b, 0x0a]);
    assert_eq!(Header::parse(&bytes).map(|(h, _)| h), Ok(header));
}

#[test]
fn padding_behind_the_payload_is_left_out() {
    let mut bytes = packet(&second_of_three());
    bytes.extend([0; 18]);
    assert_eq!(Header::parse(&bytes).expect("padded").1.len(), 1_000);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = packet(&second_of_three());
    for len in 0..bytes.len() {
        assert_eq!(Header::parse(&bytes[..len]).err(), Some(Malformed::Short.into()), "{len} bytes");
    }
}

#[test]
fn another_version_is_named_before_anything_else() {
    assert_eq!(Header::parse(&[1]).err(), Some(WireError::Version(1)));
}

#[test]
fn unknown_kinds_and_flags_are_refused() {
    let mut bytes = packet(&second_of_three());
    bytes[1] = 3;
    assert_eq!(Header::parse(&bytes).err(), Some(Malformed::Kind(3).into()));
    let mut bytes = packet(&second_of_three());
    bytes[3] = 0x80;
    assert_eq!(Header::parse(&bytes).err(), Some(Malformed::Flags(0x8001).into()));
    let demoted_best_effort = refused(|h| {
        h.kind = Kind::BestEffort;
        h.destination = NodeId(1);
    });
    assert_eq!(demoted_best_effort, Malformed::Flags(1).into());
}

#[test]
fn nodes_must_fit_the_kind() {
    assert_eq!(refused(|h| h.path.node = NodeId(0)), Malformed::Nodes.into());
    let best_effort_without_destination = refused(|h| {
        h.kind = Kind::BestEffort;
        h.demoted = false;
    });
    assert_eq!(best_effort_without_destination, Malformed::Nodes.into());
}

/// Every packet has a source, and exactly best effort a destination; node 0 is none, all others are nodes.
#[test]
fn every_node_but_the_zeroth_may_be_source_and_destination() {
    let nodes = [0, 1, 2, u32::MAX].map(NodeId);
    for (source, destination) in nodes.into_iter().flat_map(|source| nodes.map(|to| (source, to))) {
        for kind in [Kind::Guaranteed, Kind::BestEffort] {
            let known = second_of_three();
            let path = PathId { node: source, ..known.path };
            let header = match kind {
                Kind::Guaranteed => Header { path, ..known },
                Kind::BestEffort => Header {
                    kind,
                    path,
                    destination,
                    demoted: false,
                    clock_error: ClockError::UNKNOWN,
                    ..known
                },
            };
            let fits = source != NodeId(0) && (kind == Kind::Guaranteed || destination != NodeId(0));
            let expected = if fits { Ok(header) } else { Err(Malformed::Nodes.into()) };
            let parsed = Header::parse(&packet(&header)).map(|(header, _)| header);
            assert_eq!(parsed, expected, "{kind:?} {source:?} {destination:?}");
        }
    }
}

#[test]
fn contradicting_lengths_are_refused() {
    let lengths: [(&str, Change); 9] = [
        ("no fragments", |h| h.fragments = 0),
        ("index beyond the count", |h| h.fragment = 3),
        ("empty fragment", |h| h.payload_bytes = 0),
        ("message shorter than its fragments", |h| h.message_bytes = 2_000),
        ("message longer than its fragments", |h| h.message_bytes = 3_001),
        ("last fragment larger than the others", |h| (h.fragment, h.payload_bytes) = (2, 1_500)),
        ("others of no whole size", |h| (h.fragment, h.payload_bytes) = (2, 501)),
        ("one fragment, another length", |h| (h.fragment, h.fragments) = (0, 1)),
        ("beyond the largest message", |h| {
            (h.fragment, h.fragments, h.payload_bytes) = (0, 65_535, 1_025);
            h.message_bytes = MESSAGE_BYTES_MAX + 1;
        }),
    ];
    for (what, change) in lengths {
        assert_eq!(refused(change), Malformed::Lengths.into(), "{what}");
    }
}

#[test]
fn an_empty_message_is_one_empty_fragment() {
    let empty = Header { fragment: 0, fragments: 1, message_bytes: 0, payload_bytes: 0, ..second_of_three() };
    let bytes = packet(&empty);
    assert_eq!(Header::parse(&bytes), Ok((empty, &[][..])));
    assert_eq!(refused(|h| (h.message_bytes, h.payload_bytes) = (0, 0)), Malformed::Lengths.into());
}

fn header() -> impl Strategy<Value = Header> {
    let lengths = (0u32..200_000, 64u32..9_000, any::<prop::sample::Index>());
    let rest = (any::<(bool, bool)>(), 1u32.., any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>());
    let times = (any::<i64>(), any::<u64>());
    (lengths, rest, times).prop_map(|((message_bytes, size, pick), rest, (slack_ns, logical))| {
        let ((is_guaranteed, demoted), node, channel, epoch, cookie, message) = rest;
        let cut = Fragmentation::new(message_bytes, size).expect("fits");
        let fragment = pick.index(usize::from(cut.fragments())) as u16;
        Header {
            kind: if is_guaranteed { Kind::Guaranteed } else { Kind::BestEffort },
            demoted: is_guaranteed && demoted,
            unpromised: is_guaranteed && demoted && channel % 2 == 1,
            path: PathId { node: NodeId(node), channel: ChannelNumber(channel), epoch: Epoch(epoch) },
            cookie: Cookie(cookie),
            message,
            fragment,
            fragments: cut.fragments(),
            message_bytes,
            slack_ns,
            logical_arrival: Instant(logical),
            age: Age::from_bits(cookie as u16),
            payload_bytes: cut.extent(fragment).expect("in range").len,
            clock_error: if is_guaranteed { ClockError::from_bits(cookie) } else { ClockError::UNKNOWN },
            destination: NodeId(if is_guaranteed { 0 } else { node }),
        }
    })
}

/// The guarantees of every parsed header, whatever its sender.
fn is_consistent(header: &Header, payload: &[u8]) -> bool {
    let Some(size) = header.fragment_bytes() else { return false };
    let Some(cut) = Fragmentation::new(header.message_bytes, size.max(1)) else { return false };
    let extent = cut.extent(header.fragment);
    cut.fragments() == header.fragments && extent.is_some_and(|e| e.len as usize == payload.len())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn round_trip(header in header()) {
        let bytes = packet(&header);
        let (parsed, payload) = Header::parse(&bytes).expect("a consistent header parses");
        prop_assert_eq!(parsed, header);
        prop_assert!(is_consistent(&parsed, payload));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((header, payload)) = Header::parse(&bytes) {
            prop_assert!(is_consistent(&header, payload));
        }
    }

    #[test]
    fn changed_bytes_never_panic(
        header in header(),
        changes in prop::collection::vec((0..HEADER_BYTES, any::<u8>()), 1..4),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut bytes = packet(&header);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(HEADER_BYTES + keep.index(bytes.len() - HEADER_BYTES + 1));
        if let Ok((header, payload)) = Header::parse(&bytes) {
            prop_assert!(is_consistent(&header, payload));
        }
    }
}

/// The hash of a port on the wire: FNV-1a of 32 bits, by its published test vectors.
#[test]
fn a_port_is_named_by_fnv_1a() {
    for (text, hash) in [("a", 0xe40c_292c), ("b", 0xe70c_2de5), ("foobar", 0xbf9c_f968)] {
        assert_eq!(punctual_proto::ids::Name::new(text).expect("a name").port_hash(), hash, "{text}");
    }
}

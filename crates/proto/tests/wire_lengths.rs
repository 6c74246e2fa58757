//! Which lengths and counts of a header fit together, by search and at their limits.

use punctual_proto::Instant;
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::{FRAGMENT_BYTES_MAX, HEADER_BYTES};
use punctual_proto::wire::{Age, ClockError, Header, Kind, MESSAGE_BYTES_MAX};

/// A message of a byte.
fn a_header() -> Header {
    Header {
        kind: Kind::Guaranteed,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(7), channel: ChannelNumber(1), epoch: Epoch(1) },
        cookie: Cookie(1),
        message: 1,
        fragment: 0,
        fragments: 1,
        message_bytes: 1,
        slack_ns: 0,
        logical_arrival: Instant(1),
        age: Age::NONE,
        payload_bytes: 1,
        clock_error: ClockError::NONE,
        destination: NodeId(0),
    }
}

fn packet(header: &Header) -> Vec<u8> {
    let mut bytes = vec![0x5a; HEADER_BYTES + header.payload_bytes as usize];
    header.write(&mut bytes);
    bytes
}

/// The fragment size of a header by the rule, found by search: that size by which a message of these bytes
/// has these fragments, and this fragment this payload.
fn size_by_rule(header: &Header) -> Option<u32> {
    let Header { fragment, fragments, message_bytes, payload_bytes, .. } = *header;
    let (index, count) = (u32::from(fragment), u32::from(fragments));
    if count == 1 {
        return (index == 0 && payload_bytes == message_bytes).then_some(message_bytes);
    }
    (1..=message_bytes).find(|size| {
        let last = message_bytes.checked_sub(size * count.saturating_sub(1));
        let payload = if index + 1 == count { last } else { Some(*size) };
        count > 0
            && index < count
            && last.is_some_and(|last| 0 < last && last <= *size)
            && payload == Some(payload_bytes)
    })
}

/// All small lengths: a header is taken if there is such a fragmentation, and then states its fragment size.
#[test]
fn lengths_are_taken_where_a_fragmentation_has_them() {
    let mut taken = 0;
    for message_bytes in 0..=13 {
        for payload_bytes in 0..=message_bytes + 1 {
            for (fragment, fragments) in (0..6).flat_map(|fragment| (0..6).map(move |all| (fragment, all))) {
                let header = Header { fragment, fragments, message_bytes, payload_bytes, ..a_header() };
                let size = size_by_rule(&header);
                assert_eq!(header.fragment_bytes(), size, "{header:?}");
                assert_eq!(Header::parse(&packet(&header)).is_ok(), size.is_some(), "{header:?}");
                taken += u32::from(size.is_some());
            }
        }
    }
    // At least one a length: the message in one fragment.
    assert!(taken > 14, "{taken}");
}

/// The longest message and the largest fragment are taken, one byte more is refused.
#[test]
fn lengths_are_taken_up_to_their_limits() {
    // All fragments but the last of the longest message, and the last one, which carries the rest.
    let size = FRAGMENT_BYTES_MAX;
    let of = |message_bytes: u32, fragment: u32| {
        let last = message_bytes.div_ceil(size) - 1;
        let payload_bytes = if fragment < last { size } else { message_bytes - last * size };
        let (fragment, fragments) = (fragment as u16, last as u16 + 1);
        Header { fragment, fragments, message_bytes, payload_bytes, ..a_header() }
    };
    for fragment in [0, 1, MESSAGE_BYTES_MAX / size] {
        for (bytes, fits) in
            [(MESSAGE_BYTES_MAX - 1, true), (MESSAGE_BYTES_MAX, true), (MESSAGE_BYTES_MAX + 1, false)]
        {
            let header = of(bytes, fragment);
            assert_eq!(header.fragment_bytes(), Some(size), "{bytes} {fragment}: consistent in itself");
            assert_eq!(Header::parse(&packet(&header)).is_ok(), fits, "{bytes} {fragment}");
        }
    }
    for (bytes, fits) in [(size - 1, true), (size, true), (size + 1, false)] {
        let whole =
            Header { fragment: 0, fragments: 1, message_bytes: bytes, payload_bytes: bytes, ..a_header() };
        let first = Header { fragments: 2, message_bytes: bytes + 1, ..whole };
        let last = Header { fragment: 1, payload_bytes: 1, ..first };
        for header in [whole, first, last] {
            assert_eq!(Header::parse(&packet(&header)).is_ok(), fits, "{header:?}");
        }
    }
}

/// A fragment count or index at the end of its range is not mistaken for another one.
#[test]
fn the_largest_index_and_count_are_no_others() {
    let most = u16::MAX;
    for (fragment, fragments, size) in
        [(most, most, None), (most, 0, None), (most - 1, most, Some(3)), (0, most, Some(3))]
    {
        // Of so many fragments of 3 bytes the last one has 2.
        let message_bytes = u32::from(most) * 3 - 1;
        let payload_bytes = if fragment == most - 1 { 2 } else { 3 };
        let header = Header { fragment, fragments, message_bytes, payload_bytes, ..a_header() };
        assert_eq!(header.fragment_bytes(), size, "{fragment} of {fragments}");
        assert_eq!(Header::parse(&packet(&header)).is_ok(), size.is_some(), "{fragment} of {fragments}");
    }
}

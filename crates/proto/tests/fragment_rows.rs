//! Messages of very many packets: the received fragments of each are stored in whole words, separate from
//! those of others.

use punctual_proto::Instant;
use punctual_proto::fragment::{Fragmentation, Outcome, Reassembly};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::memory::MessageWrite;
use punctual_proto::wire::{Age, ClockError, Header, Kind};

const SIZE: u32 = 3;

#[derive(Debug, PartialEq, Eq)]
struct Slot(Vec<u8>);

impl MessageWrite for Slot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn bytes_of(message: u64, len: u32) -> Vec<u8> {
    (0..u64::from(len)).map(|at| (at.wrapping_mul(31) ^ message.wrapping_mul(17)) as u8).collect()
}

fn feed(reassembly: &mut Reassembly<Slot>, message: u64, len: u32, fragment: u16) -> Outcome<Slot> {
    let cut = Fragmentation::new(len, SIZE).expect("fits");
    let extent = cut.extent(fragment).expect("in range");
    let header = Header {
        kind: Kind::Guaranteed,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(1), epoch: Epoch(1) },
        cookie: Cookie(1),
        message,
        fragment,
        fragments: cut.fragments(),
        message_bytes: len,
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes: extent.len,
        clock_error: ClockError::NONE,
        destination: NodeId(0),
    };
    let bytes = bytes_of(message, len);
    let payload = &bytes[extent.offset as usize..][..extent.len as usize];
    reassembly.accept(&header, payload, || Some(Slot(vec![0xee; len as usize])))
}

/// Three messages at once, in turns, from the last packet to the first; each packet twice. Every number of packets around where
/// a word is full.
#[test]
fn messages_in_progress_do_not_see_each_others_packets() {
    for fragments in [2, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 300] {
        // The last one is not full.
        let len = u32::from(fragments) * SIZE - 1;
        let mut reassembly = Reassembly::new(3, SIZE, len);
        for fragment in (1..fragments).rev() {
            for message in 0..3 {
                assert_eq!(feed(&mut reassembly, message, len, fragment), Outcome::Stored, "{fragments}");
            }
            for message in 0..3 {
                assert_eq!(feed(&mut reassembly, message, len, fragment), Outcome::Duplicate, "{fragments}");
            }
        }
        for message in [1, 0, 2] {
            let whole = feed(&mut reassembly, message, len, 0);
            let slot = Slot(bytes_of(message, len));
            assert_eq!(whole, Outcome::Complete { slot, demoted: false }, "{fragments}: {message}");
            assert_eq!(feed(&mut reassembly, message, len, 0), Outcome::Stale, "{fragments}: {message}");
        }
        // A reused row has no bits of the previous message.
        assert_eq!(feed(&mut reassembly, 3, len, fragments - 1), Outcome::Stored, "{fragments}");
        assert_eq!((reassembly.in_progress(), reassembly.incomplete()), (1, 0));
    }
}

/// A bit for each packet of each message that may be in progress, in words of eight bytes.
#[test]
fn what_is_remembered_of_packets_is_a_bit_each() {
    let room = |messages: u32, fragments: u32| {
        Reassembly::<Slot>::new(messages, SIZE, fragments * SIZE).room_bytes()
    };
    for messages in [1, 4, 9] {
        let word = 8 * messages as usize;
        for (fragments, more) in [(63, 0), (64, 1), (65, 0), (127, 0), (128, 1), (129, 0)] {
            let grows = room(messages, fragments + 1) - room(messages, fragments);
            assert_eq!(grows, more * word, "{messages} messages, a packet more than {fragments}");
        }
    }
    let row = room(3, 10) - room(2, 10);
    assert_eq!(room(9, 10) - room(2, 10), 7 * row, "each message has a row");
    assert!(row >= 8 + size_of::<Slot>(), "{row}");
    assert_eq!(room(9, 1), room(1, 1), "messages of one packet are never in progress");
}

/// A message in progress that others have left far behind is given up as any other, and the window stays with the newest.
#[test]
fn what_is_far_behind_is_given_up_and_moves_nothing() {
    let len = 2 * SIZE;
    let mut reassembly = Reassembly::new(3, SIZE, len);
    assert_eq!(feed(&mut reassembly, 1, len, 0), Outcome::Stored);
    assert_eq!(feed(&mut reassembly, 1_000_000, len, 0), Outcome::Stored);
    assert!(matches!(feed(&mut reassembly, 1_000_000, len, 1), Outcome::Complete { .. }));
    assert_eq!((reassembly.in_progress(), reassembly.expire(2), reassembly.incomplete()), (1, 1, 1));
    assert_eq!(reassembly.seen_until(), 1_000_001);
    for number in [1, 1_000_000] {
        assert_eq!(feed(&mut reassembly, number, len, 1), Outcome::Stale, "{number}");
    }
    assert_eq!(feed(&mut reassembly, 1_000_001, len, 1), Outcome::Stored);
}

/// Numbers may go up to the last that there is.
#[test]
fn the_last_numbers_are_taken_in_once() {
    let len = 2 * SIZE;
    let mut reassembly = Reassembly::new(3, SIZE, len);
    for number in [u64::MAX - 70, u64::MAX - 2, u64::MAX - 1] {
        assert_eq!(feed(&mut reassembly, number, len, 0), Outcome::Stored, "{number}");
        assert!(matches!(feed(&mut reassembly, number, len, 1), Outcome::Complete { .. }), "{number}");
        assert_eq!(feed(&mut reassembly, number, len, 1), Outcome::Stale, "{number}");
    }
    assert_eq!(feed(&mut reassembly, u64::MAX - 71, len, 0), Outcome::Stored, "it is still open");
}

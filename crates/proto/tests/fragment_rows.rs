//! Messages of very many packets: the received fragments of each are stored in whole words, separate from
//! those of others.

use punctual_analysis::{Contract, Nanos, Rate};
use punctual_proto::Instant;
use punctual_proto::fragment::{Fragmentation, Outcome, Reassembly};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::NUMBERS_REMEMBERED;
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

fn header(message: u64, len: u32, fragment: u16) -> Header {
    let cut = Fragmentation::new(len, SIZE).expect("fits");
    Header {
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
        payload_bytes: cut.extent(fragment).map_or(0, |extent| extent.len),
        clock_error: ClockError::NONE,
        destination: NodeId(0),
    }
}

fn feed(reassembly: &mut Reassembly<Slot>, message: u64, len: u32, fragment: u16) -> Outcome<Slot> {
    let header = header(message, len, fragment);
    let extent = Fragmentation::new(len, SIZE).and_then(|cut| cut.extent(fragment)).expect("in range");
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
        // No reused row has bits of the previous message.
        for message in 3..6 {
            for fragment in [fragments - 1, 0] {
                let outcome = feed(&mut reassembly, message, len, fragment);
                assert_eq!(outcome == Outcome::Stored, fragment > 0 || fragments > 2, "{fragments}");
                assert_ne!(outcome, Outcome::Duplicate, "{fragments}: {message}");
            }
        }
        let left = if fragments > 2 { 3 } else { 0 };
        assert_eq!((reassembly.in_progress(), reassembly.incomplete()), (left, 0));
        // The channel ends: each is dropped, and none counts as lost.
        for _ in 0..left {
            assert!(reassembly.forget_one());
        }
        assert_eq!(
            (reassembly.forget_one(), reassembly.in_progress(), reassembly.incomplete()),
            (false, 0, 0)
        );
    }
}

/// A channel with messages of one packet, of which the fewest numbers are remembered.
fn slow() -> Contract {
    let rate = Rate::per_second(1).expect("a rate");
    Contract::new(SIZE, rate, 1, Nanos::from_millis(100)).expect("valid")
}

/// No places for messages, or packets without bytes, count as one each.
#[test]
fn nothing_counts_as_one() {
    let len = 2;
    let mut none = Reassembly::new(0, 0, len);
    let mut one = Reassembly::new(1, 1, len);
    assert_eq!(none.room_bytes(), one.room_bytes());
    for reassembly in [&mut none, &mut one] {
        let mut feed = |message, fragment| {
            let header = Header { fragments: 2, payload_bytes: 1, ..header(message, len, fragment) };
            reassembly.accept(&header, &[7], || Some(Slot(vec![0xee; len as usize])))
        };
        assert_eq!([feed(0, 0), feed(1, 0)], [Outcome::Stored, Outcome::Stored]);
        assert_eq!(feed(0, 1), Outcome::Stale, "there is one place");
        assert_eq!(feed(1, 1), Outcome::Complete { slot: Slot(vec![7; 2]), demoted: false });
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
    // Its number, its slot, its row, its length, what is missing of it, whether it was demoted; its bits, and
    // a free row.
    let row = size_of::<(u64, Slot, usize, u32, u16, bool, bool)>() + 8 + size_of::<usize>();
    for messages in [2, 3, 9] {
        assert_eq!(room(messages, 10) - room(1, 10), (messages as usize - 1) * row, "each has a row");
    }
    let rest = room(1, 10) - room(1, 1);
    assert!(rest > row && rest < 3 * row, "the rows' own place: {rest}");
    // A bit for each number that is remembered, of messages and of demoted ones.
    let windows = 2 * NUMBERS_REMEMBERED as usize / 8;
    assert_eq!([room(1, 1), room(9, 1)], [windows; 2], "messages of one packet are never in progress");
    let small = Reassembly::<Slot>::of(&slow(), 9, SIZE);
    assert_eq!(small.room_bytes(), 0, "a single word of numbers needs no place of its own");
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

/// The window holds all that may be under way together, and one more: the messages of a burst, and those that
/// come in within the deadline. Its numbers are a power of two of words.
#[test]
fn a_window_holds_what_is_under_way_and_one_more() {
    let rate = Rate::per_second(1_000).expect("a rate");
    let contract = Contract::new(SIZE, rate, 1, Nanos::from_secs(1)).expect("valid");
    let within_deadline = contract.deadline.div_ceil(contract.policed_interval()) as u32;
    for (under_way, window) in
        [(2_046, 2_048), (2_047, 2_048), (2_048, 4_096), (4_095, 4_096), (4_096, 8_192)]
    {
        let burst_messages_max = under_way - within_deadline;
        let contract = Contract { burst_messages_max, ..contract };
        let room = Reassembly::<Slot>::of(&contract, 1, SIZE).room_bytes();
        assert_eq!(
            room,
            2 * window / 8,
            "{under_way}: a bit for each number, of messages and of demoted ones"
        );
    }
}

/// Before anything has come no number was seen.
#[test]
fn nothing_was_seen_of_a_new_channel() {
    let mut reassembly = Reassembly::new(2, SIZE, 2 * SIZE);
    assert_eq!((reassembly.seen_until(), reassembly.in_progress(), reassembly.incomplete()), (0, 0, 0));
    assert_eq!((reassembly.expire(u64::MAX), reassembly.forget_one()), (0, false));
    assert!(
        !Reassembly::<Slot>::new(2, SIZE, SIZE).forget_one(),
        "messages of one packet are never in progress"
    );
    assert_eq!(feed(&mut reassembly, 0, 2 * SIZE, 1), Outcome::Stored);
    assert_eq!(reassembly.seen_until(), 1);
}

/// Four messages behind the window with numbers one after the other restart it. A repetition of the last
/// number counts once; one ahead between them begins the count anew, with whatever number comes next.
#[test]
fn a_run_behind_the_window_is_counted_message_by_message() {
    let ahead = 1 << 40;
    // Numbers behind, and 0 for one ahead; only the last one is taken.
    let runs: [&[u64]; 8] = [
        &[11, 12, 13, 14],
        &[11, 11, 12, 13, 14],
        &[11, 12, 12, 12, 13, 14],
        &[11, 12, 13, 13, 14],
        &[11, 12, 0, 12, 13, 14, 15],
        &[11, 12, 0, 13, 14, 15, 16],
        &[11, 12, 13, 11, 12, 13, 14],
        &[13, 12, 11, 11, 13, 14, 15, 16],
    ];
    for run in runs {
        let mut reassembly = Reassembly::new(2, SIZE, SIZE);
        let is_taken = |outcome| matches!(outcome, Outcome::Complete { .. });
        assert!(is_taken(feed(&mut reassembly, ahead, SIZE, 0)));
        for (index, number) in run.iter().enumerate() {
            let taken = match number {
                0 => is_taken(feed(&mut reassembly, ahead + 1, SIZE, 0)),
                number => is_taken(feed(&mut reassembly, *number, SIZE, 0)),
            };
            assert_eq!(taken, *number == 0 || index + 1 == run.len(), "{run:?}: {index}");
        }
        // The next ones are taken, those before are over.
        let last = run[run.len() - 1];
        assert!(is_taken(feed(&mut reassembly, last + 1, SIZE, 0)), "{run:?}");
        assert!((1..=last + 1).all(|number| feed(&mut reassembly, number, SIZE, 0) == Outcome::Stale));
    }
}

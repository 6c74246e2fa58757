//! Fragmentation and reassembly: no message is altered or duplicated, and only those are lost that the
//! network lost.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use punctual_analysis::{Contract, Nanos, Policing, Rate};
use punctual_proto::Instant;
use punctual_proto::fragment::{Extent, Fragmentation, Outcome, Reassembly, Rejection, packet_wire_bytes};
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::{
    FRAGMENTS_MAX, NUMBERS_REMEMBERED, NUMBERS_REMEMBERED_FOR, NUMBERS_REMEMBERED_MAX, NUMBERS_REMEMBERED_MIN,
};
use punctual_proto::memory::MessageWrite;
use punctual_proto::wire::{Age, ClockError, Header, Kind};

const SIZE: u32 = 100;
const LONGEST: u32 = 1_000;

#[derive(Debug, PartialEq, Eq)]
struct Slot(Vec<u8>);

impl MessageWrite for Slot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// A slot of old bytes, so that unwritten bytes are detected.
fn slot() -> Option<Slot> {
    Some(Slot(vec![0xee; LONGEST as usize]))
}

fn bytes_of(message: u64, len: u32) -> Vec<u8> {
    (0..len).map(|i| (u64::from(i).wrapping_mul(31) ^ message.wrapping_mul(17)) as u8).collect()
}

fn header_of(message: u64, len: u32, fragment: u16) -> Header {
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
        payload_bytes: cut.extent(fragment).expect("in range").len,
        clock_error: ClockError::NONE,
        destination: NodeId(0),
    }
}

fn feed(reassembly: &mut Reassembly<Slot>, message: u64, len: u32, fragment: u16) -> Outcome<Slot> {
    feed_header(reassembly, &header_of(message, len, fragment))
}

fn feed_header(reassembly: &mut Reassembly<Slot>, header: &Header) -> Outcome<Slot> {
    let bytes = bytes_of(header.message, header.message_bytes);
    let payload = &bytes[usize::from(header.fragment) * SIZE as usize..][..header.payload_bytes as usize];
    reassembly.accept(header, payload, slot)
}

fn is_complete(outcome: &Outcome<Slot>) -> bool {
    matches!(outcome, Outcome::Complete { .. })
}

#[test]
fn a_message_is_cut_into_equal_fragments_and_a_rest() {
    let cut = Fragmentation::new(250, 100).expect("fits");
    assert_eq!(cut.fragments(), 3);
    assert_eq!(cut.extent(1), Some(Extent { offset: 100, len: 100 }));
    assert_eq!(cut.extent(2), Some(Extent { offset: 200, len: 50 }));
    assert_eq!(cut.extent(3), None);
    assert_eq!(cut.wire_bytes(66), 250 + 3 * (64 + 66));
    assert_eq!(cut.unit_wire_bytes(66), packet_wire_bytes(100, 66));
    assert_eq!(Fragmentation::new(0, 100).map(Fragmentation::fragments), Some(1));
    assert_eq!(Fragmentation::new(65_535, 1).map(Fragmentation::fragments), Some(u16::MAX));
    assert_eq!(Fragmentation::new(65_536, 1), None);
    assert_eq!(Fragmentation::new(1, 0), None);
}

#[test]
fn a_lost_fragment_costs_its_message_and_nothing_else() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    assert_eq!(feed(&mut reassembly, 0, 250, 0), Outcome::Stored);
    for message in 1..10 {
        assert_eq!(feed(&mut reassembly, message, 150, 0), Outcome::Stored);
        assert!(is_complete(&feed(&mut reassembly, message, 150, 1)));
    }
    assert_eq!((reassembly.in_progress(), reassembly.incomplete()), (1, 0));
}

/// A neighbour has forged numbers far ahead, of whole messages and of some that it has only begun. Once the channel's own
/// messages have come again, none of them is lost.
#[test]
fn messages_that_a_forger_has_begun_cost_nothing_once_the_channels_own_are_back() {
    for begun in 0..=2 {
        let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
        assert!(is_complete(&feed(&mut reassembly, 10_000, 50, 0)));
        (0..begun)
            .for_each(|forged| assert_eq!(feed(&mut reassembly, 20_000 + forged, 150, 0), Outcome::Stored));
        let behind = (0..100).find(|number| feed(&mut reassembly, *number, 150, 0) == Outcome::Stored);
        let first = behind.expect("the window follows the channel");
        assert_eq!(reassembly.in_progress(), 1, "{begun}: only its own");
        assert!(is_complete(&feed(&mut reassembly, first, 150, 1)));
        // Two messages under way at a time, as many as there are places.
        for number in (first + 1..first + 101).step_by(2) {
            let pieces = [(number, 0), (number + 1, 0), (number, 1), (number + 1, 1)];
            let came = pieces.map(|(number, piece)| is_complete(&feed(&mut reassembly, number, 150, piece)));
            assert_eq!(came, [false, false, true, true], "{begun} begun by forgery: {number}");
        }
    }
}

#[test]
fn a_new_message_pushes_out_the_one_begun_first() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    for message in 0..3 {
        assert_eq!(feed(&mut reassembly, message, 150, 0), Outcome::Stored);
    }
    assert_eq!((reassembly.in_progress(), reassembly.incomplete()), (2, 1));
    assert_eq!(feed(&mut reassembly, 0, 150, 1), Outcome::Stale);
    assert!(is_complete(&feed(&mut reassembly, 1, 150, 1)));
    assert!(is_complete(&feed(&mut reassembly, 2, 150, 1)));
}

#[test]
fn where_the_ring_has_no_slot_a_message_that_lost_a_fragment_gives_its_own() {
    let mut reassembly = Reassembly::new(8, SIZE, LONGEST);
    assert_eq!(feed(&mut reassembly, 0, 250, 0), Outcome::Stored);
    for (message, len) in [(1, 150), (2, 50)] {
        let mut asked = 0;
        let mut second_time = || {
            asked += 1;
            slot().filter(|_| asked > 1)
        };
        let header = header_of(message, len, 0);
        let outcome = reassembly.accept(
            &header,
            &bytes_of(message, len)[..header.payload_bytes as usize],
            &mut second_time,
        );
        assert!(matches!(outcome, Outcome::Stored | Outcome::Complete { .. }), "{outcome:?}");
    }
    assert_eq!(reassembly.incomplete(), 2);
}

#[test]
fn demoted_messages_push_out_demoted_ones_only() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    let demoted = |message| Header { demoted: true, ..header_of(message, 150, 0) };
    assert_eq!(feed(&mut reassembly, 0, 150, 0), Outcome::Stored);
    assert_eq!(feed_header(&mut reassembly, &demoted(1)), Outcome::Stored);
    assert_eq!(feed_header(&mut reassembly, &demoted(2)), Outcome::Stored);
    assert!(is_complete(&feed(&mut reassembly, 0, 150, 1)), "it keeps its place");
    let mut one = Reassembly::new(1, SIZE, LONGEST);
    assert_eq!(feed(&mut one, 0, 150, 0), Outcome::Stored);
    assert_eq!(feed_header(&mut one, &demoted(1)), Outcome::NoSlot);
    assert!(is_complete(&feed(&mut one, 0, 150, 1)));
}

/// Guaranteed packets keep their order, demoted ones may come at any time: whichever was begun first, the guaranteed message
/// that waits for an earlier packet waits in vain.
#[test]
fn a_message_that_lost_a_fragment_gives_way_before_a_demoted_one() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    let demoted = |fragment| Header { demoted: true, ..header_of(0, 150, fragment) };
    assert_eq!(feed_header(&mut reassembly, &demoted(0)), Outcome::Stored);
    for message in [1, 2] {
        assert_eq!(feed(&mut reassembly, message, 150, 0), Outcome::Stored);
    }
    assert_eq!(feed(&mut reassembly, 1, 150, 1), Outcome::Stale);
    assert!(is_complete(&feed_header(&mut reassembly, &demoted(1))));
    assert!(is_complete(&feed(&mut reassembly, 2, 150, 1)));
}

#[test]
fn duplicates_are_distinguished_from_late_ones() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    assert_eq!(feed(&mut reassembly, 0, 150, 1), Outcome::Stored);
    assert_eq!(feed(&mut reassembly, 0, 150, 1), Outcome::Duplicate);
    assert!(is_complete(&feed(&mut reassembly, 0, 150, 0)));
    assert_eq!(feed(&mut reassembly, 0, 150, 0), Outcome::Stale);
    assert!(is_complete(&feed(&mut reassembly, 1, 50, 0)));
    assert_eq!(feed(&mut reassembly, 1, 50, 0), Outcome::Stale);
}

#[test]
fn a_demoted_fragment_marks_its_message() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    let demoted = Header { demoted: true, ..header_of(0, 150, 0) };
    assert_eq!(feed_header(&mut reassembly, &demoted), Outcome::Stored);
    assert!(matches!(feed(&mut reassembly, 0, 150, 1), Outcome::Complete { demoted: true, .. }));
    assert!(matches!(feed(&mut reassembly, 1, 50, 0), Outcome::Complete { demoted: false, .. }));
}

#[test]
fn what_does_not_fit_the_channel_is_rejected() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    let reject = |reassembly: &mut Reassembly<Slot>, header: Header| {
        reassembly.accept(&header, &vec![0; header.payload_bytes as usize], slot)
    };
    let too_long = header_of(0, LONGEST + 1, 0);
    assert_eq!(reject(&mut reassembly, too_long), Outcome::Rejected(Rejection::TooLong));
    let other_size = Header { payload_bytes: 90, message_bytes: 150, ..header_of(0, 150, 0) };
    assert_eq!(reject(&mut reassembly, other_size), Outcome::Rejected(Rejection::FragmentSize));
    let whole_but_large = Header { fragments: 1, payload_bytes: 150, ..header_of(0, 150, 0) };
    assert_eq!(reject(&mut reassembly, whole_but_large), Outcome::Rejected(Rejection::FragmentSize));
    assert_eq!(feed(&mut reassembly, 0, 150, 0), Outcome::Stored);
    let changed = Outcome::Rejected(Rejection::LengthChanged);
    assert_eq!(reject(&mut reassembly, header_of(0, 160, 1)), changed);
    assert_eq!(reject(&mut reassembly, header_of(0, 60, 0)), changed);
    assert!(is_complete(&feed(&mut reassembly, 0, 150, 1)));
}

#[test]
fn the_last_of_the_most_fragments_has_its_place() {
    let bytes = FRAGMENTS_MAX;
    let mut reassembly = Reassembly::new(1, 1, 64 << 20);
    let whole =
        Header { message_bytes: bytes, fragments: u16::MAX, payload_bytes: 1, ..header_of(0, 150, 0) };
    let mut slot = Some(Slot(vec![0; bytes as usize]));
    for fragment in 0..u16::MAX - 1 {
        let header = Header { fragment, ..whole };
        assert_eq!(reassembly.accept(&header, &[7], || slot.take()), Outcome::Stored);
    }
    let last = Header { fragment: u16::MAX - 1, ..whole };
    let outcome = reassembly.accept(&last, &[7], || slot.take());
    assert_eq!(outcome, Outcome::Complete { slot: Slot(vec![7; bytes as usize]), demoted: false });
}

#[test]
fn without_a_slot_the_whole_message_is_lost_once() {
    let mut reassembly: Reassembly<Slot> = Reassembly::new(2, SIZE, LONGEST);
    let header = header_of(0, 150, 0);
    assert_eq!(reassembly.accept(&header, &[0; 100], || None), Outcome::NoSlot);
    assert_eq!(feed(&mut reassembly, 0, 150, 1), Outcome::Stale);
    assert_eq!(reassembly.accept(&header_of(1, 50, 0), &[0; 50], || None), Outcome::NoSlot);
    assert_eq!(reassembly.in_progress(), 0);
}

#[test]
fn expired_messages_free_their_places() {
    let mut reassembly = Reassembly::new(4, SIZE, LONGEST);
    for message in 0..4 {
        assert_eq!(feed(&mut reassembly, message, 150, 0), Outcome::Stored);
    }
    assert_eq!(reassembly.expire(3), 3);
    assert_eq!((reassembly.in_progress(), reassembly.incomplete()), (1, 3));
    assert_eq!(feed(&mut reassembly, 2, 150, 1), Outcome::Stale);
    assert!(is_complete(&feed(&mut reassembly, 3, 150, 1)));
}

#[test]
fn an_invented_number_silences_the_channel_for_three_messages_only() {
    for invented in [1 << 63, u64::MAX - 1, u64::MAX] {
        let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
        assert!(is_complete(&feed(&mut reassembly, 10, 50, 0)));
        feed(&mut reassembly, invented, 50, 0);
        let lost = (11..100).filter(|&n| !is_complete(&feed(&mut reassembly, n, 50, 0))).count();
        assert!(lost <= 3, "{lost} messages lost to number {invented}");
        for old in 10..100 {
            assert_eq!(feed(&mut reassembly, old, 50, 0), Outcome::Stale, "message {old} after {invented}");
        }
    }
}

#[test]
fn demoted_messages_far_ahead_do_not_make_conforming_ones_old() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    let demoted = |message| Header { demoted: true, ..header_of(message, 10, 0) };
    for message in 1..5_000 {
        assert!(is_complete(&feed_header(&mut reassembly, &demoted(message))));
        assert_eq!(feed_header(&mut reassembly, &demoted(message)), Outcome::Stale);
        assert_eq!(feed(&mut reassembly, message, 10, 0), Outcome::Stale, "the copy that was not demoted");
    }
    assert!(is_complete(&feed(&mut reassembly, 0, 10, 0)), "a conforming message that waited at its source");
    assert_eq!(feed(&mut reassembly, 0, 10, 0), Outcome::Stale);
}

/// How far behind the newest one a number is refused unseen at the sink of a channel with `contract`.
fn remembered(contract: &Contract) -> u64 {
    let newest = 1 << 20;
    let is_taken = |behind: &u64| {
        let mut reassembly = Reassembly::of(contract, 2, SIZE);
        assert!(is_complete(&feed(&mut reassembly, newest, 10, 0)));
        is_complete(&feed(&mut reassembly, newest - behind, 10, 0))
    };
    (6..20).map(|power| 1 << power).take_while(is_taken).last().map_or(0, |last| last + 1)
}

#[test]
fn a_sink_stores_numbers_in_flight_and_of_ten_seconds_within_limits() {
    let contract = |per_second: u64, deadline_ms| {
        let rate = Rate::per_second(per_second).expect("in range");
        Contract::new(LONGEST, rate, 1, Nanos::from_millis(deadline_ms)).expect("in range")
    };
    // `remembered` tries powers of two, the first of them the fewest numbers: that one is too old already.
    assert!(NUMBERS_REMEMBERED_MIN == 1 << 6 && NUMBERS_REMEMBERED_FOR == Nanos::from_secs(10));
    assert_eq!(remembered(&contract(1, 100)), 0, "64 numbers: the 64th behind is too old");
    assert_eq!(remembered(&contract(20, 100)), 129, "those of ten seconds");
    let many = u64::from(NUMBERS_REMEMBERED / 2 + 1);
    assert_eq!(remembered(&contract(10_000, 1)), many, "never more than 1,024 for the sake of time");
    assert_eq!(remembered(&contract(10_000, 1_000)), 8_193, "but all that is under way");
    let most = u64::from(NUMBERS_REMEMBERED_MAX / 2 + 1);
    assert_eq!(remembered(&contract(100_000, 10_000)), most, "and never more than 65,536");
    let bursts = |burst_messages_max, contract| Contract { burst_messages_max, ..contract };
    assert_eq!(remembered(&bursts(200, contract(1, 100))), 129, "a burst is under way together");
    assert_eq!(remembered(&bursts(5_000, contract(10_000, 1))), 4_097, "however long");
    let demotes = Contract { policing: Policing::Demote, ..contract(1, 100) };
    assert_eq!(remembered(&demotes), many, "demoted messages take numbers too");
}

#[test]
fn old_numbers_alone_never_open_a_channel_again_below_what_was_delivered() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    for number in 0..5_000 {
        assert!(is_complete(&feed(&mut reassembly, number, 50, 0)));
    }
    // Not one after the other, or demoted: no sign of a restart.
    for number in (0..3_000).step_by(2) {
        assert_eq!(feed(&mut reassembly, number, 50, 0), Outcome::Stale);
    }
    for number in 0..3_000 {
        let demoted = Header { demoted: true, ..header_of(number, 50, 0) };
        assert_eq!(feed_header(&mut reassembly, &demoted), Outcome::Stale);
    }
}

#[test]
fn a_number_ahead_among_old_ones_begins_the_count_of_a_restart_anew() {
    let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
    let invented = 1 << 40;
    assert!(is_complete(&feed(&mut reassembly, 10, 50, 0)));
    feed(&mut reassembly, invented, 50, 0);
    for stale in [11, 12] {
        assert_eq!(feed(&mut reassembly, stale, 50, 0), Outcome::Stale);
    }
    feed(&mut reassembly, invented + 1, 50, 0);
    for stale in [13, 14, 15] {
        assert_eq!(
            feed(&mut reassembly, stale, 50, 0),
            Outcome::Stale,
            "{stale}: four in a row are a restart"
        );
    }
    assert!(is_complete(&feed(&mut reassembly, 16, 50, 0)));
}

/// A network's doings to one packet: lost, sent on once or twice, each time so many packets late.
#[derive(Clone, Debug)]
enum Fate {
    Lost,
    Once(u16),
    Twice(u16, u16),
}

fn fate(delay_packets_max: u16) -> impl Strategy<Value = Fate> {
    let delay = 0..=delay_packets_max;
    prop_oneof![
        1 => Just(Fate::Lost),
        10 => delay.clone().prop_map(Fate::Once),
        2 => (delay.clone(), delay).prop_map(|(a, b)| Fate::Twice(a, b)),
    ]
}

/// Packets in the order of their arrival.
fn arrivals(packets: &[Header], fates: &[Fate]) -> Vec<Header> {
    let mut late: Vec<(usize, Header)> = Vec::new();
    for (at, (&header, fate)) in packets.iter().zip(fates.iter().cycle()).enumerate() {
        match *fate {
            Fate::Lost => {}
            Fate::Once(a) => late.push((at + usize::from(a), header)),
            Fate::Twice(a, b) => late.extend([(at + usize::from(a), header), (at + usize::from(b), header)]),
        }
    }
    late.sort_by_key(|&(at, _)| at);
    late.into_iter().map(|(_, header)| header).collect()
}

fn packets_of(lengths: &[u32]) -> Vec<Header> {
    let fragments = |(message, &len): (usize, &u32)| {
        let count = Fragmentation::new(len, SIZE).expect("fits").fragments();
        (0..count).map(move |fragment| header_of(message as u64, len, fragment))
    };
    lengths.iter().enumerate().flat_map(fragments).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, rng_seed: RngSeed::Fixed(8), failure_persistence: None, ..ProptestConfig::default()
    })]

    /// The extents of a message lie one behind the other and cover it.
    #[test]
    fn extents_cover_the_message(len in 0u32..2_000_000, size in 64u32..65_443) {
        let cut = Fragmentation::new(len, size).expect("fits");
        let mut end = 0;
        for index in 0..cut.fragments() {
            let extent = cut.extent(index).expect("in range");
            prop_assert_eq!(extent.offset, end);
            prop_assert!(extent.len <= size && (extent.len > 0 || len == 0));
            end += extent.len;
        }
        prop_assert_eq!(end, len);
    }

    /// Under loss, duplication and any reordering what is delivered is the message, and it is delivered once.
    #[test]
    fn delivered_once_and_unchanged(
        lengths in prop::collection::vec(0..=LONGEST, 1..120),
        fates in prop::collection::vec(fate(40), 1..500),
        messages_max in 1u32..6,
    ) {
        let mut reassembly = Reassembly::new(messages_max, SIZE, LONGEST);
        let mut delivered = HashSet::new();
        for header in arrivals(&packets_of(&lengths), &fates) {
            if let Outcome::Complete { slot, .. } = feed_header(&mut reassembly, &header) {
                prop_assert!(delivered.insert(header.message), "message {} twice", header.message);
                let expected = bytes_of(header.message, header.message_bytes);
                prop_assert_eq!(&slot.0[..expected.len()], &expected[..]);
                prop_assert!(slot.0[expected.len()..].iter().all(|&b| b == 0xee), "written beyond the message");
            }
            prop_assert!(reassembly.in_progress() <= messages_max as usize);
        }
    }

    /// With places for all messages that reordering mixes, only messages that lost a fragment are missing.
    #[test]
    fn only_what_was_lost_is_missing(
        lengths in prop::collection::vec(1..=LONGEST, 1..120),
        fates in prop::collection::vec(fate(20), 1..500),
    ) {
        let packets = packets_of(&lengths);
        let arrived = arrivals(&packets, &fates);
        let whole = |message: &u64| {
            let of = |all: &[Header]| {
                all.iter().filter(|h| h.message == *message).map(|h| h.fragment).collect::<HashSet<_>>().len()
            };
            of(&packets) == of(&arrived)
        };
        let mut reassembly = Reassembly::new(lengths.len() as u32, SIZE, LONGEST);
        let completed: HashSet<u64> = arrived.iter()
            .filter(|h| is_complete(&feed_header(&mut reassembly, h)))
            .map(|h| h.message)
            .collect();
        let expected: HashSet<u64> = (0..lengths.len() as u64).filter(whole).collect();
        prop_assert_eq!(completed, expected);
    }

    /// Condition for a restart of the window: four messages behind it with consecutive numbers, without one
    /// between them that is not behind it; one that is repeated or demoted changes nothing.
    #[test]
    fn four_in_a_row_behind_the_window_restart_it(
        steps in prop::collection::vec(prop_oneof![
            6 => Just(1_i64), 2 => Just(0), 2 => -3..4_i64,
        ].prop_flat_map(|step| (Just(step), 0..10_u8)), 1..80),
    ) {
        let mut reassembly = Reassembly::new(2, SIZE, LONGEST);
        let mut invented = 1 << 40;
        prop_assert!(is_complete(&feed(&mut reassembly, invented, 50, 0)));
        let (mut last, mut run) = (1_000_i64, 0);
        for (step, kind) in steps {
            if kind == 0 {
                invented += 1;
                prop_assert!(is_complete(&feed(&mut reassembly, invented, 50, 0)));
                run = 0;
                continue;
            }
            let number = last + step;
            if kind == 1 {
                let demoted = Header { demoted: true, ..header_of(number as u64, 50, 0) };
                feed_header(&mut reassembly, &demoted);
                continue;
            }
            run = match step {
                1 if run > 0 => run + 1,
                0 if run > 0 => run,
                _ => 1,
            };
            last = number;
            let is_taken = is_complete(&feed(&mut reassembly, number as u64, 50, 0));
            // A demoted fragment that was taken is taken once.
            prop_assert!(is_taken == (run == 4) || !is_taken && run == 4);
            if run == 4 {
                prop_assert_eq!(reassembly.seen_until().max(number as u64 + 1), reassembly.seen_until());
                return Ok(());
            }
        }
    }

    /// One more than the newest number of which a fragment was taken, whatever its result.
    #[test]
    fn what_was_seen_last_is_known(
        lengths in prop::collection::vec(0..=LONGEST, 1..60),
        fates in prop::collection::vec(fate(20), 1..300),
        messages_max in 1u32..6,
    ) {
        let mut reassembly = Reassembly::new(messages_max, SIZE, LONGEST);
        let mut newest = 0;
        for header in arrivals(&packets_of(&lengths), &fates) {
            feed_header(&mut reassembly, &header);
            newest = newest.max(header.message + 1);
            prop_assert_eq!(reassembly.seen_until(), newest);
        }
    }
}

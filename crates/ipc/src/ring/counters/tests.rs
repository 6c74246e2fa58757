mod turns;

use std::sync::atomic::AtomicBool as Flag;

use proptest::prelude::*;
use punctual_proto::memory::{Inbox, MessageInfo, Outbox};

use super::*;
use crate::ring::{InboxReader, InboxWriter, OutboxReader, OutboxWriter, RingShape, inbox, outbox};
use crate::wake::{Alarm, RingPath};

fn outgoing() -> (OutboxReader, OutboxWriter) {
    let (shape, alarm) = (RingShape::new(2, 8).expect("a shape"), Alarm::new().expect("an eventfd"));
    let (reader, handles, _doorbell) = outbox(shape, &alarm, &RingPath::Direct).expect("a ring");
    (reader, OutboxWriter::attach(handles).expect("attached"))
}

fn incoming() -> (InboxWriter, InboxReader) {
    let (shape, alarm) = (RingShape::new(2, 8).expect("a shape"), Alarm::new().expect("an eventfd"));
    let (writer, handles) = inbox(shape, &alarm, &RingPath::Direct).expect("a ring");
    (writer, InboxReader::attach(handles).expect("attached"))
}

/// Every word another number, so that none is read in place of another.
fn counters(first: u64) -> ChannelCounters {
    counters_of(&std::array::from_fn(|at| first + at as u64))
}

#[test]
fn every_counter_has_its_word() {
    let some = counters(1_000);
    let words = words_of(&some);
    assert_eq!(words.to_vec(), (1_000..1_000 + COUNTERS as u64).collect::<Vec<_>>());
    assert_eq!((some.messages_in, some.occupancy_max), (1_000, 1_000 + COUNTERS as u32 - 1));
}

#[test]
fn what_is_shown_is_read() {
    let (mut daemon, program) = outgoing();
    let reader = program.counters();
    let read = || reader.read(true).expect("there is no writer").counters;
    assert_eq!(read(), ChannelCounters::default(), "nothing is counted yet");
    for turn in 1..4 {
        assert!(daemon.touch() && !daemon.touch(), "once a turn");
        daemon.show(&counters(turn * 100));
        assert_eq!(read(), counters(turn * 100));
    }
    assert_eq!(reader.outdated(), 0);
    daemon.outdate();
    assert_eq!((reader.outdated(), reader.is_closed()), (1, false));
    drop(daemon);
    assert!(reader.is_closed());
    assert_eq!(read(), counters(300), "what was shown last stays there");
}

/// If the turn does not end, the reader returns the last state and does not wait without limit.
#[test]
fn a_turn_without_end_blocks_no_reader() {
    let (mut daemon, program) = outgoing();
    assert!(daemon.touch());
    daemon.show(&counters(7));
    assert!(daemon.touch());
    let begun = std::time::Instant::now();
    let reader = program.counters();
    for waits in [false, true] {
        assert_eq!(reader.read(waits).expect("there is no writer").counters, counters(7));
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
}

/// A thread that has seen an effect of a turn reads counters that include that turn, also on another thread.
#[test]
fn no_read_is_older_than_an_earlier_one() {
    let (mut daemon, program) = outgoing();
    let reader = program.counters();
    let seen = std::sync::atomic::AtomicU64::new(0);
    let done = Flag::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 1..=20_000 {
                daemon.touch();
                seen.store(turn, Ordering::SeqCst);
                daemon.show(&counters(turn * 64));
            }
            done.store(true, Ordering::SeqCst);
        });
        while !done.load(Ordering::SeqCst) {
            let known = seen.load(Ordering::SeqCst);
            let mut words = [0; 1 + COUNTERS];
            // Wait for as long as it takes: the writer may be off its CPU.
            let patiently = |_| {
                std::thread::yield_now();
                true
            };
            assert!(sequence::read(&reader.daemon, RECORD, &mut words, patiently));
            assert!(words[0] >= known, "{} after {known}", words[0]);
            let counted = counters_of(words[1..].first_chunk().expect("all of them"));
            assert!(words[0] == 0 || counted == counters(words[0] * 64), "of one moment: {counted:?}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Whatever was observed in how many turns: the reader's histogram is the daemon's.
    #[test]
    fn latencies_are_read_as_they_were_observed(
        turns in prop::collection::vec(prop::collection::vec((0..40_u32, 0..1_000_u64), 0..30), 1..10),
    ) {
        let (mut daemon, mut program) = incoming();
        daemon.health().accept().expect("sealed");
        let reader = program.counters();
        for turn in turns {
            prop_assert!(daemon.touch() && !daemon.touch(), "once a turn");
            for (power, error) in turn {
                let slot = daemon.reserve().expect("room");
                let delivered = punctual_analysis::Instant(1 << power);
                let info = MessageInfo { clock_error: Some(Nanos(error)), delivered, ..MessageInfo::default() };
                daemon.publish(slot, info);
                program.take(|_, _| ()).expect("a message");
            }
            daemon.show(&counters(5));
            let counted = reader.read(true).expect("there is no writer");
            let latencies = counted.latencies.expect("a sink's");
            prop_assert_eq!(latencies.buckets(), daemon.observed().expect("kept").buckets());
            prop_assert_eq!(Some(latencies.observed()), daemon.observed().map(Latencies::observed));
            prop_assert_eq!(counted.counters, counters(5));
        }
    }
}

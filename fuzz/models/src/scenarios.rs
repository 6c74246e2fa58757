//! What two sides do with a ring or a pool, in every order.

use std::io::IoSlice;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::thread;
use punctual_analysis::Instant;
use punctual_proto::memory::{Inbox, MessageInfo, MessageRead, MessageWrite, Outbox};

use crate::packets;
use crate::pool::Pool;
use crate::ring::outgoing::PushError;
use crate::ring::sequence::{self, Writer};
use crate::ring::{InboxReader, InboxWriter, OutboxReader, OutboxWriter, RingShape, inbox, outbox};
use crate::shm::{Region, View};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::wake::bell_list::{BellList, BellNode};
use crate::wake::{Alarm, Doorbell, RingPath, Shared, Signal, signal_of};
use crate::wake_flag::WakeFlag;

/// Runs every order in which a thread that could continue is pre-empted at most `preemptions` times; `None`:
/// every order.
fn every_order(preemptions: Option<usize>, scenario: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 20_000;
    builder.check(scenario);
}

fn outgoing(slots: u32) -> (OutboxReader, OutboxWriter, Shared) {
    let shape = RingShape::new(slots, 8).expect("a shape");
    let (reader, handles, doorbell) = outbox(shape, &Alarm, &RingPath::Direct).expect("a ring");
    let doorbell = signal_of(&doorbell);
    let writer = OutboxWriter::attach(handles).expect("attached");
    reader.health().accept().expect("accepted");
    (reader, writer, doorbell)
}

fn incoming(slots: u32) -> (InboxWriter, InboxReader) {
    let shape = RingShape::new(slots, 8).expect("a shape");
    let (writer, handles) = inbox(shape, &Alarm, &RingPath::Direct).expect("a ring");
    let reader = InboxReader::attach(handles).expect("attached");
    writer.health().accept().expect("accepted");
    (writer, reader)
}

/// Sends `count` messages, sleeping while the ring is full, then until the last one is sent.
fn send_all(mut writer: OutboxWriter, count: u8) {
    for byte in 0..count {
        loop {
            match writer.push(&[IoSlice::new(&[byte; 3])]) {
                Ok(_) => break,
                Err(PushError::Full) => assert!(writer.wait_room(None).expect("no error"), "closed"),
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(writer.wait_sent(u64::from(count) - 1, None).expect("no error"), "closed");
}

/// The daemon sleeps while there are no messages, the application while there is no room: neither sleeps
/// without end.
pub fn outgoing_messages_arrive_and_both_sides_sleep(slots: u32, count: u8, preemptions: Option<usize>) {
    every_order(preemptions, move || {
        let (mut reader, writer, doorbell) = outgoing(slots);
        let application = thread::spawn(move || send_all(writer, count));
        for byte in 0..count {
            let message = loop {
                match reader.take(Instant(u64::MAX)) {
                    Some((message, _)) => break message,
                    None => doorbell.0.wait_edge(),
                }
            };
            let mut bytes = [9; 3];
            message.copy_to(0, &mut bytes);
            assert_eq!((message.len(), bytes), (3, [byte; 3]));
        }
        application.join().expect("no panic");
        assert!(!reader.is_broken());
    });
}

/// Messages are freed on two threads at once: both are, and the thread that waits for the last one is woken.
pub fn messages_are_freed_on_two_threads() {
    every_order(Some(3), || {
        let (mut reader, mut writer, _doorbell) = outgoing(2);
        for byte in 0..2 {
            writer.push(&[IoSlice::new(&[byte])]).expect("room");
        }
        let mut taken = || reader.take(Instant(u64::MAX)).expect("it waits").0;
        let (first, second) = (taken(), taken());
        let other = thread::spawn(move || drop(second));
        drop(first);
        assert!(writer.wait_sent(1, None).expect("no error"));
        other.join().expect("no panic");
    });
}

/// Closing a ring wakes the thread that waits for room.
pub fn closing_wakes_the_sender() {
    every_order(None, || {
        let (reader, mut writer, _doorbell) = outgoing(1);
        writer.push(&[IoSlice::new(b"a")]).expect("room");
        let daemon = thread::spawn(move || drop(reader));
        assert!(!writer.wait_room(None).expect("no error"));
        daemon.join().expect("no panic");
    });
}

fn deliver(writer: &mut InboxWriter, number: u64) -> bool {
    let Some(mut slot) = writer.reserve() else { return false };
    slot.copy_from(0, &[number as u8; 3]);
    writer.publish(slot, MessageInfo { number, len: 3, ..MessageInfo::default() });
    true
}

/// Takes `count` messages, sleeping while there is none.
fn take_all(mut reader: InboxReader, count: u64) {
    for number in 0..count {
        assert!(reader.wait(None).expect("no error"), "closed");
        let taken = reader.take(|bytes, info| (bytes.to_vec(), info.number));
        assert_eq!(taken, Some((vec![number as u8; 3], number)));
    }
}

/// Messages come in, the application sleeps while there is none, slots come free and are filled again.
pub fn incoming_messages_arrive_and_the_reader_sleeps(slots: u32, count: u64, preemptions: Option<usize>) {
    every_order(preemptions, move || {
        let (mut writer, reader) = incoming(slots);
        let application = thread::spawn(move || take_all(reader, count));
        for number in 0..count {
            while !deliver(&mut writer, number) {
                thread::yield_now();
            }
        }
        application.join().expect("no panic");
        assert!(!writer.is_broken());
    });
}

/// Messages delivered before the end are read, and the end wakes the reader.
pub fn closing_wakes_the_reader() {
    every_order(Some(3), || {
        let (mut writer, mut reader) = incoming(1);
        let daemon = thread::spawn(move || {
            assert!(deliver(&mut writer, 0));
            drop(writer);
        });
        assert!(reader.wait(None).expect("no error"));
        assert!(reader.take(|_, info| info.number).is_some());
        assert!(!reader.wait(None).expect("no error"));
        daemon.join().expect("no panic");
    });
}

/// One message at a time: the next one is shown when the application rings for it.
pub fn an_alternating_ring_gives_every_message() {
    every_order(Some(2), || {
        let (mut writer, mut reader) = incoming(2);
        writer.alternate(writer.health().turns());
        let (ours, theirs) = Doorbell::pair().expect("descriptors");
        reader.alternate(Doorbell::new(theirs));
        let doorbell = signal_of(&ours);
        let done = Arc::new(AtomicBool::new(false));
        let (is_done, goodbye) = (Arc::clone(&done), doorbell.clone());
        let application = thread::spawn(move || {
            let goodbye = goodbye;
            take_all(reader, 2);
            is_done.store(true, Ordering::Release);
            goodbye.0.ring();
        });
        assert!(deliver(&mut writer, 0) && deliver(&mut writer, 1));
        // Like the processor: it checks whenever the doorbell rings.
        while !done.load(Ordering::Acquire) {
            doorbell.0.wait_edge();
            writer.resume();
        }
        application.join().expect("no panic");
    });
}

/// A writer that finds a ring full, and waits for its doorbell, gets all its messages in: as a TCP connection does.
pub fn a_writer_that_waits_for_room_gets_every_message_in() {
    every_order(Some(2), || {
        let (mut writer, mut reader) = incoming(1);
        let (ours, theirs) = Doorbell::pair().expect("descriptors");
        reader.set_doorbell(Doorbell::new(theirs));
        let doorbell = signal_of(&ours);
        let application = thread::spawn(move || take_all(reader, 2));
        let mut number = 0;
        while number < 2 {
            if deliver(&mut writer, number) {
                number += 1;
            } else {
                doorbell.0.wait_edge();
            }
        }
        application.join().expect("no panic");
    });
}

/// Two threads want bells rung, one of them the same, and a third rings them and sleeps: each bell is rung after it was
/// last wanted.
pub fn every_bell_is_rung(preemptions: Option<usize>) {
    every_order(preemptions, || {
        let (line, wake) = (Arc::new(BellList::default()), Shared(Signal::new()));
        let flags: Arc<Vec<AtomicU32>> = Arc::new((0..2).map(|_| AtomicU32::new(0)).collect());
        let nodes: Vec<_> = (0..2_usize).map(|bell| Arc::new(BellNode::new(bell))).collect();
        let want =
            |line: &BellList<usize>, flags: &[AtomicU32], node: &Arc<BellNode<usize>>, wake: &Shared| {
                flags[node.bell].fetch_add(1, Ordering::Relaxed);
                if line.put(node) {
                    wake.0.ring();
                }
            };
        let (other_line, other_wake, other_flags) = (Arc::clone(&line), wake.clone(), Arc::clone(&flags));
        let other_pull = Arc::clone(&nodes[0]);
        let other = thread::spawn(move || {
            let wake = other_wake;
            want(&other_line, &other_flags, &other_pull, &wake);
        });
        let (ringer_line, ringer_wake, ringer_flags) = (Arc::clone(&line), wake.clone(), Arc::clone(&flags));
        let ringer = thread::spawn(move || {
            let wake = ringer_wake;
            let mut received = [0, 0];
            loop {
                ringer_line
                    .take(|node| received[node.bell] = ringer_flags[node.bell].load(Ordering::Relaxed));
                if received == [2, 1] {
                    return;
                }
                if ringer_line.may_sleep() {
                    wake.0.wait_edge();
                }
                ringer_line.woken();
            }
        });
        nodes.iter().for_each(|node| want(&line, &flags, node, &wake));
        other.join().expect("no panic");
        ringer.join().expect("no panic");
    });
}

fn record_of_two_words() -> (Region, View) {
    let len = sequence::bytes_of(2).next_multiple_of(64) as u64;
    let (file, region) = Region::create(len).expect("a file");
    (region, View::open(&file, len).expect("a view"))
}

/// Turns that each write two words of a record, and a program that has seen what some turn did: it reads words of one
/// moment, and of no turn before that.
pub fn a_record_is_of_one_moment_and_not_of_one_before(turns: u64, preemptions: Option<usize>) {
    every_order(preemptions, move || {
        let (region, view) = record_of_two_words();
        let seen = Arc::new(AtomicU64::new(0));
        let done = Arc::clone(&seen);
        let processor = thread::spawn(move || {
            let mut writer = Writer::new(0, 2);
            for turn in 1..=turns {
                assert!(writer.touch(&region) && !writer.touch(&region));
                done.store(turn, Ordering::SeqCst);
                writer.write(&region, &[turn], std::iter::once((1, turn * 2)));
            }
        });
        let known = seen.load(Ordering::SeqCst);
        let mut words = [9; 3];
        let is_whole = sequence::read(&view, 0, &mut words, |attempts| {
            thread::yield_now();
            attempts < 4
        });
        let [turn, one, two] = words;
        // A reader that gave up may have the words of the turn before, but never a mixture.
        assert!(!is_whole || (one, two) == (turn, turn * 2), "{words:?}");
        processor.join().expect("no panic");
        assert!(sequence::read(&view, 0, &mut words, |_| false), "there is no writer any more");
        assert_eq!(words, [turns, turns, turns * 2]);
        assert!(known <= turns);
    });
}

/// The same without giving up: a reader that has seen an effect of a turn gets the words of that turn or a
/// later one.
pub fn a_record_is_of_the_turn_that_was_seen() {
    every_order(Some(3), || {
        let (region, view) = record_of_two_words();
        let seen = Arc::new(AtomicU64::new(0));
        let done = Arc::clone(&seen);
        let processor = thread::spawn(move || {
            let mut writer = Writer::new(0, 2);
            writer.touch(&region);
            done.store(1, Ordering::SeqCst);
            writer.write(&region, &[7], std::iter::empty());
        });
        let known = seen.load(Ordering::SeqCst);
        let mut words = [9; 2];
        let is_whole = sequence::read(&view, 0, &mut words, |_| {
            thread::yield_now();
            true
        });
        assert!(is_whole && words[0] >= known, "{words:?} after {known}");
        assert_eq!(words[1], words[0] * 7);
        processor.join().expect("no panic");
    });
}

/// A slot that is given up on another thread is never two messages' at once.
pub fn slots_are_given_up_on_another_thread() {
    every_order(Some(3), || {
        let (mut writer, _reader) = incoming(2);
        let mut first = writer.reserve().expect("a free slot");
        first.copy_from(0, b"1");
        let other = thread::spawn(move || {
            first.copy_from(0, b"2");
            drop(first);
        });
        // Loom sees two writers of one line as a race.
        let mut more: Vec<_> = (0..2).filter_map(|_| writer.reserve()).collect();
        more.iter_mut().for_each(|slot| slot.copy_from(0, b"3"));
        drop(more);
        other.join().expect("no panic");
        assert_eq!(std::iter::from_fn(|| writer.reserve()).take(3).collect::<Vec<_>>().len(), 1 + 1);
    });
}

/// A memory link: packets arrive in order, and a sleeping receiver is woken.
pub fn packets_of_a_memory_link_arrive(slots: usize, count: u8, preemptions: Option<usize>) {
    every_order(preemptions, move || {
        let (mut producer, mut consumer) = packets::ring(slots, 1);
        let (rung, event) = (Arc::new(WakeFlag::default()), Shared(Signal::new()));
        let (their_rung, their_event) = (Arc::clone(&rung), event.clone());
        let sender = thread::spawn(move || {
            let event = their_event;
            for byte in 0..count {
                while !producer.stage(&[byte]) {
                    thread::yield_now();
                }
                producer.publish(u64::from(byte));
                if their_rung.raise() {
                    event.0.ring();
                }
            }
        });
        for byte in 0..count {
            let mut out = [9];
            let taken = loop {
                rung.lower();
                match consumer.take(&mut out) {
                    Some(taken) => break taken,
                    None => event.0.wait_edge(),
                }
            };
            assert_eq!((taken, out), ((1, u64::from(byte)), [byte]));
        }
        sender.join().expect("no panic");
    });
}

/// A buffer belongs to one taker at a time, whichever thread gives it back.
pub fn buffers_of_a_pool_have_one_owner(preemptions: Option<usize>) {
    every_order(preemptions, || {
        let pool = Pool::new(2, 1);
        let owned: Arc<Vec<UnsafeCell<u8>>> = Arc::new((0..2).map(|_| UnsafeCell::new(0)).collect());
        let use_one = |pool: &Pool, owned: &[UnsafeCell<u8>]| {
            if let Some(index) = pool.take_index() {
                // Loom sees two owners as a race.
                owned[index as usize].with_mut(|_| ());
                pool.give_back(index);
            }
        };
        let (other_pool, other_owned) = (pool.clone(), Arc::clone(&owned));
        let other = thread::spawn(move || {
            use_one(&other_pool, &other_owned);
            use_one(&other_pool, &other_owned);
        });
        use_one(&pool, &owned);
        use_one(&pool, &owned);
        other.join().expect("no panic");
        let left: Vec<_> = std::iter::from_fn(|| pool.take_index()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    });
}

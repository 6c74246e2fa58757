//! Both rings end to end in one process.

mod hostile;
mod ringer;
mod waiting;
mod within;

use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant as Deadline};

use punctual_analysis::Nanos;
use punctual_proto::memory::{Inbox, MessageInfo, MessageRead, MessageWrite, Outbox, Timeliness};
use rustix::event::epoll;

use super::outgoing::PushError;
use super::*;
use crate::shm::Region;
use crate::wake::{Alarm, Doorbell, RingPath, timespec, wait_readable};

const PATIENCE: Duration = Duration::from_secs(20);

fn soon() -> Option<Deadline> {
    Deadline::now().checked_add(PATIENCE)
}

fn is_readable(descriptor: impl AsFd) -> bool {
    wait_readable(descriptor.as_fd(), Some(Deadline::now())).expect("poll")
}

fn alarm() -> Alarm {
    Alarm::new().expect("an eventfd")
}

/// An outgoing ring, and a second mapping of it for a hostile hand.
fn outgoing(slots: u32, bytes: u32) -> (OutboxReader, OutboxWriter, Region, Alarm) {
    let (shape, alarm) = (RingShape::new(slots, bytes).expect("a shape"), alarm());
    let (reader, handles, _doorbell) = outbox(shape, &alarm, &RingPath::Direct).expect("a ring");
    let hostile = Region::map(&handles.descriptors[1], shape.file_bytes()).expect("a second mapping");
    let writer = OutboxWriter::attach(handles).expect("attached");
    reader.health().accept().expect("sealed");
    (reader, writer, hostile, alarm)
}

fn incoming(slots: u32, bytes: u32) -> (InboxWriter, InboxReader, Region, Alarm) {
    let (shape, alarm) = (RingShape::new(slots, bytes).expect("a shape"), alarm());
    let (writer, handles) = inbox(shape, &alarm, &RingPath::Direct).expect("a ring");
    let hostile = Region::map(&handles.descriptors[1], HEADER_BYTES as u64).expect("a second mapping");
    let reader = InboxReader::attach(handles).expect("attached");
    writer.health().accept().expect("sealed");
    (writer, reader, hostile, alarm)
}

fn bytes_of(message: &OutboxMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.len() as usize];
    message.copy_to(0, &mut bytes);
    bytes
}

/// A slot that holds `bytes`.
fn inbox_slot(inbox: &mut InboxWriter, bytes: &[u8]) -> InboxSlot {
    let mut slot = inbox.reserve().expect("a slot");
    slot.copy_from(0, bytes);
    slot
}

fn deliver(inbox: &mut InboxWriter, number: u64, bytes: &[u8]) -> bool {
    let Some(mut slot) = inbox.reserve() else { return false };
    for (index, fragment) in bytes.chunks(16).enumerate() {
        slot.copy_from(index as u32 * 16, fragment);
    }
    inbox.publish(slot, MessageInfo { number, len: bytes.len() as u32, ..MessageInfo::default() });
    true
}

#[test]
fn a_shape_is_checked() {
    for (slots, bytes) in [(0, 1), (1, 0), (SLOTS_MAX + 1, 1), (1, u32::MAX), (SLOTS_MAX, 1 << 20)] {
        assert!(matches!(RingShape::new(slots, bytes), Err(RingError::Shape(_))), "{slots} x {bytes}");
    }
}

/// Times of messages are those of the clock that all programs of a host read.
#[test]
fn now_is_the_monotonic_clock_in_nanoseconds() {
    let clock = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos()
    };
    let (before, between, after) = (clock(), u128::from(now().0), clock());
    assert!((before..=after).contains(&between), "{before} {between} {after}");
}

#[test]
fn messages_go_out_in_order_and_slots_come_free_in_order() {
    let (mut reader, mut writer, _, _) = outgoing(3, 100);
    let before = now();
    for number in 0..3_u8 {
        assert_eq!(writer.push(&[IoSlice::new(&[number; 10]), IoSlice::new(b"x")]), Ok(u64::from(number)));
    }
    assert_eq!(writer.push(&[IoSlice::new(b"full")]), Err(PushError::Full));
    let taken: Vec<_> = std::iter::from_fn(|| reader.take(now())).collect();
    assert_eq!(taken.len(), 3);
    for (number, (message, sent_at)) in taken.iter().enumerate() {
        let mut expected = vec![number as u8; 10];
        expected.push(b'x');
        assert_eq!(bytes_of(message), expected);
        assert!((before..=now()).contains(sent_at));
    }
    let mut taken = taken.into_iter().map(|(message, _)| message);
    let (first, second, third) = (taken.next(), taken.next(), taken.next());
    drop(second);
    assert!(!writer.is_sent(0) && !writer.is_sent(1));
    drop(first);
    assert!(writer.is_sent(1) && !writer.is_sent(2));
    assert_eq!(writer.push(&[IoSlice::new(b"room")]), Ok(3));
    drop(third);
    assert_eq!(writer.outstanding(), 1);
}

#[test]
fn a_copy_stays_within_its_message() {
    let (mut reader, mut writer, _, _) = outgoing(2, 100);
    writer.push(&[IoSlice::new(&[1; 60])]).expect("room");
    writer.push(&[IoSlice::new(&[2; 100])]).expect("room");
    let (message, _) = reader.take(now()).expect("a message");
    let mut out = [9; 40];
    message.copy_to(50, &mut out);
    assert_eq!((&out[..10], &out[10..]), (&[1; 10][..], &[9; 30][..]));
    message.copy_to(u32::MAX, &mut out);
}

#[test]
fn too_long_a_message_is_refused_and_changes_nothing() {
    let (mut reader, mut writer, _, _) = outgoing(1, 10);
    let error = Err(PushError::TooLong { bytes: 11, bytes_max: 10 });
    assert_eq!(writer.push(&[IoSlice::new(&[0; 11])]), error);
    assert_eq!(writer.fill(|slot| slot.len() + 1), error);
    assert!(!reader.is_ready() && reader.take(now()).is_none());
}

#[test]
fn a_closed_ring_is_reported_at_both_ends() {
    let (reader, mut writer, _, _) = outgoing(1, 10);
    writer.push(&[IoSlice::new(b"a")]).expect("room");
    let closing = std::thread::spawn(move || drop(reader));
    assert!(!writer.wait_sent(0, soon()).expect("poll"), "it was closed, not sent");
    closing.join().expect("no panic");
    assert_eq!(writer.push(&[IoSlice::new(b"b")]), Err(PushError::Closed));
    assert!(is_readable(&writer));

    let (mut inbox, mut reader, _, _) = incoming(2, 10);
    assert!(deliver(&mut inbox, 0, b"last"));
    drop(inbox);
    assert!(reader.wait(soon()).expect("poll"), "what was there before the end is read");
    assert_eq!(reader.take(|bytes, _| bytes.to_vec()), Some(b"last".to_vec()));
    assert!(!reader.wait(None).expect("poll") && is_readable(&reader));
}

#[test]
fn the_application_can_close_for_a_daemon_that_died() {
    let (_inbox, reader, _, _) = incoming(2, 10);
    let closer = reader.closer();
    let closing = std::thread::spawn(move || closer.close());
    assert!(!reader.wait(soon()).expect("poll"));
    assert!(reader.is_closed());
    closing.join().expect("no panic");
}

#[test]
fn messages_come_in_by_completion_and_slots_are_reused() {
    let (mut inbox, mut reader, _, _) = incoming(2, 100);
    for round in 0..10_u64 {
        let (mut first, mut second) = (inbox.reserve().expect("a slot"), inbox.reserve().expect("a slot"));
        assert!(inbox.reserve().is_none());
        first.copy_from(0, b"first");
        second.copy_from(0, b"sec");
        second.copy_from(3, b"ond");
        second.copy_from(98, b"cut off here");
        let info =
            |number, len| MessageInfo { number, len, demoted: number % 2 == 1, ..MessageInfo::default() };
        inbox.publish(second, info(2 * round + 1, 6));
        inbox.publish(first, info(2 * round, 5));
        let read = |bytes: &[u8], info: &MessageInfo| (bytes.to_vec(), info.number, info.demoted);
        assert_eq!(reader.take(read), Some((b"second".to_vec(), 2 * round + 1, true)));
        assert_eq!(reader.take(read), Some((b"first".to_vec(), 2 * round, false)));
        drop(inbox.reserve().expect("dropped unpublished, it is free again"));
    }
}

#[test]
fn the_fields_of_a_message_are_read_as_written() {
    let (mut inbox, mut reader, _, _) = incoming(1, 10);
    let timely = [Timeliness::Unmeasured, Timeliness::InTime, Timeliness::PerhapsLate, Timeliness::Late];
    for (number, timeliness) in (5..).zip(timely) {
        for flags in 0..8 {
            let sent_info = MessageInfo {
                number,
                logical_arrival: Instant(number * 1_000),
                deadline: Instant(number * 2_000),
                delivered: Instant(number * 1_500),
                len: 3,
                clock_error: (flags & 4 != 0).then_some(Nanos(number * 7)),
                demoted: flags & 1 != 0,
                unpromised: flags & 2 != 0,
                timeliness,
            };
            let slot = inbox_slot(&mut inbox, b"abc");
            inbox.publish(slot, sent_info);
            assert_eq!(
                reader.take(|bytes, info| (bytes.to_vec(), *info)),
                Some((b"abc".to_vec(), sent_info))
            );
        }
    }
}

#[test]
fn a_ring_waits_shows_that_it_waits_and_is_alone_at_its_end() {
    let (mut reader, mut writer, _, _) = outgoing(2, 10);
    let health = reader.health();
    assert!(!reader.is_ready() && !health.is_broken() && !health.is_alone());
    writer.push(&[IoSlice::new(b"a")]).expect("room");
    assert!(reader.is_ready() && writer.outstanding() == 1);
    drop(reader.take(now()).expect("a message"));
    assert!(!reader.is_ready() && !reader.is_broken());
    assert!(writer.wait_sent(0, soon()).expect("poll") && is_readable(&writer), "there is room");
    drop(reader);
    assert!(health.is_alone());

    let (mut inbox, _reader, _, _) = incoming(2, 10);
    let health = inbox.health();
    let slot = inbox.reserve().expect("a slot");
    drop(inbox);
    assert!(!health.is_broken() && !health.is_alone(), "a slot is held");
    drop(slot);
    assert!(health.is_alone());
}

#[test]
fn messages_sent_beside_the_reader_leave_and_wake_a_sleeping_thread() {
    let (mut reader, mut writer, _, _) = outgoing(2, 10);
    assert!(reader.take(now()).is_none(), "it asks for a wake-up at the next");
    let (before, later) = (now(), Instant(u64::MAX / 2));
    assert_eq!(writer.push_beside(b"a", before), Ok(true));
    assert_eq!(writer.push_beside(b"b", before), Ok(false), "woken once");
    assert_eq!(writer.push_beside(b"c", before), Err(PushError::Full));
    let (message, sent_at) = reader.take(later).expect("a message");
    assert_eq!((bytes_of(&message), sent_at), (b"a".to_vec(), before));
}

#[test]
fn an_upcall_takes_messages_until_it_wants_no_more() {
    let (mut inbox, mut reader, _, _) = incoming(2, 10);
    let (sender, called) = std::sync::mpsc::channel();
    let upcall = move |bytes: &[u8], info: &MessageInfo| {
        sender.send((bytes.to_vec(), info.number)).expect("the test receives it");
        info.number < 1
    };
    inbox.set_upcall(Box::new(upcall));
    assert!((0..3).all(|number| deliver(&mut inbox, number, b"up")), "their slots are free at once");
    let up: Vec<_> = called.try_iter().collect();
    assert_eq!(up, [(b"up".to_vec(), 0), (b"up".to_vec(), 1)]);
    assert_eq!(reader.take(|_, info| info.number), Some(2), "the next goes to the ring");
    assert_eq!(reader.take(|_, _| ()), None);
}

#[test]
fn an_alternating_ring_shows_one_message_after_the_other() {
    let (mut inbox, mut reader, _, _) = incoming(3, 10);
    inbox.alternate(inbox.health().turns());
    assert!((0..3).all(|number| deliver(&mut inbox, number, b"one")));
    let mut next = |inbox: &mut InboxWriter| {
        let shown = reader.take(|_, info| info.number);
        assert!(reader.take(|_, _| ()).is_none(), "one at a time");
        // Whether to call again: one more waits behind the one that is shown.
        let more = inbox.resume();
        assert!(!inbox.resume(), "its turn is a message");
        (shown, more)
    };
    assert_eq!([next(&mut inbox), next(&mut inbox)], [(Some(0), true), (Some(1), false)]);
    assert_eq!([next(&mut inbox), next(&mut inbox)], [(Some(2), false), (None, false)]);
    assert!((3..6).all(|number| deliver(&mut inbox, number, b"one")));
    drop(inbox);
    let left: Vec<_> = std::iter::from_fn(|| reader.take(|_, info| info.number)).collect();
    assert_eq!(left, [3, 4, 5], "what is complete can be read at the end");
}

#[test]
fn an_unwanted_message_stays() {
    let (mut inbox, mut reader, _, _) = incoming(2, 100);
    deliver(&mut inbox, 7, b"later");
    assert_eq!(reader.take_if(|info| info.len < 5, |_, _| ()), None);
    assert_eq!(reader.take_if(|info| info.len == 5, |_, info| info.number), Some(7));
}

#[test]
fn the_descriptor_is_readable_exactly_while_something_waits() {
    let (mut inbox, mut reader, _, _) = incoming(4, 10);
    assert!(!is_readable(&reader));
    deliver(&mut inbox, 0, b"a");
    deliver(&mut inbox, 1, b"b");
    assert!(is_readable(&reader));
    reader.take(|_, _| ()).expect("a message");
    assert!(is_readable(&reader), "one is left");
    reader.take(|_, _| ()).expect("a message");
    assert!(reader.take(|_, _| ()).is_none() && !is_readable(&reader));

    let (mut outbox, mut writer, _, _) = outgoing(1, 10);
    assert!(is_readable(&writer), "there is room");
    writer.push(&[IoSlice::new(b"a")]).expect("room");
    assert_eq!(writer.push(&[IoSlice::new(b"b")]), Err(PushError::Full));
    assert!(!is_readable(&writer));
    drop(outbox.take(now()).expect("a message"));
    assert!(is_readable(&writer));
}

/// Watches a doorbell as the engine does: edge-triggered, without reading.
fn watching(doorbell: &impl AsFd) -> OwnedFd {
    let waiter = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&waiter, doorbell, epoll::EventData::new_u64(0), flags).expect("watched");
    waiter
}

/// Whether the doorbell was rung since the last time, or rings soon.
fn reported(waiter: &OwnedFd) -> bool {
    reported_within(PATIENCE, waiter)
}

/// Whether the doorbell was rung since the last time.
fn has_rung(waiter: &OwnedFd) -> bool {
    reported_within(Duration::ZERO, waiter)
}

fn reported_within(time: Duration, waiter: &OwnedFd) -> bool {
    let mut reported =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    epoll::wait(waiter, &mut reported[..], Some(&timespec(time))).expect("a wait") == 1
}

/// Every sleep must end: a lost wake-up would let the other side wait until its deadline.
#[test]
fn no_wake_up_is_lost() {
    const MESSAGES: u64 = 100_000;
    let (mut inbox, mut reader, _, _) = incoming(4, 8);
    let consuming = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            assert!(reader.wait(soon()).expect("poll"), "asleep at message {number}");
            assert_eq!(reader.take(|_, info| info.number), Some(number));
        }
    });
    for number in 0..MESSAGES {
        while !deliver(&mut inbox, number, &number.to_ne_bytes()) {
            assert!(!consuming.is_finished() && !inbox.is_broken());
            std::thread::yield_now();
        }
    }
    consuming.join().expect("every message was read");

    let shape = RingShape::new(4, 8).expect("a shape");
    let (mut reader, handles, doorbell) = outbox(shape, &alarm(), &RingPath::Direct).expect("a ring");
    let mut writer = OutboxWriter::attach(handles).expect("attached");
    reader.health().accept().expect("sealed");
    let waiter = watching(&doorbell);
    let producing = std::thread::spawn(move || {
        for number in 0..MESSAGES {
            assert!(writer.wait_room(soon()).expect("poll"), "asleep at message {number}");
            writer.push(&[IoSlice::new(&number.to_ne_bytes())]).expect("room");
        }
        assert!(writer.wait_sent(MESSAGES - 1, soon()).expect("poll"));
    });
    for number in 0..MESSAGES {
        let message = loop {
            if let Some((message, _)) = reader.take(now()) {
                break message;
            }
            assert!(reported(&waiter), "no ring before message {number}");
        };
        assert_eq!(bytes_of(&message), number.to_ne_bytes());
    }
    producing.join().expect("every message was sent");
}

/// Only the application's own threads pay for the number of waiters at its end.
#[test]
fn a_crowd_at_the_applications_end_of_a_doorbell_delays_no_other() {
    let (ours, theirs) = Doorbell::pair().expect("sockets");
    assert!(Doorbell::check().is_ok());
    assert_eq!(
        rustix::net::send(&theirs, b"x", rustix::net::SendFlags::NOSIGNAL),
        Err(rustix::io::Errno::PIPE)
    );
    let waiter = watching(&ours);
    assert!(reported(&waiter), "it is shut down for reading");
    let theirs = Doorbell::new(theirs);
    for _ in 0..3 {
        theirs.ring();
        assert!(reported(&waiter));
    }
}

/// Messages are dropped while the first is still needed; then it goes.
#[test]
fn what_was_freed_out_of_order_is_given_back_in_slices() {
    const SLOTS: u32 = 1_000;
    let (mut outbox, mut writer, _, _) = outgoing(SLOTS, 8);
    assert!((0..SLOTS).all(|_| writer.push(&[IoSlice::new(b"message")]).is_ok()), "room");
    let now = super::now();
    let first = outbox.take(now).expect("a message").0;
    while outbox.take(now).is_some() {}
    assert!(writer.is_full() && !outbox.is_behind(), "the first is in the way");
    drop(first);
    let mut before = writer.outstanding();
    assert!(before < u64::from(SLOTS) && before >= u64::from(SLOTS) - 64, "{before}: some at once");
    while outbox.is_behind() {
        assert!(outbox.take(now).is_none() && !outbox.is_ready(), "nothing waits but slots");
        let after = writer.outstanding();
        assert!((1..=64).contains(&(before - after)), "{before}, then {after}");
        before = after;
    }
    assert_eq!(writer.outstanding(), 0);
    assert!((0..SLOTS).all(|_| writer.push(&[IoSlice::new(b"again")]).is_ok()), "all slots are there");
    assert!((0..SLOTS).all(|_| outbox.take(now).is_some()));
}

/// A receiver frees a whole ring at once, or takes each message as soon as it is visible.
#[test]
fn what_a_receiver_frees_at_once_is_taken_back_in_slices() {
    const SLOTS: u32 = 1_000;
    let (mut inbox, mut reader, _, _) = incoming(SLOTS, 8);
    assert!((0..SLOTS).all(|number| deliver(&mut inbox, number.into(), b"message")));
    assert!(inbox.reserve().is_none(), "it is full");
    (0..SLOTS).for_each(|_| reader.take(|_, _| ()).expect("a message"));
    let mut slots = Vec::new();
    while let Some(slot) = inbox.reserve() {
        slots.push(slot);
        let (collected, calls) = (inbox.collected(), slots.len() as u64);
        assert!(collected <= calls * 64, "{collected} slots in {calls} calls");
    }
    assert_eq!(slots.len(), SLOTS as usize);
}

//! What a program reads after a wait that timed out, or after its messages began to arrive in another way.

use super::*;

/// After a wait that timed out the descriptor shows again whether there is room, as before.
#[test]
fn a_wait_that_timed_out_reports_whether_there_is_room() {
    for messages in [1, 2] {
        let (_reader, mut writer, _, _) = outgoing(2, 10);
        (0..messages).for_each(|number| assert_eq!(writer.push(&[IoSlice::new(b"a")]), Ok(number)));
        let past = Some(Deadline::now());
        assert!(!writer.wait_sent(0, past).expect("poll"), "it is not sent");
        assert_eq!(is_readable(&writer), messages < 2, "{messages} of 2 slots are taken");
        assert_eq!(writer.wait_room(past).expect("poll"), messages < 2);
    }
}

#[test]
fn the_last_position_is_that_of_the_last_message() {
    let (_reader, mut writer, _, _) = outgoing(3, 10);
    assert_eq!(writer.last_position(), None);
    for number in 0..3 {
        assert_eq!(writer.push(&[IoSlice::new(b"a")]), Ok(number));
        assert_eq!(writer.last_position(), Some(number));
    }
}

/// Messages that wait for their turn precede later ones, and none is lost.
#[test]
fn messages_that_wait_for_their_turn_come_to_the_upcall_first() {
    let (mut inbox, mut reader, _, _) = incoming(4, 10);
    inbox.alternate(inbox.health().turns());
    assert!((0..3).all(|number| deliver(&mut inbox, number, b"one")));
    let (sender, called) = std::sync::mpsc::channel();
    let upcall = move |_: &[u8], info: &MessageInfo| {
        sender.send(info.number).expect("the test receives it");
        true
    };
    inbox.set_upcall(Box::new(upcall));
    assert!(deliver(&mut inbox, 3, b"up"));
    assert_eq!(called.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(reader.take(|_, info| info.number), Some(0), "it was shown before");
    assert_eq!(reader.take(|_, _| ()), None);
}

/// A writer that found a full ring hears of room once it is as much as the reader has set, and then only once.
#[test]
fn a_writer_that_waits_is_woken_by_as_much_room_as_was_set() {
    for (slots, wanted) in [(4, 1), (4, 2), (4, 4), (5, 2), (5, 9), (1, 0)] {
        let (mut inbox, mut reader, _, _) = incoming(slots, 10);
        let (ours, theirs) = Doorbell::pair().expect("a doorbell");
        let waiter = watching(&ours);
        // A half-closed socket is reported once by itself.
        has_rung(&waiter);
        reader.set_room(wanted);
        reader.set_doorbell(Doorbell::new(theirs));
        for round in 0..3 {
            (0..slots).for_each(|number| assert!(deliver(&mut inbox, number.into(), b"a")));
            assert!(!deliver(&mut inbox, 0, b"b"), "no room");
            for free in 1..=slots {
                reader.pop();
                let is_woken = has_rung(&waiter);
                assert_eq!(
                    is_woken,
                    free == wanted.clamp(1, slots),
                    "{slots} slots, {free} free, round {round}"
                );
            }
        }
        assert!(!reader.writer_waits(), "it was told");
        assert!(deliver(&mut inbox, 0, b"a"));
        reader.pop();
        assert!(!has_rung(&waiter), "a writer that had room does not wait");
    }
}

/// An application rings when it has taken a message only if another one waits for its turn.
#[test]
fn an_application_rings_for_each_turn_and_for_nothing_else() {
    for alternates in [false, true] {
        let (mut inbox, mut reader, _, _) = incoming(4, 10);
        let (ours, theirs) = Doorbell::pair().expect("a doorbell");
        let waiter = watching(&ours);
        has_rung(&waiter);
        reader.set_doorbell(Doorbell::new(theirs));
        if alternates {
            inbox.alternate(inbox.health().turns());
        }
        assert!((0..3).all(|number| deliver(&mut inbox, number, b"a")));
        for number in 0..3 {
            while inbox.resume() {}
            assert_eq!(reader.take(|_, info| info.number), Some(number));
            let waits = alternates && number < 2;
            assert_eq!(has_rung(&waiter), waits, "message {number}, alternates: {alternates}");
        }
        assert!(!inbox.resume());
        assert!(deliver(&mut inbox, 3, b"a"));
        assert_eq!(reader.take(|_, info| info.number), Some(3));
        assert!(!has_rung(&waiter), "nothing waits behind it, alternates: {alternates}");
    }
}

/// A writer waits when it has found no room, or the message before still there: its reader learns of each wait once, when there
/// is room again.
#[test]
fn a_reader_learns_once_of_each_wait_of_its_writer() {
    let (mut inbox, mut reader, _, _) = incoming(1, 10);
    for number in 0..3 {
        assert!(deliver(&mut inbox, number, b"a") && !reader.writer_waits(), "nobody waits");
        assert!(!deliver(&mut inbox, number, b"b"), "there is no room");
        assert_eq!(reader.take(|_, info| info.number), Some(number));
        assert_eq!([reader.writer_waits(), reader.writer_waits()], [true, false]);
    }
}

/// A sender rings at once for the first message after its reader has found none, and for no other.
#[test]
fn a_sender_wakes_its_reader_once_for_each_time_that_it_found_nothing() {
    let shape = RingShape::new(4, 8).expect("a shape");
    let (mut reader, handles, doorbell) = outbox(shape, &alarm(), &RingPath::Direct).expect("a ring");
    let mut writer = OutboxWriter::attach(handles).expect("attached");
    reader.health().accept().expect("sealed");
    let waiter = watching(&doorbell);
    has_rung(&waiter);
    for _ in 0..3 {
        while reader.take(now()).is_some() {}
        for is_first in [true, false] {
            writer.push(&[IoSlice::new(b"a")]).expect("room");
            assert_eq!(has_rung(&waiter), is_first);
        }
        assert!(reader.take(now()).is_some());
        writer.push(&[IoSlice::new(b"b")]).expect("room");
        assert!(!has_rung(&waiter), "one was left when the reader looked");
    }
}

/// Whichever slot holds it, a message is seen in place as it was written, as often as one looks, until it is given up.
#[test]
fn a_message_in_place_is_the_one_of_its_slot() {
    for slots in 1..5 {
        let (mut inbox, mut reader, _, _) = incoming(slots, 1);
        for round in 0..2 {
            assert!((0..slots).all(|slot| deliver(&mut inbox, 0, &[10 * round + slot as u8])));
            for slot in 0..slots {
                let expected = [10 * round + slot as u8];
                assert_eq!([reader.front(), reader.front()], [Some(&expected[..]); 2], "{slot} of {slots}");
                reader.pop();
            }
            assert_eq!(reader.front(), None);
        }
    }
}

/// A program that closes a ring from within wakes its own thread that sleeps at it, in either direction.
#[test]
fn a_ring_that_is_closed_from_within_wakes_who_waits_at_it() {
    let (_inbox, mut reader, _, _) = incoming(1, 10);
    assert!(reader.take(|_, _| ()).is_none() && !is_readable(&reader));
    reader.closer().close();
    assert!(is_readable(&reader) && reader.is_closed());
    let (_outbox, mut writer, _, _) = outgoing(1, 10);
    writer.push(&[IoSlice::new(b"a")]).expect("room");
    assert!(!writer.has_room() && !is_readable(&writer));
    writer.closer().close();
    assert!(is_readable(&writer) && writer.is_closed());
}

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
        rung(&waiter);
        reader.set_room(wanted);
        reader.set_doorbell(Doorbell::new(theirs));
        for round in 0..3 {
            (0..slots).for_each(|number| assert!(deliver(&mut inbox, number.into(), b"a")));
            assert!(!deliver(&mut inbox, 0, b"b"), "no room");
            for free in 1..=slots {
                reader.pop();
                let is_woken = rung(&waiter);
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
        assert!(!rung(&waiter), "a writer that had room does not wait");
    }
}

/// Whether the doorbell was rung since the last time.
fn rung(waiter: &OwnedFd) -> bool {
    let mut reported =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    epoll::wait(waiter, &mut reported[..], Some(&timespec(Duration::ZERO))).expect("a look") == 1
}

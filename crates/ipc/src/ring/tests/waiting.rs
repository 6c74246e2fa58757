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

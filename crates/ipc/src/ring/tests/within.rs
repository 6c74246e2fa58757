//! Rings between two threads of this process: the same rings as between two processes, without files.

use super::*;

/// Gives both kinds of outgoing rings to `check`.
fn outboxes(slots: u32, bytes: u32, check: impl Fn(OutboxReader, OutboxWriter)) {
    let (reader, writer, _, _) = outgoing(slots, bytes);
    check(reader, writer);
    let (reader, writer) =
        outbox_within(RingShape::new(slots, bytes).expect("a shape"), &alarm()).expect("a ring");
    check(reader, writer);
}

/// Gives both kinds of incoming rings to `check`.
fn inboxes(slots: u32, bytes: u32, check: impl Fn(InboxWriter, InboxReader)) {
    let (writer, reader, _, _) = incoming(slots, bytes);
    check(writer, reader);
    let (writer, reader) =
        inbox_within(RingShape::new(slots, bytes).expect("a shape"), &alarm()).expect("a ring");
    check(writer, reader);
}

/// Messages of all lengths, several times around the ring; the bell shows whether there is room.
#[test]
fn an_outgoing_ring_carries_every_byte_and_shows_its_room() {
    outboxes(3, 70, |mut reader, mut writer| {
        for round in 0..10_u8 {
            let lengths = [usize::from(round) * 7, 70, 1];
            for length in lengths {
                assert!(is_readable(&writer), "there is room");
                writer.push(&[IoSlice::new(&vec![round; length])]).expect("room");
            }
            assert_eq!(writer.push(&[IoSlice::new(b"x")]), Err(PushError::Full));
            assert!(!is_readable(&writer), "round {round}");
            for length in lengths {
                let (message, _) = reader.take(now()).expect("a message");
                assert_eq!(bytes_of(&message), vec![round; length]);
            }
            assert!(reader.take(now()).is_none());
            assert!(is_readable(&writer), "round {round}");
        }
        assert!(!writer.is_closed());
        drop(reader);
        assert!(writer.is_closed() && is_readable(&writer));
    });
}

/// The same in the other direction: the bell shows whether there is a message.
#[test]
fn an_incoming_ring_carries_every_byte_and_shows_what_waits() {
    inboxes(3, 70, |mut writer, mut reader| {
        let mut number = 0;
        for round in 0..10_u8 {
            assert!(reader.take(|_, _| ()).is_none() && !is_readable(&reader), "round {round}");
            let lengths = [usize::from(round) * 7, 70, 1];
            for length in lengths {
                assert!(deliver(&mut writer, number, &vec![round; length]));
                number += 1;
            }
            assert!(!deliver(&mut writer, number, b"x"), "it is full");
            for (length, expected) in lengths.into_iter().zip(number - 3..) {
                assert!(is_readable(&reader), "round {round}");
                let message = reader.take(|bytes, info| (info.number, bytes.to_vec()));
                assert_eq!(message, Some((expected, vec![round; length])));
            }
        }
        drop(writer);
        assert!(reader.is_closed() && is_readable(&reader));
    });
}

/// A thread that waits at either end is woken, also by what closes the end.
#[test]
fn threads_of_the_process_wait_at_both_ends() {
    outboxes(1, 8, |mut reader, mut writer| {
        writer.push(&[IoSlice::new(b"first")]).expect("room");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| writer.wait_room(soon()));
            drop(reader.take(now()).expect("a message"));
            assert!(waiting.join().expect("no panic").expect("poll"));
        });
        writer.closer().close();
        assert!(writer.is_closed());
    });
    inboxes(1, 8, |mut writer, reader| {
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| reader.wait(soon()));
            assert!(deliver(&mut writer, 0, b"first"));
            assert!(waiting.join().expect("no panic").expect("poll"));
        });
        reader.closer().close();
        assert!(reader.is_closed());
    });
}

//! The order in which messages leave an outbox, and how many leave it ahead of their time.

use super::*;

/// Messages of a kind leave in the order in which they were queued, and so do those that go first.
#[test]
fn messages_of_a_kind_keep_their_order() {
    let late = |number: u32| crate::api::LateArrivals {
        late: crate::breach::Lateness::default(),
        received: punctual_analysis::BitRate(number.into()),
        span: Nanos(1),
    };
    type Make = fn(u32) -> Message;
    let kinds: [Make; 2] = [|number| Message::Confirm { path: path(number) }, |number| refresh(&[number])];
    for (kind, message) in kinds.into_iter().enumerate() {
        let mut outbox = Outbox::default();
        let messages: Vec<_> = (1..20).map(message).collect();
        messages.iter().for_each(|message| outbox.queue_message(message).expect("it encodes"));
        let left: Vec<_> =
            core::iter::from_fn(|| outbox.next()).map(|bytes| Message::decode(&bytes)).collect();
        assert!(left.iter().flatten().eq(&messages), "kind {kind}");
    }
    // What goes first is one queue.
    let mut outbox = Outbox::default();
    let mixed =
        [refresh(&[1]), Message::LateArrivals(late(2)), refresh(&[3]), Message::LateArrivals(late(4))];
    outbox.queue_message(&Message::Confirm { path: path(9) }).expect("it encodes");
    mixed.iter().for_each(|message| outbox.queue_message(message).expect("it encodes"));
    let left: Vec<_> = core::iter::from_fn(|| outbox.next()).map(|bytes| Message::decode(&bytes)).collect();
    assert!(left[..4].iter().flatten().eq(&mixed) && left.len() == 5);
}

/// Requests that give way to others are refused in the order in which they gave way, and behind them those
/// that wait for too long.
#[test]
fn requests_are_refused_in_the_order_in_which_they_gave_way() {
    let mut outbox = Outbox::default();
    let asks = ASKS_WAITING_MAX as u32;
    (1..=asks).for_each(|number| {
        outbox.ask(source(1), &create(number, 1, false), Instant(5)).expect("it encodes");
    });
    (0..3).for_each(|_| outbox.ask(source(2), &request(2), Instant(6)).expect("it encodes"));
    outbox.handle_timeout(Instant(0), Instant(5) + ASK_WAIT_MAX - Nanos(1));
    assert_eq!(outbox.waiting(), [asks as usize + 3, 0]);
    outbox.handle_timeout(Instant(0), Instant(5) + ASK_WAIT_MAX);
    let refused = core::iter::from_fn(|| outbox.poll_late()).map(|message| match message {
        Message::Create(create) => create.path.channel.0,
        other => panic!("{other:?}"),
    });
    // The last ones of the user with the most give way; the others are over in the order of their age.
    let expected = [asks, asks - 1, asks - 2].into_iter().chain(1..=asks - 3);
    assert!(refused.eq(expected));
    assert_eq!(outbox.waiting(), [3, 0], "those of the other user have another nanosecond");
}

/// Two packets' worth are unsent in the stream at most: the next message is moved there when the first of
/// them is sent.
#[test]
fn the_stream_is_filled_two_packets_ahead() {
    // A message and its length fill a segment.
    let bytes = Message::Confirm { path: path(1_000) }.encode().expect("it encodes").len() + 2;
    let mut line = Session::new(bytes);
    (1_000..1_010).for_each(|number| line.queue_message(&Message::Confirm { path: path(number) }));
    for sent in 0..8 {
        assert_eq!(line.send.unsent(), SIGNAL_AHEAD_SEGMENTS);
        assert_eq!(line.outbox.standing.len(), 8 - sent);
        assert!(line.step());
    }
}

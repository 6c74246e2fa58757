//! A neighbour that is given up: its state is dropped, and its earlier packets prove nothing.

use super::*;

/// The next packet of an end of the link.
fn packet_of(two: &mut Two, end: usize, now: Instant) -> Option<Vec<u8>> {
    let mut out = [0; 2_000];
    let (len, _) = two.ends[end].poll_packet(&two.key, now, now, &mut out)?;
    Some(out[..len].to_vec())
}

fn hello_in(two: &Two, bytes: &[u8]) -> Hello {
    match two.key.open(bytes).expect("an authentic packet").body {
        Body::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

/// Breaks the stream to end 0, while the neighbour is up.
fn break_stream(two: &mut Two) {
    two.segment_of_1(&[0xff, 0xff]);
    assert!(two.ends[0].broken);
}

/// Drops all packets until end 0 gives the neighbour up.
fn stop_answering(two: &mut Two) {
    two.deaf = [true; 2];
    while two.alive()[0] {
        two.run(1);
    }
}

/// The neighbour gets a HELLO at once, in a new life of ours, and none of its messages is answered.
#[test]
fn a_neighbour_whose_words_make_no_sense_is_greeted_at_once_in_a_new_life() {
    let mut two = Two::met();
    let sessions = |two: &Two| two.ends[0].life.session;
    for times in 1..4 {
        let now = two.now;
        // It has just sent a HELLO, and has no reply yet.
        two.ends[1].hellos.due = Some(HelloStep::First);
        let greeting = packet_of(&mut two, 1, now).expect("it greets");
        two.deliver(0, &greeting);
        break_stream(&mut two);
        assert_eq!(two.ends[0].handle_timeout(false, now), Some(Change::Lost { restarted: false }));
        assert_eq!(sessions(&two), times);
        let bytes = packet_of(&mut two, 0, now).expect("it is said at once");
        assert_eq!(two.key.open(&bytes).expect("authentic").life.session, times);
        let hello = hello_in(&two, &bytes);
        assert_eq!((hello.step, hello.echo), (HelloStep::First, None));
        assert_eq!(packet_of(&mut two, 0, now), None, "nothing of it is acknowledged");
        two.run(3_000);
        assert_eq!(two.alive(), [true; 2], "they meet again");
    }
}

/// A reply to a HELLO of the previous life begins nothing: any attacker on the link can replay it.
#[test]
fn an_old_answer_restores_no_neighbour() {
    let mut two = Two::met();
    let now = two.now;
    two.ends[0].hellos.due = Some(HelloStep::First);
    let greeting = packet_of(&mut two, 0, now).expect("we greet");
    two.deliver(1, &greeting);
    let answer = packet_of(&mut two, 1, now).expect("it answers");
    let nonce = hello_in(&two, &greeting).nonce;
    assert_eq!(hello_in(&two, &answer).echo.map(|echo| echo.nonce), Some(nonce));
    break_stream(&mut two);
    two.ends[0].handle_timeout(false, now);
    assert_eq!(two.ends[0].presence(), Presence::Awaited);
    two.deliver(0, &answer);
    assert_eq!(two.ends[0].presence(), Presence::Awaited, "of that life it proves nothing");
}

/// Its clock may have been stepped meanwhile: the offset is unknown until they meet again.
#[test]
fn the_clock_of_a_neighbour_is_removed_with_it() {
    let mut two = Two::met();
    assert!(two.ends[0].clock().offset(two.now).is_some());
    stop_answering(&mut two);
    assert_eq!(two.ends[0].clock().offset(two.now), None);
    two.deaf = [false; 2];
    two.run(3_000);
    assert!(two.ends[0].clock().offset(two.now).is_some());
}

/// A neighbour whose clock was set back is judged from its next HELLO on, not from when it is as late as
/// before.
#[test]
fn a_neighbour_whose_clock_was_set_back_is_judged_at_once() {
    let mut two = Two::met();
    let back = Nanos::from_secs(600);
    let theirs = |at: Instant| Instant(at.0 - back.0);
    two.now = two.now + back;
    two.run(10_000);
    stop_answering(&mut two);
    let config = NodeConfig { epoch: Epoch(2), ..config(2) };
    two.ends[1] = Peer::new(&config, &config.links[0], 9, theirs(two.now));
    two.ends[1].travel.ours_max = Nanos::ZERO;
    let late = Nanos::from_millis(300);
    for round in 0..20 {
        two.now = two.now + two.ends[0].hellos.interval * 2;
        let now = two.now;
        two.ends.iter_mut().zip([now, theirs(now)]).for_each(|(end, at)| {
            end.handle_timeout(false, at);
        });
        // The neighbour's packets come late from some time on.
        let lag = if round < 10 { Nanos::ZERO } else { late };
        for _ in 0..3 {
            let bytes = packet_of(&mut two, 0, now);
            bytes.into_iter().for_each(|bytes| {
                let packet = two.key.open(&bytes).expect("authentic");
                two.ends[1].handle(&packet, theirs(now), theirs(now)).ok();
            });
            let bytes = packet_of(&mut two, 1, theirs(now));
            bytes.into_iter().for_each(|bytes| {
                let packet = two.key.open(&bytes).expect("authentic");
                two.ends[0].handle(&packet, now + lag, now + lag).ok();
            });
        }
        let seen = two.ends[0].watch().total().times;
        assert_eq!(seen > 0, round >= 10, "round {round}: {seen} were late");
    }
    assert!(two.alive()[0]);
}

/// A neighbour that uses another version is reported as such for the time limit of silence, if its packets
/// were received so recently.
#[test]
fn a_neighbour_with_a_new_version_differs_from_a_lost_one() {
    for (before, expected) in [(1, Presence::Foreign(9)), (0, Presence::Dead)] {
        let mut two = Two::met();
        let end = &mut two.ends[0];
        let (received, silence) = (end.last_received, end.silence());
        // A packet in our version was received, and one in another version then or a nanosecond later.
        assert_eq!(end.handle_foreign(9, received + Nanos(before)), None);
        let given_up = received + silence;
        assert_eq!(end.handle_timeout(false, given_up - Nanos(1)), None);
        assert_eq!(end.handle_timeout(false, given_up), Some(Change::Lost { restarted: false }));
        assert_eq!(end.presence(), expected, "heard {before} ns behind");
        end.handle_timeout(false, given_up + silence - Nanos(1));
        assert_eq!(end.presence(), expected, "it may be silent for so long");
        end.handle_timeout(false, given_up + silence);
        assert_eq!(end.presence(), Presence::Dead);
    }
}

/// A neighbour that does not know yet that it was given up acknowledges segments of the life before. This acknowledges
/// nothing in the new life, even if the numbers are the same.
#[test]
fn what_is_acknowledged_of_a_former_life_is_sent_again_in_the_present_one() {
    let mut two = Two::met();
    two.ends[0].queue_message(&confirm(1));
    two.run(10);
    assert_eq!(two.received_messages[1], [confirm(1)]);
    break_stream(&mut two);
    let now = two.now;
    assert_eq!(two.ends[0].handle_timeout(false, now), Some(Change::Lost { restarted: false }));
    let greeting = packet_of(&mut two, 0, now).expect("it is greeted");
    two.deliver(1, &greeting);
    two.ends[1].queue_message(&confirm(9));
    let sent: Vec<_> = core::iter::from_fn(|| packet_of(&mut two, 1, now)).collect();
    let (answers, others): (Vec<_>, Vec<_>) = sent
        .into_iter()
        .partition(|bytes| matches!(two.key.open(bytes).expect("an authentic packet").body, Body::Hello(_)));
    assert_eq!((answers.len(), others.len()), (1, 1));
    two.deliver(0, &answers[0]);
    assert!(two.alive()[0], "they meet again");
    // Its first segment is lost. A packet that the neighbour sent before comes late.
    two.ends[0].queue_message(&confirm(2));
    while packet_of(&mut two, 0, now).is_some() {}
    two.deliver(0, &others[0]);
    two.run(3_000);
    assert_eq!(two.received_messages[1], [confirm(1), confirm(2)]);
}

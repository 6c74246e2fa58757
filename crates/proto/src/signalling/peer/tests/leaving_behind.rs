//! What is over leaves nothing behind: the counts of a neighbour's former life, and a doubt about its clock.

use super::*;

/// A host that starts again may have an earlier clock than before: what it reports then replaces what it has reported.
#[test]
fn what_a_neighbour_has_received_is_that_of_its_present_life() {
    for ahead_before in [Nanos::ZERO, Nanos::from_secs(3_600)] {
        let mut two = Two::new();
        two.ahead[1] = ahead_before;
        two.run(2_000);
        two.ends[1].set_received(9_000);
        two.run(3_000);
        let reported = |two: &Two| two.ends[0].their_received();
        assert_eq!(reported(&two).map(|(bytes, _)| bytes), Some(9_000));
        two.ahead[1] = Nanos::ZERO;
        let config = NodeConfig { epoch: Epoch(2), ..config(2) };
        two.ends[1] = Peer::new(&config, &config.links[0], 7, two.clock(1));
        two.run(3_000);
        two.ends[1].set_received(100);
        two.run(3_000);
        assert_eq!((two.alive(), two.ends[0].lives()), ([true; 2], 2));
        let (bytes, at) = reported(&two).expect("it says so with each HELLO");
        assert!(bytes == 100 && at <= two.clock(1), "{ahead_before}: {bytes} B at {at:?}");
    }
}

/// Single stamps contradict what is known of a clock, each long after the one before: the ordinary stamps between them show
/// that nothing has happened to the clock, even if they are worse than those that are known.
#[test]
fn single_stamps_that_contradict_the_others_do_not_add_up() {
    for lower in [true, false] {
        let mut clock = ClockFilter::new(Nanos::ZERO, Ppm(200));
        let at = |number: u64| Instant((1_000 + 10 * number) * MILLI);
        let quick = Nanos::from_micros(100);
        clock.note_offset(at(0), at(0) + quick);
        clock.echoed(at(0), at(0) + quick);
        let known = clock.offset(at(0)).expect("both directions");
        for number in 1..20 {
            let now = at(number);
            match lower {
                true => clock.note_offset(now + Nanos(5 * MILLI), now),
                false => clock.echoed(now, now - Nanos(5 * MILLI)),
            }
            assert!(clock.is_doubted(), "{lower} {number}");
            // Two that waited in a queue for a while.
            clock.note_offset(now - Nanos(MILLI), now);
            clock.echoed(now, now + Nanos(MILLI));
            assert!(!clock.is_doubted(), "{lower} {number}");
        }
        let still = clock.offset(at(20)).expect("both directions");
        assert_eq!(clock.breaks(), 0, "{lower}");
        assert!(still.error < known.error + Nanos::from_micros(100), "{known:?} {still:?}");
    }
}

/// A host that starts again with an earlier clock: by the times of its former life each of its HELLOs would be an old one,
/// which proves nothing. One that waits on its way is late all the same.
#[test]
fn a_neighbour_that_starts_with_an_earlier_clock_can_be_late_at_once() {
    for ahead_before in [Nanos::ZERO, Nanos::from_secs(3_600)] {
        let mut two = Two::new();
        two.ahead[1] = ahead_before;
        two.run(3_000);
        two.ahead[1] = Nanos::ZERO;
        let config = NodeConfig { epoch: Epoch(2), ..config(2) };
        two.ends[1] = Peer::new(&config, &config.links[0], 7, two.clock(1));
        two.run(3_000);
        assert_eq!((two.alive(), two.ends[0].lives()), ([true; 2], 2));
        let (now, mut out) = (two.clock(1), [0; 2_000]);
        two.ends[1].hellos.due = Some(HelloStep::First);
        let (len, _) = two.ends[1].poll_packet(&two.key, now, now, &mut out).expect("a HELLO");
        two.now = two.now + Nanos(200 * MILLI);
        assert_eq!(two.ends[0].travel.watch.total().times, 0, "{ahead_before}");
        two.deliver(0, &out[..len]);
        assert_eq!(two.ends[0].travel.watch.total().times, 1, "{ahead_before}");
    }
}

/// A host that starts again within a HELLO's interval, with another clock: nothing of its former clock
/// counts, so its present one contradicts nothing.
#[test]
fn the_clock_of_a_former_life_contradicts_nothing() {
    for (before, after) in [(3_600, 0), (0, 3_600)] {
        let mut two = Two::new();
        two.ahead[1] = Nanos::from_secs(before);
        two.run(3_000);
        two.ahead[1] = Nanos::from_secs(after);
        let config = NodeConfig { epoch: Epoch(2), ..config(2) };
        two.ends[1] = Peer::new(&config, &config.links[0], 7, two.clock(1));
        two.run(3_000);
        assert_eq!((two.alive(), two.ends[0].lives()), ([true; 2], 2));
        let clock = two.ends[0].clock();
        assert_eq!((clock.breaks(), clock.is_doubted()), (0, false), "{before} s, then {after} s");
        let offset = clock.offset(two.now).expect("they talk");
        let truth = two.clock(1).minus(two.clock(0));
        assert!(offset.offset_ns.abs_diff(truth) <= offset.error.0, "{offset:?}");
    }
}

/// Messages that wait for a neighbour which turns out to use another version are dropped: it cannot read
/// them.
#[test]
fn messages_to_a_neighbour_of_another_version_are_dropped() {
    let config = config(1);
    let mut peer = Peer::new(&config, &config.links[0], 7, Instant(1));
    (1..400).for_each(|number| peer.queue_message(&confirm(number)));
    assert!(!peer.outbox.is_empty() && !peer.send.is_empty());
    assert_eq!(peer.handle_foreign(9, Instant(2)), Some(Change::Lost { restarted: false }));
    assert!(peer.outbox.is_empty() && peer.send.is_empty() && !peer.is_reachable());
    assert_eq!((peer.foreign_version(), peer.last_received), (Some(9), Instant(2)));
}

/// A nonce proves once that a HELLO is fresh, and those before it no more: only later ones may still be
/// echoed.
#[test]
fn a_nonce_is_echoed_once() {
    let mut two = Two::met();
    let sent = |number: u64| Instant(number);
    for echoed in 0..4_u64 {
        two.ends[0].hellos.nonces = (0..4).map(|number| (100 + number, sent(number))).collect();
        let mut hello = |nonce| {
            two.now = two.now + Nanos(MILLI);
            let hello = Hello {
                step: HelloStep::Third,
                nonce: 1,
                sent: two.now,
                echo: Some(Echo { nonce, received: two.now }),
                tolerance: Ppm(100),
                departure: Nanos::ZERO,
                travel_max: Nanos(7 + nonce),
                received_bytes: 0,
            };
            let packet = two.ends[1].packet(Body::Hello(hello));
            two.ends[1].after_packet();
            two.ends[0].handle(&packet, two.now, two.now).expect("of the known life");
            assert_eq!(two.ends[0].travel_max(), Nanos(7 + nonce), "as its last HELLO states it");
            two.ends[0].hellos.nonces.iter().map(|(nonce, _)| *nonce).collect::<Vec<_>>()
        };
        let later: Vec<_> = (100 + echoed + 1..104).collect();
        assert_eq!(hello(100 + echoed), later);
        assert_eq!(hello(100 + echoed), later, "again, it is no echo");
    }
}

/// The time for which requests wait begins when the neighbour is met, each time anew.
#[test]
fn the_wait_of_requests_begins_when_the_neighbour_is_met() {
    let mut two = Two::new();
    two.deaf = [true; 2];
    two.run(4_000);
    two.deaf = [false; 2];
    while !two.alive()[0] {
        two.run(1);
    }
    assert_eq!(two.ends[0].met.at, two.now);
    two.run(2_000);
    let config = NodeConfig { epoch: Epoch(2), ..config(2) };
    two.ends[1] = Peer::new(&config, &config.links[0], 7, two.now);
    while two.ends[0].lives() == 1 {
        two.run(1);
    }
    assert_eq!((two.ends[0].met.at, two.ends[0].lives()), (two.now, 2));
}

//! When HELLOs are sent and answered, and which of them are late: each time to the nanosecond.

use super::*;

/// `times` times between the events of an end, of which the next is due at `at`. Nothing happens before, and
/// a neighbour is never silent for too long.
fn gaps(
    end: &mut Peer,
    times: usize,
    probes: bool,
    step: HelloStep,
    at: impl Fn(&Peer) -> Instant,
) -> Vec<Nanos> {
    let gap = |_| {
        let due = at(end);
        end.last_received = due;
        end.hellos.due = None;
        assert_eq!((end.handle_timeout(probes, due - Nanos(1)), end.hellos.due), (None, None));
        assert_eq!((end.handle_timeout(probes, due), end.hellos.due), (None, Some(step)));
        at(end).since(due)
    };
    (0..times).map(gap).collect()
}

/// Times that are spread evenly from `least` to less than `most`: none is outside, and some are within a
/// sixteenth of each end.
fn are_spread(times: &[Nanos], least: Nanos, most: Nanos) {
    let (first, last) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
    let edge = (most - least) / 16;
    assert!(*first >= least && *last < most, "{first} to {last}: not within {least} to {most}");
    assert!(*first < least + edge && *last >= most - edge, "{first} to {last}: not all of {least} to {most}");
}

/// An end that has met nobody.
fn one() -> Peer {
    let config = config(1);
    Peer::new(&config, &config.links[0], 1, Instant(1_000 * MILLI))
}

/// A HELLO goes out every interval, and up to an eighth of it later, so that ends do not stay in step. One
/// that nobody has answered yet goes out four times as often.
#[test]
fn hellos_are_sent_at_random_times_in_an_eighth_behind_the_interval() {
    let interval = Two::new().ends[0].hellos.interval;
    for (presence, interval) in
        [(Presence::Awaited, interval / 4), (Presence::Alive, interval), (Presence::Dead, interval)]
    {
        let mut end = one();
        end.presence = presence;
        let times = gaps(&mut end, 300, false, HelloStep::First, |end| end.hellos.at);
        are_spread(&times, interval, interval + interval / 8);
    }
    // Its packets may still come while it is awaited again.
    let mut two = Two::met();
    two.ends[0].presence = Presence::Awaited;
    let times = gaps(&mut two.ends[0], 300, false, HelloStep::First, |end| end.hellos.at);
    are_spread(&times, interval, interval + interval / 8);
}

/// The end that is greeted greets later than the other one, so that one exchange an interval is enough for
/// both.
#[test]
fn the_end_that_was_greeted_greets_an_eighth_later() {
    let mut two = Two::met();
    let interval = two.ends[0].hellos.interval;
    let mut times = Vec::new();
    for _ in 0..300 {
        two.now = two.now + Nanos(MILLI);
        let (now, mut out) = (two.now, [0; 2_000]);
        two.ends[1].hellos.due = Some(HelloStep::First);
        let (len, _) = two.ends[1].poll_packet(&two.key, now, now, &mut out).expect("it greets");
        two.deliver(0, &out[..len]);
        assert_eq!(two.ends[0].hellos.due, Some(HelloStep::Second));
        times.push(two.ends[0].hellos.at.since(now));
    }
    are_spread(&times, interval + interval / 8, interval + interval / 4);
}

/// While channels use the link, a probe goes out every probe interval on average: up to an eighth of it
/// earlier or later.
#[test]
fn probes_are_sent_at_random_times_around_their_interval() {
    let mut two = Two::met();
    let end = &mut two.ends[0];
    end.hellos.at = Instant(u64::MAX);
    let interval = end.hellos.probe_interval;
    let times = gaps(end, 300, true, HelloStep::Third, |end| end.hellos.probe_at);
    are_spread(&times, interval - interval / 8, interval + interval / 8);
    // Not without channels, and not to a neighbour that is not up. A HELLO that is due anyway serves as a
    // probe.
    let at = end.hellos.probe_at;
    end.last_received = at;
    end.hellos.due = None;
    end.handle_timeout(false, at);
    assert_eq!((end.hellos.due, end.poll_timeout(true)), (None, at));
    assert_eq!(end.poll_timeout(false), end.silence_ends());
    end.hellos.due = Some(HelloStep::First);
    end.handle_timeout(true, at);
    assert_eq!(end.hellos.due, Some(HelloStep::First));
    for presence in [Presence::Awaited, Presence::Dead, Presence::Foreign(9)] {
        let at = end.hellos.probe_at;
        (end.presence, end.last_received, end.hellos.due) = (presence, at, None);
        end.handle_timeout(true, at);
        assert_eq!((end.hellos.due, end.hellos.probe_at), (None, at), "{presence:?}");
    }
}

/// A neighbour is down when four of its HELLOs are missing and the next one is due, too.
#[test]
fn a_neighbour_is_down_once_its_fifth_hello_does_not_come() {
    assert_eq!(HELLOS_MISSED_MAX, 4);
    for heard in [0, 77 * MILLI] {
        let mut end = one();
        end.last_received = end.last_received + Nanos(heard);
        let down = end.last_received + end.hellos.interval * 5;
        end.hellos.at = Instant(u64::MAX);
        assert_eq!(end.poll_timeout(false), down);
        assert_eq!(end.handle_timeout(false, down - Nanos(1)), None);
        assert_eq!(end.handle_timeout(false, down), Some(Change::Lost { restarted: false }));
        assert_eq!((end.presence(), end.hellos.due), (Presence::Dead, Some(HelloStep::First)));
        assert_eq!(end.poll_timeout(false), Instant(u64::MAX), "the dead are waited for without end");
    }
}

/// A segment that was sent again as often as allowed, without any word since it was sent first, gives the
/// neighbour up. A word at that very time shows that it was there.
#[test]
fn a_neighbour_that_acknowledges_nothing_is_given_up_if_nothing_was_heard_since() {
    for heard in [false, true] {
        let mut two = Two::met();
        two.deaf = [true; 2];
        two.ends[0].queue_message(&confirm(1));
        two.now = two.now + Nanos(MILLI);
        let first = two.now;
        two.exchange();
        two.ends[0].hellos.interval = Nanos::from_secs(1_000);
        two.ends[0].last_received = if heard { first } else { first - Nanos(1) };
        let mut changed = None;
        // 100 ms, then twice as long each time: the sixth repetition is unacknowledged after 12.7 s.
        while changed.is_none() && two.now < first + Nanos::from_secs(20) {
            two.now = two.now + Nanos(MILLI);
            changed = two.ends[0].handle_timeout(false, two.now);
            two.exchange();
        }
        assert_eq!(changed.is_none(), heard);
        let back_off = SignallingConfig::default().retransmit * (1 + 2 + 4 + 8 + 16 + 32 + 32);
        assert!(heard || two.now == first + back_off, "{}", two.now.since(first));
    }
}

/// HELLOs of a life that is not known may be recordings: a sixteenth of an interval after the last answer the
/// next one is answered, and not a nanosecond sooner. Only the first step of an exchange is.
#[test]
fn strangers_are_answered_sixteen_times_an_interval() {
    let mut two = Two::met();
    let gap = two.ends[0].hellos.interval / 16;
    let begin = two.now;
    let mut greet = |step, nonce, at: Nanos| {
        let hello = Hello { step, nonce, ..a_hello(begin) };
        let life = Life { epoch: Epoch(9), session: 0 };
        let packet = Packet { life, ..two.ends[1].packet(Body::Hello(hello)) };
        let end = &mut two.ends[0];
        (end.hellos.due, end.hellos.echo) = (None, None);
        let handled = end.handle(&packet, begin + at, begin + at);
        let echo = end.hellos.echo.map(|echo| (echo.nonce, echo.received));
        match handled {
            Ok(change) => {
                assert_eq!((change, end.hellos.due), (None, Some(HelloStep::Second)));
                assert_eq!(echo, Some((nonce, begin + at)));
            }
            Err(why) => assert_eq!((why, end.hellos.due, echo), (Ignored::Replayed, None, None)),
        }
        handled.is_ok()
    };
    for late in [HelloStep::Second, HelloStep::Third] {
        assert!(!greet(late, 1, Nanos::ZERO), "{late:?}: a late reply");
    }
    assert!(greet(HelloStep::First, 2, Nanos::ZERO));
    for (at, answered) in [
        (Nanos::ZERO, false),
        (gap - Nanos(1), false),
        (gap, true),
        (gap + Nanos(1), false),
        (gap + gap - Nanos(1), false),
        (gap + gap + Nanos(1), true),
        (gap * 3, false),
        (gap * 3 + Nanos(1), true),
    ] {
        assert_eq!(greet(HelloStep::First, 3, at), answered, "{at}");
    }
}

fn a_hello(sent: Instant) -> Hello {
    Hello {
        step: HelloStep::Third,
        nonce: 1,
        sent,
        echo: None,
        tolerance: Ppm(100),
        departure: Nanos::ZERO,
        travel_max: Nanos::ZERO,
        received_bytes: 0,
    }
}

/// Hands `hello` of end 1 to end 0 at `received`; returns how often a HELLO was late so far, and by how much
/// at most.
fn hand(two: &mut Two, hello: Hello, received: Instant) -> (u64, Nanos) {
    let packet = two.ends[1].packet(Body::Hello(hello));
    two.ends[1].after_packet();
    two.ends[0].handle(&packet, received, received).expect("of the known life");
    let total = two.ends[0].watch().total();
    (total.times, total.by_max)
}

/// A HELLO may take until its departure, then as long as its sender says that it travels, then as long as the
/// clocks may be wrong. A nanosecond more is late.
#[test]
fn a_hello_is_late_from_the_first_nanosecond_on() {
    let (departure, travel_max) = (Nanos::from_micros(700), Nanos::from_micros(1_300));
    for beyond in [0, 1, 5_000] {
        for excused in [false, true] {
            let mut two = Two::met();
            let hello = Hello { departure, travel_max, ..a_hello(two.now) };
            let clock = two.ends[0].clock().clone();
            // The clock's error grows while the HELLO is under way.
            let due = |received: Instant| {
                let offset = clock.offset(received).expect("they have met");
                offset.to_ours(hello.sent) + departure + travel_max + offset.error
            };
            let settled = (0..20).fold(two.now, |received, _| due(received));
            assert_eq!(due(settled), settled);
            let received = settled + Nanos(beyond);
            let late = received.since(due(received));
            two.ends[0].excuse(excused);
            let is_late = late > Nanos::ZERO && !excused;
            assert_eq!((late > Nanos::ZERO, late.0 <= beyond), (beyond > 0, true), "{beyond}");
            let expected = if is_late { (1, late) } else { (0, Nanos::ZERO) };
            assert_eq!(hand(&mut two, hello, received), expected, "{beyond} {excused}");
        }
    }
}

/// A HELLO that was sent no later than one that has come is no evidence: it may be a recording. The newest
/// one also says what its sender has received.
#[test]
fn only_the_newest_hello_counts() {
    let mut two = Two::met();
    let sent = two.now;
    let late = sent + Nanos::from_secs(1);
    let of = |sent, received_bytes| Hello { received_bytes, ..a_hello(sent) };
    assert_eq!(hand(&mut two, of(sent, 10), late).0, 1);
    for (sent, received_bytes, times, known) in [
        (sent, 11, 1, 10),
        (sent - Nanos(1), 12, 1, 10),
        (sent + Nanos(1), 13, 2, 13),
        (sent, 14, 2, 13),
        (sent + Nanos(2), 15, 3, 15),
    ] {
        assert_eq!(hand(&mut two, of(sent, received_bytes), late).0, times, "{received_bytes}");
        assert_eq!(two.ends[0].their_received().map(|(bytes, _)| bytes), Some(known));
    }
}

/// A HELLO that was late counts for its time, however many others come in time behind it.
#[test]
fn a_late_hello_is_not_forgotten_with_the_next_one() {
    let mut two = Two::met();
    let sent = two.now;
    let late = sent + Nanos::from_secs(1);
    assert_eq!(hand(&mut two, a_hello(sent), late).0, 1);
    for number in 1..4 {
        let now = late + Nanos(number * MILLI);
        assert_eq!(hand(&mut two, a_hello(now), now).0, 1, "it is in time");
        assert_eq!(two.ends[0].watch().recent(now).times, 1);
    }
}

/// Two clocks may drift apart by the sum of their tolerances, that of the neighbour as its last HELLO states
/// it.
#[test]
fn tolerances_of_both_clocks_add_up() {
    let mut two = Two::met();
    let ours = config(1).clock_tolerance.0;
    for (number, theirs) in (1..).zip([0, 30, 100, 1_900, u32::MAX]) {
        let now = two.now + Nanos(number * MILLI);
        hand(&mut two, Hello { tolerance: Ppm(theirs), ..a_hello(now) }, now);
        let drift = two.ends[0].clock().offset(now).expect("they have met").drift;
        assert_eq!(drift, Ppm(ours.saturating_add(theirs)));
    }
}

/// A neighbour that nobody has met has no history, and its first packet says so.
#[test]
fn a_new_neighbour_has_no_history() {
    let mut end = one();
    let link = LinkConfig::new("link", NodeId(2), BitRate(1));
    assert_eq!((end.lives(), end.packets_foreign(), end.their_received()), (0, 0, None));
    assert_eq!((end.watch().total().times, end.answers_dropped(), end.travel_max()), (0, 0, Nanos::MAX));
    let (now, key, mut out) = (Instant(1_000 * MILLI), Key::new(&KEY), [0; 2_000]);
    assert_eq!(end.handle_timeout(false, now), None);
    let (len, again) = end.poll_packet(&key, now, now + Nanos(77), &mut out).expect("it greets");
    let packet = key.open(&out[..len]).expect("an authentic packet");
    let Body::Hello(hello) = packet.body else { panic!("{packet:?}") };
    assert_eq!(
        (packet.number, packet.life, packet.peer_life),
        (0, Life { epoch: Epoch(1), session: 0 }, None)
    );
    assert_eq!((packet.from, packet.to, again), (NodeId(1), NodeId(2), false));
    assert_eq!((hello.received_bytes, hello.echo, hello.step), (0, None, HelloStep::First));
    assert_eq!((hello.sent, hello.departure, hello.tolerance), (now, Nanos(77), Ppm(100)));
    assert_eq!(hello.travel_max, link.propagation_max + link.prediction_error, "to the other driver");
    for number in 1..4 {
        end.hellos.due = Some(HelloStep::First);
        let (len, _) = end.poll_packet(&key, now, now, &mut out).expect("it greets");
        assert_eq!(key.open(&out[..len]).expect("an authentic packet").number, number);
    }
    for foreign in 1..4 {
        end.handle_foreign(9, now);
        assert_eq!(end.packets_foreign(), foreign);
    }
    assert_eq!(Two::met().ends.map(|end| end.lives()), [1, 1]);
}

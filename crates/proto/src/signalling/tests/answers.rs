//! What a request is answered with: bounds and times to the nanosecond, reasons to the character, the host
//! that refuses.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::message::{Create, Message};
use super::lies::{create, route};
use super::*;

/// The receiver's ring holds the messages that the stage before the sink may let come together, if each host
/// holds them until their arrival.
#[test]
fn a_ring_behind_hosts_that_hold_messages_counts_with_the_stage_before_it() {
    // Intervals around what the link before the sink takes, 1 ms: those of its processor, 0.1 ms, would need
    // fewer places.
    for per_second in [600, 1_000, 1_700, 3_100] {
        let mut row = Row::met(3);
        row.hosts[2].consents = false;
        let rate = Rate::per_second(per_second).expect("a rate");
        let horizon = punctual_analysis::Horizon::Regulated;
        let contract = Contract { horizon, ..Contract::new(1_000, rate, 3, MILLI * 50).expect("valid") };
        row.ask(OpenRequest { contract, ..row.request() });
        let Some(Event::Incoming(incoming)) = row.hosts[2].events.last() else { panic!("it is asked") };
        let channel = row.hosts[2].signalling.channels.get(incoming.channel).expect("it asks");
        let setup = channel.setup.as_ref().expect("it is being set up");
        let stages = &setup.all_stages;
        assert_eq!((stages.len(), stages[3].kind, stages[3].bound), (5, StageKind::Link, MILLI));
        let interval = contract.policed_interval();
        let behind = (MILLI + stages[4].bound).div_ceil(interval);
        // J: its fixed part, and what clocks drift apart over all bounds before.
        let before = contract.deadline - stages[4].bound;
        let error = setup.arrival_error_fixed + Ppm(200).of(before);
        let messages = behind + error.div_ceil(interval) + 1;
        assert_eq!(u64::from(incoming.inbox_messages), messages, "{per_second}");
    }
}

/// A reason may be 50 characters long, whatever they are; the rest is left out.
#[test]
fn a_reason_for_a_refused_request_is_cut_between_characters() {
    for (chars, arrive) in [(49, 49), (50, 50), (51, 50), (500, 50)] {
        let mut row = Row::met(2);
        let source = Address { port: name("in"), host: name("h1") };
        let asked = row.at(1, |s, now, _| s.request(&source, name("in"), contract(), UserId(3), now));
        asked.expect("can be tried");
        let Some(Event::Requested { token, .. }) = row.hosts[0].events.last() else { panic!("it is asked") };
        let (token, why) = (*token, "\u{1f3a5}".repeat(chars));
        row.at(0, |signalling, now, _| signalling.refuse_request(token, &why, now)).expect("it waits");
        let Some(Event::RequestFailed { refusal, .. }) = row.hosts[1].events.last() else {
            panic!("{chars}")
        };
        let RefuseCause::Receiver(reason) = &refusal.cause else { panic!("{refusal:?}") };
        assert_eq!(reason.as_str(), "\u{1f3a5}".repeat(arrive), "{chars}");
    }
}

/// A refusal for lack of time says how much the route needs up to here: propagation of each link, and bounds
/// with their drift.
#[test]
fn a_refusal_says_how_much_time_is_missing() {
    // Packets travel for 200 us, a link may take 1 ms, a processor 0.1 ms; clocks drift by 200 ppm: 220 ns in
    // 1.1 ms. The stages of these hosts count no travel of theirs.
    let (travel, stages) = (200_000, 1_100_000 + 220);
    for (wanted, node, possible) in [
        // Not even the way to the second host.
        (100_000, 1, travel),
        // Not all stages of the first host.
        (1_000_000, 1, travel + stages),
        (travel + stages, 1, travel + stages),
        // A nanosecond is kept for rounding.
        (travel + stages + 1, 1, travel + stages),
        // Not even the way to the third host, again but for that nanosecond.
        (travel + stages + 2, 2, stages + travel),
        // Not all stages of the second host.
        (travel + stages + 3, 2, stages + travel + stages),
        (2_000_000, 2, stages + travel + stages),
    ] {
        let mut row = Row::met(3);
        let contract = Contract { deadline: Nanos(wanted), ..contract() };
        row.ask(OpenRequest { contract, ..row.request() });
        row.run(10);
        let refusal = row.hosts[0].events.iter().find_map(|event| match event {
            Event::Refused { refusal, .. } => Some((refusal.node, refusal.cause.clone())),
            _ => None,
        });
        let cause = RefuseCause::Deadline { possible: Nanos(possible), wanted: Nanos(wanted) };
        assert_eq!(refusal, Some((NodeId(node), cause)), "{wanted}");
    }
}

/// A packet of a channel that waits for its CONFIRM stands for it, once; for a channel in another state it
/// says nothing.
#[test]
fn data_that_comes_before_its_confirm_establishes_a_channel_once() {
    let mut row = Row::met(3);
    row.hosts[2].consents = false;
    row.ask(row.request());
    // CONFIRM is lost.
    row.hosts[1].is_mute = true;
    let channel = row.hosts[2].signalling.channels().next().expect("it asks").local.channel;
    let established = |row: &Row| {
        row.hosts[2].events.iter().filter(|event| matches!(event, Event::Established { .. })).count()
    };
    for (state, after, times) in [("asking", "asking", 0), ("accepted", "open", 1), ("open", "open", 1)] {
        if state == "accepted" {
            row.at(2, |signalling, now, stages| signalling.consent(channel, now, stages)).expect("it asks");
        }
        assert_eq!(row.states()[2], [state]);
        row.at(2, |signalling, now, stages| signalling.first_data(channel, now, stages));
        assert_eq!((row.states()[2].clone(), established(&row)), (alloc::vec![after], times));
    }
    assert_eq!(row.unexpected(2), 0);
    let view =
        row.hosts[2].signalling.channel(channel).map(|view| (view.local.channel, view.state, view.has_ended));
    assert_eq!(view, Some((channel, "open", false)));
    assert!(row.hosts[2].signalling.channel(ChannelId(999)).is_none());
}

/// What was held may take all of the deadline, to the nanosecond: in an ACCEPT and in the reply to a probe.
/// One more contradicts it.
#[test]
fn bounds_may_add_up_to_the_whole_deadline() {
    // Two links and the last processor add 2 * 200 us and what clocks drift: the bound that is left for the
    // last stage.
    let before: u64 = 2 * 1_100_000;
    let sum = |last: u64| before + last + Ppm(200).of(Nanos(before + last)).0 + 2 * 200_000;
    let last = (1..50_000_000).rev().step_by(1).find(|last| sum(*last) <= 50_000_000).expect("one");
    assert_eq!(sum(last), 50_000_000);
    for (last, fits) in [(last, true), (last + 1, false)] {
        let mut row = Row::met(3);
        row.hosts[2].consents = false;
        let (_, path) = row.ask(row.request());
        let sink = row.hosts[2].signalling.channels.of_path(path).expect("it is asked");
        let mut stages = sink.setup.as_ref().expect("it is being set up").all_stages.clone();
        stages.iter_mut().filter(|stage| stage.kind == StageKind::Link).for_each(|stage| {
            stage.propagation_max = Nanos(200_000);
        });
        stages[4].bound = Nanos(last);
        for (index, host) in row.hosts.iter_mut().enumerate().take(2) {
            let channel = host.signalling.channels.of_path(path).expect("it is created").local.channel;
            let own = stages[2 * index..2 * index + 2].to_vec();
            host.signalling.channels.change(channel, |channel| channel.setup_mut().stages = own);
        }
        row.deliver_message(1, true, Message::Accept { path, drift: Ppm(200), stages: stages.clone() });
        assert_eq!(row.states()[0] == ["open"], fits, "{last}: {:?}", row.hosts[0].events);
        let mut row = Row::met(3);
        row.hosts[2].is_mute = true;
        let (_, path) = row.ask(OpenRequest { probe: true, ..row.request() });
        let (back, user) = (route(&[3, 2, 1], 1), UserId(7));
        let probe =
            Create { probe: true, stages: stages.clone(), arrival_error_fixed: Nanos::ZERO, ..create(path) };
        let word = Message::Probed { path, route: back, user, answer: Ok(Box::new(probe)) };
        row.deliver_message(1, true, word);
        let answers = row.hosts[0].events.iter().filter_map(|event| match event {
            Event::Probed { answer, .. } => Some(answer.is_ok()),
            _ => None,
        });
        assert_eq!(answers.collect::<Vec<_>>(), [fits], "{last}");
    }
}

/// Whichever host cannot make a probe's channel final, the source is told so by that host, once.
#[test]
fn a_probe_is_refused_by_the_host_that_could_not_make_it_final() {
    for index in 0..3 {
        for taking in [Taking::Refused, Taking::Nothing] {
            let mut row = Row::met(3);
            row.hosts[index].stages.taking = taking;
            row.ask(OpenRequest { probe: true, ..row.request() });
            row.run(10);
            let answers: Vec<_> = row.hosts[0]
                .events
                .iter()
                .filter_map(|event| match event {
                    Event::Probed { answer: Err(refusal), .. } => Some((refusal.node, refusal.cause.clone())),
                    _ => None,
                })
                .collect();
            let [(node, cause)] = &answers[..] else { panic!("{taking:?} at host {index}: {answers:?}") };
            assert_eq!(*node, NodeId(index as u32 + 1), "{taking:?}: {cause:?}");
            match taking {
                Taking::Refused => assert_eq!(*cause, RefuseCause::Exhausted),
                _ => assert!(matches!(cause, RefuseCause::Unsuitable(_)), "{cause:?}"),
            }
            assert!(row.nothing_is_held(), "{taking:?} at host {index}: {:?}", row.states());
        }
    }
}

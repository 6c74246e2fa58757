//! Messages that are wrong. Each is counted when it is received, and a channel that it is about, or others'
//! channels, continue.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::super::message::{Create, Message, Request, Route, StageReport};
use super::super::peer::Change;
use super::super::source_turns::Source;
use super::super::states::Input;
use super::super::transitions::InputDetails;
use super::*;
use crate::api::{Breach, Cause, DroppedPackets};
use crate::breach::Lateness;
use crate::ids::{ChannelNumber, Cookie};

pub(super) fn route(nodes: &[u32], position: u8) -> Route {
    Route { nodes: nodes.iter().copied().map(NodeId).collect(), position }
}

/// A CREATE from the first host to the last as the second receives it.
pub(super) fn create(path: PathId) -> Create {
    Create {
        path,
        cookie: Cookie(5),
        route: route(&[1, 2, 3], 1),
        from: name("h1"),
        user: UserId(7),
        to: Address { port: name("in"), host: name("h3") },
        contract: contract(),
        fragment_bytes: 1_400,
        probe: false,
        token: None,
        stages: Vec::new(),
        arrival_error_fixed: Nanos::ZERO,
        drift: Ppm(200),
    }
}

pub(super) fn a_path() -> PathId {
    PathId { node: NodeId(1), channel: ChannelNumber(77), epoch: Epoch(1) }
}

fn refusal() -> ChannelRefusal {
    let cause = RefuseCause::Exhausted;
    ChannelRefusal { node: NodeId(3), cause, offer: None, stages: Vec::new(), hosts: Vec::new() }
}

/// Three hosts with an open channel from the first to the last.
fn opened() -> (Row, ChannelId, PathId) {
    let mut row = Row::met(3);
    let (channel, path) = row.ask(row.request());
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
    (row, channel, path)
}

/// Messages that carry a route: none with a route that does not lead here, or does not come from the sender,
/// is forwarded.
#[test]
fn what_does_not_come_along_its_way_goes_nowhere() {
    let words = |path: PathId, route: Route| {
        let request = Request {
            token: 3,
            route: route.clone(),
            epoch: Epoch(1),
            port: name("in"),
            reply_to: Address { port: name("in"), host: name("h1") },
            contract: contract(),
            user: UserId(7),
        };
        let (user, epoch) = (UserId(7), Epoch(1));
        let probed = Create { route: route.clone(), probe: true, ..create(path) };
        [
            Message::Create(Create { route: route.clone(), ..create(a_path()) }),
            Message::Probed { path, route: route.clone(), user, answer: Ok(Box::new(probed)) },
            Message::Probed { path, route: route.clone(), user, answer: Err(refusal()) },
            Message::Ended {
                path,
                route: route.clone(),
                reason: CloseReason::Local,
                receipt: Receipt::default(),
            },
            Message::Passed { path, route: route.clone(), node: NodeId(3), passed: Passed::default() },
            Message::Request(request),
            Message::RequestRefused { token: 3, epoch, route, user, refusal: refusal() },
        ]
    };
    // From the right neighbour with the left one's route, past this host, in a circle, and without nodes.
    let ways = [route(&[1, 2, 3], 1), route(&[3, 2, 1], 2), route(&[3, 2, 3], 1), route(&[], 0)];
    let (mut row, _, path) = opened();
    for way in ways {
        for word in words(path, way.clone()) {
            let (before, sent) = (row.unexpected(1), row.sent(1));
            let what = alloc::format!("{word:?}");
            row.deliver_message(1, true, word);
            assert_eq!((row.unexpected(1), row.sent(1)), (before + 1, sent), "{what}");
        }
    }
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
    row.run(30_000);
    assert_eq!(row.states(), [["open"], ["open"], ["open"]], "and stays");
}

#[test]
fn a_channel_begins_at_the_host_whose_number_it_bears() {
    let mut row = Row::met(3);
    let foreign_path = PathId { node: NodeId(9), ..a_path() };
    row.deliver_message(1, false, Message::Create(create(foreign_path)));
    assert_eq!((row.unexpected(1), row.nothing_is_held()), (1, true));
    // Correct, it is forwarded, and the last host's application is asked.
    row.hosts[2].consents = false;
    row.deliver_message(1, false, Message::Create(create(a_path())));
    let asked = row.hosts[2].events.iter().filter(|event| matches!(event, Event::Incoming(_))).count();
    assert_eq!((row.unexpected(1), asked), (1, 1));
}

/// An ACCEPT that contradicts what was held ends its channel like a refusal, and nothing stays held.
#[test]
fn an_accept_that_does_not_fit_is_a_refusal() {
    type Lie = fn(&mut Vec<StageGrant>);
    let lies: [(&str, Lie); 4] = [
        ("no stages", Vec::clear),
        ("those before it only", |stages| stages.truncate(2)),
        ("a smaller bound for this host", |stages| stages[2].bound = Nanos(1)),
        ("all of the deadline for the last", |stages| stages[4].bound = MILLI * 50),
    ];
    for (what, lie) in lies {
        let mut row = Row::met(3);
        row.hosts[2].consents = false;
        let (_, path) = row.ask(row.request());
        let Some(Event::Incoming(incoming)) = row.hosts[2].events.last() else { panic!("{what}: not asked") };
        let sink = incoming.channel;
        let known = row.hosts[2].signalling.channels.get(sink).and_then(|channel| channel.setup.as_ref());
        let mut stages = known.expect("it is being set up").all_stages.clone();
        assert_eq!(stages.len(), 5, "{what}");
        lie(&mut stages);
        row.deliver_message(1, true, Message::Accept { path, drift: Ppm(200), stages });
        let refused = row.hosts[0].events.iter().find_map(|event| match event {
            Event::Refused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        });
        let refused = refused.unwrap_or_else(|| panic!("{what}: {:?}", row.hosts[0].events));
        assert_eq!(refused.node, NodeId(2), "{what}: by who has seen it");
        assert!(matches!(refused.cause, RefuseCause::Unsuitable(_)), "{what}: {refused:?}");
        row.run(10);
        assert!(row.nothing_is_held(), "{what}: {:?}", row.states());
    }
}

/// The same for a host's own stages: if they take more than their share, or do not report what they take, the
/// channel is refused.
#[test]
fn stages_that_take_more_than_their_share_have_no_channel() {
    for taking in [Taking::More, Taking::Fewer] {
        for index in 0..3 {
            let mut row = Row::met(3);
            row.hosts[index].stages.taking = taking;
            row.ask(row.request());
            let refused = row.hosts[0].events.iter().any(|event| matches!(event, Event::Refused { .. }));
            assert!(refused, "{taking:?} of host {index}: {:?}", row.hosts[0].events);
            row.run(10);
            assert!(row.nothing_is_held(), "{taking:?} of host {index}: {:?}", row.states());
        }
    }
}

/// The reply to a probe must match that probe, the requesting user, and what could be held; otherwise it is
/// ignored, or counts as a refusal.
#[test]
fn an_answer_to_a_probe_is_of_that_probe() {
    let (mut row, _, path) = opened();
    let back = route(&[3, 2, 1], 1);
    let user = UserId(7);
    let probed = |create: Create| Message::Probed {
        path,
        route: back.clone(),
        user,
        answer: Ok(Box::new(Create { probe: true, ..create })),
    };
    row.deliver_message(1, true, probed(create(a_path())));
    assert_eq!(row.unexpected(1), 1, "another path");
    row.deliver_message(1, true, probed(Create { user: UserId(8), ..create(path) }));
    assert_eq!(row.unexpected(1), 2, "another user");
    // Without this host's stages, or with a sum beyond the deadline, it is a refusal that the source
    // receives; for an open channel it has no effect.
    let before = row.unexpected(0);
    row.deliver_message(1, true, probed(create(path)));
    assert_eq!((row.unexpected(1), row.unexpected(0)), (2, before + 1));
    let local = row.hosts[1].signalling.channels.of_path(path).expect("open").local.clone();
    let long =
        row.hosts[1].stages.offer(&local).into_iter().map(|stage| StageGrant { bound: MILLI * 50, ..stage });
    row.deliver_message(1, true, probed(Create { stages: long.collect(), ..create(path) }));
    assert_eq!((row.unexpected(1), row.unexpected(0)), (2, before + 2));
    // A path that begins here and does not exist, or was given up.
    let gone = PathId { channel: ChannelNumber(99), ..path };
    let answer = Create { probe: true, route: route(&[2, 1], 1), ..create(gone) };
    let word = Message::Probed { path: gone, route: route(&[2, 1], 1), user, answer: Ok(Box::new(answer)) };
    row.deliver_message(0, true, word);
    assert_eq!(row.unexpected(0), before + 3);
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
}

/// While a host's stages decide on the reply to a probe, another reply to it has no effect; the probe has one
/// result.
#[test]
fn a_second_answer_to_a_probe_changes_nothing() {
    for thinker in [1, 0] {
        let mut row = Row::met(3);
        // The host behind is asked and sends nothing itself.
        row.hosts[1].is_mute = thinker == 0;
        row.hosts[2].is_mute = true;
        let (_, path) = row.ask(OpenRequest { probe: true, ..row.request() });
        let request = row.request();
        let mut nodes: Vec<_> = (1..=3).map(NodeId).collect();
        let channel = row.hosts[0].signalling.channels.of_path(path).expect("it waits");
        let local = channel.local.clone();
        let mut stages = row.hosts[0].stages.offer(&local);
        let next = LocalChannel { role: Role::Forwarder, ..(*local).clone() };
        stages.extend(row.hosts[1].stages.offer(&next));
        nodes.reverse();
        let back = Route { nodes, position: if thinker == 0 { 2 } else { 1 } };
        let probe = Create { probe: true, user: request.user, stages, ..create(path) };
        let answer = || Message::Probed {
            path,
            route: back.clone(),
            user: request.user,
            answer: Ok(Box::new(probe.clone())),
        };
        row.hosts[thinker].stages.thinks = true;
        for before in 0..3 {
            row.deliver_message(thinker, true, answer());
            let signalling = &row.hosts[thinker].signalling;
            assert_eq!((signalling.deciding.len(), row.unexpected(thinker)), (1, before), "host {thinker}");
            let accounts = row.hosts[thinker].signalling.accounts();
            assert!(
                accounts.iter().all(|(_, [counted, held])| counted == held),
                "host {thinker}: {accounts:?}"
            );
        }
        row.answer(thinker);
        let answers = row.hosts[0].events.iter().filter(|event| matches!(event, Event::Probed { .. }));
        assert_eq!(answers.count(), 1, "host {thinker}");
        assert!(row.nothing_is_held(), "host {thinker}: {:?}", row.states());
    }
}

/// An offer counts with the drift that a reply to its probe claims only if that is more than this host's own.
#[test]
fn an_offer_counts_with_the_larger_drift_whatever_its_answer_claims() {
    let offered = |drift: Ppm| {
        let mut row = Row::met(2);
        // The host behind is asked and sends nothing itself.
        row.hosts[1].is_mute = true;
        let wanted = Contract { deadline: MILLI * 5, ..contract() };
        let (_, path) = row.ask(OpenRequest { contract: wanted, ..row.request() });
        let refusal = ChannelRefusal { node: NodeId(2), offer: Some(contract()), ..refusal() };
        row.deliver_message(0, true, Message::Refuse { path, refusal });
        let offering = |row: &Row| {
            assert_eq!(row.states()[0], ["offering"]);
            row.hosts[0].signalling.channels().next().expect("one").local.clone()
        };
        let local = offering(&row);
        assert_eq!(*local.contract, contract(), "what the host behind has offered is asked for");
        let sink = LocalChannel { role: Role::Sink, link_out: None, ..LocalChannel::clone(&local) };
        let mut stages = row.hosts[0].stages.offer(&local);
        let behind = row.hosts[1].stages.offer(&sink).into_iter();
        stages.extend(behind.map(|stage| StageGrant { offered: MILLI * 20, bound: MILLI * 20, ..stage }));
        let (path, back) = (local.path, route(&[2, 1], 1));
        let probe = Create { probe: true, route: back.clone(), stages, drift, ..create(path) };
        let (user, answer) = (probe.user, Ok(Box::new(probe)));
        row.deliver_message(0, true, Message::Probed { path, route: back, user, answer });
        offering(&row).contract.deadline
    };
    let own = offered(Ppm(200));
    assert!(own > MILLI * 21 && own < MILLI * 22, "{own}: it asks for what its stages need");
    assert_eq!(offered(Ppm(0)), own);
    assert!(offered(Ppm(900)) > own);
}

/// A positive reply to a probe becomes a refusal if the source's own stages would not take its bounds.
#[test]
fn a_probe_whose_answer_was_changed_on_its_way_is_refused_at_its_source() {
    for (what, taking) in [("all well", Taking::Share), ("a stage is missing", Taking::Fewer)] {
        let mut row = Row::met(3);
        row.hosts[0].stages.taking = taking;
        row.ask(OpenRequest { probe: true, ..row.request() });
        let answer = row.hosts[0].events.iter().find_map(|event| match event {
            Event::Probed { answer, .. } => Some(answer.is_ok()),
            _ => None,
        });
        match taking {
            Taking::Share => assert_eq!(answer, Some(true), "{what}"),
            _ => assert_eq!((answer, row.unexpected(0)), (None, 1), "{what}: {:?}", row.hosts[0].events),
        }
    }
}

/// Each side may send only its own messages about a channel: the source's side forward, the sink's side back.
#[test]
fn a_message_counts_only_from_the_right_side() {
    let (mut row, _, path) = opened();
    let stages = Vec::new();
    let unknown = PathId { channel: ChannelNumber(99), ..path };
    let words = [
        (false, Message::Accept { path, drift: Ppm(200), stages }),
        (false, Message::Refuse { path, refusal: refusal() }),
        (true, Message::Confirm { path }),
        (true, Message::Confirm { path: unknown }),
        (true, Message::Destroy { path: unknown, reason: CloseReason::Local, sent: None }),
        (false, Message::Destroy { path: unknown, reason: CloseReason::Local, sent: None }),
    ];
    for (count, (from_onward, word)) in (1..).zip(words) {
        row.deliver_message(1, from_onward, word);
        assert_eq!(row.unexpected(1), count);
    }
    // The sink has no outgoing link by which its own report could come back.
    let ended = |route, reason| Message::Ended { path, route, reason, receipt: Receipt::default() };
    row.deliver_message(2, false, ended(route(&[1, 2, 3], 2), CloseReason::Local));
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
    // Counts of passed packets are reported only about closing channels, and once.
    let passed =
        |node| Message::Passed { path, route: route(&[3, 2, 1], 2), node, passed: Passed::default() };
    row.deliver_message(0, true, passed(NodeId(2)));
    assert_eq!(row.unexpected(0), 1);
    row.run(1_000);
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
}

/// A channel that is being decided, or that waits for a link, is ended by its source alone: over the link by
/// which it came.
#[test]
fn a_waiting_request_is_ended_by_its_requester() {
    let destroy = |path| Message::Destroy { path, reason: CloseReason::Local, sent: None };
    for waits_for_link in [false, true] {
        let mut row = Row::met(3);
        let onward = row.link(1, true);
        row.hosts[1].stages.thinks = !waits_for_link;
        if waits_for_link {
            row.hosts[1].signalling.close_link(onward);
        }
        let (_, path) = row.ask(row.request());
        assert!(row.hosts[1].signalling.is_waiting(path), "{waits_for_link}");
        row.deliver_message(1, true, destroy(path));
        assert!(row.hosts[1].signalling.is_waiting(path), "{waits_for_link}: the host behind may not end it");
        assert_eq!(row.unexpected(1), 1);
        row.deliver_message(1, false, destroy(path));
        assert!(!row.hosts[1].signalling.is_waiting(path), "{waits_for_link}");
    }
}

/// A host ignores reports about its own stages, and about stages that none of its channels passes.
#[test]
fn reports_of_stages_count_only_from_their_side_and_for_existing_channels() {
    use message::Witness::{Owner, Receiver};
    let (mut row, ..) = opened();
    let slow = Breach { late: Lateness::default(), cause: Cause::SlowProcessor };
    let report = |node, towards: Option<u32>, witness| {
        let stage = StageName { node: NodeId(node), towards: towards.map(NodeId) };
        StageReport { stage, witness, epoch: Epoch(1), number: 1, breach: Some(slow) }
    };
    let lies = [
        (false, report(2, None, Owner)),
        (false, report(2, Some(3), Receiver)),
        (false, report(1, Some(2), Receiver)),
        (false, report(9, None, Owner)),
        (false, report(3, None, Owner)),
        (true, report(1, None, Owner)),
    ];
    for (count, (from_onward, word)) in (1..).zip(lies) {
        row.deliver_message(1, from_onward, Message::Stage(word));
        assert_eq!(row.unexpected(1), count, "{word:?}");
    }
    assert_eq!(row.hosts[1].signalling.broken_stages().count(), 0);
    row.deliver_message(1, true, Message::Stage(report(3, None, Owner)));
    assert_eq!((row.hosts[1].signalling.broken_stages().count(), row.unexpected(1)), (1, 6));
    assert_eq!(row.hosts[0].signalling.broken_stages().count(), 1, "it goes on to the source");
    assert_eq!(row.hosts[2].signalling.broken_stages().count(), 0, "and not back");
}

/// Only a closing source takes the reports of the hosts between, one from each.
#[test]
fn what_has_passed_is_noted_once_a_host() {
    let (mut row, channel, path) = opened();
    // The sink is silent: the report that the source waits for does not come.
    let word = |passed| Message::Passed { path, route: route(&[3, 2, 1], 2), node: NodeId(9), passed };
    let link = row.link(0, true);
    let now = row.now;
    let Host { signalling, stages, .. } = &mut row.hosts[0];
    signalling.close(channel, CloseReason::Local, now, stages).expect("open");
    signalling.drained(channel, now, stages);
    let thrown = DroppedPackets { no_buffer: 3, ..DroppedPackets::default() };
    let passed = Passed { packets_in: 9, packets_out: 6, thrown, ..Passed::default() };
    signalling.on_message(link, word(passed), now, stages);
    assert_eq!(signalling.counters.unexpected, 0);
    signalling.on_message(link, word(Passed::default()), now, stages);
    assert_eq!(signalling.counters.unexpected, 1, "it has said so");
}

/// A channel that ends here has no node behind it: messages of the next host of the row are about no channel
/// of this link.
#[test]
fn a_host_off_the_route_changes_nothing_of_a_channel() {
    let mut row = Row::met(3);
    let to = Address { port: name("in"), host: name("h2") };
    let (_, path) = row.ask(OpenRequest { to, ..row.request() });
    let words = [
        Message::Confirm { path },
        Message::Refuse { path, refusal: refusal() },
        Message::Accept { path, drift: Ppm(200), stages: Vec::new() },
        Message::Destroy { path, reason: CloseReason::Local, sent: None },
    ];
    for (count, word) in (1..).zip(words) {
        row.deliver_message(1, true, word);
        assert_eq!(row.unexpected(1), count);
    }
    assert_eq!(row.states(), [&["open"][..], &["open"], &[]]);
}

/// A host that probes a route over one neighbour ignores a reply from another one.
#[test]
fn a_probe_is_answered_only_from_where_it_went() {
    let mut row = Row::met(3);
    row.hosts[2].is_mute = true;
    let request = OpenRequest { probe: true, ..row.request() };
    let probing = row.at(1, |signalling, now, stages| signalling.open(request, now, stages)).expect("tried");
    let known = row.hosts[1].signalling.channels.get(probing).expect("it waits");
    let path = known.local.path;
    let answer = Create { probe: true, route: route(&[2, 1], 1), ..create(path) };
    let word =
        Message::Probed { path, route: route(&[1, 2], 1), user: answer.user, answer: Ok(Box::new(answer)) };
    row.deliver_message(1, false, word);
    assert_eq!(row.unexpected(1), 1);
    assert_eq!(row.states()[1], ["probing"], "it still waits");
}

/// The driver names a link that the node does not have: the node receives nothing there, sends nothing there, and reports
/// nothing about it.
#[test]
fn a_link_that_is_not_there_changes_nothing() {
    let (mut row, _, _) = opened();
    let nowhere = LinkId(9);
    let message = Message::Create(create(a_path()));
    row.hosts[0].events.clear();
    row.at(0, |signalling, now, stages| {
        signalling.handle_signal(nowhere, now, now, &[0; 100], stages);
        signalling.queue_message(nowhere, &message);
        signalling.answer(None, Source { node: NodeId(3), user: UserId(7) }, &message);
        signalling.report_link(nowhere, None);
        signalling.on_unauthenticated(nowhere, now);
        signalling.on_change(nowhere, Change::Lost { restarted: true }, now, stages);
        signalling.set_link_rate(nowhere, BitRate(1), Ppm(1));
        signalling.announce_arrivals(nowhere, None, now);
    });
    let Host { signalling, events, .. } = &row.hosts[0];
    assert_eq!((signalling.counters.malformed, signalling.counters.unauthenticated), (0, 1));
    assert!(events.is_empty() && signalling.arrivals(nowhere).is_none() && !signalling.has_room(nowhere));
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
}

/// Actions for a channel that is gone have no effect; the stages give back what they still hold for it.
#[test]
fn a_channel_that_is_gone_is_left_alone() {
    let (mut row, _, path) = opened();
    let (gone, nobodys) = (ChannelId(999), PathId { channel: ChannelNumber(999), ..path });
    row.hosts[0].events.clear();
    row.at(0, |signalling, now, stages| {
        stages.held.insert(gone, true);
        signalling.apply(gone, Input::Close, InputDetails::default(), now, stages);
        signalling.evict_deciding(gone);
        assert!(!signalling.close_deciding(gone, CloseReason::Local));
        signalling.probe_tested(gone, Err(RefuseCause::Exhausted), now, stages);
        signalling.losses.keep_word(nobodys, Receipt::default());
        // Its begin was not reported to any node.
        signalling.announce(Some(NodeId(2)), None, now);
        stages.answers.push_back(Answer::Final(gone));
        signalling.settle(now, stages);
        assert!(!stages.held.contains_key(&gone) && signalling.losses.word(nobodys).is_none());
    });
    assert!(row.hosts[0].events.is_empty());
    assert_eq!(row.states(), [["open"], ["open"], ["open"]]);
}

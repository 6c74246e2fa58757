//! Channels, probes and requests while they wait: for the decision of stages, for a link that is measured,
//! for a place.

use super::super::message::{Message, Route};
use super::lies::{a_path, create, route};
use super::*;
use crate::ids::ChannelNumber;
use crate::limits::HALF_OPEN_PER_NEIGHBOUR_MAX;

fn refused(row: &Row, index: usize) -> Option<RefuseCause> {
    row.hosts[index].events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.cause.clone()),
        _ => None,
    })
}

fn request_failed(row: &Row, index: usize) -> Option<RefuseCause> {
    row.hosts[index].events.iter().find_map(|event| match event {
        Event::RequestFailed { refusal, .. } => Some(refusal.cause.clone()),
        _ => None,
    })
}

fn count(row: &Row, index: usize, wanted: impl Fn(&Event) -> bool) -> usize {
    row.hosts[index].events.iter().filter(|event| wanted(event)).count()
}

/// The last host, the receiver, requests a channel from the first one. Returns what the first one's
/// application would open.
fn asked_for(row: &mut Row) -> OpenRequest {
    let (last, source) = (row.hosts.len() - 1, Address { port: name("in"), host: name("h1") });
    let asked = row
        .at(last, |signalling, now, _| signalling.request(&source, name("in"), contract(), UserId(3), now));
    asked.expect("can be tried");
    let requested = row.hosts[0].events.iter().find_map(|event| match event {
        Event::Requested { to, contract, user, token, .. } => Some((to.clone(), *contract, *user, *token)),
        _ => None,
    });
    let (to, contract, user, token) = requested.expect("it is asked");
    OpenRequest { to, contract, user, probe: false, token: Some(token) }
}

fn close(row: &mut Row, channel: ChannelId) -> Result<(), crate::api::RequestError> {
    row.at(0, |signalling, now, stages| signalling.close(channel, CloseReason::Local, now, stages))
}

fn is_closed(event: &Event) -> bool {
    matches!(event, Event::Closed { .. })
}

/// A HELLO that arrives late makes the node check its stages. A packet in time does not.
#[test]
fn only_late_hellos_make_the_node_search_for_causes() {
    let mut row = Row::met(2);
    let (mut out, mut seen) = ([0; 1_400], [0; 2]);
    for millis in 0..6_000 {
        row.now = row.now + MILLI;
        let (now, lag) = (row.now, if millis < 3_000 { Nanos::ZERO } else { MILLI * 200 });
        let (link, back) = (row.link(0, true), row.link(1, false));
        row.hosts.iter_mut().for_each(|host| host.signalling.handle_timeout(now, &mut host.stages));
        let [one, other] = &mut row.hosts[..] else { panic!("two hosts") };
        while let Some(len) = other.signalling.poll_signal(back, now, now, &mut out) {
            one.signalling.handle_signal(link, now, now, &out[..len], &mut one.stages);
        }
        while let Some(len) = one.signalling.poll_signal(link, now, now, &mut out) {
            while other.signalling.poll_late_arrivals().is_some() {}
            let late = |host: &Host| host.signalling.arrivals(back).map_or(0, |watch| watch.total().times);
            let before = late(other);
            other.signalling.handle_signal(back, now + lag, now + lag, &out[..len], &mut other.stages);
            let is_late = late(other) > before;
            assert_eq!(other.signalling.has_late_arrivals(), is_late, "at {millis} ms");
            seen[usize::from(is_late)] += 1;
        }
    }
    assert!(seen.iter().all(|times| *times > 2), "{seen:?}");
}

#[test]
fn closing_an_undecided_channel_notifies_its_requester_once() {
    let mut row = Row::met(3);
    let request = asked_for(&mut row);
    row.hosts[0].stages.thinks = true;
    let (channel, _) = row.ask(request);
    assert_eq!((close(&mut row, channel), request_failed(&row, 2).is_some()), (Ok(()), true));
    assert!(close(&mut row, channel).is_err(), "it is closing");
    row.answer(0);
    assert_eq!((count(&row, 0, is_closed), row.nothing_is_held()), (1, true));
    assert_eq!(count(&row, 2, |event| matches!(event, Event::Incoming(_))), 0);
}

#[test]
fn a_neighbour_lost_during_the_decision_is_the_reason_of_the_refusal() {
    let mut row = Row::met(3);
    row.hosts[1].stages.thinks = true;
    row.ask(row.request());
    row.hosts[2].is_mute = true;
    row.run(6_000);
    assert_eq!(refused(&row, 0), None);
    row.answer(1);
    assert_eq!(refused(&row, 0), Some(RefuseCause::Unreachable(NodeId(3))));
    row.run(10);
    assert!(row.nothing_is_held(), "{:?}", row.states());
}

#[test]
fn a_create_that_comes_again_is_decided_once() {
    let mut row = Row::met(3);
    row.hosts[1].stages.thinks = true;
    for _ in 0..3 {
        row.deliver_message(1, false, Message::Create(create(a_path())));
    }
    assert_eq!((row.hosts[1].signalling.deciding.len(), row.hosts[1].stages.held.len()), (1, 1));
    // Its source gives it up.
    row.deliver_message(
        1,
        false,
        Message::Destroy { path: a_path(), reason: CloseReason::Local, sent: None },
    );
    assert_eq!(row.hosts[1].signalling.deciding.len(), 0);
    row.answer(1);
    assert!(row.hosts[1].stages.held.is_empty());
}

/// The places of a neighbour's half-open channels: if one user has all of them, the next user gets one, in
/// whatever state they are.
#[test]
fn one_users_channels_in_the_making_give_way_to_anothers() {
    for thinks in [true, false] {
        let mut row = Row::met(3);
        row.hosts[1].stages.thinks = thinks;
        row.hosts[2].consents = false;
        let path = |number: usize| PathId { channel: ChannelNumber(number as u32), ..a_path() };
        for number in 1..=HALF_OPEN_PER_NEIGHBOUR_MAX {
            row.deliver_message(1, false, Message::Create(create(path(number))));
        }
        let making = |row: &Row| {
            let signalling = &row.hosts[1].signalling;
            signalling.deciding.len() + signalling.channels.len()
        };
        assert_eq!(making(&row), HALF_OPEN_PER_NEIGHBOUR_MAX);
        // The first host never requested any of them: the refusal of the one that gives way is unexpected to
        // it.
        let before = row.unexpected(0);
        let other = message::Create { user: UserId(8), ..create(path(5_000)) };
        row.deliver_message(1, false, Message::Create(other));
        assert_eq!((making(&row), row.unexpected(0)), (HALF_OPEN_PER_NEIGHBOUR_MAX, before + 1), "{thinks}");
        let signalling = &row.hosts[1].signalling;
        assert!(signalling.deciding.knows(path(5_000)) || signalling.knows(path(5_000)), "{thinks}");
    }
}

#[test]
fn a_repeated_accept_during_the_decision_changes_nothing() {
    let mut row = Row::met(3);
    row.hosts[2].consents = false;
    let (_, path) = row.ask(row.request());
    let sink = row.hosts[2].signalling.channels.of_path(path).expect("asked");
    let stages = sink.setup.as_ref().expect("it is being set up").all_stages.clone();
    row.hosts[1].stages.thinks = true;
    for times in 0..3 {
        row.deliver_message(1, true, Message::Accept { path, drift: Ppm(200), stages: stages.clone() });
        assert_eq!(row.unexpected(1), times);
    }
    row.answer(1);
    assert_eq!(count(&row, 0, |event| matches!(event, Event::Opened { .. })), 1);
}

/// A probe holds nothing: if it is given up meanwhile, nothing waits for its reply, and the reply has no
/// effect.
#[test]
fn a_probe_that_was_given_up_is_removed() {
    for thinker in [0, 1] {
        let mut row = Row::met(3);
        row.hosts[2].stages.thinks = true;
        let (channel, path) = row.ask(OpenRequest { probe: true, ..row.request() });
        row.hosts[thinker].stages.thinks = true;
        row.answer(2);
        assert_eq!(
            row.hosts[thinker].signalling.deciding.len(),
            1,
            "host {thinker} tests it on its way back"
        );
        if thinker == 0 {
            close(&mut row, channel).expect("it is known");
        } else {
            row.deliver_message(1, false, Message::Destroy { path, reason: CloseReason::Local, sent: None });
        }
        row.answer(thinker);
        assert_eq!(count(&row, 0, |event| matches!(event, Event::Probed { .. })), 0, "host {thinker}");
        assert_eq!(row.hosts[thinker].signalling.deciding.len(), 0, "host {thinker}");
        assert!(row.hosts.iter().all(|host| host.stages.held.is_empty()));
    }
}

/// While a link is measured, a request that waits for it does so once, and only its own source can withdraw
/// it.
#[test]
fn a_channel_waits_for_a_link_once_and_may_give_it_up() {
    let mut row = Row::met(3);
    let other = PathId { channel: ChannelNumber(78), ..a_path() };
    let onward = row.link(1, true);
    row.hosts[1].signalling.close_link(onward);
    for path in [a_path(), a_path(), other] {
        row.deliver_message(1, false, Message::Create(create(path)));
    }
    assert_eq!(row.hosts[1].signalling.links.closed.len(), 2);
    row.deliver_message(
        1,
        false,
        Message::Destroy { path: a_path(), reason: CloseReason::Local, sent: None },
    );
    assert_eq!(row.hosts[1].signalling.links.closed.len(), 1, "the other stays");
    // A link that was not closed is not opened.
    let back = row.link(1, false);
    row.at(1, |signalling, now, stages| signalling.open_link(back, now, stages));
    assert_eq!(row.hosts[1].signalling.links.closed.len(), 1);
    // Its neighbour is down, and so are the requests' sources.
    row.hosts[0].is_mute = true;
    row.run(6_000);
    assert_eq!(row.hosts[1].signalling.links.closed.len(), 0);
    row.at(1, |signalling, now, stages| signalling.open_link(onward, now, stages));
    assert!(row.hosts[1].stages.held.is_empty());
}

#[test]
fn closing_a_channel_that_waits_for_a_link_notifies_its_requester() {
    let mut row = Row::met(3);
    let request = asked_for(&mut row);
    let link = row.link(0, true);
    row.hosts[0].signalling.close_link(link);
    let (first, _) = row.ask(row.request());
    let (second, _) = row.ask(request);
    assert_eq!(row.hosts[0].signalling.links.closed.len(), 2);
    close(&mut row, second).expect("it waits");
    assert_eq!((row.hosts[0].signalling.links.closed.len(), request_failed(&row, 2).is_some()), (1, true));
    close(&mut row, first).expect("it waits");
    assert_eq!((row.hosts[0].signalling.links.closed.len(), count(&row, 0, is_closed)), (0, 2));
    row.at(0, |signalling, now, stages| signalling.open_link(link, now, stages));
    assert!(row.nothing_is_held());
}

/// If a neighbour accepts nothing more, no reply can be sent: requests over its link are not begun, and are
/// counted.
#[test]
fn what_could_not_be_answered_is_not_begun() {
    let mut row = Row::met(3);
    let (now, back) = (row.now, row.link(1, false));
    let Host { signalling, stages, .. } = &mut row.hosts[1];
    let channels = alloc::vec![ChannelNumber(u32::MAX); 200];
    let much = Message::Refresh { node: NodeId(2), epoch: Epoch(1), channels };
    while signalling.has_room(back) {
        signalling.queue_message(back, &much);
    }
    signalling.on_message(back, Message::Create(create(a_path())), now, stages);
    let request = message::Request {
        token: 3,
        route: route(&[1, 2, 3], 1),
        epoch: Epoch(1),
        port: name("in"),
        reply_to: Address { port: name("in"), host: name("h1") },
        contract: contract(),
        user: UserId(7),
    };
    signalling.on_message(back, Message::Request(request), now, stages);
    assert_eq!((signalling.counters.unanswered, signalling.deciding.len(), stages.held.len()), (2, 0, 0));
}

#[test]
fn requests_end_if_no_neighbour_can_be_reached_any_more() {
    let mut row = Row::met(3);
    row.at(0, |signalling, now, stages| signalling.shutdown(now, stages));
    let source = Address { port: name("in"), host: name("h1") };
    let ask = |row: &mut Row| {
        row.hosts[2].events.clear();
        let asked = row
            .at(2, |signalling, now, _| signalling.request(&source, name("in"), contract(), UserId(3), now));
        asked.expect("can be tried");
    };
    ask(&mut row);
    assert_eq!(request_failed(&row, 2), Some(RefuseCause::Exhausted), "it stops");
    row.hosts[1].is_mute = true;
    row.run(6_000);
    ask(&mut row);
    assert_eq!(request_failed(&row, 2), Some(RefuseCause::Unreachable(NodeId(2))));
}

/// A channel answers a request if the host that was asked opens it, and no other one.
#[test]
fn a_channel_of_another_host_answers_no_request() {
    let mut row = Row::met(3);
    row.hosts[2].consents = false;
    let request = asked_for(&mut row);
    let token = row.hosts[2].signalling.requests.waiting();
    assert_eq!(token, [1, 0]);
    let path = PathId { node: NodeId(2), ..a_path() };
    // The first host has the request's own number; that of the receiver is the first one of its epoch.
    let (nodes, own) = (Route { position: 1, ..route(&[2, 3], 1) }, 1);
    let foreign_path =
        message::Create { path, route: nodes, from: name("h2"), token: Some(own), ..create(path) };
    row.deliver_message(2, false, Message::Create(foreign_path));
    let tokens = |row: &Row| -> Vec<Option<u64>> {
        let asked = row.hosts[2].events.iter().filter_map(|event| match event {
            Event::Incoming(incoming) => Some(incoming.token),
            _ => None,
        });
        asked.collect()
    };
    assert_eq!((tokens(&row), row.hosts[2].signalling.requests.waiting()), (alloc::vec![None], [1, 0]));
    row.ask(request);
    assert_eq!(tokens(&row), [None, Some(own)]);
}

/// Reports about channels that do not exist here, or are not in the matching state, have no effect.
#[test]
fn messages_of_other_channels_change_nothing() {
    let mut row = Row::met(2);
    let (channel, _) = row.ask(row.request());
    let nobodys = ChannelId(999);
    for id in [channel, nobodys] {
        row.at(0, |signalling, now, stages| {
            signalling.drained(id, now, stages);
            signalling.fitted(id, now, stages);
            signalling.first_data(id, now, stages);
        });
    }
    row.at(0, |signalling, now, stages| signalling.abort(nobodys, CloseReason::FilterRefused, now, stages));
    assert!(row.hosts[0].signalling.broken_on(nobodys).is_empty());
    assert_eq!((row.states(), row.unexpected(0)), (alloc::vec![alloc::vec!["open"]; 2], 0));
}

#[test]
fn what_waits_for_a_neighbour_is_in_the_books_of_its_link() {
    let mut row = Row::met(2);
    let (request, now) = (row.request(), row.now);
    let Host { signalling, stages, .. } = &mut row.hosts[0];
    for _ in 0..100 {
        signalling.open(request.clone(), now, stages).expect("can be tried");
    }
    let waiting = signalling.waiting().into_iter().find(|(what, _)| *what == "asks for a link");
    let (what, waiting) = waiting.expect("a count");
    assert!(waiting > 0, "the link sends only some of them soon");
    assert!(signalling.link_accounts(LinkId(0)).contains(&(what, [waiting; 2])), "{waiting}");
}

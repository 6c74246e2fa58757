//! What a host hands out, in the order in which it happened: events for applications, and keys for drivers.

use alloc::vec::Vec;

use super::*;
use crate::api::{Breach, Cause, LinkChange};
use crate::breach::Lateness;

/// The kind of an event.
const fn kind(event: &Event) -> &'static str {
    match event {
        Event::Incoming(_) => "incoming",
        Event::Opened { .. } => "opened",
        Event::Registered { .. } => "registered",
        Event::Refused { .. } => "refused",
        Event::Probed { .. } => "probed",
        Event::Established { .. } => "established",
        Event::Requested { .. } => "requested",
        Event::RequestOver { .. } => "request over",
        Event::RequestFailed { .. } => "request failed",
        Event::Closed { .. } => "closed",
        Event::Decided { .. } => "decided",
        Event::Stage { .. } => "stage",
        Event::Link { change: LinkChange::Unauthenticated { .. }, .. } => "stranger",
        Event::Link { .. } => "link",
        Event::Late(_) => "late",
        Event::Rate { .. } => "rate",
        Event::Notice { .. } => "notice",
    }
}

/// What the applications of each host have not read yet.
fn unread(row: &Row) -> Vec<Vec<&'static str>> {
    let of = |host: &Host| host.signalling.announcements.events.iter().map(kind).collect();
    row.hosts.iter().map(of).collect()
}

/// The requests that the first host's application has not read.
fn requested(row: &Row) -> Vec<u64> {
    let events = row.hosts[0].signalling.announcements.events.iter();
    let tokens = events.filter_map(|event| match event {
        Event::Requested { token, .. } => Some(*token),
        _ => None,
    });
    tokens.collect()
}

/// Nobody reads the events of three hosts while much happens: each event stands behind those before it,
/// whatever it is about.
#[test]
fn events_are_handed_out_in_the_order_in_which_they_happened() {
    let mut row = Row::met(3);
    row.hosts.iter_mut().for_each(|host| host.reads = false);
    let mut expected: [Vec<&'static str>; 3] = Default::default();
    let mut happened = |row: &Row, new: [&[&'static str]; 3], what: &str| {
        expected.iter_mut().zip(new).for_each(|(all, new)| all.extend(new));
        assert_eq!(unread(row), expected, "{what}");
    };
    let local = CloseReason::Local;
    let consent = |row: &mut Row| {
        let asking =
            row.hosts[2].signalling.channels.iter().find(|channel| channel.state == states::State::Asking);
        let channel = asking.expect("one asks").local.channel;
        row.at(2, |signalling, now, stages| signalling.consent(channel, now, stages)).expect("it asks");
        channel
    };
    // A channel is opened and closed by its source; another one by its sink.
    let (channel, _) = row.ask(row.request());
    happened(&row, [&[], &[], &["incoming"]], "asked");
    consent(&mut row);
    happened(&row, [&["opened"], &[], &["established"]], "opened");
    row.at(0, |signalling, now, stages| {
        signalling.close(channel, local, now, stages).expect("open");
        signalling.drained(channel, now, stages);
    });
    row.run(2_000);
    happened(&row, [&["closed"], &[], &["closed"]], "closed");
    row.ask(row.request());
    let sink = consent(&mut row);
    row.at(2, |signalling, now, stages| signalling.close(sink, local, now, stages)).expect("open");
    row.run(2_000);
    happened(
        &row,
        [&["opened", "closed"], &[], &["incoming", "established", "closed"]],
        "closed by its sink",
    );
    // Probes, and a refusal.
    row.ask(OpenRequest { probe: true, ..row.request() });
    happened(&row, [&["probed"], &[], &[]], "probed");
    let nowhere = Address { port: name("out"), ..row.request().to };
    row.ask(OpenRequest { to: nowhere.clone(), ..row.request() });
    row.ask(OpenRequest { to: nowhere, probe: true, ..row.request() });
    happened(&row, [&["refused", "probed"], &[], &[]], "refused");
    // Requests of the last host.
    let source = Address { port: name("in"), host: name("h1") };
    for refuses in [true, false] {
        let asked = row.at(2, |s, now, _| s.request(&source, name("in"), contract(), UserId(3), now));
        asked.expect("can be tried");
        happened(&row, [&["requested"], &[], &[]], "requested");
        let token = *requested(&row).last().expect("one");
        if refuses {
            row.at(0, |signalling, now, _| signalling.refuse_request(token, "no", now)).expect("it waits");
            happened(&row, [&[], &[], &["request failed"]], "its request is refused");
        } else {
            let over = row.now + Nanos::from_secs(10);
            row.at(0, |signalling, _, _| signalling.expire_requests(over));
            happened(&row, [&["request over"], &[], &[]], "nobody has answered it");
            let over = row.now + Nanos::from_secs(60);
            row.at(2, |signalling, _, _| signalling.expire_requests(over));
            happened(&row, [&[], &[], &["request failed"]], "nobody has answered it");
        }
    }
    // A channel that waits for a link, and one that waits for its stages.
    let onward = row.link(0, true);
    row.at(0, |signalling, _, _| signalling.close_link(onward));
    let (waits, _) = row.ask(row.request());
    row.at(0, |signalling, now, stages| signalling.close(waits, local, now, stages)).expect("it waits");
    happened(&row, [&["closed"], &[], &[]], "given up while the link is measured");
    row.at(0, |signalling, now, stages| signalling.open_link(onward, now, stages));
    row.hosts[0].stages.thinks = true;
    let (thinks, _) = row.ask(row.request());
    row.at(0, |signalling, now, stages| {
        signalling.note_decision(thinks, Nanos(7));
        signalling.close(thinks, local, now, stages).expect("it is decided");
    });
    row.answer(0);
    happened(&row, [&["decided", "closed"], &[], &[]], "given up while it is decided");
    // A stage that breaks its promise, for the host and for the channel; it heals.
    row.ask(row.request());
    consent(&mut row);
    happened(&row, [&["opened"], &[], &["incoming", "established"]], "opened");
    let breach = Breach { late: Lateness::default(), cause: Cause::SlowProcessor };
    for breach in [Some(breach), None] {
        row.at(1, |signalling, now, _| signalling.announce(None, breach, now));
        happened(&row, [&["stage", "stage"], &["stage"], &["stage", "stage"]], "a stage");
    }
    // Strangers, and a neighbour that is lost.
    row.at(1, |signalling, now, _| signalling.on_unauthenticated(LinkId(0), now));
    happened(&row, [&[], &["stranger"], &[]], "a stranger");
    row.hosts[0].is_mute = true;
    while unread(&row)[1].last() != Some(&"link") {
        row.run(1);
    }
    happened(&row, [&[], &["link"], &[]], "the first host is lost");
    row.run(1_000);
    happened(&row, [&[], &[], &["closed"]], "its packets that were under way are in");
}

/// The key of a neighbour's seals comes when the neighbour is met: keys and events are in the same order.
#[test]
fn keys_of_seals_are_handed_out_in_the_order_in_which_neighbours_are_met() {
    let mut row = Row::met(3);
    let met = row.hosts[1].events.iter().filter_map(|event| match event {
        Event::Link { link, change: LinkChange::Up } => Some(*link),
        _ => None,
    });
    let met: Vec<_> = met.collect();
    assert_eq!(met.len(), 2);
    let keys: Vec<_> =
        core::iter::from_fn(|| row.hosts[1].signalling.poll_seal()).map(|(link, _)| link).collect();
    assert_eq!(keys, met);
}

/// Requests that wait for links go on in their order when their link is open again; those that wait for
/// another one stay.
#[test]
fn requests_go_on_in_their_order_when_their_link_is_open() {
    for waits in [0, 1] {
        let mut row = Row::met(3);
        row.hosts[2].consents = false;
        let onward = row.link(waits, true);
        row.at(waits, |signalling, _, _| signalling.close_link(onward));
        (1..=5).for_each(|user| {
            row.ask(OpenRequest { user: UserId(user), ..row.request() });
        });
        let users = |row: &Row| -> Vec<u32> {
            let events = row.hosts[2].events.iter();
            let incoming = events.filter_map(|event| match event {
                Event::Incoming(incoming) => Some(incoming.user.0),
                _ => None,
            });
            incoming.collect()
        };
        assert!(row.hosts[waits].signalling.has_waiting(onward) && users(&row).is_empty());
        // Another link that is opened changes nothing.
        let other = LinkId(7);
        row.at(waits, |signalling, now, stages| {
            signalling.close_link(other);
            signalling.open_link(other, now, stages);
        });
        assert!(row.hosts[waits].signalling.has_waiting(onward) && users(&row).is_empty());
        row.at(waits, |signalling, now, stages| signalling.open_link(onward, now, stages));
        assert!(!row.hosts[waits].signalling.has_waiting(onward));
        assert_eq!(users(&row), [1, 2, 3, 4, 5], "host {waits}");
    }
}

/// Reports and messages about measurements are read in the order in which they came.
#[test]
fn messages_of_neighbours_are_read_in_their_order() {
    let mut row = Row::met(2);
    let late = |number: u64| crate::api::LateArrivals {
        late: Lateness::default(),
        received: BitRate(number),
        span: Nanos(1),
    };
    let word = |number: u32| RateWord::Done { token: crate::ids::Cookie(number) };
    for number in 1..=4 {
        row.deliver_message(0, true, message::Message::LateArrivals(late(number)));
        row.deliver_message(0, true, message::Message::Rate(word(number as u32)));
    }
    let (signalling, link) = (&mut row.hosts[0].signalling, LinkId(0));
    for number in 1..=4 {
        assert!(signalling.has_late_arrivals());
        assert_eq!(signalling.poll_late_arrivals(), Some((link, late(number))));
        assert_eq!(signalling.poll_rate_word(), Some((link, word(number as u32))));
    }
    assert_eq!((signalling.poll_late_arrivals(), signalling.poll_rate_word()), (None, None));
    assert!(!signalling.has_late_arrivals());
}

//! How long a host waits for each thing, by the formula of each, with the default times: an answer takes a
//! back-off of 100 ms that doubles seven times, consent 10 s, a lease 20 s.

use super::super::budget;
use super::super::message::Message;
use super::lies::{a_path, create};
use super::*;
use crate::api::UserId;

/// 100 ms times 2^7.
const ANSWER: Nanos = Nanos::from_millis(12_800);
const CONSENT: Nanos = Nanos::from_secs(10);
const LEASE: Nanos = Nanos::from_secs(20);
const GRACE: Nanos = Nanos::from_millis(500);

/// The deadline and the lease of the only channel of a host, from now on.
fn timers(row: &Row, index: usize) -> [Option<Nanos>; 2] {
    let mut channels = row.hosts[index].signalling.channels.iter();
    let (Some(channel), None) = (channels.next(), channels.next()) else { panic!("one channel") };
    [channel.deadline, channel.lease].map(|timer| timer.at().map(|at| at.since(row.now)))
}

/// The longest time of an answer is that of all repetitions, each twice as long after the one before, and
/// never more than a minute.
#[test]
fn an_answer_is_awaited_for_the_whole_back_off() {
    let mut row = Row::met(2);
    let signalling = &mut row.hosts[0].signalling;
    assert_eq!(signalling.answer_time(), ANSWER);
    for retransmit in [1, 50, 57_220, 57_221, 100_000_000, 30_000_000_000] {
        for retransmits_max in [0, 1, 6, 18, 19, 20, 30, u32::MAX] {
            let times = &mut signalling.config.signalling;
            (times.retransmit, times.retransmits_max) = (Nanos(retransmit), retransmits_max);
            // Beyond twenty doublings there is none more.
            let doublings = (u64::from(retransmits_max) + 1).min(20);
            let whole = Nanos(retransmit * 2_u64.pow(doublings as u32));
            let expected = whole.min(Nanos::from_secs(60));
            assert_eq!(signalling.answer_time(), expected, "{retransmit} {retransmits_max}");
        }
    }
}

/// The source waits for the answer of the route, and for consent; a probe asks nobody for consent. Hosts
/// behind hold a channel for a lease, and its receiver may take its time for consent.
#[test]
fn a_channel_that_is_being_set_up_waits_for_answers() {
    let mut row = Row::met(3);
    row.hosts[2].consents = false;
    row.ask(row.request());
    assert_eq!(row.states(), [["creating"], ["creating"], ["asking"]]);
    assert_eq!(timers(&row, 0), [Some(ANSWER + CONSENT), None]);
    assert_eq!(timers(&row, 1), [None, Some(LEASE)]);
    assert_eq!(timers(&row, 2), [Some(CONSENT), Some(LEASE)]);
    let mut row = Row::met(3);
    row.hosts[1].is_mute = true;
    row.ask(OpenRequest { probe: true, ..row.request() });
    assert_eq!(row.states()[0], ["probing"]);
    assert_eq!(timers(&row, 0), [Some(ANSWER), None]);
}

/// A request waits for the time of an answer in both directions, and for the time of consent; the application
/// that is asked for the time of consent.
#[test]
fn a_request_waits_for_both_directions() {
    let mut row = Row::met(2);
    let source = Address { port: name("in"), host: name("h1") };
    let token = row.at(1, |s, now, _| s.request(&source, name("in"), contract(), UserId(3), now));
    let until = |row: &Row, index: usize| {
        row.hosts[index].signalling.requests.poll_timeout().map(|until| until.since(row.now))
    };
    assert_eq!(until(&row, 1), Some(ANSWER + ANSWER + CONSENT));
    assert_eq!(until(&row, 0), Some(CONSENT));
    // To the nanosecond, whatever has happened to the host that was asked.
    let failed =
        |row: &Row| row.hosts[1].events.iter().any(|event| matches!(event, Event::RequestFailed { .. }));
    let over = row.now + ANSWER + ANSWER + CONSENT;
    row.hosts[0].is_mute = true;
    for (now, fails) in [(over - Nanos(1), false), (over, true)] {
        row.at(1, |signalling, _, _| signalling.expire_requests(now));
        assert_eq!(failed(&row), fails, "{token:?}");
    }
}

/// A closed source waits for its ring to drain. Then it waits for the sink's report: as long as the last
/// packet may be under way, and for the time of an answer, at most five seconds of it.
#[test]
fn a_closing_channel_waits_for_packets_and_then_for_reports() {
    for (retransmit, answer) in [(Nanos::from_millis(100), Nanos::from_secs(5)), (MILLI * 10, MILLI * 1_280)]
    {
        let mut row = Row::met(3);
        let (channel, _) = row.ask(row.request());
        row.hosts[0].signalling.config.signalling.retransmit = retransmit;
        row.hosts.iter_mut().for_each(|host| host.is_mute = true);
        let close =
            |s: &mut Signalling, now, stages: &mut Stages| s.close(channel, CloseReason::Local, now, stages);
        row.at(0, close).expect("open");
        assert_eq!(row.states()[0], ["draining"]);
        assert_eq!(timers(&row, 0), [Some(budget::drain_max(&contract()).max(GRACE)), None]);
        row.at(0, |signalling, now, stages| signalling.drained(channel, now, stages));
        assert_eq!(row.states()[0], ["settling"]);
        let transit = contract().early_service() + contract().deadline;
        assert_eq!(timers(&row, 0), [Some(transit + answer), None]);
    }
}

/// How long a channel may take to drain at each host: at its source until its ring has drained, at least the
/// grace; behind it as long as the last packet may be under way. A host that stops has its grace and no
/// longer.
#[test]
fn a_channel_drains_for_its_time_or_for_the_grace_of_a_host_that_stops() {
    let (transit, ring) = (budget::transit_time_max(&contract()), budget::drain_max(&contract()));
    let between = transit + Nanos(1);
    assert!(transit < ring);
    for grace in [Nanos(1), transit, between, ring - Nanos(1), ring, ring + Nanos(1), Nanos::from_secs(99)] {
        let mut row = Row::met(3);
        row.ask(row.request());
        for leaving in [false, true] {
            for (index, host) in row.hosts.iter_mut().enumerate() {
                host.signalling.config.signalling.grace = grace;
                host.signalling.leaving = leaving;
                let channel = host.signalling.channels.iter().next().expect("open");
                let needed = if index == 0 { ring.max(grace) } else { transit };
                let expected = if leaving { needed.min(grace) } else { needed };
                assert_eq!(host.signalling.drain_time(channel), expected, "{grace} {leaving} {index}");
            }
        }
    }
}

/// Hosts that hold a channel are refreshed five times a lease, each time for a lease from then on.
#[test]
fn a_lease_is_refreshed_five_times() {
    let mut row = Row::met(3);
    let begin = row.now;
    row.ask(row.request());
    let refreshed = |row: &Row| row.hosts[0].signalling.refreshes.at;
    for times in 1..4 {
        let due = begin + Nanos(LEASE.0 / 5 * times);
        assert_eq!(refreshed(&row), Some(due));
        row.run(due.since(row.now).0 / MILLI.0 - 1);
        let left = timers(&row, 2)[1].expect("it has a lease");
        assert!(row.now < due && left < LEASE - LEASE / 6, "{left}");
        row.run(1);
        assert_eq!((timers(&row, 1)[1], timers(&row, 2)[1]), (Some(LEASE), Some(LEASE)));
    }
    // Without a channel that begins here nothing is refreshed.
    assert_eq!([1, 2].map(|index| row.hosts[index].signalling.refreshes.at), [None; 2]);
}

/// A refusal waits for the answers to its offers for two seconds, or for the time of an answer if that is
/// shorter.
#[test]
fn an_offer_is_looked_for_in_two_seconds() {
    for (retransmit, until) in [(Nanos::from_millis(100), Nanos::from_secs(2)), (MILLI, MILLI * 128)] {
        let mut row = Row::met(3);
        row.hosts[0].signalling.config.signalling.retransmit = retransmit;
        row.hosts[1].is_mute = true;
        let wanted = Contract { deadline: MILLI * 5, ..contract() };
        let (_, path) = row.ask(OpenRequest { contract: wanted, ..row.request() });
        let cause = RefuseCause::Exhausted;
        let offer = Some(contract());
        let refusal = ChannelRefusal { node: NodeId(3), cause, offer, stages: Vec::new(), hosts: Vec::new() };
        row.deliver_message(0, true, Message::Refuse { path, refusal });
        assert_eq!(row.states()[0], ["offering"]);
        assert_eq!(timers(&row, 0), [Some(until), None]);
    }
}

/// A CREATE that comes again, or data that came first, moves no time.
#[test]
fn a_repeated_create_renews_nothing() {
    let mut row = Row::met(3);
    row.hosts[2].consents = false;
    row.deliver_message(1, false, Message::Create(create(a_path())));
    let before = [1, 2].map(|index| timers(&row, index));
    row.now = row.now + MILLI;
    row.deliver_message(1, false, Message::Create(create(a_path())));
    let later = |left: Option<Nanos>| left.map(|left| left - MILLI);
    assert_eq!([1, 2].map(|index| timers(&row, index)), before.map(|timers| timers.map(later)));
}

/// A channel that needs a part of the link which the kernel has waits for it for 250 ms, at its source and
/// behind it.
#[test]
fn a_channel_waits_for_the_kernels_part_of_a_link() {
    for waits in [0, 1] {
        let mut row = Row::met(3);
        row.hosts[waits].stages.is_shared = true;
        let (channel, path) = row.ask(row.request());
        assert_eq!(row.states()[waits], ["fitting"]);
        assert_eq!(timers(&row, waits)[0], Some(Nanos::from_millis(250)));
        let fitted = row.hosts[waits].signalling.channels.of_path(path).expect("it waits").local.channel;
        row.at(waits, |signalling, now, stages| signalling.fitted(fitted, now, stages));
        assert_eq!(row.states(), [["open"], ["open"], ["open"]], "host {waits}");
        assert!(timers(&row, 0)[0].is_none() && channel > ChannelId(0));
    }
}

/// A host that stops gives channels that were closing before its grace, and no longer.
#[test]
fn a_host_that_stops_hastens_what_was_closing() {
    for (grace, left) in [(MILLI * 10, MILLI * 10), (Nanos::from_secs(9), GRACE)] {
        let mut row = Row::met(3);
        let (closing, _) = row.ask(row.request());
        let close =
            |s: &mut Signalling, now, stages: &mut Stages| s.close(closing, CloseReason::Local, now, stages);
        row.at(0, close).expect("open");
        row.hosts[0].signalling.config.signalling.grace = grace;
        let due = |row: &Row, id| {
            let channel = row.hosts[0].signalling.channels.get(id).expect("it is there");
            (channel.state.name(), channel.deadline.at().map(|at| at.since(row.now)))
        };
        let (open, _) = row.ask(row.request());
        assert_eq!(due(&row, closing), ("draining", Some(GRACE)));
        assert_eq!(due(&row, open), ("open", None));
        row.at(0, |signalling, now, stages| signalling.shutdown(now, stages));
        // The open one is closed now, with all of the grace.
        assert_eq!(
            (due(&row, closing), due(&row, open)),
            (("draining", Some(left)), ("draining", Some(grace)))
        );
    }
}

/// A reply to an offer that comes when the time for offers is over ends the search; a nanosecond before it
/// goes on.
#[test]
fn the_search_for_an_offer_ends_in_time() {
    for (before, goes_on) in [(1, true), (0, false)] {
        let mut row = Row::met(3);
        row.hosts[1].is_mute = true;
        let wanted = Contract { deadline: MILLI * 5, ..contract() };
        let (_, path) = row.ask(OpenRequest { contract: wanted, ..row.request() });
        let refusal = |deadline| ChannelRefusal {
            node: NodeId(3),
            cause: RefuseCause::Exhausted,
            offer: Some(Contract { deadline, ..contract() }),
            stages: Vec::new(),
            hosts: Vec::new(),
        };
        row.deliver_message(0, true, Message::Refuse { path, refusal: refusal(MILLI * 50) });
        assert_eq!(row.states()[0], ["offering"]);
        row.now = row.now + Nanos::from_secs(2) - Nanos(before);
        let channel = row.hosts[0].signalling.channels.iter().next().expect("it offers");
        let path = channel.local.path;
        row.deliver_message(0, true, Message::Refuse { path, refusal: refusal(MILLI * 60) });
        let refused = row.hosts[0].events.iter().any(|event| matches!(event, Event::Refused { .. }));
        assert_eq!(refused, !goes_on, "{before}");
        assert_eq!(row.states()[0].len(), usize::from(goes_on));
    }
}

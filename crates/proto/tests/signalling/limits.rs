//! Limits of signalling, each exceeded: operations within them work, the next one is refused, and the
//! previous ones continue.

use punctual_proto::Nanos;
use punctual_proto::api::{Event, OpenRequest, RefuseCause, RequestError, UserId};
use punctual_proto::ids::Address;
use punctual_proto::limits::{
    CHANNELS_MAX, ENDS_MAX, HALF_OPEN_PER_NEIGHBOUR_MAX, LINKS_MAX, REASON_BYTES_MAX, REQUESTS_MAX,
    ROUTE_NODES_MAX,
};
use punctual_proto::signalling::Signalling;

use crate::network::{Agent, MILLI, Network, SECOND, contract, name};

/// A route with the largest number of hosts: each adds its grants to the messages, and an offer passes them
/// all.
#[test]
fn the_longest_route_opens_and_refuses_with_an_offer() {
    let last = ROUTE_NODES_MAX - 1;
    let mut network = Network::line(1, ROUTE_NODES_MAX, |_, _| {});
    network.run(SECOND);
    network.open(0, last, 500);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.hosts[last - 1].stages.link_bound = SECOND;
    network.open(0, last, 500);
    network.run(5 * SECOND);
    let offer = network.hosts[0].events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => refusal.offer,
        _ => None,
    });
    assert!(offer.is_some_and(|offer| offer.deadline.0 > SECOND), "{offer:?}");
    assert!(network.all_in("open"));
}

#[test]
fn requests_of_receivers_are_bounded_at_both_ends() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.hosts[0].agent = Agent::Silent;
    network.run(SECOND);
    let source = Address { port: name("in"), host: network.hosts[0].name() };
    let ask = |n: &mut Network| {
        let asked = n.at(1, |s, now, _| s.request(&source, name("in"), contract(50), UserId(3), now));
        n.run(MILLI);
        asked
    };
    assert!((0..REQUESTS_MAX).all(|_| ask(&mut network).is_ok()));
    assert_eq!(ask(&mut network), Err(RequestError::Crowded));
    let asked = network.count(0, |event| matches!(event, Event::Requested { .. }));
    assert_eq!(asked, REQUESTS_MAX);
    let crowded = |n: &Network| {
        n.count(
            1,
            |e| matches!(e, Event::RequestFailed { refusal, .. } if refusal.cause == RefuseCause::Crowded),
        )
    };
    // A request of another user finds a place at both ends: the last of the user with all of them gives way.
    let other = network.at(1, |s, now, _| s.request(&source, name("in"), contract(50), UserId(4), now));
    assert!(other.is_ok());
    network.run(MILLI);
    let asked = network.count(0, |event| matches!(event, Event::Requested { .. }));
    assert_eq!((asked, crowded(&network)), (REQUESTS_MAX + 1, 1));
    // No application replies: each requester is notified once, and there is room again.
    network.run(120 * SECOND);
    let failed = network.count(1, |event| matches!(event, Event::RequestFailed { .. }));
    assert_eq!(failed, REQUESTS_MAX + 1);
    // So is each application that was asked: it keeps none of them.
    let over = network.count(0, |event| matches!(event, Event::RequestOver { .. }));
    assert_eq!(over, REQUESTS_MAX + 1);
    network.hosts[0].agent = Agent::Consent;
    assert!(ask(&mut network).is_ok());
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
}

/// An application may refuse a request until its time is over, and is told at that time, not before.
#[test]
fn a_request_waits_for_its_answer_for_as_long_as_a_consent_may_take() {
    let at = |early: u64, answers: bool| {
        let mut network = Network::line(1, 2, |_, _| {});
        network.hosts[0].agent = Agent::Silent;
        network.run(SECOND);
        let source = Address { port: name("in"), host: network.hosts[0].name() };
        let asked = network.at(1, |s, now, _| s.request(&source, name("in"), contract(50), UserId(3), now));
        asked.expect("there is room");
        let token = |network: &Network| {
            network.hosts[0].events.iter().find_map(|event| match event {
                Event::Requested { token, .. } => Some(*token),
                _ => None,
            })
        };
        assert!(network.run_until(SECOND, |network| token(network).is_some()));
        let (token, came) = (token(&network).expect("it came"), network.hosts[0].local(network.now));
        let time = network.hosts[0].config.signalling.consent_timeout - Nanos(early);
        network.at(0, |s, _, stages| match answers {
            true => s.refuse_request(token, "no", came + time).is_ok(),
            false => {
                s.handle_timeout(came + time, stages);
                core::iter::from_fn(|| s.poll_event()).any(|event| matches!(event, Event::RequestOver { .. }))
            }
        })
    };
    assert_eq!([at(1, true), at(0, true)], [true, false], "refused in time");
    assert_eq!([at(1, false), at(0, false)], [false, true], "over");
}

/// Two users of a host with requests to an application that does not reply, and one of another host: the
/// source with the most gives way, at the host that is asked.
#[test]
fn requests_that_came_from_elsewhere_are_shared_by_hosts_and_users() {
    let mut network = Network::new(2, 3, &[(0, 1), (0, 2)], |_, _| {});
    network.hosts[0].agent = Agent::Silent;
    network.run(SECOND);
    let source = Address { port: name("in"), host: network.hosts[0].name() };
    let ask = |n: &mut Network, host: usize, user: u32| {
        let token = n.at(host, |s, now, _| s.request(&source, name("in"), contract(50), UserId(user), now));
        n.run(MILLI);
        token.expect("this host has a place")
    };
    let greedy: Vec<_> = (0..REQUESTS_MAX - 10).map(|_| ask(&mut network, 1, 1)).collect();
    let others: Vec<_> = (0..100).flat_map(|_| [ask(&mut network, 2, 5), ask(&mut network, 2, 1)]).collect();
    let refused = |n: &Network, host: usize| -> Vec<u64> {
        let of = n.hosts[host].events.iter().filter_map(|event| match event {
            Event::RequestFailed { token, refusal } if refusal.cause == RefuseCause::Crowded => Some(*token),
            _ => None,
        });
        of.collect()
    };
    assert_eq!((refused(&network, 2), others.len()), (vec![], 200));
    let gave: Vec<_> = greedy.iter().rev().take(190).copied().collect();
    assert_eq!(refused(&network, 1), gave, "its last ones first");
    let over = network.count(0, |event| matches!(event, Event::RequestOver { .. }));
    assert_eq!(over, gave.len(), "and the application that was asked is told");
    let line = network.hosts[1].events.iter().find_map(|event| match event {
        Event::RequestFailed { refusal, .. } => Some(refusal.to_string()),
        _ => None,
    });
    let expected = "host h1: too many channels or requests of this user wait for an answer here: wait for some \
                    of them, then try again";
    assert_eq!(line.as_deref(), Some(expected));
}

/// Channels that wait for a removed listener, and channels whose time is over, end in slices.
#[test]
fn many_channels_that_end_together_end_in_slices() {
    const OPENED: usize = 10 * ENDS_MAX / 3;
    let mut network = Network::line(1, 2, |_, _| {});
    network.open(0, 1, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.hosts[1].agent = Agent::Silent;
    for _ in 0..OPENED {
        network.open(0, 1, 50);
    }
    network.run(5 * SECOND);
    let asking = |n: &Network| n.states(1).iter().filter(|state| **state == "asking").count();
    assert_eq!(asking(&network), OPENED);
    let listener = network.hosts[1].events.iter().find_map(|event| match event {
        Event::Incoming(incoming) => Some(incoming.listener),
        _ => None,
    });
    let listener = listener.expect("known");
    network.at(1, |s, now, stages| s.unlisten(listener, now, stages)).expect("it listens");
    let mut left = asking(&network);
    assert_eq!(left, OPENED - ENDS_MAX, "some at once");
    while left > 0 {
        let now = network.at(1, |s, now, stages| {
            assert!(s.poll_timeout().is_some_and(|due| due <= now), "it wants to go on");
            s.handle_timeout(now, stages);
            s.channels().filter(|channel| channel.state == "asking").count()
        });
        assert!((1..=ENDS_MAX).contains(&(left - now)), "{left}, then {now}");
        left = now;
    }
    assert_eq!(
        network.at(1, |s, now, stages| s.unlisten(listener, now, stages)),
        Err(RequestError::Unknown),
        "it is gone already"
    );
    network.run(SECOND);
    assert_eq!(network.states(1), ["open"]);
    assert_eq!(network.count(1, |event| matches!(event, Event::Closed { .. })), OPENED);
}

/// Of several listeners that ended, the channels of the last one are refused first, however many wait for the others.
#[test]
fn the_channels_of_the_listener_that_ended_last_are_refused_first() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.hosts[1].agent = Agent::Silent;
    let other = network.at(1, |s, _, _| s.listen(name("other"), Nanos::ZERO)).expect("free");
    network.run(SECOND);
    let to_other = Address { port: name("other"), host: network.hosts[1].name() };
    for (to_that, opened) in [(false, 3 * ENDS_MAX), (true, 2 * ENDS_MAX)] {
        for _ in 0..opened {
            let request = network.request(1, 50);
            let to = if to_that { to_other.clone() } else { request.to.clone() };
            network
                .at(0, |s, now, stages| s.open(OpenRequest { to, ..request }, now, stages))
                .expect("tried");
        }
        network.run(2 * SECOND);
    }
    let first = network.hosts[1].events.iter().find_map(|event| match event {
        Event::Incoming(incoming) if incoming.listener != other => Some(incoming.listener),
        _ => None,
    });
    let asking = |s: &Signalling, port: &str| {
        s.channels().filter(|channel| channel.state == "asking" && channel.to.port == name(port)).count()
    };
    let left = [2 * ENDS_MAX, ENDS_MAX, 0];
    for (listener, others, left) in
        [(first.expect("known"), 2 * ENDS_MAX, &left[..1]), (other, 2 * ENDS_MAX, &left[1..])]
    {
        network.at(1, |s, now, stages| s.unlisten(listener, now, stages)).expect("it listens");
        for (turn, left) in left.iter().enumerate() {
            let found = network.at(1, |s, now, stages| {
                (0..turn.min(1)).for_each(|_| s.handle_timeout(now, stages));
                [asking(s, "in"), asking(s, "other")]
            });
            let expected = if listener == other { [others, *left] } else { [*left, others] };
            assert_eq!(found, expected, "turn {turn}");
        }
    }
}

/// The text has characters of four bytes each, too.
#[test]
fn a_long_reason_arrives_cut_between_characters() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.hosts[1].agent = Agent::Silent;
    network.run(SECOND);
    let why = "\u{1f3a5}".repeat(REASON_BYTES_MAX);
    network.open(0, 1, 50);
    network.run(SECOND);
    let channel = network.hosts[1].events.iter().find_map(|event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    });
    let channel = channel.expect("it was asked");
    network.at(1, |s, now, stages| s.refuse(channel, &why, now, stages)).expect("it was asked");
    network.run(SECOND);
    let reported = network.hosts[0].events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.cause.clone()),
        _ => None,
    });
    let Some(RefuseCause::Receiver(reported)) = reported else { panic!("{reported:?}") };
    assert_eq!(reported.as_str().len(), REASON_BYTES_MAX);
    assert!(why.starts_with(reported.as_str()));
}

/// All channels that a node may have, over one link: the next is refused at once, all are refreshed, and all that is held is
/// given back.
#[test]
fn a_node_full_of_channels_keeps_and_frees_them() {
    let mut network = Network::new(1, 3, &[(0, 1), (1, 2)], |_, _| {});
    network.rarely = true;
    network.run(SECOND);
    let mut opened = 0;
    while opened < CHANNELS_MAX {
        for _ in 0..256 {
            network.open(0, 1, 50);
            opened += 1;
        }
        network.run(3 * MILLI);
        network.hosts.iter_mut().for_each(|host| host.events.clear());
    }
    network.run(SECOND);
    let open = |n: &Network, host| n.states(host).iter().filter(|state| **state == "open").count();
    assert_eq!((open(&network, 0), open(&network, 1)), (CHANNELS_MAX, CHANNELS_MAX));
    for (from, to) in [(0, 1), (1, 0)] {
        let request = network.request(to, 50);
        let refused = network.at(from, |s, now, stages| s.open(request, now, stages));
        assert_eq!(refused.err(), Some(RequestError::Exhausted), "host {from}");
    }
    // A request from another neighbour is refused with that reason, too.
    network.open(2, 1, 50);
    network.run(SECOND);
    let reported = |event: &Event| matches!(event, Event::Refused { refusal, .. } if refusal.cause == RefuseCause::Exhausted);
    assert_eq!((network.count(2, reported), network.states(2).len()), (1, 0));
    network.run(30 * SECOND);
    (0..2).for_each(|host| network.check(host));
    assert_eq!((open(&network, 0), open(&network, 1)), (CHANNELS_MAX, CHANNELS_MAX));
    network.crash(0);
    network.run(30 * SECOND);
    assert!(network.nothing_held() && network.states(1).is_empty());
}

/// A host with the largest number of neighbours, each of which begins as many channels as it may: together
/// they fill it. One more of each is refused for its neighbour's part, one of the host's own for all, and
/// many requests without a reply leave no state.
#[test]
fn all_neighbours_may_begin_as_many_as_there_is_room_for_and_no_more() {
    let edges: Vec<_> = (1..=LINKS_MAX).map(|host| (0, host)).collect();
    let mut network = Network::new(1, LINKS_MAX + 1, &edges, |_, config| {
        config.signalling.consent_timeout = Nanos::from_secs(30);
        config.signalling.lease = Nanos::from_secs(60);
    });
    network.rarely = true;
    network.hosts[0].agent = Agent::Silent;
    network.run(3 * SECOND);
    for _ in 0..HALF_OPEN_PER_NEIGHBOUR_MAX {
        (1..=LINKS_MAX).for_each(|host| {
            network.open(host, 0, 50);
        });
    }
    network.run(2 * SECOND);
    let asked = network.count(0, |event| matches!(event, Event::Incoming(_)));
    assert_eq!((asked, network.states(0).len()), (CHANNELS_MAX, LINKS_MAX * HALF_OPEN_PER_NEIGHBOUR_MAX));
    (1..=LINKS_MAX).for_each(|host| {
        network.open(host, 0, 50);
    });
    network.run(SECOND);
    let refused = |host, n: &Network| {
        let is = |event: &Event| matches!(event, Event::Refused { refusal, .. } if matches!(refusal.cause, RefuseCause::Crowded | RefuseCause::Exhausted));
        n.count(host, is)
    };
    assert!((1..=LINKS_MAX).all(|host| refused(host, &network) == 1));
    let request = network.request(1, 50);
    let own = network.at(0, |s, now, stages| s.open(request, now, stages));
    assert_eq!(own.err(), Some(RequestError::Exhausted));
    network.check(0);
    network.run(60 * SECOND);
    assert!(network.nothing_held() && network.states(0).is_empty());
}

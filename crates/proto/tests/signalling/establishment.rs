//! Establishment without faults: only admission and applications refuse.

use punctual_analysis::{Contract, Instant, Nanos, Ppb, Ppm, Rate, Statistical};
use punctual_proto::api::{
    ChannelRefusal, CloseReason, Event, Grant, OpenRequest, Receipt, RefuseCause, RequestError, UserId,
};
use punctual_proto::config::RouteConfig;
use punctual_proto::ids::{Address, ChannelId, NodeId};
use punctual_proto::limits::{
    CLOCK_TOLERANCE_PPM_DEFAULT, HELLO_INTERVAL_DEFAULT, PROBES_BUDGET_DIVISOR, PROBES_PER_HELLO,
};

use crate::network::{Agent, MILLI, Network, PROPAGATION_MAX, SECOND, Stages, contract, name};

fn opened(network: &Network, index: usize) -> Option<(ChannelId, Grant)> {
    network.hosts[index].events.iter().find_map(|event| match event {
        Event::Opened { channel, grant } => Some((*channel, grant.clone())),
        _ => None,
    })
}
fn refused(network: &Network, index: usize) -> Option<ChannelRefusal> {
    network.hosts[index].events.iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    })
}
fn sink_channel(network: &Network, index: usize) -> Option<ChannelId> {
    network.hosts[index].events.iter().find_map(|event| match event {
        Event::Established { channel } => Some(*channel),
        _ => None,
    })
}

/// sum (d + p) + rho sum d, from the grant for the application.
fn total(grant: &Grant) -> u64 {
    let bounds: u64 = grant.stages.iter().map(|s| s.bound.0).sum();
    let propagation: u64 = grant.stages.iter().map(|s| s.propagation_max.0).sum();
    bounds + propagation + bounds.div_ceil(5_000)
}

#[test]
fn a_channel_is_established_over_one_to_five_hops_and_leaves_nothing() {
    for hops in 1..=5 {
        for modest in [false, true] {
            let mut network = Network::line(hops as u64, hops + 1, |_, _| {});
            network.hosts.iter_mut().for_each(|host| host.stages.modest = modest);
            let channel = network.open(0, hops, 50);
            assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "{hops} hops");
            let (id, grant) = opened(&network, 0).expect("opened");
            assert_eq!(id, channel);
            assert_eq!(grant.stages.len(), 2 * hops + 1);
            assert_eq!(grant.route.len(), hops + 1);
            assert_eq!(grant.deadline, Nanos::from_millis(50));
            assert!(total(&grant) <= 50 * MILLI, "{}", total(&grant));
            assert!(
                modest || total(&grant) >= 50 * MILLI - 1_000,
                "all of the leftover is used: {}",
                total(&grant)
            );
            assert!(grant.bound_possible < grant.deadline && grant.outbox_messages >= 4);
            check_terms(&network, &grant);
            let sink = sink_channel(&network, hops).expect("established");
            network.close(0, channel);
            network.run(2 * SECOND);
            assert!(network.nothing_held());
            assert!(network.has(0, |e| *e
                == Event::Closed { channel, reason: CloseReason::Local, receipt: Some(Receipt::default()) }));
            assert!(network.has(hops, |e| *e
                == Event::Closed { channel: sink, reason: CloseReason::Peer, receipt: None }));
        }
    }
}

/// Horizons and arrival errors cover what the final bounds upstream can do.
fn check_terms(network: &Network, grant: &Grant) {
    let mut upstream = Nanos::ZERO;
    for host in &network.hosts {
        let (local, terms, stages) = host.stages.committed.last().expect("committed");
        let bounds: Vec<_> = stages.iter().map(|stage| stage.bound).collect();
        for (index, stage) in stages.iter().enumerate() {
            assert!(terms.horizon(index, &bounds) >= upstream, "h covers the bounds upstream");
            // Besides its jitter allowance no message arrives so early that it could be late.
            let horizon = terms.horizon(index, &bounds) - terms.early;
            assert!(grant.deadline.0.saturating_sub(horizon.0) >= stage.bound.0);
            upstream += stage.bound;
        }
        let hops = u64::from(local.path.node != host.stages.node) * (u64::from(host.stages.node.0) - 1);
        let ahead: Nanos = upstream - bounds.iter().copied().sum();
        let fixed = (500_000 + PROPAGATION_MAX - crate::network::PROPAGATION_MIN) * hops;
        assert!(terms.arrival_error(&bounds).0 >= fixed + ahead.0 / 5_000, "J at {}", host.stages.node);
        assert!(hops > 0 || terms.arrival_error(&bounds) == Nanos::ZERO, "J(1) = 0");
    }
}

#[test]
fn the_worst_clock_on_the_route_decides_on_drift() {
    for worst in 0..4 {
        let mut network = Network::line(worst as u64, 4, |index, config| {
            config.clock_tolerance = Ppm(if index == worst { 1_900 } else { 10 });
        });
        network.open(0, 3, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "worst {worst}");
        let (_, grant) = opened(&network, 0).expect("opened");
        let bounds: u64 = grant.stages.iter().map(|s| s.bound.0).sum();
        let total = bounds + 3 * PROPAGATION_MAX + (bounds * 3_800).div_ceil(1_000_000);
        assert!((50 * MILLI - 10_000..=50 * MILLI).contains(&total), "worst {worst}: {total}");
    }
}

/// While a message is on its way, its packets' times are measured by one clock after the other. At each host they may be off
/// by what the worst of them parts from another one meanwhile, even if later clocks are better.
#[test]
fn the_worst_clock_before_a_host_counts_in_its_arrival_error() {
    for worst in 0..4 {
        let mut network = Network::line(worst as u64, 4, |index, config| {
            config.clock_tolerance = Ppm(if index == worst { 1_900 } else { 10 });
        });
        network.open(0, 3, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "worst {worst}");
        let mut upstream = Nanos::ZERO;
        for (index, host) in network.hosts.iter().enumerate() {
            let (_, terms, stages) = host.stages.committed.last().expect("committed");
            let bounds: Vec<_> = stages.iter().map(|stage| stage.bound).collect();
            let parted = Ppm(3_800).of(upstream);
            let error = terms.arrival_error(&bounds) - terms.arrival_error_fixed;
            assert!(index < worst || error >= parted, "worst {worst}, host {index}: {error} of {parted}");
            upstream += bounds.into_iter().sum();
        }
    }
}

#[test]
fn a_refusal_of_any_hop_names_it_and_releases_everything() {
    for hop in 0..5 {
        let mut network = Network::line(hop as u64, 5, |_, _| {});
        network.hosts[hop].stages.refuse = Some(RefuseCause::Exhausted);
        network.open(0, 4, 50);
        network.run(3 * SECOND);
        let refusal = refused(&network, 0).expect("refused");
        assert_eq!((refusal.node, refusal.cause), (NodeId(hop as u32 + 1), RefuseCause::Exhausted));
        assert!(network.nothing_held(), "hop {hop}");
        assert_eq!(network.count(4, |e| matches!(e, Event::Incoming(_))), 0);
    }
}

#[test]
fn a_commit_that_fails_at_any_hop_releases_everything_and_notifies_the_sink() {
    for hop in 0..4 {
        let mut network = Network::line(hop as u64, 4, |_, _| {});
        network.hosts[hop].stages.refuse_commit = true;
        network.open(0, 3, 50);
        network.run(3 * SECOND);
        let refusal = refused(&network, 0).expect("refused");
        assert_eq!(refusal.node, NodeId(hop as u32 + 1));
        assert!(matches!(refusal.cause, RefuseCause::Buffers(_)));
        assert!(network.nothing_held(), "hop {hop}");
        assert_eq!(network.has(3, |e| matches!(e, Event::Closed { .. })), hop < 3, "hop {hop}");
    }
}

#[test]
fn too_tight_a_deadline_is_refused_with_an_offer_that_holds() {
    for hops in 1..=4 {
        let mut network = Network::line(hops as u64, hops + 1, |_, _| {});
        network.open(0, hops, 1);
        network.run(3 * SECOND);
        let refusal = refused(&network, 0).expect("refused");
        let offer = refusal.offer.expect("an offer");
        assert!(network.nothing_held());
        let mut request = network.request(hops, 1);
        request.contract = offer;
        network.at(0, |s, now, stages| s.open(request, now, stages)).expect("tried");
        network.run(3 * SECOND);
        assert!(opened(&network, 0).is_some(), "{hops} hops: {:?}", network.hosts[0].events.last());
    }
}

#[test]
fn a_receivers_refusal_is_quoted() {
    let mut network = Network::line(1, 3, |_, _| {});
    network.hosts[2].agent = Agent::Refuse;
    network.open(0, 2, 50);
    network.run(3 * SECOND);
    let refusal = refused(&network, 0).expect("refused");
    assert_eq!((refusal.node, refusal.cause), (NodeId(3), RefuseCause::Receiver("no camera".into())));
    assert!(network.nothing_held());
}

#[test]
fn a_silent_receiver_is_given_up_after_the_time_for_consent() {
    let mut network = Network::line(1, 3, |_, _| {});
    network.hosts[2].agent = Agent::Silent;
    network.open(0, 2, 50);
    network.run(9 * SECOND);
    assert!(!network.nothing_held(), "it still thinks");
    network.run(2 * SECOND);
    assert_eq!(refused(&network, 0).expect("refused").cause, RefuseCause::ReceiverSilent);
    assert!(network.nothing_held());
    let asked = network.hosts[2].events.iter().find_map(|event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    });
    let late = network.at(2, |s, now, stages| s.consent(asked.expect("asked"), now, stages));
    assert_eq!(late, Err(RequestError::Unknown));
}

#[test]
fn a_request_that_cannot_be_sent_gives_the_reason() {
    let mut network = Network::line(1, 3, |_, _| {});
    let base = network.request(2, 50);
    let mut foreign_host = base.clone();
    foreign_host.to.host = name("nobody");
    let mut zero = base.clone();
    zero.contract.message_bytes_max = 0;
    let mut here = base.clone();
    here.to.host = name("h1");
    let mut token = base.clone();
    token.token = Some(99);
    let mut open = |request| network.at(0, |s, now, stages| s.open(request, now, stages));
    assert_eq!(open(foreign_host), Err(RequestError::UnknownHost(name("nobody"))));
    assert!(matches!(open(zero), Err(RequestError::Contract(_))));
    assert_eq!(open(here), Err(RequestError::Itself(name("h1"))));
    assert_eq!(open(token), Err(RequestError::Unknown));
    let again = network.at(0, |s, _, _| s.listen(name("in"), Nanos::ZERO));
    assert_eq!(again, Err(RequestError::NameTaken(name("in"))));
}

#[test]
fn an_open_without_a_listener_is_refused() {
    let mut network = Network::line(1, 3, |_, _| {});
    let mut request = network.request(2, 50);
    request.to.port = name("out");
    network.at(0, |s, now, stages| s.open(request, now, stages)).expect("tried");
    network.run(3 * SECOND);
    assert_eq!(refused(&network, 0).expect("refused").cause, RefuseCause::NoListener(name("out")));
    assert!(network.nothing_held());
}

/// 0 - 1 - 3 and 0 - 2 - 3.
fn diamond(seed: u64) -> Network {
    Network::new(seed, 4, &[(0, 1), (1, 3), (0, 2), (2, 3)], |index, config| {
        if index == 0 {
            config.routes = [2, 3].map(|by| RouteConfig { via: vec![NodeId(by), NodeId(4)] }).into();
        }
    })
}

#[test]
fn the_next_candidate_route_is_tried_and_the_best_refusal_reported() {
    let mut network = diamond(1);
    network.hosts[1].stages.refuse = Some(RefuseCause::Exhausted);
    network.open(0, 3, 50);
    network.run(3 * SECOND);
    let (_, grant) = opened(&network, 0).expect("opened");
    assert_eq!(grant.route, [NodeId(1), NodeId(3), NodeId(4)]);
    assert!(network.hosts[1].stages.held.is_empty());

    let mut network = diamond(2);
    network.hosts[1].stages.link_bound = 80 * MILLI;
    network.hosts[2].stages.refuse = Some(RefuseCause::Exhausted);
    network.open(0, 3, 50);
    network.run(3 * SECOND);
    let refusal = refused(&network, 0).expect("refused");
    assert_eq!(refusal.node, NodeId(2), "the one with an offer");
    assert!(refusal.offer.is_some() && network.nothing_held());
    assert_eq!(network.count(0, |e| matches!(e, Event::Refused { .. })), 1);
}

#[test]
fn a_neighbour_that_is_down_is_skipped() {
    let mut network = diamond(3);
    network.run(SECOND);
    network.crash(1);
    network.run(10 * SECOND);
    network.open(0, 3, 50);
    network.run(SECOND);
    assert_eq!(opened(&network, 0).expect("opened").1.route[1], NodeId(3));
}

#[test]
fn a_probe_reserves_nothing_needs_no_consent_and_returns_the_grant() {
    let mut network = Network::line(1, 5, |_, _| {});
    for (deadline_ms, fine) in [(50, true), (1, false)] {
        let mut request = network.request(4, deadline_ms);
        request.probe = true;
        let channel = network.at(0, |s, now, stages| s.open(request, now, stages)).expect("tried");
        assert!(network.run_until(3 * SECOND, |n| {
            n.has(0, |e| matches!(e, Event::Probed { channel: c, .. } if *c == channel))
        }));
        let answer = network.hosts[0].events.iter().find_map(|event| match event {
            Event::Probed { channel: c, answer } if *c == channel => Some(answer.clone()),
            _ => None,
        });
        match answer.expect("answered") {
            Ok(grant) => assert!(fine && grant.stages.len() == 9 && grant.bound_possible < grant.deadline),
            Err(refusal) => assert!(!fine && refusal.offer.is_some()),
        }
    }
    let holds: u32 = network.hosts.iter().map(|host| host.stages.holds).sum();
    assert_eq!(holds, 0);
    assert_eq!(network.count(4, |event| !matches!(event, Event::Link { .. })), 0);
    assert!(network.hosts.iter().all(|host| host.stages.probes > 0 || host.config.id == NodeId(5)));
    assert!((0..5).all(|index| network.states(index).is_empty()));
}

fn ask(network: &mut Network, receiver: usize, source: usize) -> u64 {
    let source = Address { port: name("in"), host: network.hosts[source].name() };
    let request = network
        .at(receiver, |s, now, _: &mut Stages| s.request(&source, name("in"), contract(50), UserId(3), now));
    request.expect("can be tried")
}

/// A reply that crosses the end of its request is counted, and has no effect.
#[test]
fn a_probes_answer_that_comes_too_late_is_counted() {
    for refused in [false, true] {
        let mut network = Network::line(3, 2, |_, _| {});
        assert!(network.run_until(5 * SECOND, |n| n.alive(0, 0) && n.alive(1, 0)));
        if refused {
            network.hosts[1].stages.refuse = Some(RefuseCause::Exhausted);
        }
        let request = OpenRequest { probe: true, ..network.request(1, 50) };
        let unexpected = |n: &Network| n.hosts[0].signalling.as_ref().expect("alive").counters().unexpected;
        let before = unexpected(&network);
        let channel = network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
        network.close(0, channel);
        network.run(SECOND);
        assert_eq!(unexpected(&network) - before, 1, "refused: {refused}");
        let is_answer = |event: &Event| matches!(event, Event::Probed { .. } | Event::Refused { .. });
        assert!(!network.has(0, is_answer));
    }
}

#[test]
fn a_receiver_requests_a_channel_from_the_source() {
    let mut network = Network::line(1, 4, |_, _| {});
    let token = ask(&mut network, 3, 0);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    assert!(
        network.has(3, |e| matches!(e, Event::Incoming(i) if i.token == Some(token) && i.from == name("h1")))
    );
    network.run(60 * SECOND);
    assert_eq!(network.count(3, |e| matches!(e, Event::RequestFailed { .. })), 0);
    assert!(network.all_in("open"), "refreshed");
}

#[test]
fn a_request_fails_with_its_reason() {
    let fails = |tune: &dyn Fn(&mut Network)| {
        let mut network = Network::line(1, 4, |_, _| {});
        tune(&mut network);
        network.run(SECOND);
        let token = ask(&mut network, 3, 0);
        network.run(60 * SECOND);
        assert!(network.nothing_held());
        let failed = network.hosts[3].events.iter().filter_map(|event| match event {
            Event::RequestFailed { token: t, refusal } if *t == token => Some(refusal.cause.clone()),
            _ => None,
        });
        let causes: Vec<_> = failed.collect();
        assert_eq!(causes.len(), 1, "told once");
        causes[0].clone()
    };
    assert_eq!(fails(&|n| n.hosts[0].agent = Agent::Refuse), RefuseCause::Receiver("no camera".into()));
    assert_eq!(fails(&|n| n.hosts[0].agent = Agent::Silent), RefuseCause::Timeout);
    assert_eq!(fails(&|n| n.hosts[1].stages.refuse = Some(RefuseCause::Exhausted)), RefuseCause::Exhausted);
    let deaf = |n: &mut Network| {
        n.crash(0);
        n.run(10 * SECOND);
    };
    assert_eq!(fails(&deaf), RefuseCause::Unreachable(NodeId(1)));
}

#[test]
fn a_close_of_the_receiver_notifies_every_host() {
    let mut network = Network::line(1, 4, |_, _| {});
    let channel = network.open(0, 3, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    let sink = sink_channel(&network, 3).expect("established");
    network.close(3, sink);
    network.run(SECOND);
    assert!(network.nothing_held());
    assert!(
        network.has(3, |e| *e == Event::Closed { channel: sink, reason: CloseReason::Local, receipt: None })
    );
    let reported = Event::Closed { channel, reason: CloseReason::Peer, receipt: Some(Receipt::default()) };
    assert!(network.has(0, |e| *e == reported));
}

#[test]
fn a_drained_source_releases_before_its_time_is_over() {
    let mut network = Network::line(1, 3, |_, _| {});
    let channel = network.open(0, 2, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.close(0, channel);
    assert_eq!(network.states(0), ["draining"]);
    assert_eq!(
        network.at(0, |s, now, stages| s.close(channel, CloseReason::Local, now, stages)),
        Err(RequestError::Unknown)
    );
    network.at(0, |s, now, stages| s.drained(channel, now, stages));
    network.run(70 * MILLI);
    assert!(network.nothing_held(), "D and the jitter allowance are enough for what was under way");
}

/// A host that stops gives a channel that is closing already no longer than it has: D and the jitter allowance, where its
/// grace is longer.
#[test]
fn a_host_that_stops_waits_no_longer_for_what_a_closed_channel_has_lost() {
    for stopped in [1, 2] {
        let mut network = Network::line(1, 3, |_, _| {});
        let channel = network.open(0, 2, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        network.close(0, channel);
        network.at(0, |s, now, stages| s.drained(channel, now, stages));
        network.run(10 * MILLI);
        assert_eq!(network.states(stopped), ["draining"], "a packet is missing");
        network.at(stopped, |s, now, stages| s.shutdown(now, stages));
        assert!(network.hosts[stopped].config.signalling.grace > Nanos::from_millis(100));
        network.run(60 * MILLI);
        assert!(network.hosts[stopped].stages.held.is_empty(), "host {stopped}");
    }
}

/// A message of a soft channel may miss at each stage, and may find no buffer in the pool of each host: all of this
/// together as often as the contract allows, and no more.
#[test]
fn the_parts_of_a_miss_ratio_add_up_to_what_the_contract_allows() {
    let miss_ratio = Ppb::new(10_000_000).expect("above 0");
    let mean_rate = Rate::per_second(10).expect("a rate");
    let statistical = Some(Statistical { mean_rate, mean_over: Nanos::from_secs(1), miss_ratio });
    for count in 2..=5 {
        let mut network = Network::line(1, count, |_, _| {});
        let request = network.request(count - 1, 100);
        let request = OpenRequest { contract: Contract { statistical, ..request.contract }, ..request };
        network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        let parts = network.hosts.iter().flat_map(|host| &host.stages.committed).map(|(local, _, stages)| {
            let part = local.soft.as_ref().expect("soft").miss_ratio;
            part.parts() * (stages.len() as u32 + 1)
        });
        let sum: u32 = parts.sum();
        assert!(sum <= miss_ratio.parts() && sum > miss_ratio.parts() / 100 * 99, "{count} hosts: {sum}");
    }
}

/// Messages of a soft channel arrive at a stage as much earlier or later than they were sent as the hosts
/// before may err, and as their clocks may drift apart within the deadline.
#[test]
fn a_soft_channel_counts_with_the_arrival_error_of_each_host() {
    let miss_ratio = Ppb::new(10_000_000).expect("above 0");
    let mean_rate = Rate::per_second(10).expect("a rate");
    let mean_over = Nanos::from_secs(1);
    let statistical = Some(Statistical { mean_rate, mean_over, miss_ratio });
    let mut network = Network::line(1, 4, |_, _| {});
    let request = network.request(3, 100);
    let request = OpenRequest { contract: Contract { statistical, ..request.contract }, ..request };
    network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    // rho, twice the tolerance of 100 ppm, of 100 ms.
    let drift = Nanos::from_micros(20);
    let mut before = None;
    for host in &network.hosts {
        let (local, terms, _) = host.stages.committed.last().expect("one");
        let soft = local.soft.as_ref().expect("soft");
        assert_eq!((soft.jitter, soft.mean_over), {
            let jitter = terms.arrival_error_fixed + drift;
            (jitter, mean_over + jitter)
        });
        assert_eq!(soft.mean_period, mean_rate.policed_interval());
        assert!(before.is_none_or(|before| before < soft.jitter), "each link adds to it");
        before = Some(soft.jitter);
    }
}

/// rho is twice the tolerance of the worst clock on the route, as each host knows it when its stages become
/// final; hosts with exact clocks have none.
#[test]
fn the_worst_clock_of_the_route_counts() {
    for tolerances in [[0, 0, 0], [7, 0, 0], [0, 7, 0], [0, 0, 7], [5, 1, 3]] {
        let mut network =
            Network::line(1, 3, |index, config| config.clock_tolerance = Ppm(tolerances[index]));
        network.open(0, 2, 100);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        let worst = Ppm(2 * tolerances.into_iter().max().expect("three"));
        let drifts = network.hosts.iter().map(|host| host.stages.committed.last().expect("one").1.drift);
        assert!(
            drifts.clone().all(|drift| drift == worst),
            "{tolerances:?}: {:?}",
            drifts.collect::<Vec<_>>()
        );
    }
}

#[test]
fn unlistening_keeps_what_is_open_and_refuses_what_waits() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.open(0, 1, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.hosts[1].agent = Agent::Silent;
    network.open(0, 1, 50);
    network.run(SECOND);
    assert_eq!(network.states(1), ["open", "asking"]);
    let listener = network.hosts[1].events.iter().find_map(|event| match event {
        Event::Incoming(incoming) => Some(incoming.listener),
        _ => None,
    });
    network.at(1, |s, now, stages| s.unlisten(listener.expect("known"), now, stages)).expect("it listens");
    network.run(SECOND);
    assert_eq!(network.states(1), ["open"]);
    assert_eq!(refused(&network, 0).expect("refused").cause, RefuseCause::NoListener(name("in")));
    assert!(
        network.has(1, |e| matches!(e, Event::Closed { .. })),
        "nobody is left with a channel that is none"
    );
}

#[test]
fn shutdown_of_any_host_tears_down_and_becomes_quiet() {
    for index in 0..4 {
        let mut network = Network::line(index as u64, 4, |_, _| {});
        network.open(0, 3, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        network.at(index, |s, now, stages| s.shutdown(now, stages));
        assert!(
            network
                .run_until(3 * SECOND, |n| n.hosts[index].signalling.as_ref().is_some_and(|s| s.is_quiet()))
        );
        network.run(SECOND);
        assert!(network.nothing_held(), "host {index}");
        assert!(network.has(0, |e| matches!(e, Event::Closed { .. })));
        assert!(network.has(3, |e| matches!(e, Event::Closed { .. })));
        let request = network.request(3, 50);
        if index == 0 {
            assert!(network.at(0, |s, now, stages| s.open(request, now, stages)).is_err());
        }
    }
}

#[test]
fn many_channels_are_kept_by_batched_refreshes_and_an_idle_host_seldom_runs() {
    let mut network = Network::line(1, 3, |_, _| {});
    for _ in 0..300 {
        network.open(0, 2, 50);
    }
    network.run(5 * SECOND);
    assert_eq!(network.states(1).iter().filter(|s| **s == "open").count(), 300);
    let before = network.hosts[0].signalling.as_ref().expect("alive").counters().packets_sent;
    network.run(100 * SECOND);
    // Ten probes a second while channels are open, a fifth of the budget, and less than four packets for all the rest.
    let sent = network.hosts[0].signalling.as_ref().expect("alive").counters().packets_sent - before;
    assert_eq!(network.states(2).iter().filter(|s| **s == "open").count(), 300, "five leases later");
    assert!((900..1_400).contains(&sent), "{sent} packets in 100 s");
}

#[test]
fn a_host_without_channels_sends_no_probes() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.run(5 * SECOND);
    let before = network.hosts[0].signalling.as_ref().expect("alive").counters().packets_sent;
    network.run(100 * SECOND);
    let sent = network.hosts[0].signalling.as_ref().expect("alive").counters().packets_sent - before;
    // About one in an interval: three packets a round, which either host begins.
    let intervals = 100 * SECOND / HELLO_INTERVAL_DEFAULT.0;
    assert!((intervals * 9 / 10..intervals * 5 / 2).contains(&sent), "{sent} packets in 100 s");
}

/// Ten probes in an interval while channels are open, as long as those are a fifth of the budget.
#[test]
fn probes_come_ten_times_in_an_interval_and_take_a_fifth_of_the_budget() {
    for budget in [50, 200, 20] {
        let mut network = Network::line(1, 2, |_, config| config.signalling.packets_per_second = budget);
        network.open(0, 1, 50);
        network.run(5 * SECOND);
        let counted = |n: &Network| n.hosts[0].signalling.as_ref().expect("alive").counters().packets_sent;
        let before = counted(&network);
        network.run(100 * SECOND);
        let sent = counted(&network) - before;
        let probes = 100 * PROBES_PER_HELLO.min(u64::from(budget) / PROBES_BUDGET_DIVISOR);
        assert!(
            (probes * 9 / 10..probes + 400).contains(&sent),
            "{budget}: {sent} packets in 100 s, {probes} probes"
        );
    }
}

#[test]
fn the_clock_error_bound_holds() {
    for seed in 0..20 {
        let mut network = Network::line(seed, 3, |_, config| {
            config.clock_tolerance = Ppm(CLOCK_TOLERANCE_PPM_DEFAULT);
        });
        let most = i64::from(CLOCK_TOLERANCE_PPM_DEFAULT);
        // Two that are as far apart as they may be, and one between.
        network.hosts.iter_mut().zip([most, -most, 0]).for_each(|(host, ppm)| host.clock_ppm = ppm);
        for round in 0..40 {
            network.run(700 * MILLI);
            for (here, link, there) in [(0, 0, 1), (1, 0, 0), (1, 1, 2), (2, 0, 1)] {
                let local = |index: usize| network.hosts[index].local(network.now);
                let signalling = network.hosts[here].signalling.as_ref().expect("alive");
                let view = signalling.neighbour(punctual_proto::ids::LinkId(link), local(here));
                let known = view.clock.map(|clock| (clock.offset_ns, clock.error_at(local(here)).0));
                let Some((offset, bound)) = known else {
                    assert!(round < 4, "seed {seed}: no round trip after {round} rounds");
                    continue;
                };
                let real = Instant::minus(local(there), local(here));
                assert!((offset - real).unsigned_abs() <= bound, "seed {seed}: {offset} {real} {bound}");
                assert!(round < 4 || bound < 2 * MILLI, "seed {seed}: {bound} is a useless bound");
                assert!(view.round_trip_min.is_some_and(|trip| trip.0 <= 2 * PROPAGATION_MAX + 1_000));
            }
        }
    }
}

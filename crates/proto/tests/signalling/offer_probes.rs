//! The offer of a refusal holds: a request with exactly the offered contract is granted.

use punctual_analysis::Nanos;
use punctual_proto::api::{ChannelRefusal, DegradedHost, Event, OpenRequest, RefuseCause};
use punctual_proto::config::Degraded;
use punctual_proto::ids::NodeId;

use crate::network::{MILLI, Network, SECOND, name};

fn refused(network: &Network) -> Option<ChannelRefusal> {
    network.hosts[0].events.iter().rev().find_map(|event| match event {
        Event::Refused { refusal, .. } | Event::Probed { answer: Err(refusal), .. } => Some(refusal.clone()),
        _ => None,
    })
}

/// Hosts whose links differ by much, so that no hop can guess what the others need.
fn uneven(seed: u64, hops: usize) -> Network {
    let mut network = Network::line(seed, hops + 1, |_, _| {});
    for index in 0..hops {
        let bound = 10_000 + network.random.below(20 * MILLI);
        network.hosts[index].stages.link_bound = bound;
    }
    network
}

#[test]
fn an_offered_deadline_is_granted_and_not_a_bit_too_long() {
    for seed in 0..100 {
        let hops = 1 + seed as usize % 5;
        let mut network = uneven(seed, hops);
        let mut request = network.request(hops, 1);
        request.contract.deadline = Nanos(50_000 + network.random.below(15 * MILLI));
        request.probe = seed % 2 == 0;
        network.at(0, |s, now, stages| s.open(request.clone(), now, stages)).expect("tried");
        network.run(3 * SECOND);
        let Some(refusal) = refused(&network) else { continue };
        let offer = refusal.offer.expect("an offer");
        assert_eq!(refusal.stages.len(), 2 * hops + 1, "seed {seed}: who would say yes");
        assert!(network.nothing_held(), "seed {seed}");
        for (less, granted) in [(1_000, false), (0, true)] {
            let mut again = request.clone();
            again.contract = offer;
            again.contract.deadline = offer.deadline - Nanos(less);
            again.probe = false;
            network.hosts[0].events.clear();
            network.at(0, |s, now, stages| s.open(again, now, stages)).expect("tried");
            network.run(3 * SECOND);
            let opened = network.has(0, |e| matches!(e, Event::Opened { .. }));
            assert_eq!(opened, granted, "seed {seed}: {less} ns less than offered, {offer:?}");
        }
    }
}

/// The hop that lacks rate offers less of it; that the deadline is too tight as well shows only further on.
#[test]
fn an_offered_rate_comes_with_a_deadline_that_holds() {
    let mut network = uneven(5, 4);
    network.hosts[2].stages.interval_min = Nanos::from_millis(90);
    let mut request = network.request(4, 1);
    request.contract.deadline = Nanos(400_000);
    network.at(0, |s, now, stages| s.open(request.clone(), now, stages)).expect("tried");
    network.run(3 * SECOND);
    let offer = refused(&network).and_then(|refusal| refusal.offer).expect("an offer");
    assert!(offer.policed_interval() >= Nanos::from_millis(90) && offer.deadline > request.contract.deadline);
    assert!(offer.interval() < Nanos::from_millis(93), "nor less than needed: {offer:?}");
    network
        .at(0, |s, now, stages| {
            let request = punctual_proto::api::OpenRequest { contract: offer, ..request };
            s.open(request, now, stages)
        })
        .expect("tried");
    network.run(3 * SECOND);
    assert!(network.has(0, |e| matches!(e, Event::Opened { .. })));
}

#[test]
fn only_accepted_terms_are_offered() {
    // There is no listener, so no application can accept.
    let mut network = uneven(1, 3);
    let mut request = network.request(3, 1);
    request.to.port = name("out");
    network.at(0, |s, now, stages| s.open(request, now, stages)).expect("tried");
    network.run(3 * SECOND);
    let refusal = refused(&network).expect("refused");
    assert!(refusal.offer.is_none() && refusal.stages.is_empty(), "{refusal:?}");
    // The route is cut behind the hop that refuses: the refusal arrives all the same, and soon.
    let mut network = uneven(2, 3);
    network.run(SECOND);
    network.crash(3);
    network.open(0, 3, 1);
    network.run(3 * SECOND);
    let refusal = refused(&network).expect("refused");
    assert!(refusal.offer.is_none(), "{refusal:?}");
    assert!(network.nothing_held() && network.states(0).is_empty());
}

/// The source has opened a channel for a receiver's request, is refused, probes the offer, and closes.
#[test]
fn a_requesting_receiver_is_notified_when_the_source_gives_up() {
    let mut network = uneven(5, 3);
    network.hosts[1].stages.interval_min = Nanos::from_millis(90);
    network.run(SECOND);
    let films = network.request(0, 50);
    let token = network
        .at(3, |s, now, _| s.request(&films.to, name("in"), films.contract, films.user, now))
        .expect("can be tried");
    assert!(network.run_until(SECOND, |n| n.states(0) == ["offering"]));
    let signalling = network.hosts[0].signalling.as_ref().expect("alive");
    let channel = signalling.channels().next().expect("offering").local.channel;
    network.close(0, channel);
    network.run(SECOND / 10);
    assert_eq!(network.count(3, |e| matches!(e, Event::RequestFailed { token: t, .. } if *t == token)), 1);
}

#[test]
fn hosts_are_reported_by_name() {
    let mut network = Network::line(1, 3, |_, _| {});
    network.run(SECOND);
    network.crash(2);
    network.run(10 * SECOND);
    network.open(0, 2, 50);
    network.run(3 * SECOND);
    let refusal = refused(&network).expect("refused");
    assert_eq!((refusal.node, &refusal.cause), (NodeId(2), &RefuseCause::Unreachable(NodeId(3))));
    assert_eq!(refusal.to_string(), "host h2: host h3 cannot be reached from here");
}

/// Each hop reports whether it can keep its promises; both ends get the report.
#[test]
fn a_degraded_host_is_known_at_both_ends() {
    for degraded in 0..4 {
        let mut network = Network::line(degraded as u64, 4, |_, _| {});
        network.hosts[degraded].stages.degraded = Some(Degraded::KernelTraffic);
        network.open(0, 3, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        let node = NodeId(degraded as u32 + 1);
        for index in 0..4 {
            let signalling = network.hosts[index].signalling.as_ref().expect("alive");
            let known: Vec<_> = signalling.channels().map(|channel| channel.degraded.to_vec()).collect();
            assert_eq!(known, [[DegradedHost { node, why: Degraded::KernelTraffic }]], "host {index}");
        }
        let grant = network.hosts[0].events.iter().find_map(|event| match event {
            Event::Opened { grant, .. } => Some(grant.clone()),
            _ => None,
        });
        let (grant, name) = (grant.expect("opened"), format!("h{}", degraded + 1));
        assert_eq!(grant.degraded_by(), [name.as_str()]);
        let why = format!("{name}: kernel traffic beside a link is not bounded");
        assert_eq!(grant.degraded_why(), [why]);
    }
}

/// A host with slow stages is not asked for a further offer once the application has waited for the time
/// limit.
#[test]
fn slow_stages_are_asked_for_no_further_offer() {
    let (mut quick, mut slow) = (0, 0);
    for seed in 0..30 {
        let mut network = uneven(seed, 1);
        network.hosts[0].stages.link_bound = 5 * MILLI;
        (network.thinking_max, network.thinker) = (2 * SECOND, Some(0));
        network.run(SECOND);
        let request = network.request(1, 1);
        network.at(0, |s, now, stages| s.open(request, now, stages)).expect("tried");
        let asked = |n: &Network, times| n.hosts[0].stages.probes == times;
        assert!(network.run_until(10 * SECOND, |n| asked(n, 1)), "seed {seed}: what it would need");
        // Others come first meanwhile: what is offered cannot be kept any more.
        network.hosts[0].stages.link_bound += 20 * MILLI;
        assert!(network.run_until(10 * SECOND, |n| asked(n, 2)), "seed {seed}: whether the offer holds");
        let begun = network.now;
        assert!(network.run_until(10 * SECOND, |n| asked(n, 3)), "seed {seed}: what it would need now");
        assert!(network.run_until(10 * SECOND, |n| asked(n, 4) || refused(n).is_some()), "seed {seed}");
        let is_late = network.now - begun > 2 * SECOND;
        let refusal = refused(&network);
        assert_eq!(refusal.is_some(), is_late, "seed {seed}: it is told, or the next offer is asked for");
        *(if is_late { &mut slow } else { &mut quick }) += 1;
        if let Some(refusal) = refusal {
            assert_eq!(refusal.offer, None, "nobody has said yes to any");
            network.run(20 * SECOND);
            assert!(asked(&network, 3), "seed {seed}: nothing more is asked");
        }
    }
    assert!(quick > 3 && slow > 3, "{quick} {slow}");
}

/// Another hop refuses with an offer; meanwhile this host has nothing left itself.
#[test]
fn what_this_host_cannot_give_itself_is_not_offered() {
    let mut network = uneven(5, 4);
    network.run(SECOND);
    network.hosts[2].stages.interval_min = Nanos::from_millis(90);
    let request = network.request(4, 50);
    network.at(0, |s, now, stages| s.open(request, now, stages)).expect("tried");
    network.hosts[0].stages.refuse = Some(RefuseCause::Exhausted);
    network.run(3 * SECOND);
    let refusal = refused(&network).expect("refused");
    assert_eq!((refusal.node, refusal.offer), (NodeId(3), None), "the hop that refused first is named");
    assert!(network.nothing_held() && network.states(0).is_empty());
}

/// Each host tests a probe on the terms on which the same channel becomes final: its bounds, the time that is
/// left, the smallest bounds before it, the error of arrivals.
#[test]
fn a_probe_is_tested_on_the_terms_of_its_channel() {
    for count in 2..=5 {
        let mut network = Network::line(1, count, |_, _| {});
        network.run(2 * SECOND);
        let request = OpenRequest { probe: true, ..network.request(count - 1, 100) };
        network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
        network.run(2 * SECOND);
        let tested: Vec<_> = network.hosts.iter().map(|host| host.stages.tested.clone()).collect();
        network.open(0, count - 1, 100);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        for (host, tested) in network.hosts.iter().zip(tested) {
            let (_, terms, _) = host.stages.committed.last().expect("one");
            assert_eq!(tested.as_ref(), Some(terms), "{count} hosts: {:?}", host.config.id);
        }
    }
}

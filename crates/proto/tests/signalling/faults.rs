//! Loss, duplication, reordering, crashes, restarts, recordings and forgeries.

use punctual_analysis::Nanos;
use punctual_proto::api::{CloseReason, Event, OpenRequest, RefuseCause, UserId};
use punctual_proto::ids::Address;
use punctual_proto::limits::{ASKS_WAITING_MAX, LEASE_DEFAULT, REFRESHES_PER_LEASE};
use punctual_proto::signalling::{RTCOP_VERSION, renumbered};

use crate::network::{Agent, Flying, MILLI, Network, SECOND, contract, name};

#[test]
fn a_bad_medium_converges_and_holds_nothing_twice() {
    for seed in 0..25 {
        let mut network = Network::line(seed, 6, |_, config| {
            // So that bad luck is not taken for death.
            config.signalling.hello_interval = Nanos::from_secs(4);
            config.signalling.retransmits_max = 10;
        });
        (network.loss_percent, network.double_percent, network.reorder_percent) = (30, 20, 30);
        if seed % 2 == 1 {
            // One direction loses much, the other little.
            network.loss_percent = 5;
            network.lopsided(50);
        }
        let channel = network.open(0, 5, 200);
        network.hosts[0].events.clear();
        assert!(network.run_until(60 * SECOND, |n| n.all_in("open")), "seed {seed}");
        assert!(
            network.hosts.iter().all(|host| host.stages.holds == 1),
            "seed {seed}: held once at each hop"
        );
        network.run(60 * SECOND);
        assert!(network.all_in("open"), "seed {seed}: three leases later");
        network.close(0, channel);
        assert!(network.run_until(60 * SECOND, Network::nothing_held), "seed {seed}");
        let refused = network.count(0, |e| matches!(e, Event::Refused { .. }));
        assert_eq!(refused, 0, "seed {seed}");
    }
}

#[test]
fn many_channels_come_and_go_on_a_bad_medium() {
    for seed in 0..10 {
        let mut network = Network::line(100 + seed, 4, |_, _| {});
        (network.loss_percent, network.double_percent, network.reorder_percent) = (10, 10, 20);
        if seed >= 5 {
            network.loss_percent = 0;
            network.lopsided(30);
        }
        let mut open = Vec::new();
        for _ in 0..60 {
            let (from, to) = [(0, 3), (3, 0), (1, 3), (2, 0)][network.random.below(4) as usize];
            open.push((from, network.open(from, to, 100)));
            network.run(200 * MILLI);
            if network.random.below(2) == 0 {
                let (at, channel) = open.swap_remove(network.random.below(open.len() as u64) as usize);
                network.close(at, channel);
            }
        }
        for (at, channel) in open {
            network.at(at, |s, now, stages| s.close(channel, CloseReason::Local, now, stages).ok());
        }
        network.lossy.clear();
        network.run(30 * SECOND);
        assert!(network.nothing_held(), "seed {seed}");
    }
}

/// Opens, keeps open for a moment, closes; `fault` strikes host `victim` after `step` steps.
fn life(
    seed: u64,
    victim: usize,
    step: usize,
    hello_secs: u64,
    fault: impl Fn(&mut Network, usize),
) -> Network {
    life_of(seed, victim, step, (hello_secs, 0), fault)
}

/// The same with stages that take up to `thinking_max` for each reply.
pub fn life_of(
    seed: u64,
    victim: usize,
    step: usize,
    (hello_secs, thinking_max): (u64, u64),
    fault: impl Fn(&mut Network, usize),
) -> Network {
    let mut network = Network::line(seed, 4, |_, config| {
        config.signalling.hello_interval = Nanos::from_secs(hello_secs);
    });
    network.thinking_max = thinking_max;
    network.run(SECOND);
    let channel = network.open(0, 3, 50);
    let until = network.now + 20 * SECOND;
    let mut closing = false;
    for taken in 0.. {
        if taken == step {
            fault(&mut network, victim);
            break;
        }
        if !closing && network.has(3, |e| matches!(e, Event::Established { .. })) {
            closing = true;
            if network.random.below(2) == 0 {
                network.close(0, channel);
            }
        }
        network.step(until);
    }
    network
}

#[test]
fn a_crash_of_any_host_at_any_step_frees_everything_within_a_lease() {
    // With frequent HELLOs neighbours notice; with rare ones the lease alone must do.
    for hello_secs in [1, 30] {
        for victim in 0..4 {
            for step in 0..40 {
                let seed = 1_000 * victim as u64 + step as u64;
                let mut network = life(seed, victim, step, hello_secs, Network::crash);
                network.run(22 * SECOND);
                let ends: Vec<_> = [0, 3].into_iter().filter(|end| *end != victim).collect();
                assert!(network.nothing_held(), "seed {seed} victim {victim} step {step} hello {hello_secs}");
                for end in ends {
                    let begun =
                        network.count(end, |e| matches!(e, Event::Opened { .. } | Event::Incoming(_)));
                    let ended = network.count(end, |e| matches!(e, Event::Closed { .. }));
                    assert_eq!(begun, ended, "seed {seed} victim {victim} step {step}: host {end} is told");
                }
            }
        }
    }
}

#[test]
fn a_restart_at_any_step_is_noticed_at_once() {
    for victim in 0..4 {
        for step in 0..40 {
            let seed = 2_000 + 1_000 * victim as u64 + step as u64;
            let mut network = life(seed, victim, step, 1, |network, victim| {
                network.crash(victim);
                network.start(victim);
            });
            network.run(4 * SECOND);
            // Where CREATE had not come so far yet, it finds the new life.
            let anew = network.all_in("open");
            assert!(anew || network.nothing_held(), "seed {seed} victim {victim} step {step}");
            network.hosts.iter_mut().for_each(|host| host.events.clear());
            network.open(0, 3, 50);
            let open = |n: &Network, count| (0..4).all(|host| n.states(host) == vec!["open"; count]);
            let lives = network.run_until(4 * SECOND, |n| open(n, 1 + usize::from(anew)));
            assert!(lives, "seed {seed} victim {victim} step {step}: life goes on");
        }
    }
}

#[test]
fn the_other_end_is_notified_of_a_restart() {
    for (victim, other) in [(0, 2), (2, 0)] {
        let mut network = Network::line(1, 3, |_, _| {});
        network.open(0, 2, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        network.crash(victim);
        network.start(victim);
        network.run(4 * SECOND);
        let restarted = |e: &Event| matches!(e, Event::Closed { reason: CloseReason::PeerRestarted, .. });
        assert!(network.has(other, restarted), "{:?}", network.hosts[other].events);
        assert!(network.nothing_held());
    }
}

#[test]
fn a_receiver_of_an_unrefreshed_channel_gets_lease_over() {
    // HELLOs are so rare that only the lease detects it. The source of three hosts, then the forwarder falls
    // silent.
    for victim in [0, 1] {
        let mut network = Network::line(1, 3, |_, config| {
            config.signalling.hello_interval = Nanos::from_secs(30);
        });
        network.open(0, 2, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
        // Long enough for a lease that is not renewed: refreshes count.
        let timing = &network.hosts[2].config.signalling;
        let (lease, grace) = (timing.lease.0, timing.grace.0);
        assert_eq!(lease, LEASE_DEFAULT.0);
        network.run(2 * lease);
        assert!(network.all_in("open"));
        network.crash(victim);
        let closed = |n: &Network| n.has(2, |e| matches!(e, Event::Closed { .. }));
        // The last refresh arrived at most a fifth of a lease and a packet ago.
        network.run(lease - lease / REFRESHES_PER_LEASE - lease / 10);
        assert!(!closed(&network), "victim {victim}: too early");
        // A sink that is notified by the forwarder waits for packets under way.
        network.run(lease * 3 / 10 + grace);
        assert!(closed(&network), "victim {victim}: too late");
        let reported = |e: &Event| matches!(e, Event::Closed { reason: CloseReason::LeaseOver, .. });
        assert!(network.has(2, reported), "victim {victim}: {:?}", network.hosts[2].events);
        network.run(SECOND);
        assert!(network.nothing_held(), "victim {victim}");
    }
}

#[test]
fn an_unanswered_open_ends_with_the_reason() {
    let mut network = Network::line(1, 3, |_, _| {});
    network.run(SECOND);
    network.crash(2);
    network.open(0, 2, 50);
    network.run(40 * SECOND);
    let unreachable = RefuseCause::Unreachable(network.hosts[2].config.id);
    assert!(network.has(0, |e| matches!(e, Event::Refused { refusal, .. } if refusal.cause == unreachable)));
    assert!(network.nothing_held());
}

#[test]
fn a_partition_ends_channels_on_both_sides_and_heals() {
    let mut network = Network::line(1, 4, |_, _| {});
    network.open(0, 3, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.loss_percent = 100;
    network.run(10 * SECOND);
    assert!(network.nothing_held());
    for end in [0, 3] {
        assert!(network.has(end, |e| matches!(e, Event::Closed { reason: CloseReason::PathLost, .. })));
        assert!(!network.alive(end, 0));
    }
    network.loss_percent = 0;
    network.run(4 * SECOND);
    assert!(network.alive(0, 0) && network.alive(1, 0) && network.alive(1, 1));
    network.hosts.iter_mut().for_each(|host| host.events.clear());
    network.open(0, 3, 50);
    assert!(network.run_until(2 * SECOND, |n| n.all_in("open")));
}

/// Every packet of a life, from the first HELLO to the last DESTROY.
fn recorded(seed: u64) -> (Network, Vec<Flying>) {
    let mut network = Network::line(seed, 3, |_, _| {});
    network.tape = Some(Vec::new());
    let channel = network.open(0, 2, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    network.close(0, channel);
    network.run(2 * SECOND);
    let tape = network.tape.take().expect("recording");
    (network, tape)
}

#[test]
fn recordings_change_nothing_in_this_life_or_the_next() {
    for restart in [false, true] {
        for seed in 0..5 {
            let (mut network, tape) = recorded(seed);
            if restart {
                (0..3).for_each(|index| network.crash(index));
                (0..3).for_each(|index| network.start(index));
                network.run(4 * SECOND);
            }
            network.hosts.iter_mut().for_each(|host| host.events.clear());
            network.open(0, 2, 50);
            assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "seed {seed}");
            let holds: Vec<_> = network.hosts.iter().map(|host| host.stages.holds).collect();
            let replayed = |n: &Network| -> u64 {
                n.hosts.iter().filter_map(|h| h.signalling.as_ref()).map(|s| s.counters().replayed).sum()
            };
            let before = replayed(&network);
            for flying in &tape {
                network.deliver(flying);
            }
            assert!(replayed(&network) - before >= tape.len() as u64 / 2, "seed {seed}: counted");
            network.run(30 * SECOND);
            assert!(network.all_in("open"), "seed {seed} restart {restart}");
            assert_eq!(holds, network.hosts.iter().map(|host| host.stages.holds).collect::<Vec<_>>());
            assert!(!network.has(2, |e| matches!(e, Event::Closed { .. })));
        }
    }
}

/// The packets of the simulator's insider: it has the domain's key, so its packets are accepted; their
/// repeated content changes nothing.
#[test]
fn recordings_under_fresh_numbers_are_taken_and_change_nothing() {
    for seed in 0..5 {
        let (mut network, tape) = recorded(seed);
        network.open(0, 2, 50);
        assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "seed {seed}");
        let counters = |n: &Network| {
            let each = n.hosts.iter().filter_map(|host| host.signalling.as_ref()).map(|s| s.counters());
            each.fold((0, 0), |(replayed, foreign), c| (replayed + c.replayed, foreign + c.unauthenticated))
        };
        let holds = |n: &Network| n.hosts.iter().map(|host| host.stages.holds).collect::<Vec<_>>();
        let before = (counters(&network), holds(&network));
        for (index, flying) in tape.iter().enumerate() {
            let (_, bytes) =
                renumbered(&[9; 32], &flying.bytes, |_| 1_000_000 + index as u64).expect("a packet");
            network.deliver(&Flying { bytes, ..*flying });
        }
        assert_eq!((counters(&network), holds(&network)), before, "seed {seed}");
        assert!(network.all_in("open"), "seed {seed}");
    }
}

#[test]
fn forgeries_garbage_and_other_versions_are_counted_and_ignored() {
    let (mut network, tape) = recorded(3);
    network.open(0, 2, 50);
    assert!(network.run_until(5 * SECOND, |n| n.all_in("open")));
    for (index, flying) in tape.iter().enumerate() {
        let mut forged = flying.clone();
        let byte = 1 + network.random.below(forged.bytes.len() as u64 - 1) as usize;
        forged.bytes[byte] ^= 1 << network.random.below(8);
        network.deliver(&forged);
        let mut version = flying.clone();
        version.bytes[0] = RTCOP_VERSION + 1;
        network.deliver(&version);
        let mut cut = flying.clone();
        cut.bytes.truncate(index % 16);
        network.deliver(&cut);
    }
    let counters = |n: &Network, index: usize| n.hosts[index].signalling.as_ref().expect("alive").counters();
    let sum = |n: &Network, of: fn(&punctual_proto::signalling::SignallingCounters) -> u64| -> u64 {
        (0..3).map(|index| of(&counters(n, index))).sum()
    };
    assert_eq!(sum(&network, |c| c.unauthenticated), tape.len() as u64);
    assert_eq!(sum(&network, |c| c.version), tape.len() as u64);
    assert_eq!(sum(&network, |c| c.malformed), tape.len() as u64);
    assert!(network.all_in("open"));
}

#[test]
fn a_host_of_another_domain_is_unknown() {
    let mut network = Network::line(1, 2, |index, config| config.signalling.domain_key = [index as u8; 32]);
    network.open(0, 1, 50);
    network.run(30 * SECOND);
    assert!(!network.alive(0, 0) && !network.alive(1, 0));
    assert!(network.has(0, |e| matches!(e, Event::Refused { .. })));
    assert!(network.hosts[0].signalling.as_ref().expect("alive").counters().unauthenticated > 0);
}

/// Late replies get no reply: otherwise slow ends would have time for nothing else, and never meet.
#[test]
fn late_packets_between_new_neighbours_cause_no_storm() {
    for seed in 0..5 {
        let mut network = Network::line(seed, 2, |_, config| {
            config.signalling.hello_interval = Nanos::from_secs(1);
        });
        network.lag = 400 * MILLI;
        assert!(network.run_until(8 * SECOND, |n| n.alive(0, 0) && n.alive(1, 0)), "seed {seed}");
        // A restart of both within their round trip: each receives replies to its former life first.
        (0..2).for_each(|host| network.crash(host));
        (0..2).for_each(|host| network.start(host));
        let before = network.delivered;
        network.run(8 * SECOND);
        let delivered = network.delivered - before;
        assert!(network.alive(0, 0) && network.alive(1, 0), "seed {seed}");
        assert!(delivered < 100, "seed {seed}: {delivered} packets in 8 s");
    }
}

/// Opens as many channels from host 0 to host 1 as may be half open at once, and some more; how many are refused for that.
pub fn refused_beyond_half_open(network: &mut Network, more: usize) -> usize {
    for _ in 0..punctual_proto::limits::HALF_OPEN_PER_NEIGHBOUR_MAX + more {
        network.open(0, 1, 50);
        network.run(MILLI);
    }
    network.run(SECOND);
    network.count(0, |e| matches!(e, Event::Refused { refusal, .. } if refusal.cause == RefuseCause::Crowded))
}

#[test]
fn a_flood_of_half_open_channels_is_refused_beyond_the_limit() {
    let mut network = Network::line(1, 2, |_, _| {});
    network.hosts[1].agent = Agent::Silent;
    network.run(SECOND);
    assert_eq!(refused_beyond_half_open(&mut network, 10), 10);
    // Another user finds a place all the same: the last one of the first gives way.
    let request = OpenRequest { user: UserId(8), ..network.request(1, 50) };
    network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
    network.run(MILLI * 10);
    let asked = |e: &Event| matches!(e, Event::Incoming(incoming) if incoming.user == UserId(8));
    assert_eq!(network.count(1, asked), 1);
    let crowded =
        |e: &Event| matches!(e, Event::Refused { refusal, .. } if refusal.cause == RefuseCause::Crowded);
    assert_eq!(network.count(0, crowded), 11);
    network.run(30 * SECOND);
    assert!(network.nothing_held());
}

#[test]
fn what_waits_for_a_slow_neighbour_is_bounded_and_the_rest_refused() {
    let mut network = Network::line(1, 2, |_, config| config.links[0].packet_bytes_max = 192);
    network.loss_percent = 100;
    for _ in 0..ASKS_WAITING_MAX + 1_000 {
        network.open(0, 1, 50);
    }
    let busy = |e: &Event| matches!(e, Event::Refused { refusal, .. } if matches!(refusal.cause, RefuseCause::Busy(_)));
    let refused = network.count(0, busy);
    assert!((990..1_000).contains(&refused), "{refused}");
    // So is a request of the same user for a channel from there, at once.
    let source = Address { port: name("in"), host: network.hosts[1].name() };
    let user = network.request(1, 50).user;
    let asked = network.at(0, |s, now, _| s.request(&source, name("in"), contract(50), user, now));
    let asked = asked.expect("can be tried");
    let is_told = |event: &Event| {
        matches!(event, Event::RequestFailed { token, refusal }
            if *token == asked && matches!(refusal.cause, RefuseCause::Busy(_)))
    };
    assert_eq!(network.count(0, is_told), 1);
    // Another user finds a place all the same.
    let request = OpenRequest { user: UserId(8), ..network.request(1, 50) };
    let other = network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
    network.run(MILLI);
    assert_eq!(network.count(0, busy), refused + 1);
    network.loss_percent = 0;
    network.run(8 * SECOND);
    let opened = network.count(0, |e| matches!(e, Event::Opened { .. }));
    assert!(network.has(0, |e| matches!(e, Event::Opened { channel, .. } if *channel == other)));
    assert_eq!(opened, ASKS_WAITING_MAX + 1_000 - refused, "nobody is given up for it");
    assert_eq!(network.states(0), vec!["open"; opened]);
}

/// The limit is each neighbour's own: a flooding neighbour takes no place of another one.
#[test]
fn a_flood_of_one_neighbour_refuses_no_channels_of_others() {
    let mut network = Network::new(1, 3, &[(0, 1), (2, 1)], |_, _| {});
    network.hosts[1].agent = Agent::Silent;
    network.run(SECOND);
    assert_eq!(refused_beyond_half_open(&mut network, 3), 3);
    for _ in 0..20 {
        network.open(2, 1, 50);
        network.run(MILLI);
    }
    network.run(SECOND);
    assert_eq!(network.count(2, |e| matches!(e, Event::Refused { .. })), 0);
    assert_eq!(network.states(2).len(), 20);
    network.run(30 * SECOND);
    assert!(network.nothing_held());
}

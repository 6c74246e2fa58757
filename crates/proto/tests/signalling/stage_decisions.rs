//! Stages that reply later: packets, closes, crashes and shutdowns occur in between.

use punctual_proto::Nanos;
use punctual_proto::api::{CloseReason, Event, RefuseCause};

use crate::faults::{life_of, refused_beyond_half_open};
use crate::network::{MILLI, Network, PROPAGATION_MAX, SECOND};
use crate::one_way::OneWay;

/// Longest thinking times: shorter and longer than a round trip.
const THINKING: [u64; 2] = [MILLI, 80 * MILLI];

fn thinking(seed: u64, hosts: usize, thinking_max: u64) -> Network {
    let mut network = Network::line(seed, hosts, |_, _| {});
    network.thinking_max = thinking_max;
    network.run(SECOND);
    network
}

#[test]
fn a_channel_is_established_whatever_time_the_stages_take() {
    for thinking_max in THINKING {
        for seed in 0..20 {
            let mut network = thinking(seed, 5, thinking_max);
            let channel = network.open(0, 4, 100);
            assert!(network.run_until(5 * SECOND, |n| n.all_in("open")), "seed {seed} {thinking_max}");
            assert!(network.hosts.iter().all(|host| host.stages.holds == 1), "seed {seed}: held once");
            network.close(0, channel);
            assert!(network.run_until(5 * SECOND, Network::nothing_held), "seed {seed} {thinking_max}");
        }
    }
}

/// A channel over three links that its application closes after `step` steps. From then on one direction fails as
/// `worse` says.
fn closed_after(step: u64, thinking_max: u64, worse: Option<OneWay>) -> Network {
    let mut network = thinking(step, 4, thinking_max);
    let channel = network.open(0, 3, 100);
    let until = network.now + 20 * SECOND;
    (0..step).for_each(|_| assert!(network.step(until)));
    worse.into_iter().for_each(|worse| network.worsen_one_way(worse));
    network.at(0, |s, now, stages| s.close(channel, CloseReason::Local, now, stages).ok());
    network
}

/// Nothing is held, the application was notified once, and the receiver of each end of which it heard the begin.
fn assert_ended(network: &Network, case: &str) {
    assert!(network.nothing_held(), "{case}");
    let ended = |e: &Event| matches!(e, Event::Closed { .. });
    let reported = |e: &Event| matches!(e, Event::Incoming(_));
    assert_eq!(network.count(0, ended), 1, "{case}");
    assert_eq!(network.count(3, reported), network.count(3, ended), "{case}");
}

/// At any time at which the application closes its request, no state is left anywhere, and it is notified
/// once.
#[test]
fn a_close_at_any_step_leaves_nothing() {
    for thinking_max in THINKING {
        for step in 0..60 {
            let mut network = closed_after(step, thinking_max, None);
            network.run(15 * SECOND);
            assert_ended(&network, &format!("step {step} {thinking_max}"));
        }
    }
}

/// So it is where one direction of the links loses packets, is late, or of one link is cut for good.
#[test]
fn a_close_at_any_step_leaves_nothing_where_one_direction_fails() {
    for thinking_max in THINKING {
        for step in 0..90 {
            let worse = OneWay::of(step);
            let mut network = closed_after(step / 3, thinking_max, Some(worse));
            network.run(30 * SECOND);
            assert!(network.was_worse_one_way(), "step {step} {worse:?}");
            assert_ended(&network, &format!("step {} {worse:?} {thinking_max}", step / 3));
        }
    }
}

#[test]
fn a_crash_of_any_host_at_any_step_frees_everything_within_a_lease() {
    let mut worse_one_way = 0;
    for victim in 0..4 {
        for step in 0..60 {
            let seed = 7_000 + 1_000 * victim as u64 + step as u64;
            let times = (if step % 2 == 0 { 1 } else { 30 }, THINKING[step / 2 % 2]);
            let mut network = life_of(seed, victim, step, times, Network::crash);
            // Every third is as before; in the others one direction of the links that are left fails, too.
            if step % 3 > 0 {
                network.worsen_one_way(OneWay::of(step as u64 / 3));
            }
            network.run(22 * SECOND);
            worse_one_way += usize::from(network.was_worse_one_way());
            assert!(network.nothing_held(), "seed {seed} victim {victim} step {step}");
        }
    }
    // Nothing is lost where what is cut comes from the host that has crashed.
    assert!((140..=160).contains(&worse_one_way), "{worse_one_way}");
}

#[test]
fn a_restart_at_any_step_leaves_nothing_of_the_former_life() {
    for victim in 0..4 {
        for step in 0..60 {
            let seed = 17_000 + 1_000 * victim as u64 + step as u64;
            let mut network = life_of(seed, victim, step, (1, THINKING[step % 2]), |network, victim| {
                network.crash(victim);
                network.start(victim);
            });
            network.run(4 * SECOND);
            assert!(
                network.all_in("open") || network.nothing_held(),
                "seed {seed} victim {victim} step {step}"
            );
        }
    }
}

/// A host that stops while its stages decide refuses what has not begun, and becomes quiet.
#[test]
fn a_shutdown_at_any_step_becomes_quiet() {
    for victim in 0..4 {
        for step in 0..60 {
            let seed = 27_000 + 1_000 * victim as u64 + step as u64;
            let mut network = life_of(seed, victim, step, (1, THINKING[step % 2]), |network, victim| {
                network.at(victim, |s, now, stages| s.shutdown(now, stages));
            });
            network.run(15 * SECOND);
            assert!(network.nothing_held(), "seed {seed} victim {victim} step {step}");
            let quiet = network.hosts[victim].signalling.as_ref().is_some_and(|s| s.is_quiet());
            assert!(quiet, "seed {seed} victim {victim} step {step}");
        }
    }
}

/// Opens and closes 60 channels; `before` each of them the medium may change. In the end no stage holds anything.
fn come_and_go(seed: u64, before: impl Fn(&mut Network, u64)) {
    let mut network = Network::line(300 + seed, 4, |_, _| {});
    network.thinking_max = THINKING[seed as usize % 2];
    let mut open = Vec::new();
    for number in 0..60 {
        before(&mut network, number);
        let (from, to) = [(0, 3), (3, 0), (1, 3), (2, 0)][network.random.below(4) as usize];
        open.push((from, network.open(from, to, 100)));
        let pause = network.random.below(200 * MILLI);
        network.run(pause);
        if network.random.below(2) == 0 {
            let (at, channel) = open.swap_remove(network.random.below(open.len() as u64) as usize);
            network.at(at, |s, now, stages| s.close(channel, CloseReason::Local, now, stages).ok());
        }
    }
    for (at, channel) in open {
        network.at(at, |s, now, stages| s.close(channel, CloseReason::Local, now, stages).ok());
    }
    network.run(30 * SECOND);
    assert!(network.nothing_held(), "seed {seed}");
}

#[test]
fn many_channels_come_and_go_on_a_bad_medium() {
    for seed in 0..6 {
        come_and_go(seed, |network, _| {
            (network.loss_percent, network.double_percent, network.reorder_percent) = (10, 10, 20);
        });
    }
}

/// One direction after the other loses packets, is late or is cut. How it ends with is kept until all is over.
#[test]
fn many_channels_come_and_go_where_one_direction_fails() {
    for seed in 0..9 {
        come_and_go(seed, |network, number| {
            (network.double_percent, network.reorder_percent) = (10, 20);
            if number % 20 == 0 {
                assert!(number == 0 || network.was_worse_one_way(), "seed {seed} channel {number}");
                network.mend();
                network.worsen_one_way(OneWay::of(seed + number / 20));
            }
        });
    }
}

/// The offer of a refusal equals that of stages that reply at once.
#[test]
fn an_offer_does_not_depend_on_the_time_that_it_takes() {
    let offer = |thinking_max| {
        let mut network = thinking(5, 4, thinking_max);
        network.open(0, 3, 2);
        assert!(network.run_until(10 * SECOND, |n| n.has(0, |e| matches!(e, Event::Refused { .. }))));
        let refusal = network.hosts[0].events.iter().find_map(|event| match event {
            Event::Refused { refusal, .. } => Some(refusal.clone()),
            _ => None,
        });
        let refusal = refusal.expect("refused");
        assert!(network.nothing_held());
        (
            refusal.node,
            refusal.offer,
            matches!(refusal.cause, RefuseCause::Stage { .. } | RefuseCause::Deadline { .. }),
        )
    };
    let at_once = offer(0);
    assert!(at_once.1.is_some() && at_once.2, "{at_once:?}");
    THINKING.into_iter().for_each(|thinking_max| assert_eq!(offer(thinking_max), at_once));
}

/// Half-open channels count from the time at which the stages are asked.
#[test]
fn channels_that_wait_for_stages_count_as_half_open() {
    let mut network = thinking(1, 2, 0);
    (network.thinking_max, network.thinker) = (3_000 * SECOND, Some(1));
    assert_eq!(refused_beyond_half_open(&mut network, 10), 10);
}

/// All stages may use what D leaves them, but for two nanoseconds of rounding where their sum is divided by the drift.
#[test]
fn a_deadline_may_be_as_short_as_what_the_stages_need() {
    let bounds = 100_000 + MILLI + 100_000;
    let needed = bounds + PROPAGATION_MAX + bounds.div_ceil(5_000);
    for deadline in needed - 3..needed + 6 {
        let mut network = thinking(1, 2, 0);
        let mut request = network.request(1, 100);
        request.contract.deadline = Nanos(deadline);
        network.at(0, |s, now, stages| s.open(request, now, stages)).expect("can be tried");
        network.run(SECOND);
        let opened = network.count(0, |event| matches!(event, Event::Opened { .. }));
        assert!(opened == 0 || deadline >= needed, "{deadline} ns are too few, {needed} are needed");
        assert!(opened == 1 || deadline < needed + 2, "{deadline} ns do, {needed} are needed");
    }
}

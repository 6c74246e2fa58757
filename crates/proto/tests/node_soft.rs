//! Soft channels over real Nodes: how many fit, how often they miss, that hard ones never do, and that no
//! state is left.

use punctual_analysis::{Guarantee, Ppb, Statistical};
use punctual_proto::api::{Event, RefuseCause};
use punctual_proto::config::{Admission, NodeConfig, Pacing};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Rate};
use punctual_rig::{Open, World, line_config, pattern};

const RATE: BitRate = BitRate(20_000_000);
const HOSTS: usize = 3;
const MS: fn(u64) -> Nanos = Nanos::from_millis;
/// Peaks of 2 % of a link, means of a tenth of that.
const INTERVAL: Nanos = Nanos::from_millis(40);
const MEAN: u64 = 10;

fn hard() -> Contract {
    Contract::new(4_000, Rate::every(MS(20)).unwrap(), 1, MS(25)).unwrap()
}

fn soft() -> Contract {
    let plain = Contract::new(2_000, Rate::every(INTERVAL).unwrap(), 1, MS(150)).unwrap();
    let mean_rate = Rate::every(INTERVAL * MEAN).unwrap();
    let miss_ratio = Ppb::new(10_000_000).unwrap();
    let contract =
        Contract { statistical: Some(Statistical { mean_rate, mean_over: MS(1_000), miss_ratio }), ..plain };
    contract.validate().unwrap();
    contract
}

fn config(index: usize, admission: Admission) -> NodeConfig {
    let mut config = line_config(index, HOSTS, RATE);
    config.cpu.admission = admission;
    config.links.iter_mut().for_each(|link| link.admission = admission);
    config
}

fn world(admission: Admission) -> World {
    World::of((0..HOSTS).map(|index| config(index, admission)).collect())
}

/// A hard channel, then soft ones until one is refused.
fn filled(world: &mut World) -> Vec<Open> {
    let mut open = vec![world.open(0, HOSTS - 1, hard()).unwrap()];
    loop {
        match world.open(0, HOSTS - 1, soft()) {
            Ok(channel) => open.push(channel),
            Err(Event::Refused { refusal, .. }) => {
                assert!(
                    matches!(refusal.cause, RefuseCause::Stage { .. } | RefuseCause::Deadline { .. }),
                    "{refusal}"
                );
                return open;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Channels that are open, and when each of their messages was sent.
struct Traffic {
    open: Vec<Open>,
    sent: Vec<Vec<Instant>>,
}

/// Each channel sends at `next(channel, message)`, counted from the start; (messages, late or lost) of hard and soft.
fn run(
    world: &mut World,
    traffic: &mut Traffic,
    span: Nanos,
    next: impl Fn(usize, u64) -> Instant,
) -> [(u64, u64); 2] {
    let start = world.now;
    let Traffic { open, sent } = traffic;
    let before: Vec<usize> = sent.iter().map(Vec::len).collect();
    let mut in_time = vec![0_u64; open.len()];
    while world.now < start + span + MS(400) {
        for (index, channel) in open.iter().enumerate() {
            let contract = if index == 0 { hard() } else { soft() };
            let number = (sent[index].len() - before[index]) as u64;
            let at = start + Nanos(next(index, number).0);
            if at <= world.now && at < start + span {
                let message = pattern(index as u64, number, contract.message_bytes_max as usize);
                assert!(channel.outbox.send(&message, world.now), "channel {index} keeps its contract");
                world.nodes[0].handle_ring(channel.source, world.now);
                sent[index].push(world.now);
            }
            while channel.inbox.recv(|_, info| {
                let due = sent[index][info.number as usize] + contract.deadline;
                in_time[index] += u64::from(info.delivered <= due);
            }) {}
        }
        world.run_for(MS(1));
    }
    let count = |channels: std::ops::Range<usize>| {
        channels.fold((0, 0), |(messages, bad), index| {
            let all = (sent[index].len() - before[index]) as u64;
            (messages + all, bad + all - in_time[index])
        })
    };
    [count(0..1), count(1..open.len())]
}

/// Two messages at the peak, then silence until the mean is kept; `phase` in milliseconds.
fn burst(number: u64, phase: u64) -> Instant {
    Instant(MS(phase).0 + INTERVAL.0 * (number % 2) + INTERVAL.0 * MEAN * 2 * (number / 2))
}

#[test]
fn soft_channels_share_what_hard_ones_leave() {
    let mut by_peak = world(Admission::EDF);
    let peaks = filled(&mut by_peak).len();
    assert!(!by_peak.nodes[1].channels().is_empty());
    let mut world = world(Admission::STATISTICAL);
    let open = filled(&mut world);
    println!("{} soft channels; {} by their peaks", open.len() - 1, peaks - 1);
    assert!(open.len() > 2 * peaks, "{} {peaks}", open.len());
    for node in &world.nodes {
        assert_eq!(node.status(world.now).channels_soft as usize, open.len() - 1);
    }
    let guarantees = world.nodes[1].channels().into_iter().map(|channel| channel.guarantee);
    assert_eq!(guarantees.filter(|guarantee| *guarantee == Guarantee::Hard).count(), 1);
    let mut traffic = Traffic { sent: vec![Vec::new(); open.len()], open };
    let channels = traffic.open.len();
    // Independent phases.
    let phase = |index: usize| (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let [hard_ones, soft_ones] = run(&mut world, &mut traffic, MS(8_000), |index, number| match index {
        0 => Instant(MS(20).0 * number),
        _ => burst(number, phase(index) % 800),
    });
    println!("hard {hard_ones:?}, soft {soft_ones:?}");
    assert_eq!(hard_ones, (400, 0));
    assert!(soft_ones.0 > 1_000 && soft_ones.1 * 100 <= soft_ones.0, "{soft_ones:?}");
    // In step: what soft promises rest on does not hold any more. Hard ones do not care.
    let [hard_ones, soft_ones] = run(&mut world, &mut traffic, MS(4_000), |index, number| match index {
        0 => Instant(MS(20).0 * number),
        _ => burst(number, 100),
    });
    println!("in step: hard {hard_ones:?}, soft {soft_ones:?}");
    assert_eq!(hard_ones, (200, 0));
    assert!(soft_ones.1 > 100, "{soft_ones:?}");
    // No stage is to blame: each works as admission assumes.
    for node in &world.nodes {
        let status = node.status(world.now);
        let (late, times) = (&status.late, status.late_service.times);
        assert!(late.is_empty() && status.broken.is_empty() && times == 0, "{late:?}, {times}");
    }
    for channel in &traffic.open {
        world.nodes[0].close(channel.source, world.now).unwrap();
    }
    world.run_for(MS(3_000));
    assert!(
        world.nodes.iter().all(|node| node.channels().is_empty() && node.status(world.now).buffer_bytes == 0)
    );
    assert_eq!(filled(&mut world).len(), channels, "pools and stages are as they were");
}

/// An adapter that reports no packet as sent keeps the slots of its link: what the host drops for want of one gives its
/// frame back to the pool.
#[test]
fn what_has_no_slot_leaves_the_pool() {
    let config = |index| {
        let mut config = config(index, Admission::STATISTICAL);
        if index == 1 {
            config.links[1].pace = Pacing::Completion;
        }
        config
    };
    let mut world = World::of((0..HOSTS).map(config).collect());
    world.completes = true;
    let open = world.open(0, HOSTS - 1, soft()).expect("it fits");
    world.completes = false;
    for number in 0..8 {
        assert!(open.outbox.send(&pattern(0, number, 2_000), world.now));
        world.nodes[0].handle_ring(open.source, world.now);
        world.run_for(INTERVAL * MEAN);
        let accounts = world.nodes[1].accounts();
        let wrong: Vec<_> = accounts.into_iter().filter(|it| it.counted != it.held).collect();
        assert!(wrong.is_empty(), "message {number}: {wrong:?}");
    }
    let drops = world.nodes[1].status(world.now).drops;
    assert!(drops.no_slot > 0, "{drops:?}");
}

//! Channels of a scenario: their ends, contracts, activations and arrivals; packet sizes; floods.

use std::collections::BTreeMap;

use punctual_analysis::contract::INTERVAL_MIN;
use punctual_analysis::{
    Activation, ActivationError, BitRate, Contract, Delivery, Horizon, Late, Nanos, Policing, Ppm, Rate,
};
use punctual_proto::config::{Admission, NodeConfig, Pacing, RunPolicy};

use super::{ChannelPlan, DEADLINE_MAX, FloodPlan, HostPlan, ScenarioError, Times};
use crate::dice::{Dice, Draw};
use crate::memory::MESSAGE_BYTES_MIN;
use crate::topology::{Arrivals, ChannelSpec, Topology};

/// Most channels that are drawn.
pub(super) const CHANNELS_MAX: u64 = 400;
/// Number of hosts from which on channels are between hosts that are near each other.
const HOSTS_NEAR: usize = 16;
/// Largest distance of these.
const HOPS_MAX: u64 = 10;

pub(super) fn draw_channels(
    topology: &Topology,
    hosts: &[HostPlan],
    times: &Times,
    dice: &mut Dice,
) -> Result<Vec<ChannelPlan>, ScenarioError> {
    if topology.channels.is_empty() {
        let wanted = (dice.between(3, 10) * hosts.len() as u64).min(CHANNELS_MAX);
        return Ok((0..wanted).map(|_| draw_channel(hosts, times, dice)).collect());
    }
    let positions = topology.positions();
    topology.channels.iter().map(|spec| given_channel(&positions, spec, times, dice)).collect()
}

fn given_channel(
    positions: &BTreeMap<&str, usize>,
    spec: &ChannelSpec,
    times: &Times,
    dice: &mut Dice,
) -> Result<ChannelPlan, ScenarioError> {
    let host =
        |name: &str| positions.get(name).copied().ok_or_else(|| ScenarioError(format!("no host \"{name}\"")));
    Ok(ChannelPlan {
        from: host(&spec.from)?,
        to: host(&spec.to)?,
        contract: spec.contract().map_err(|error| ScenarioError(error.to_string()))?,
        arrivals: spec.arrivals.unwrap_or_else(|| draw_arrivals(dice)),
        squeezes: false,
        full: false,
        consents: true,
        silent: false,
        storm: false,
        vanishes_at: None,
        opens_at: times.opens + Nanos(dice.between(0, times.opened.since(times.opens).0)),
        closes_at: None,
        sink_closes: false,
        reopens: false,
    })
}

fn draw_arrivals(dice: &mut Dice) -> Arrivals {
    dice.pick(&[
        Arrivals::Periodic,
        Arrivals::Bursts,
        Arrivals::Synchronous,
        Arrivals::Synchronous,
        Arrivals::Greedy,
        Arrivals::Sporadic,
        Arrivals::Breaker,
    ])
}

/// Two different hosts; in large networks they are no more than [`HOPS_MAX`] steps apart.
pub(super) fn draw_ends(hosts: &[HostPlan], dice: &mut Dice) -> (usize, usize) {
    if hosts.len() > HOSTS_NEAR {
        return draw_near(hosts, dice);
    }
    let from = dice.between(0, hosts.len() as u64 - 1) as usize;
    let to = dice.between(0, hosts.len() as u64 - 2) as usize;
    (from, if to >= from { to + 1 } else { to })
}

fn draw_near(hosts: &[HostPlan], dice: &mut Dice) -> (usize, usize) {
    let from = dice.between(0, hosts.len() as u64 - 1) as usize;
    let mut to = from;
    for _ in 0..dice.between(1, HOPS_MAX) {
        let links = &hosts[to].links;
        to = links[dice.between(0, links.len() as u64 - 1) as usize].peer;
    }
    (from, if to == from { hosts[from].links[0].peer } else { to })
}

fn draw_channel(hosts: &[HostPlan], times: &Times, dice: &mut Dice) -> ChannelPlan {
    let (from, to) = draw_ends(hosts, dice);
    let opens_at = times.opens + Nanos(dice.between(0, times.opened.since(times.opens).0));
    let closes = dice.chance(Ppm(250_000));
    let closes_at =
        closes.then(|| times.opened + Nanos(dice.between(0, times.stops.since(times.opened).0 * 2 / 3)));
    ChannelPlan {
        from,
        to,
        contract: draw_contract(dice),
        arrivals: draw_arrivals(dice),
        squeezes: false,
        full: false,
        consents: dice.chance(Ppm(950_000)),
        silent: false,
        storm: false,
        vanishes_at: None,
        opens_at,
        closes_at,
        sink_closes: dice.chance(Ppm(300_000)),
        reopens: dice.chance(Ppm(600_000)),
    }
}

/// Sizes from one word to many packets; the rate so that one channel alone takes at most about 12 Mbit/s.
pub(super) fn draw_contract(dice: &mut Dice) -> Contract {
    let message_bytes_max = dice.log_between(u64::from(MESSAGE_BYTES_MIN), 30_000) as u32;
    let interval_min_us = (u64::from(message_bytes_max) * 8 / 12).max(1_000);
    let interval_us = dice.log_between(interval_min_us, interval_min_us.max(5_000) * 20).min(200_000);
    let burst_messages_max = dice.pick(&[1, 1, 2, 4, 10]);
    let deadline_us = dice.log_between(3_000, DEADLINE_MAX.0 / 1_000);
    Contract {
        message_bytes_max,
        rate_max: Rate::every(Nanos::from_micros(interval_us)).expect("at least a millisecond"),
        burst_messages_max,
        deadline: Nanos::from_micros(deadline_us),
        policing: dice.pick(&[Policing::Delay, Policing::Delay, Policing::Drop, Policing::Demote]),
        delivery: dice.pick(&[Delivery::Asap, Delivery::Asap, Delivery::AtDeadline]),
        horizon: dice.pick(&[Horizon::Cumulative, Horizon::Cumulative, Horizon::Regulated]),
        activation: Activation::Deadline,
        late: Late::Deliver,
        flow: None,
        statistical: None,
        jitter: None,
    }
}

/// Different packet sizes for each class, and caps on each flow's processing. Dice of their own, see below.
pub(super) fn draw_sizes(seed: u64, hosts: &mut [HostPlan]) {
    let mut dice = Dice::of(seed, Draw::Sizes);
    for host in hosts {
        host.config.fragment_low_latency_bytes = dice.pick(&[None, Some(256), Some(900)]);
        host.config.cpu.best_effort_flow_cpu_cap = dice.pick(&[Ppm::ONE, Ppm(100_000), Ppm(10_000)]);
        for link in &mut host.config.links {
            link.packet_best_effort_bytes_max = dice.pick(&[None, Some(700), Some(1_100)]);
            if link.pace == Pacing::Completion && dice.chance(Ppm(500_000)) {
                link.pipeline_depth = 1;
            }
        }
    }
}

/// Processors under `rmdp`, and channels with budgets, if the topology leaves it open. Dice of their own, and
/// only for some seeds, so that the other seeds are unchanged.
pub(super) fn draw_activations(
    topology: &Topology,
    seed: u64,
    hosts: &mut [HostPlan],
    channels: &mut [ChannelPlan],
) {
    let mut dice = Dice::of(seed, Draw::Activations);
    for (host, spec) in hosts.iter_mut().zip(&topology.hosts) {
        let free = spec.run.is_none() && spec.admission.is_none();
        if dice.chance(Ppm(500_000)) && free {
            (host.config.cpu.run, host.config.cpu.admission) = (RunPolicy::Rmdp, Admission::RMDP);
        }
        host.config.cpu.best_effort_cpu_cap = dice.pick(&[Ppm::ONE, Ppm(200_000), Ppm(20_000)]);
        for link in &mut host.config.links {
            link.best_effort_cap = dice.pick(&[Ppm::ONE, Ppm(400_000)]);
        }
    }
    if topology.channels.is_empty() {
        for plan in channels {
            let contract =
                Contract { late: dice.pick(&[Late::Deliver, Late::Deliver, Late::Drop]), ..plan.contract };
            plan.contract = draw_activation(contract, &hosts[plan.from].config, &mut dice);
        }
    }
}

/// Half of the channels have a budget, with or without a timer, that just carries their contract or a little more.
fn draw_activation(contract: Contract, config: &NodeConfig, dice: &mut Dice) -> Contract {
    let (numerator, denominator) = dice.pick(&[(1, 3), (1, 2), (1, 1), (1, 1), (2, 1), (5, 2)]);
    let span = Nanos(contract.interval().0 * numerator / denominator).max(INTERVAL_MIN);
    // Every processor of the route may wait for its timer.
    let period = span.min(Nanos(contract.deadline.0 / dice.between(4, 12)));
    let kind = dice.between(0, 7);
    let activation = |packets| match kind {
        0..=3 => Activation::Deadline,
        4 | 5 => Activation::LowLatency { interarrival: span, packets },
        _ => Activation::Periodic { period, packets },
    };
    let smallest = Contract { activation: activation(1), ..contract };
    let needed = match smallest.service(config.fragment_bytes_of(&smallest)) {
        Err(ActivationError::Packets { needed, .. }) => u32::try_from(needed).unwrap_or(u32::MAX),
        _ => 1,
    };
    Contract { activation: activation(needed.saturating_add(dice.pick(&[0, 0, 1, 5]))), ..contract }
}

/// Misbehaving applications: agents that never reply, sources that vanish, and sometimes hundreds of requests
/// for small channels at once.
pub(super) fn draw_applications(
    channels: &mut Vec<ChannelPlan>,
    hosts: &[HostPlan],
    times: &Times,
    dice: &mut Dice,
) {
    for plan in channels.iter_mut() {
        plan.silent = dice.chance(Ppm(40_000));
        if dice.chance(Ppm(60_000)) {
            plan.vanishes_at = Some(times.opened + Nanos(dice.between(0, times.calm.since(times.opened).0)));
        }
    }
    if !dice.chance(Ppm(150_000)) {
        return;
    }
    let (from, to) = draw_ends(hosts, dice);
    let at = times.opens + Nanos(dice.between(0, times.calm.since(times.opens).0));
    let smallest = Contract {
        message_bytes_max: MESSAGE_BYTES_MIN,
        rate_max: Rate::every(Nanos::from_millis(200)).expect("not zero"),
        burst_messages_max: 1,
        deadline: DEADLINE_MAX,
        ..draw_contract(dice)
    };
    let storm = ChannelPlan {
        from,
        to,
        contract: smallest,
        arrivals: Arrivals::Sporadic,
        squeezes: false,
        full: false,
        consents: dice.chance(Ppm(700_000)),
        silent: false,
        storm: true,
        vanishes_at: None,
        opens_at: at,
        closes_at: Some(at + Nanos(dice.between(0, 300_000_000))),
        sink_closes: dice.chance(Ppm(300_000)),
        reopens: false,
    };
    channels.extend((0..dice.log_between(20, 300)).map(|_| storm));
}

/// Transfers that together offer up to twice what the links carry.
pub(super) fn draw_floods(hosts: &[HostPlan], dice: &mut Dice) -> Vec<FloodPlan> {
    (0..dice.between(0, 2))
        .map(|_| {
            let ends = draw_ends(hosts, dice);
            draw_flood(ends, dice)
        })
        .collect()
}

/// A transfer from one host to another.
pub(super) fn draw_flood((from, to): (usize, usize), dice: &mut Dice) -> FloodPlan {
    let message_bytes = dice.log_between(u64::from(MESSAGE_BYTES_MIN), 20_000) as u32;
    let offered = BitRate(dice.between(10, 60) * 1_000_000);
    let interval = offered.time_of(u64::from(message_bytes)).max(Nanos::from_micros(100));
    FloodPlan { from, to, message_bytes, interval }
}

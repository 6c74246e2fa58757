//! Runs with small margins, in which any term that admission leaves out causes a miss (`Class::Tight`), and
//! runs that leave no free capacity on links (`Class::Crowded`).

use punctual_analysis::{Activation, BitRate, Contract, Delivery, Horizon, Late, Nanos, Policing, Ppm, Rate};

use punctual_proto::config::CpuCosts;

use super::{ChannelPlan, FloodPlan, HostPlan};
use crate::dice::{Dice, Draw};
use crate::memory::MESSAGE_BYTES_MIN;
use crate::topology::Arrivals;

/// Makes the margins of a plan small; returns its floods. Dice of its own.
pub(super) fn tighten(seed: u64, hosts: &mut [HostPlan], channels: &mut [ChannelPlan]) -> Vec<FloodPlan> {
    let mut dice = Dice::of(seed, Draw::Tight);
    for host in hosts.iter_mut() {
        host.slow = dice.chance(Ppm(700_000));
        for (link, config) in host.links.iter_mut().zip(&host.config.links) {
            link.busy = dice.chance(Ppm(700_000));
            link.rate = config.rate.less(Ppm(9_700));
        }
    }
    for channel in channels.iter_mut() {
        channel.squeezes = channel.contract.activation == Activation::Deadline && dice.chance(Ppm(850_000));
        channel.arrivals = dice.pick(&[
            Arrivals::Synchronous,
            Arrivals::Synchronous,
            Arrivals::Synchronous,
            Arrivals::Greedy,
            Arrivals::Bursts,
        ]);
        channel.full = dice.chance(Ppm(700_000));
        channel.contract.policing = Policing::Delay;
    }
    floods(hosts, &mut dice)
}

/// Best effort over every link in both directions, more than it carries: large packets here, small ones there.
fn floods(hosts: &[HostPlan], dice: &mut Dice) -> Vec<FloodPlan> {
    let mut floods = Vec::new();
    for (from, host) in hosts.iter().enumerate() {
        for (link, config) in host.links.iter().zip(&host.config.links) {
            let message_bytes = dice.pick(&[MESSAGE_BYTES_MIN, 200, 1_300, 1_300, 1_300]);
            let interval = config.rate.time_of(u64::from(message_bytes)).max(Nanos::from_micros(200));
            floods.push(FloodPlan { from, to: link.peer, message_bytes, interval });
        }
    }
    floods
}

/// Best-effort flows on each link of a crowded run: so many that each gets a very small share.
const CROWD: u64 = 120;
/// Channels over each of its links: large ones, then small ones for the rest.
const LARGE: u64 = 12;
const SMALL: u64 = 24;

/// Replaces the channels by some that take all of the links that they may reserve; returns many floods for
/// the rest.
pub(super) fn crowd(seed: u64, hosts: &mut [HostPlan], channels: &mut Vec<ChannelPlan>) -> Vec<FloodPlan> {
    let mut dice = Dice::of(seed, Draw::Tight);
    let Some(pattern) = channels.first().copied() else { return Vec::new() };
    let (mut crowded, mut floods) = (Vec::new(), Vec::new());
    for (from, host) in hosts.iter_mut().enumerate() {
        make_cheap(&mut host.config.cpu.costs);
        for (link, config) in host.links.iter_mut().zip(&mut host.config.links) {
            config.best_effort_share_min = Ppm(0);
            (config.best_effort_cap, config.best_effort_flow_cap) = (Ppm::ONE, Ppm::ONE);
            link.rate = config.rate.less(Ppm(9_700));
            let plan = ChannelPlan { from, to: link.peer, ..pattern };
            for number in 0..LARGE + SMALL {
                let shares = if number < LARGE { dice.between(8, 16) } else { dice.between(60, 120) };
                crowded.push(filling(&plan, config.rate, shares, &mut dice));
            }
            let message_bytes = 1_300;
            let interval = config.rate.time_of(u64::from(message_bytes)) * CROWD;
            floods.extend((0..CROWD).map(|_| FloodPlan { from, to: link.peer, message_bytes, interval }));
        }
    }
    *channels = crowded;
    floods
}

/// A channel that takes about one of `shares` of a link, with a long deadline.
fn filling(plan: &ChannelPlan, rate: BitRate, shares: u64, dice: &mut Dice) -> ChannelPlan {
    let message_bytes_max = dice.between(600, 1_300) as u32;
    let interval = rate.time_of(u64::from(message_bytes_max)) * shares;
    let contract = Contract {
        message_bytes_max,
        rate_max: Rate::every(interval).unwrap_or(plan.contract.rate_max),
        burst_messages_max: 1,
        deadline: Nanos::from_millis(dice.between(100, 300)),
        policing: Policing::Delay,
        delivery: Delivery::Asap,
        horizon: Horizon::Cumulative,
        activation: Activation::Deadline,
        late: Late::Deliver,
        ..plan.contract
    };
    let arrivals = Arrivals::Greedy;
    ChannelPlan { contract, arrivals, full: true, consents: true, squeezes: false, closes_at: None, ..*plan }
}

/// Links must be the bottleneck. Costs below the host's release latency are still honest.
fn make_cheap(costs: &mut CpuCosts) {
    for cost in [
        &mut costs.send_message,
        &mut costs.send_packet,
        &mut costs.send_packet_later,
        &mut costs.forward_packet,
        &mut costs.receive_packet,
        &mut costs.deliver_message,
        &mut costs.copy_kib,
    ] {
        *cost = Nanos((cost.0 / 6).max(1));
    }
}

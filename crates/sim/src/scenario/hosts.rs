//! Hosts and links of a seed: configurations of nodes, and true behaviour.

use std::collections::BTreeMap;

use punctual_analysis::{BitRate, Nanos, Ppm};
use punctual_proto::config::{
    Admission, CostSource, CpuConfig, CpuCosts, Interference, LinkConfig, NodeConfig, Pacing, RunPolicy,
    SignallingConfig, WhileBroken,
};
use punctual_proto::ids::{Epoch, Name};

use super::{HostPlan, LinkPlan, ScenarioError, node_id};
use crate::dice::Dice;
use crate::processor::unit_cost_max;
use crate::time::HostClock;
use crate::topology::{HostSpec, LinkSpec, Topology};

/// More hosts than this are a huge network.
const HOSTS_HUGE: usize = 200;

pub(super) fn draw_hosts(
    topology: &Topology,
    seed: u64,
    dice: &mut Dice,
) -> Result<Vec<HostPlan>, ScenarioError> {
    let name = |host: &HostSpec| Name::new(&host.name).map_err(|error| ScenarioError(error.to_string()));
    let signalling = signalling(seed, topology.hosts.len());
    let mut hosts = Vec::new();
    for (n, spec) in topology.hosts.iter().enumerate() {
        let (cpu, wake_max) = draw_cpu(spec, dice);
        let config = NodeConfig {
            id: node_id(n),
            name: name(spec)?,
            epoch: Epoch(seed.wrapping_mul(1_000).wrapping_add(n as u64 + 1)),
            fragment_bytes: dice.pick(&[1_400, 1_400, 1_000, 512]),
            fragment_low_latency_bytes: None,
            clock_tolerance: Ppm(spec.tolerance_ppm()),
            links: Vec::new(),
            cpu,
            directory: Vec::new(),
            routes: Vec::new(),
            signalling: signalling.clone(),
            buffer_bytes_max: dice.pick(&[64 << 20, 64 << 20, 8 << 20, 2 << 20]),
            wakeup_margin: Nanos::from_micros(dice.between(50, 500)),
        };
        let drift_ppb = match spec.drift_ppm {
            Some(ppm) => i64::from(ppm) * 1_000,
            None => {
                let tolerance_ppb = u64::from(spec.tolerance_ppm()) * 1_000;
                dice.span(Nanos::ZERO, Nanos(2 * tolerance_ppb)).0 as i64 - tolerance_ppb as i64
            }
        };
        let clock = HostClock::new(dice.between(1, 1 << 40), drift_ppb);
        hosts.push(HostPlan { config, clock, wake_max, slow: false, links: Vec::new() });
    }
    let positions = topology.positions();
    for link in &topology.links {
        join(topology, &positions, link, &mut hosts, dice)?;
    }
    Ok(hosts)
}

/// Times are short, so that a run has many leases. In huge networks they are a little longer, otherwise most
/// packets would be HELLOs.
fn signalling(seed: u64, hosts: usize) -> SignallingConfig {
    let hello_interval = Nanos::from_millis(if hosts > HOSTS_HUGE { 300 } else { 100 });
    SignallingConfig {
        domain_key: *blake3::hash(&seed.to_le_bytes()).as_bytes(),
        lease: Nanos::from_millis(if hosts > HOSTS_HUGE { 3_000 } else { 1_500 }),
        hello_interval,
        retransmit: Nanos::from_millis(40),
        retransmits_max: 6,
        consent_timeout: Nanos::from_millis(400),
        grace: Nanos::from_millis(100),
        packets_per_second: 150,
        while_broken: WhileBroken::Degrade,
    }
}

/// A processor's configuration and its longest wake-up, which the configuration includes.
fn draw_cpu(spec: &HostSpec, dice: &mut Dice) -> (CpuConfig, Nanos) {
    let percent = spec.cpu_cost_percent.map_or_else(|| dice.log_between(25, 600), u64::from);
    let scale = |cost: Nanos| Nanos((cost.0 * percent / 100).max(1));
    let base = CpuCosts::default();
    let costs = CpuCosts {
        send_message: scale(base.send_message),
        send_packet: scale(base.send_packet),
        send_packet_later: scale(base.send_packet_later),
        forward_packet: scale(base.forward_packet),
        receive_packet: scale(base.receive_packet),
        deliver_message: scale(base.deliver_message),
        copy_kib: scale(base.copy_kib),
        cold_start: scale(base.cold_start),
    };
    let (run, admission) = dice.pick(&[
        (RunPolicy::Edf, Admission::EDF),
        (RunPolicy::Edf, Admission::EDF),
        (RunPolicy::Edf, Admission::D_ORDER),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY),
    ]);
    let wake_max = Nanos(dice.between(1_000, 150_000));
    let mut cpu = CpuConfig {
        costs,
        costs_from: CostSource::Configured,
        release_latency: Nanos::ZERO,
        utilisation_max: Ppm(950_000),
        best_effort_share_min: Ppm(dice.pick(&[0, 50_000, 200_000])),
        interference: Interference {
            sigma: Nanos(dice.between(20_000, 150_000)),
            rho: Ppm(dice.between(20_000, 100_000) as u32),
        },
        run: spec.run.unwrap_or(run),
        admission: spec.admission.unwrap_or(admission),
        quantum_packets: dice.pick(&[1, 1, 2, 4]),
        best_effort_call_max: Nanos::ZERO,
        best_effort_cpu_cap: Ppm::ONE,
        best_effort_flow_cpu_cap: Ppm::ONE,
        plan: Vec::new(),
        best_effort_host: false,
    };
    cpu.release_latency = reaction(&cpu, wake_max);
    (cpu, wake_max)
}

/// The longest time until the processor checks for work: it sleeps, or is working on a unit, with cold caches
/// and interference.
fn reaction(cpu: &CpuConfig, wake_max: Nanos) -> Nanos {
    let busy = unit_cost_max(cpu) + cpu.burst();
    let stretched =
        u128::from(busy.0) * 1_000_000 / u128::from(1_000_000 - cpu.interference.rho.0.min(900_000));
    wake_max + Nanos(stretched as u64) + Nanos::from_micros(1)
}

fn join(
    topology: &Topology,
    positions: &BTreeMap<&str, usize>,
    spec: &LinkSpec,
    hosts: &mut [HostPlan],
    dice: &mut Dice,
) -> Result<(), ScenarioError> {
    let end =
        |name: &str| positions.get(name).copied().ok_or_else(|| ScenarioError(format!("no host \"{name}\"")));
    let ends = [end(&spec.between[0])?, end(&spec.between[1])?];
    let rate = spec.rate_mbit.map_or_else(|| dice.pick(&[20, 40, 40, 100]), u64::from) * 1_000_000;
    let rate = BitRate(rate);
    let propagation_max = spec.propagation_max_us.map_or_else(|| dice.log_between(1, 500), u64::from);
    let propagation_max = Nanos::from_micros(propagation_max);
    let propagation_min = Nanos(dice.between(0, propagation_max.0));
    let indices = ends.map(|end| hosts[end].links.len() as u16);
    for side in 0..2 {
        let (here, peer) = (ends[side], ends[1 - side]);
        let pace = spec.pace.unwrap_or_else(|| dice.pick(&[Pacing::Clock, Pacing::Completion]));
        let depth_min = if pace == Pacing::Clock { 2 } else { 1 };
        let reaction = hosts[here].config.cpu.release_latency;
        let rho = dice.pick(&[0, 0, 20_000, 50_000]);
        let sigma = if rho == 0 { Nanos::ZERO } else { rate.time_of(dice.between(100, 6_000)) };
        let config = LinkConfig {
            rate,
            rate_error: Ppm(10_000),
            pipeline_depth: spec.pipeline_depth.unwrap_or_else(|| dice.between(depth_min, 4) as u32),
            pace,
            reaction,
            propagation_min,
            propagation_max,
            prediction_error: Nanos(dice.between(20_000, 500_000)),
            interference: Interference { sigma, rho: Ppm(rho) },
            best_effort_share_min: Ppm(dice.pick(&[0, 50_000, 250_000])),
            best_effort_flow_cap: dice.pick(&[Ppm::ONE, Ppm::ONE, Ppm(300_000)]),
            best_effort_flow_bytes_max: 64 * 1024,
            admission: spec
                .admission
                .unwrap_or_else(|| dice.pick(&[Admission::EDF, Admission::EDF, Admission::D_ORDER])),
            ..LinkConfig::new(&topology.hosts[peer].name, node_id(peer), rate)
        };
        let config = carrying_signals(config, depth_min as u32, &hosts[here].config.signalling);
        // The clock that paces takes its tolerance of the rate's error, and some is left.
        let tolerance = hosts[here].config.clock_tolerance.0;
        let slowest = rate.less(Ppm(config.rate_error.0.saturating_sub(tolerance + 200))).0;
        let rate = BitRate(dice.span(Nanos(slowest), Nanos(rate.0)).0);
        hosts[here].config.links.push(config);
        hosts[here].links.push(LinkPlan { peer, peer_link: indices[1 - side], rate, busy: false });
    }
    Ok(())
}

/// A link with a window and bursts of kernel traffic for which its own signalling is still in time: a slow
/// link under heavy kernel traffic has fewer and shorter ones than drawn.
fn carrying_signals(mut config: LinkConfig, depth_min: u32, signalling: &SignallingConfig) -> LinkConfig {
    let period = 1_000_000_000 / u64::from(signalling.packets_per_second);
    let kept = u64::from(1_000_000 - config.interference.rho.0);
    let packet = config.paced_rate().time_of(u64::from(config.packet_bytes_max + config.overhead_bytes));
    // The window, the signal itself, the waits for a completion or tick and for the processor; a margin.
    let is_late = |config: &LinkConfig, margin_percent: u64| {
        let (depth, sigma) = (config.pipeline_depth, config.interference.sigma);
        let work = packet * u64::from(depth + 1) + sigma + config.reaction * 2;
        work.0 * (100 + margin_percent) * 10_000 / kept > period
    };
    while config.pipeline_depth > depth_min && is_late(&config, 5) {
        config.pipeline_depth -= 1;
    }
    while config.interference.sigma > Nanos::ZERO && is_late(&config, 20) {
        config.interference.sigma = Nanos(config.interference.sigma.0 / 2);
    }
    config
}

//! The models of a processor, a link and a soft channel for admission.

use super::*;
use crate::config::link_model;
use crate::config::path_costs;

/// The cost of one path, and the model of the processor for admission, with the defaults and other values.
#[test]
fn a_processor_is_what_is_configured() {
    let costs = config::CpuCosts {
        send_message: Nanos(1_000),
        send_packet: Nanos(200),
        send_packet_later: Nanos(150),
        forward_packet: Nanos(300),
        receive_packet: Nanos(250),
        deliver_message: Nanos(2_000),
        copy_kib: Nanos(10),
        cold_start: Nanos(50_000),
    };
    let of = |role| {
        let PathCosts { message, packet, packet_later, kib } = path_costs(&costs, role);
        [message, packet, packet_later, kib].map(|nanos| nanos.0)
    };
    assert_eq!(of(Role::Source), [1_000, 200, 150, 10]);
    assert_eq!(of(Role::Forwarder), [0, 300, 300, 10]);
    assert_eq!(of(Role::Sink), [2_000, 250, 250, 10]);
    let cpu = CpuConfig { costs, quantum_packets: 4, ..CpuConfig::default() };
    let model = cpu_model(&cpu, 1_025);
    // A quantum of the most expensive packets with two KiB each, and the more expensive edge of a message.
    assert_eq!(model.best_effort_unit, Nanos(4 * (300 + 2 * 10) + 2_000));
    assert_eq!(model.interference.sigma, cpu.interference.sigma + costs.cold_start);
    assert_eq!(cpu_model(&cpu, 1_024).best_effort_unit, Nanos(4 * (300 + 10) + 2_000));
    let calls = CpuConfig { best_effort_call_max: Nanos(9_000), ..cpu.clone() };
    assert_eq!(cpu_model(&calls, 1).best_effort_unit, Nanos(9_000), "a handler's call is longer");
    let dearer = config::CpuCosts { send_packet: Nanos(400), send_message: Nanos(3_000), ..costs };
    let cpu = CpuConfig { costs: dearer, quantum_packets: 0, ..cpu };
    assert_eq!(cpu_model(&cpu, 1).best_effort_unit, Nanos(400 + 10 + 3_000));
    let receives = config::CpuCosts { receive_packet: Nanos(500), ..costs };
    let cpu = CpuConfig { costs: receives, quantum_packets: 1, ..cpu };
    assert_eq!(cpu_model(&cpu, 1).best_effort_unit, Nanos(500 + 10 + 2_000));
}

/// The model of a link for admission: headers and overhead count, sizes are maxima, and the rate is the paced
/// one.
#[test]
fn a_link_is_what_is_configured() {
    let mut link = LinkConfig::new("l", NodeId(1), BitRate(100_000_000));
    (link.packet_bytes_max, link.overhead_bytes, link.packet_best_effort_bytes_max) = (1_464, 66, Some(564));
    link.interference = config::Interference { sigma: Nanos(700), rho: Ppm(100_000) };
    let model = link_model(&link);
    assert_eq!((model.overhead_bytes, model.mtu_wire_bytes, model.best_effort_wire_bytes), (130, 1_530, 630));
    assert_eq!(
        (model.rate_error, model.reaction, model.pipeline_depth),
        (Ppm(0), Nanos::from_micros(100), 2)
    );
    // The rate has one percent of error, and a clock leaves the kernel its tenth.
    assert_eq!(model.rate, BitRate(99_000_000).less(Ppm(100_000)));
    link.pace = Pacing::Completion;
    assert_eq!(link_model(&link).rate, BitRate(99_000_000));
    assert_eq!(link_model(&link).interference.rho, Ppm(100_000));
}

/// A soft channel is requested as soft in each stage.
#[test]
fn a_soft_channel_is_soft_in_each_stage() {
    let stages = stages_of(&config());
    let soft = Soft {
        mean_period: MS(50),
        mean_over: MS(90),
        jitter: MS(1),
        miss_ratio: Ppb::new(9).expect("a ratio"),
    };
    let channel =
        LocalChannel { soft: Some(Box::new(soft)), ..local_of(1, Role::Source, contract(900), 900) };
    let service = channel.contract.service(900).expect("a service");
    assert_eq!(stages.stage_of_cpu(&channel, service).demand.soft, Some(soft));
    assert_eq!(stages.link_demand(&channel, RIGHT, Nanos(3)).soft, Some(soft));
    assert_eq!(stages.link_demand(&channel, RIGHT, Nanos(3)).early, Nanos(3));
    let handled = LocalChannel { handler_time: Nanos(777), ..channel.clone() };
    let cost = |local: &LocalChannel| {
        stages.stage_of_cpu(local, local.contract.service(900).expect("a service")).demand.cost
    };
    assert_eq!(cost(&handled), cost(&channel) + Nanos(777));
}

/// A host without links has no signalling to carry and holds nothing.
#[test]
fn a_host_without_links_holds_nothing() {
    let alone = NodeConfig { links: Vec::new(), ..config() };
    let stages = stages_of(&alone);
    assert_eq!(stages.cpu_utilisation(), alone.cpu.interference.rho);
    assert!(stages_of(&config()).cpu_utilisation() > stages.cpu_utilisation());
    assert!(
        stages.accounts(|_| true, core::iter::empty()).iter().all(|(_, [counted, there])| counted == there)
    );
}

/// Signalling is due within a period of its own, on every link and on the processor: 50 packets a second are
/// one in 20 ms, less the 128th by which policing shortens an interval.
#[test]
fn signalling_is_due_within_its_period() {
    let stages = stages_of(&config());
    let period = Nanos(20_000_000 - 20_000_000 / 128);
    assert_eq!([0, 1].map(|link| stages.signal_bound(link)), [period; 2]);
    let policies = stages.asking.policies.as_ref().expect("here");
    assert_eq!(policies.cpu.bound(SIGNALLING_KEY), Some(period));
    assert!(policies.links.iter().all(|link| link.bound(SIGNALLING_KEY) == Some(period)));
}

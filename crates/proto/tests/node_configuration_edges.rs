//! Limits of configuration values: the limit is accepted, and one beyond it is not.

use punctual_proto::api::WorkKind;
use punctual_proto::config::{
    Admission, CostSource, CpuConfig, CpuCosts, Degraded, Interference, KernelTraffic, LinkConfig, Pacing,
    RouteConfig, SignallingConfig, WhileBroken, payload_bytes_max,
};
use punctual_proto::ids::{Epoch, NodeId};
use punctual_proto::limits::{
    BEST_EFFORT_PACKET_BYTES_MIN, FRAMES_MIN, HEADER_BYTES, PIPELINE_DEPTH_MAX, ROUTE_NODES_MAX,
    SIGNAL_BYTES_MAX,
};
use punctual_proto::{BitRate, Nanos, Ppm};

const OWN: NodeId = NodeId(2);
const HEADER: u32 = HEADER_BYTES as u32;

fn link() -> LinkConfig {
    LinkConfig::new("l", NodeId(3), BitRate(40_000_000))
}

#[test]
fn links_are_accepted_up_to_their_edges() {
    type Change = fn(&mut LinkConfig);
    let accepts = |change: Change, fragment_bytes: u32| {
        let mut link = link();
        change(&mut link);
        link.check(fragment_bytes, OWN).is_ok()
    };
    let cases: [(Change, bool); 22] = [
        (|link| link.neighbour = OWN, false),
        (|link| link.rate = BitRate(1), true),
        (|link| link.rate = BitRate(0), false),
        (|link| link.rate_error = Ppm(499_999), true),
        (|link| link.rate_error = Ppm(500_000), false),
        (|link| link.pipeline_depth = 1, true),
        (|link| link.pipeline_depth = 0, false),
        (|link| link.pipeline_depth = PIPELINE_DEPTH_MAX, true),
        (|link| link.pipeline_depth = PIPELINE_DEPTH_MAX + 1, false),
        (|link| link.frames = FRAMES_MIN, true),
        (|link| link.frames = FRAMES_MIN - 1, false),
        (|link| link.propagation_min = link.propagation_max, true),
        (|link| link.propagation_min = link.propagation_max + Nanos(1), false),
        (|link| link.interference.rho = Ppm(949_999), true),
        (|link| link.interference.rho = Ppm(950_000), false),
        (|link| link.best_effort_cap = Ppm(1), true),
        (|link| link.best_effort_cap = Ppm(0), false),
        (|link| link.best_effort_flow_cap = Ppm(1), true),
        (|link| link.best_effort_flow_cap = Ppm(0), false),
        (|link| link.packet_best_effort_bytes_max = Some(BEST_EFFORT_PACKET_BYTES_MIN), true),
        (|link| link.packet_best_effort_bytes_max = Some(BEST_EFFORT_PACKET_BYTES_MIN - 1), false),
        (|link| link.packet_best_effort_bytes_max = Some(link.packet_bytes_max + 1), false),
    ];
    for (number, (change, accepted)) in cases.into_iter().enumerate() {
        assert_eq!(accepts(change, 1_400), accepted, "case {number}");
    }
    // A packet holds a fragment with its header, and signalling.
    let of_size = |bytes: u32, fragment: u32| {
        LinkConfig { packet_bytes_max: bytes, ..link() }.check(fragment, OWN).is_ok()
    };
    assert!(of_size(1_400 + HEADER, 1_400) && !of_size(1_399 + HEADER, 1_400));
    let signal = SIGNAL_BYTES_MAX as u32;
    assert!(of_size(signal, 500) && !of_size(signal - 1, 500));
}

#[test]
fn processors_are_accepted_up_to_their_edges() {
    type Change = fn(&mut CpuConfig);
    let cases: [(Change, bool); 10] = [
        (|cpu| cpu.best_effort_cpu_cap = Ppm(1), true),
        (|cpu| cpu.best_effort_cpu_cap = Ppm(0), false),
        (|cpu| cpu.best_effort_flow_cpu_cap = Ppm(1), true),
        (|cpu| cpu.best_effort_flow_cpu_cap = Ppm(0), false),
        (|cpu| cpu.quantum_packets = 1, true),
        (|cpu| cpu.quantum_packets = 0, false),
        (|cpu| cpu.utilisation_max = Ppm::ONE, true),
        (|cpu| cpu.utilisation_max = Ppm(Ppm::ONE.0 + 1), false),
        (|cpu| cpu.best_effort_share_min = Ppm(cpu.utilisation_max.0 - 1), true),
        (|cpu| cpu.best_effort_share_min = cpu.utilisation_max, false),
    ];
    for (number, (change, accepted)) in cases.into_iter().enumerate() {
        let mut cpu = CpuConfig::default();
        change(&mut cpu);
        assert_eq!(cpu.check().is_ok(), accepted, "case {number}");
    }
}

#[test]
fn signalling_and_routes_are_accepted_up_to_their_edges() {
    type Change = fn(&mut SignallingConfig, Nanos);
    let times: [Change; 4] = [
        |signalling, time| signalling.lease = time,
        |signalling, time| signalling.hello_interval = time,
        |signalling, time| signalling.retransmit = time,
        |signalling, time| signalling.consent_timeout = time,
    ];
    for (number, change) in times.into_iter().enumerate() {
        for (time, accepted) in [(Nanos::from_millis(1), true), (Nanos::from_millis(1) - Nanos(1), false)] {
            let mut signalling = SignallingConfig::default();
            change(&mut signalling, time);
            assert_eq!(signalling.check().is_ok(), accepted, "time {number}: {time}");
        }
    }
    for (packets_per_second, retransmits_max, accepted) in [(1, 1, true), (0, 1, false), (1, 0, false)] {
        let signalling =
            SignallingConfig { packets_per_second, retransmits_max, ..SignallingConfig::default() };
        assert_eq!(signalling.check().is_ok(), accepted);
    }
    let via = |nodes: Vec<u32>| RouteConfig { via: nodes.into_iter().map(NodeId).collect() };
    let accepts = |nodes: Vec<u32>| via(nodes).check(OWN, &[link()]).is_ok();
    let longest = ROUTE_NODES_MAX as u32 - 1;
    assert!(accepts((3..3 + longest).collect()) && !accepts((3..4 + longest).collect()));
    assert!(accepts(vec![3]) && accepts(vec![3, 4]) && !accepts(vec![4, 3]) && !accepts(vec![]));
    assert!(!accepts(vec![3, 4, 3]) && !accepts(vec![3, OWN.0]));
}

/// Defaults are those of the documents and of the commented example.
#[test]
fn what_is_not_configured_is_as_documented() {
    let link = link();
    assert_eq!((link.rate_error, link.packet_bytes_max, link.overhead_bytes), (Ppm(10_000), 1_464, 66));
    assert_eq!((link.pipeline_depth, link.pace, link.reaction), (2, Pacing::Clock, Nanos::from_micros(100)));
    assert_eq!((link.propagation_min, link.propagation_max), (Nanos::ZERO, Nanos::from_micros(200)));
    assert_eq!(link.prediction_error, Nanos::from_micros(500));
    assert_eq!((link.interference, link.kernel_share_max), (Interference::default(), Ppm(0)));
    assert_eq!((link.best_effort_share_min, link.best_effort_cap), (Ppm(50_000), Ppm::ONE));
    assert_eq!((link.best_effort_flow_cap, link.best_effort_flow_bytes_max), (Ppm::ONE, 262_144));
    assert_eq!((link.kernel_traffic, link.admission), (KernelTraffic::Bounded, Admission::EDF));
    let cpu = CpuConfig::default();
    assert_eq!((cpu.release_latency, cpu.utilisation_max), (Nanos::from_micros(200), Ppm(950_000)));
    assert_eq!((cpu.best_effort_share_min, cpu.quantum_packets), (Ppm(50_000), 1));
    let interference = Interference { sigma: Nanos::from_micros(100), rho: Ppm(50_000) };
    assert_eq!((cpu.interference, cpu.burst()), (interference, Nanos::from_micros(140)));
    let costs = cpu.costs;
    let micros = [costs.send_message, costs.send_packet, costs.send_packet_later, costs.forward_packet];
    assert_eq!(micros, [8, 8, 8, 12].map(Nanos::from_micros));
    assert_eq!([costs.receive_packet, costs.deliver_message], [8; 2].map(Nanos::from_micros));
    assert_eq!((costs.copy_kib, costs.cold_start), (Nanos(500), Nanos::from_micros(40)));
    let signalling = SignallingConfig::default();
    assert_eq!((signalling.retransmit, signalling.retransmits_max), (Nanos::from_millis(100), 6));
    assert_eq!(
        (signalling.consent_timeout, signalling.grace),
        (Nanos::from_secs(10), Nanos::from_millis(500))
    );
    assert_eq!((signalling.packets_per_second, signalling.while_broken), (50, WhileBroken::Degrade));
    assert_eq!(Epoch::default(), Epoch(0));
}

/// A unit of work costs its packets, its bytes and the edge of a message, each as configured.
#[test]
fn a_unit_costs_its_packets_bytes_and_edge() {
    let costs = CpuCosts {
        send_message: Nanos(1_000),
        send_packet: Nanos(200),
        send_packet_later: Nanos(150),
        forward_packet: Nanos(300),
        receive_packet: Nanos(250),
        deliver_message: Nanos(2_000),
        copy_kib: Nanos(1_024),
        cold_start: Nanos(50_000),
    };
    use WorkKind::{BestEffort, Forward, Receive, Send, Signalling};
    for (kind, packets, bytes, edge, nanos) in [
        (Send, 0, 0, false, 0),
        (Send, 1, 0, false, 200),
        (Send, 1, 100, true, 1_300),
        (Send, 4, 10, false, 660),
        (Forward, 3, 0, true, 900),
        (Receive, 3, 7, false, 757),
        (Receive, 3, 7, true, 2_757),
        (BestEffort, 2, 5, false, 605),
        (BestEffort, 2, 5, true, 2_605),
        (Signalling, 1, 0, true, 2_300),
    ] {
        assert_eq!(
            costs.of_unit(kind, packets, bytes, edge),
            Nanos(nanos),
            "{kind:?} {packets} {bytes} {edge}"
        );
    }
    // Later packets cost no more than the first.
    let odd = CpuCosts { send_packet_later: Nanos(900), ..costs };
    assert_eq!(odd.of_unit(Send, 3, 0, false), Nanos(600));
}

/// Paces and delays beside kernel traffic, in the numbers of ARCHITECTURE.
#[test]
fn a_pace_leaves_the_kernel_its_share() {
    let link = LinkConfig {
        rate: BitRate(100_000_000),
        rate_error: Ppm(20_000),
        interference: Interference { sigma: Nanos(900), rho: Ppm(100_000) },
        kernel_share_max: Ppm(500_000),
        ..link()
    };
    assert_eq!(link.paced_rate(), BitRate(88_200_000));
    assert_eq!(LinkConfig { pace: Pacing::Completion, ..link.clone() }.paced_rate(), BitRate(98_000_000));
    assert_eq!([0, 500_000].map(|share| link.paced_beside(Ppm(share)).0), [98_000_000, 49_000_000]);
    assert_eq!(link.delay_beside(Ppm(100_000)), Nanos(1_000));
    assert_eq!([0, 500_000].map(|share| link.delay_beside(Ppm(share)).0), [900, 1_800]);
    assert_eq!(link.delay_beside(Ppm(100_001)), Nanos(1_001), "rounded up");
    // All of it is all but a millionth.
    assert_eq!([999_999, 1_000_000].map(|share| link.delay_beside(Ppm(share)).0), [900_000_000; 2]);
    assert!(link.follows() && !LinkConfig { kernel_share_max: Ppm(100_000), ..link.clone() }.follows());
    assert!(!LinkConfig { pace: Pacing::Completion, ..link.clone() }.follows());
    assert_eq!((link.best_effort_bytes_max(), link.signal_bytes_max()), (1_464, 1_400));
    let narrow = LinkConfig { packet_best_effort_bytes_max: Some(600), ..link };
    assert_eq!((narrow.best_effort_bytes_max(), narrow.signal_bytes_max()), (600, 600));
}

#[test]
fn the_largest_payload_is_that_of_what_is_made_or_passed_on() {
    let of = |sizes: &[u32], fragment| {
        let link = |bytes: &u32| LinkConfig { packet_bytes_max: *bytes, ..link() };
        payload_bytes_max(fragment, &sizes.iter().map(link).collect::<Vec<_>>())
    };
    assert_eq!((of(&[], 700), of(&[1_064, 2_064], 700), of(&[1_064], 1_500)), (700, 2_000, 1_500));
    assert_eq!(of(&[HEADER - 1], 0), 0);
}

/// The type that has the evidence reports why bounds are no guarantees, the worst reason first.
#[test]
fn what_degrades_a_host_is_named() {
    let margin = Ppm(1);
    for (best_effort_host, costs_from, degraded) in [
        (false, CostSource::Configured, None),
        (false, CostSource::Measured { margin, short: true }, None),
        (false, CostSource::Foreign { margin }, Some(Degraded::ForeignCosts)),
        (true, CostSource::Foreign { margin }, Some(Degraded::NoRealTime)),
        (true, CostSource::Configured, Some(Degraded::NoRealTime)),
    ] {
        let cpu = CpuConfig { best_effort_host, costs_from, ..CpuConfig::default() };
        assert_eq!(cpu.degraded(), degraded);
    }
    for (kernel_traffic, degraded) in [
        (KernelTraffic::Bounded, None),
        (KernelTraffic::Behind, None),
        (KernelTraffic::Unbounded, Some(Degraded::KernelTraffic)),
    ] {
        assert_eq!(LinkConfig { kernel_traffic, ..link() }.degraded(), degraded);
    }
}

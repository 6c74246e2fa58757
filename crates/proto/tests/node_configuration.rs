//! A configuration that contradicts itself makes no node: the error is one line that names what is wrong.

use punctual_proto::api::RequestError;
use punctual_proto::config::plan::PlannedFlow;
use punctual_proto::config::{
    Admission, CpuConfig, CpuCosts, LinkConfig, NodeConfig, RouteConfig, RunPolicy, SignallingConfig,
};
use punctual_proto::ids::NodeId;
use punctual_proto::node::Node;
use punctual_proto::{BitRate, FlowName, Instant, Nanos, Ppm};
use punctual_rig::{TestMemory, line_config, name};

const RATE: BitRate = BitRate(40_000_000);

/// The error in the configuration of the middle of three hosts.
fn complaint(change: impl FnOnce(&mut NodeConfig)) -> Option<String> {
    let mut config = line_config(1, 3, RATE);
    change(&mut config);
    Node::<TestMemory>::new(config, 1, Instant(1)).err().map(|error| error.to_string())
}

type Change = fn(&mut NodeConfig);

fn all_are_refused(cases: &[(&str, Change)]) {
    for (expected, change) in cases {
        let reported = complaint(change).unwrap_or_else(|| panic!("nothing said about \"{expected}\""));
        assert!(reported.contains(expected), "\"{reported}\" instead of \"{expected}\"");
        assert!(!reported.contains('\n'), "{reported}");
    }
}

#[test]
fn a_host_of_a_line_is_accepted() {
    assert_eq!(complaint(|_| ()), None);
}

#[test]
fn directories_name_every_host_once() {
    all_are_refused(&[
        ("node id 0", |c| c.id = NodeId(0)),
        ("\"h3\" has id 0", |c| c.directory[2].1 = NodeId(0)),
        ("\"h1\" is listed twice", |c| c.directory[2].0 = name("h1")),
        ("node id 1 is given twice", |c| c.directory[2].1 = NodeId(1)),
        ("this host (\"h9\", id 2) is not in the directory", |c| c.name = name("h9")),
    ]);
}

#[test]
fn sizes_and_clocks_are_within_their_ranges() {
    all_are_refused(&[
        ("fragment size 1 B", |c| c.fragment_bytes = 1),
        ("fragment size 70000 B", |c| c.fragment_low_latency_bytes = Some(70_000)),
        ("clock tolerance", |c| c.clock_tolerance = Ppm(1_901)),
        ("packets_per_second = 0", |c| c.signalling.packets_per_second = 0),
        ("retransmit is below a millisecond", |c| c.signalling.retransmit = Nanos(1)),
        ("retransmits_max = 0", |c| c.signalling.retransmits_max = 0),
        ("cannot carry its own signalling", |c| {
            c.links[0] = LinkConfig::new("left", NodeId(1), BitRate(10_000));
        }),
    ]);
}

fn planned(period_ns: u64) -> PlannedFlow {
    PlannedFlow {
        name: FlowName::new("film").expect("a name"),
        period_ns: Nanos(period_ns),
        packets: 3,
        cost_ns: Nanos(30_000),
        unit_ns: Nanos(10_000),
        deadline_ns: Nanos(period_ns),
        rate_ns: Nanos(period_ns),
        place: 0,
    }
}

#[test]
fn processors_serve_as_they_admit_and_leave_something_over() {
    all_are_refused(&[
        ("does not match admission", |c| c.cpu.run = RunPolicy::Fifo),
        ("does not match admission", |c| c.cpu.admission = Admission::RMDP),
        ("processor best_effort_cpu_cap is nothing", |c| c.cpu.best_effort_cpu_cap = Ppm(0)),
        ("processor best_effort_flow_cpu_cap is nothing", |c| c.cpu.best_effort_flow_cpu_cap = Ppm(0)),
        ("served in the order of rmdp", |c| c.cpu.plan = vec![planned(1_000_000)]),
        ("\"film\" is listed twice", |c| {
            (c.cpu.run, c.cpu.admission) = (RunPolicy::Rmdp, Admission::RMDP);
            c.cpu.plan = vec![planned(1_000_000); 2];
        }),
        ("flow \"film\" of the plan", |c| {
            (c.cpu.run, c.cpu.admission) = (RunPolicy::Rmdp, Admission::RMDP);
            c.cpu.plan = vec![planned(0)];
        }),
        ("quantum = 0", |c| c.cpu.quantum_packets = 0),
        ("cpu_share_max is nothing", |c| c.cpu.utilisation_max = Ppm(0)),
        ("leaves channels nothing", |c| c.cpu.best_effort_share_min = c.cpu.utilisation_max),
    ]);
}

#[test]
fn links_carry_what_is_to_be_sent() {
    all_are_refused(&[
        ("link left: rate 0", |c| c.links[0].rate = BitRate(0)),
        ("rate_error is 50 %", |c| c.links[0].rate_error = Ppm(500_000)),
        ("pipeline_depth 0", |c| c.links[0].pipeline_depth = 0),
        ("packet of 200 B holds neither", |c| c.links[0].packet_bytes_max = 200),
        ("frames: give", |c| c.links[0].frames = 1),
        ("propagation_min is longer", |c| {
            c.links[0].propagation_min = Nanos::from_secs(1);
        }),
        ("leave channels nothing", |c| c.links[0].best_effort_share_min = Ppm(1_000_000)),
        ("leave channels nothing", |c| {
            (c.links[0].best_effort_share_min, c.links[0].interference.rho) = (Ppm(600_000), Ppm(400_000));
        }),
        ("best_effort_cap is nothing", |c| c.links[0].best_effort_cap = Ppm(0)),
        ("best_effort_flow_cap is nothing", |c| c.links[0].best_effort_flow_cap = Ppm(0)),
        ("neighbour 77 is not in the directory", |c| c.links[0].neighbour = NodeId(77)),
        ("neighbour is this host", |c| c.links[0].neighbour = c.id),
        ("give 1464 B or more", |c| {
            c.fragment_low_latency_bytes = Some(c.fragment_bytes);
            c.fragment_bytes = 300;
            c.links[0].packet_bytes_max = 800;
        }),
        ("two links to node 1", |c| c.links.push(LinkConfig::new("again", NodeId(1), RATE))),
        ("more than", |c| c.links = vec![c.links[0].clone(); 70_000]),
    ]);
}

#[test]
fn routes_begin_with_a_neighbour_and_pass_every_node_once() {
    fn via(nodes: &[u32]) -> RouteConfig {
        RouteConfig { via: nodes.iter().copied().map(NodeId).collect() }
    }
    all_are_refused(&[
        ("begins with a host that no [[link]] leads to", |c| c.routes = vec![via(&[9])]),
        ("begins with a host that no [[link]] leads to", |c| c.routes = vec![via(&[])]),
        ("passes a host twice", |c| c.routes = vec![via(&[1, 3, 1])]),
        ("passes this host", |c| c.routes = vec![via(&[1, 2])]),
        ("via is too long", |c| c.routes = vec![via(&(1..200).filter(|id| *id != 2).collect::<Vec<_>>())]),
    ]);
}

#[test]
fn a_misspelt_name_suggests_another_host_and_never_the_own_one() {
    let config = line_config(0, 3, RATE);
    let like = |text: &str| match config.resolve(&name(text)) {
        Err(RequestError::UnknownHostLike { like, .. }) => Some(like),
        Err(RequestError::UnknownHost(_)) => None,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(like("h2x"), Some(name("h2")));
    assert_eq!(like("h1x"), None, "two letters from h2, one from h1, which asks");
}

/// A value just within its range is no contradiction.
#[test]
fn the_ends_of_ranges_are_taken() {
    let within: [(&str, Change); 13] = [
        ("retransmits_max", |c| c.signalling.retransmits_max = 1),
        ("packets_per_second", |c| c.signalling.packets_per_second = 1),
        ("retransmit", |c| c.signalling.retransmit = Nanos::from_millis(1)),
        ("lease", |c| c.signalling.lease = Nanos::from_millis(1)),
        ("consent", |c| c.signalling.consent_timeout = Nanos::from_millis(1)),
        ("tolerance", |c| c.clock_tolerance = Ppm(0)),
        ("largest tolerance", |c| c.clock_tolerance = Ppm(1_900)),
        ("rate_error", |c| c.links[0].rate_error = Ppm(400_000)),
        ("depth", |c| c.links[0].pipeline_depth = 1),
        ("propagation", |c| c.links[0].propagation_min = c.links[0].propagation_max),
        ("low latency", |c| c.fragment_low_latency_bytes = Some(c.fragment_bytes)),
        ("cap", |c| c.links[0].best_effort_cap = Ppm(1)),
        ("flow cap", |c| c.links[0].best_effort_flow_cap = Ppm(1)),
    ];
    for (what, change) in within {
        assert_eq!(complaint(change), None, "{what}");
    }
}

/// The declared cost of a unit: its first packet, those behind it, its bytes, and a message's begin or end.
#[test]
fn a_unit_costs_its_parts() {
    use punctual_proto::api::WorkKind::{BestEffort, Forward, Receive, Send, Signalling};
    let costs = CpuCosts {
        send_message: Nanos(1_000_000),
        send_packet: Nanos(70_000),
        send_packet_later: Nanos(3_000),
        forward_packet: Nanos(50_000),
        receive_packet: Nanos(20_000),
        deliver_message: Nanos(2_000_000),
        copy_kib: Nanos(1_024),
        cold_start: Nanos(9),
    };
    let unit = |kind, packets, edge| costs.of_unit(kind, packets, 300, edge).0;
    // A nanosecond a byte, however many there are.
    for bytes in [0, 1, 1_023, 1_024, 1_025, 65_535, u32::MAX] {
        assert_eq!(costs.of_unit(Send, 0, bytes, false), Nanos(bytes.into()));
    }
    for (packets, of_send) in [(0, 0), (1, 70_000), (2, 73_000), (9, 94_000)] {
        let n = u64::from(packets);
        assert_eq!(unit(Send, packets, false), of_send + 300);
        assert_eq!(unit(Send, packets, true), of_send + 300 + 1_000_000);
        assert_eq!(unit(Forward, packets, true), n * 50_000 + 300);
        assert_eq!(unit(Receive, packets, false), n * 20_000 + 300);
        assert_eq!(unit(Receive, packets, true), n * 20_000 + 300 + 2_000_000);
        for dearest in [BestEffort, Signalling] {
            assert_eq!(unit(dearest, packets, false), n * 70_000 + 300);
            assert_eq!(unit(dearest, packets, true), n * 70_000 + 300 + 2_000_000);
        }
    }
    let dearer_later = CpuCosts { send_packet_later: Nanos(100_000), ..costs };
    assert_eq!(
        dearer_later.of_unit(Send, 3, 0, false),
        Nanos(210_000),
        "a later one is never the dearer one"
    );
}

/// The defaults in the commented example configuration.
#[test]
fn defaults_are_those_of_the_documents() {
    const US: fn(u64) -> Nanos = Nanos::from_micros;
    let costs = CpuCosts::default();
    let packets = [costs.send_packet, costs.send_packet_later, costs.forward_packet, costs.receive_packet];
    assert_eq!(packets, [US(8), US(8), US(12), US(8)]);
    let messages = [costs.send_message, costs.deliver_message, costs.copy_kib, costs.cold_start];
    assert_eq!(messages, [US(8), US(8), Nanos(500), US(40)]);
    let cpu = CpuConfig::default();
    assert_eq!((cpu.release_latency, cpu.best_effort_share_min), (US(200), Ppm(50_000)));
    assert_eq!((cpu.utilisation_max, cpu.quantum_packets), (Ppm(950_000), 1));
    assert_eq!((cpu.interference.sigma, cpu.interference.rho), (US(100), Ppm(50_000)));
    assert_eq!((cpu.best_effort_cpu_cap, cpu.best_effort_flow_cpu_cap), (Ppm::ONE, Ppm::ONE));
    let signalling = SignallingConfig::default();
    assert_eq!(signalling.domain_key, [0; 32], "one that everybody knows");
    let times = [signalling.lease, signalling.hello_interval, signalling.consent_timeout];
    assert_eq!(times, [20, 1, 10].map(Nanos::from_secs));
    assert_eq!((signalling.retransmit, signalling.retransmits_max), (Nanos::from_millis(100), 6));
    assert_eq!((signalling.grace, signalling.packets_per_second), (Nanos::from_millis(500), 50));
    let link = LinkConfig::new("x", NodeId(2), RATE);
    assert_eq!((link.rate_error, link.best_effort_share_min), (Ppm(10_000), Ppm(50_000)));
    assert_eq!((link.packet_bytes_max, link.overhead_bytes, link.pipeline_depth), (1_464, 66, 2));
    let times = [link.reaction, link.propagation_min, link.propagation_max, link.prediction_error];
    assert_eq!(times, [100, 0, 200, 500].map(US));
    assert_eq!((link.best_effort_flow_cap, link.best_effort_cap), (Ppm::ONE, Ppm::ONE));
    assert_eq!((link.frames, link.best_effort_flow_bytes_max), (8_192, 262_144));
    assert_eq!((link.interference.sigma, link.interference.rho), (Nanos::ZERO, Ppm(0)));
    assert_eq!(link.kernel_share_max, Ppm(0));
}

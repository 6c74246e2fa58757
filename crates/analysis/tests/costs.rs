//! The cost formulas of stages, each with numbers that can be checked by hand: 100 Mbit/s with an error of
//! 20 % are 10 B/us, an MTU of 1,000 B takes 100 us.

use punctual_analysis::{
    Activation, BitRate, Blocking, Contract, CostParts, Cpu, Interference, Link, Nanos, Pacing, PathCosts,
    Ppm, Rate, Service,
};

const US: fn(u64) -> Nanos = Nanos::from_micros;
const FRAGMENT_BYTES: u32 = 900;

fn link(pipeline_depth: u32, pacing: Pacing, reaction: Nanos) -> Link {
    Link {
        rate: BitRate(100_000_000),
        rate_error: Ppm(200_000),
        overhead_bytes: 100,
        mtu_wire_bytes: 1_000,
        best_effort_wire_bytes: 1_000,
        pipeline_depth,
        pacing,
        reaction,
        interference: Interference { sigma: US(30), rho: Ppm(200_000) },
        best_effort_share_min: Ppm(50_000),
    }
}

fn contract(message_bytes_max: u32) -> Contract {
    let interval = Nanos(12_800_000);
    Contract::new(message_bytes_max, Rate::every(interval).unwrap(), 1, interval).unwrap()
}

/// Cost and largest unit of a message on a link.
fn costs(link: &Link, message_bytes: u32) -> (Nanos, Nanos) {
    let demand = link.demand(&contract(message_bytes), FRAGMENT_BYTES, Nanos::ZERO, Nanos::ZERO);
    (demand.cost, demand.unit_cost_max)
}

#[test]
fn every_packet_pays_its_headers_at_the_rate_less_its_error() {
    let link = link(2, Pacing::Clock, Nanos::ZERO);
    assert_eq!(link.rate_assured(), BitRate(80_000_000));
    // 900 B in one packet, 901 B in two, no bytes in one.
    assert_eq!(link.wire_bytes(900, FRAGMENT_BYTES), 1_000);
    assert_eq!(link.wire_bytes(901, FRAGMENT_BYTES), 1_101);
    assert_eq!(link.wire_bytes(0, FRAGMENT_BYTES), 100);
    assert_eq!(costs(&link, 900), (US(100), US(100)));
    assert_eq!(costs(&link, 1_800), (US(200), US(100)));
    assert_eq!(costs(&link, 50), (US(15), US(15)));
}

#[test]
fn with_one_unit_outstanding_every_packet_pays_the_reaction() {
    for pacing in [Pacing::Clock, Pacing::Completion] {
        let link = link(1, pacing, US(7));
        assert_eq!(costs(&link, 900), (US(107), US(107)));
        assert_eq!(costs(&link, 1_800), (US(214), US(107)));
        // Three packets, the last one small: 220 us of wire, three reactions.
        assert_eq!(costs(&link, 1_900), (US(220 + 21), US(107)));
    }
}

/// max(0, delta - (P·MTU - 2s)/rate)·bytes/(P·MTU - s), with s an MTU.
#[test]
fn completions_pay_for_what_the_window_does_not_cover() {
    // P = 2: no time is covered, so one MTU is charged a whole reaction.
    assert_eq!(link(2, Pacing::Completion, US(40)).cost_of(1_000), US(140));
    assert_eq!(link(2, Pacing::Completion, US(40)).cost_of(500), US(50 + 20));
    // P = 4: two MTUs (200 us) are covered, and the reaction is charged to three.
    assert_eq!(link(4, Pacing::Completion, US(200)).cost_of(3_000), US(300));
    assert_eq!(link(4, Pacing::Completion, US(260)).cost_of(3_000), US(300 + 60));
    assert_eq!(link(4, Pacing::Completion, US(260)).cost_of(1_000), US(100 + 20));
    assert_eq!(costs(&link(4, Pacing::Completion, US(260)), 2_700), (US(360), US(120)));
}

/// By the clock (GCRA): max(0, delta - (P-1)·U)·bytes/((P-1)·MTU).
#[test]
fn the_clock_pays_for_a_reaction_longer_than_the_rest_of_the_window() {
    // P = 2: one MTU (100 us) is covered.
    assert_eq!(link(2, Pacing::Clock, US(100)).cost_of(1_000), US(100));
    assert_eq!(link(2, Pacing::Clock, US(130)).cost_of(1_000), US(130));
    // P = 4: three are covered, and the reaction is charged to them together.
    assert_eq!(link(4, Pacing::Clock, US(300)).cost_of(3_000), US(300));
    assert_eq!(link(4, Pacing::Clock, US(345)).cost_of(3_000), US(345));
    assert_eq!(link(4, Pacing::Clock, US(345)).cost_of(1_000), US(115));
    assert_eq!(costs(&link(4, Pacing::Clock, US(345)), 2_700), (US(345), US(115)));
}

#[test]
fn costs_are_rounded_up() {
    let odd = Link { rate: BitRate(3_000_000_000), rate_error: Ppm(0), ..link(2, Pacing::Clock, US(0)) };
    // 8 bits at 3 Gbit/s are 2.67 ns.
    assert_eq!(odd.cost_of(1), Nanos(3));
    let reacting = Link { pacing: Pacing::Completion, reaction: Nanos(10), ..odd };
    // And 10 ns·1/1,000 are rounded up to more than zero.
    assert_eq!(reacting.cost_of(1), Nanos(4));
}

#[test]
fn one_unit_outstanding_blocks_as_long_as_the_largest() {
    let model = link(1, Pacing::Completion, US(7)).model();
    assert_eq!(model.blocking, Blocking::LargestUnit { best_effort: US(107) });
    // Best effort is always among them.
    assert_eq!(model.blocking.by(US(20)), US(107));
    assert_eq!(model.blocking.by(US(200)), US(200));
    // Only as long as its own largest packet; the others have theirs.
    let small = Link { best_effort_wire_bytes: 300, ..link(1, Pacing::Completion, US(7)) }.model();
    assert_eq!(small.blocking, Blocking::LargestUnit { best_effort: US(37) });
}

/// P·MTU/rate + delta, whatever the units.
#[test]
fn a_pipeline_blocks_by_its_window_and_the_reaction() {
    let link = link(3, Pacing::Completion, US(7));
    assert_eq!(link.pipeline_time(), US(307));
    let model = link.model();
    assert_eq!(model.blocking, Blocking::Pipeline(US(307)));
    assert_eq!(model.blocking.by(Nanos::ZERO), US(307));
    assert_eq!(model.blocking.by(US(5_000)), US(307));
}

#[test]
fn interference_is_a_burst_and_a_share() {
    let interference = link(2, Pacing::Clock, US(0)).interference;
    assert_eq!(interference.within(Nanos::ZERO), US(30));
    assert_eq!(interference.within(US(1_000)), US(30 + 200));
    assert_eq!(interference.within(Nanos(1)), US(30) + Nanos(1));
}

/// drain + sigma + rho·(sigma + P·U)/(1 - rho).
#[test]
fn a_packet_leaves_at_the_latest_after_what_may_get_in_between() {
    let link = link(2, Pacing::Clock, US(0));
    // rho/(1 - rho) is a quarter of 30 + 200 us.
    assert_eq!(link.departure_latest(1_500), US(150 + 30) + Nanos(57_500));
    let alone = Link { interference: Interference::default(), ..link };
    assert_eq!(alone.departure_latest(1_500), US(150));
}

#[test]
fn the_share_of_best_effort_cannot_be_given_away() {
    assert_eq!(link(2, Pacing::Clock, US(0)).model().utilisation_limit, Ppm(950_000));
    let cpu = |max, best_effort| {
        let cpu = Cpu { utilisation_max: Ppm(max), best_effort_share_min: Ppm(best_effort), ..cpu(1) };
        cpu.model().utilisation_limit
    };
    assert_eq!(cpu(950_000, 20_000), Ppm(950_000));
    assert_eq!(cpu(950_000, 100_000), Ppm(900_000));
    assert_eq!(cpu(950_000, 2_000_000), Ppm(0));
}

fn cpu(quantum_packets: u32) -> Cpu {
    Cpu {
        utilisation_max: Ppm(950_000),
        best_effort_share_min: Ppm(0),
        interference: Interference { sigma: US(5), rho: Ppm(10_000) },
        best_effort_unit: US(25),
        quantum_packets,
    }
}

/// Packets times the cost of one, each copied by itself, and the message once; a unit is a quantum.
#[test]
fn a_cpu_charges_packets_one_by_one() {
    let costs = PathCosts::one_by_one(US(10), US(3), US(2));
    let demand = |quantum, bytes| {
        let demand = cpu(quantum).demand(&contract(bytes), 1_400, &costs, US(9), US(70));
        assert_eq!((demand.release_latency, demand.early), (US(9), US(70)));
        (demand.cost, demand.unit_cost_max)
    };
    // 1,400 B are copied as 2 KiB: 3 + 2·2 us a packet.
    assert_eq!(demand(1, 14_000), (US(10 + 10 * 7), US(10 + 7)));
    assert_eq!(demand(4, 14_000), (US(10 + 10 * 7), US(10 + 4 * 7)));
    // A quantum longer than the message counts as the message; a quantum of zero counts as one packet.
    assert_eq!(demand(40, 14_000), (US(80), US(80)));
    assert_eq!(demand(0, 14_000), (US(80), US(17)));
    // 600 B are copied as 1 KiB.
    assert_eq!(demand(1, 600), (US(10 + 5), US(15)));
    assert_eq!([1_023, 1_024, 1_025].map(|bytes| demand(1, bytes).0), [US(15), US(15), US(17)]);
    assert_eq!(costs.of(3, 2_049), US(10 + 9 + 6));
}

#[test]
fn a_cpu_blocks_by_the_largest_unit_and_passes_its_interference_on() {
    let model = cpu(1).model();
    assert_eq!(model.blocking, Blocking::LargestUnit { best_effort: US(25) });
    assert_eq!(model.interference, cpu(1).interference);
}

/// I' = I·(1 - 1/128), and the values of the caller.
#[test]
fn a_demand_carries_the_policed_period() {
    let demand = link(2, Pacing::Clock, US(0)).demand(&contract(900), FRAGMENT_BYTES, US(4), US(60));
    assert_eq!(demand.period, Nanos(12_700_000));
    assert_eq!((demand.release_latency, demand.early), (US(4), US(60)));
    let costs = PathCosts::default();
    assert_eq!(cpu(1).demand(&contract(900), 1_400, &costs, US(0), US(0)).period, Nanos(12_700_000));
}

/// A run of n packets costs the first and n - 1 later ones; a message costs its runs, each a quantum but the last.
#[test]
fn a_source_charges_runs_as_curves() {
    let costs = PathCosts { message: US(10), packet: US(8), packet_later: US(3), kib: US(1) };
    assert_eq!(costs.of(1, 0), US(10 + 8));
    assert_eq!(costs.of(4, 0), US(10 + 8 + 3 * 3));
    let parts = |quantum, bytes| cpu(quantum).cost_parts(&contract(bytes), 1_000, &costs);
    let cpu_parts = |first, later| CostParts::Cpu {
        message: US(10),
        first_packets: US(first),
        later_packets: US(later),
        copy: US(10),
    };
    assert_eq!(parts(1, 10_000), cpu_parts(10 * 8, 0));
    assert_eq!(parts(4, 10_000), cpu_parts(3 * 8, 7 * 3));
    assert_eq!(parts(10, 10_000), cpu_parts(8, 9 * 3));
    for quantum in [0, 1, 3, 4, 9, 10, 11] {
        let demand = cpu(quantum).demand(&contract(10_000), 1_000, &costs, US(0), US(0));
        assert_eq!(demand.cost, parts(quantum, 10_000).sum());
        assert!(demand.unit_cost_max <= demand.cost);
    }
}

/// No unit crosses the end of a budget: whatever the quantum, a period costs the packets of its budget, and begins
/// as many runs as quanta and ends of messages make.
#[test]
fn a_budget_costs_its_packets() {
    let costs = PathCosts { message: US(10), packet: US(8), packet_later: US(3), kib: US(1) };
    let period = Nanos::from_millis(1);
    let parts = |quantum, packets, messages| {
        let activation = Activation::Periodic { period, packets };
        let timed = Contract { activation, ..contract(1_000) };
        let service = Service { packets, messages, period, wait: Nanos::ZERO };
        cpu(quantum).cost_parts_of(&timed, &service, 1_000, &costs)
    };
    let expected = |messages: u64, first: u64, later: u64, packets: u64| CostParts::Cpu {
        message: US(10 * messages),
        first_packets: US(8 * first),
        later_packets: US(3 * later),
        copy: US(packets),
    };
    assert_eq!(parts(8, 2, 1), expected(1, 1, 1, 2));
    assert_eq!(parts(8, 12, 1), expected(1, 2, 10, 12));
    assert_eq!(parts(8, 12, 3), expected(3, 4, 8, 12));
    assert_eq!(parts(1, 12, 3), expected(3, 12, 0, 12));
    // Packets are as long as fragments, or as their messages where these are shorter.
    let copy = |bytes, fragment| {
        let activation = Activation::Periodic { period, packets: 4 };
        let service = Service { packets: 4, messages: 1, period, wait: Nanos::ZERO };
        let timed = Contract { activation, ..contract(bytes) };
        match cpu(1).cost_parts_of(&timed, &service, fragment, &costs) {
            CostParts::Cpu { copy, .. } => copy,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([copy(1_000, 5_000), copy(50_000, 2_048), copy(2_049, 2_049)], [US(4), US(8), US(12)]);
}

/// The charge covers every way in which the units of a message can be cut, as long as they are quanta.
#[test]
fn the_charge_covers_the_runs_that_happen() {
    let costs = PathCosts { message: US(10), packet: US(8), packet_later: US(3), kib: US(1) };
    for packets in 1..40_u32 {
        for quantum in 1..12_u32 {
            let charged = cpu(quantum).cost_parts(&contract(packets * 1_000), 1_000, &costs).sum();
            let edgeless = PathCosts { message: US(0), ..costs };
            let (mut left, mut spent) = (packets, costs.message);
            while left > 0 {
                let run = left.min(quantum);
                spent += edgeless.of(run, u64::from(run) * 1_000);
                left -= run;
            }
            assert!(spent <= charged, "{packets} packets, quantum {quantum}: {spent} > {charged}");
        }
    }
}

/// A profile in which later packets come out dearer than first ones is noise: no run is cheaper than its parts.
#[test]
fn later_packets_never_cost_more_than_first_ones() {
    let odd = PathCosts { message: US(0), packet: US(4), packet_later: US(9), kib: US(0) };
    assert_eq!(odd.of(5, 0), US(20));
}

/// A link's cost is its drain and what the reaction leaves idle.
#[test]
fn a_link_reports_drain_and_reaction() {
    for (depth, pacing, reaction) in [
        (1, Pacing::Completion, 7),
        (2, Pacing::Clock, 0),
        (2, Pacing::Completion, 9),
        (3, Pacing::Clock, 500),
    ] {
        let link = link(depth, pacing, US(reaction));
        let cost = link.demand(&contract(9_000), FRAGMENT_BYTES, US(0), US(0)).cost;
        let parts = link.cost_parts(&contract(9_000), FRAGMENT_BYTES);
        assert_eq!(parts.sum(), cost);
        let CostParts::Link { drain, reaction } = parts else {
            panic!("a link's parts");
        };
        assert_eq!(drain + reaction, cost);
        assert_eq!(drain, link.rate_assured().time_of(link.wire_bytes(9_000, FRAGMENT_BYTES)).min(cost));
    }
}

/// Drain time + sigma + rho·(sigma + P·U)/(1 - rho), to the nanosecond also where a link is so slow that it shows.
#[test]
fn the_latest_departure_is_that_of_the_formula() {
    for (bits, depth, outstanding) in [(8_000_u64, 2_u32, 1_500_u64), (1_000, 7, 1), (100_000_000, 1, 9_000)]
    {
        let link = Link { rate: BitRate(bits), rate_error: Ppm(0), ..link(depth, Pacing::Clock, US(0)) };
        let time = |bytes: u64| bytes * 8 * 1_000_000_000 / bits;
        let exposed = u128::from(30_000 + time(1_000 * u64::from(depth)));
        let stretched = (exposed * 200_000).div_ceil(800_000) as u64;
        assert_eq!(
            link.departure_latest(outstanding),
            Nanos(time(outstanding) + 30_000 + stretched),
            "{bits}"
        );
    }
}

//! The cost formulas of stages where numbers are nothing, one or all: each formula is written out, and compared for all
//! combinations of a few values.

use punctual_analysis::{
    Activation, BitRate, Blocking, Class, Contract, CostParts, Cpu, Interference, Link, Nanos, Pacing,
    PathCosts, Ppm, Rate, Service, Urgency,
};

/// A byte takes 8 ns, or less.
const GIGABIT: u64 = 1_000_000_000;

fn link(mtu_wire_bytes: u32, pipeline_depth: u32, pacing: Pacing, reaction: u64) -> Link {
    Link {
        rate: BitRate(GIGABIT),
        rate_error: Ppm(0),
        overhead_bytes: 3,
        mtu_wire_bytes,
        best_effort_wire_bytes: mtu_wire_bytes,
        pipeline_depth,
        pacing,
        reaction: Nanos(reaction),
        interference: Interference::default(),
        best_effort_share_min: Ppm(0),
    }
}

/// Of any value one at least, whatever counts packets or bytes.
fn one(value: u32) -> u64 {
    if value == 0 { 1 } else { value.into() }
}

/// With one unit outstanding each started MTU pays a reaction. With P the window covers P - 1 MTUs by the clock, P - 2 with
/// completions, and what remains of a reaction is charged to P - 1.
#[test]
fn the_cost_of_bytes_is_that_of_the_formula() {
    for (mtu, depth) in [0, 1, 2, 3, 10].into_iter().flat_map(|mtu| (0..5).map(move |depth| (mtu, depth))) {
        for pacing in [Pacing::Clock, Pacing::Completion] {
            for reaction in [0_u64, 1, 7, 17, 100, 1_001] {
                for bytes in [0_u64, 1, 2, 3, 9, 10, 11, 35] {
                    let (wide, window) = (one(mtu), one(depth));
                    let covered = window - if pacing == Pacing::Clock { 1 } else { 2.min(window) };
                    let idle = u64::saturating_sub(reaction, 8 * covered * wide);
                    let extra = match window {
                        1 => reaction * bytes.div_ceil(wide),
                        _ => (idle * bytes).div_ceil((window - 1) * wide),
                    };
                    let link = link(mtu, depth, pacing, reaction);
                    let what = format!("{mtu} {depth} {pacing:?} {reaction} {bytes}");
                    assert_eq!(link.cost_of(bytes), Nanos(8 * bytes + extra), "{what}");
                    let blocking = match window {
                        1 => Blocking::LargestUnit { best_effort: link.cost_of(mtu.into()) },
                        _ => Blocking::Pipeline(link.pipeline_time()),
                    };
                    assert_eq!(link.model().blocking, blocking, "{what}");
                    // One packet of the largest size at least may be on its way.
                    let ahead = Nanos(8 * window * u64::from(mtu) + reaction);
                    assert_eq!(link.pipeline_time(), ahead, "{what}");
                }
            }
        }
    }
}

/// Each started fragment has its headers. A message without bytes takes a packet, too, and so a fragment has a byte.
#[test]
fn a_message_has_a_packet_for_each_started_fragment() {
    let link = link(10, 2, Pacing::Clock, 0);
    for (bytes, fragment) in (0..9).flat_map(|bytes| (0..5).map(move |fragment| (bytes, fragment))) {
        let packets = u64::from(bytes).div_ceil(one(fragment)).max(1);
        assert_eq!(link.wire_bytes(bytes, fragment), u64::from(bytes) + 3 * packets, "{bytes} {fragment}");
    }
}

/// drain + sigma + rho·(sigma + P·U)/(1 - rho), rounded up; all but a millionth of the link at most is in between.
#[test]
fn the_latest_departure_is_rounded_up_and_has_a_millionth_of_the_link() {
    for rho in [0, 1, 250_000, 333_333, 999_998, 999_999, 1_000_000, 2_000_000] {
        for (depth, sigma) in (0..4).flat_map(|depth| [0, 1, 2, 50].map(|sigma| (depth, sigma))) {
            let interference = Interference { sigma: Nanos(sigma), rho: Ppm(rho) };
            let link = Link { interference, ..link(10, depth, Pacing::Clock, 0) };
            let exposed = sigma + 80 * one(depth);
            let stretched = (exposed * u64::from(rho)).div_ceil(1_000_000 - u64::from(rho.min(999_999)));
            let latest = Nanos(8 * 7 + sigma + stretched);
            assert_eq!(link.departure_latest(7), latest, "{rho} {depth} {sigma}");
        }
    }
}

/// Whatever best effort keeps cannot be reserved, and it keeps no more than all.
#[test]
fn best_effort_may_keep_all_of_a_link() {
    for share in [0, 1, 50_000, 999_999, 1_000_000, 1_000_001, u32::MAX] {
        let link = Link { best_effort_share_min: Ppm(share), ..link(10, 2, Pacing::Clock, 0) };
        assert_eq!(link.model().utilisation_limit, Ppm(1_000_000_u32.saturating_sub(share)), "{share}");
    }
}

const COSTS: PathCosts =
    PathCosts { message: Nanos(1_000), packet: Nanos(100), packet_later: Nanos(10), kib: Nanos(1) };

fn cpu(quantum_packets: u32) -> Cpu {
    Cpu {
        utilisation_max: Ppm(950_000),
        best_effort_share_min: Ppm(0),
        interference: Interference::default(),
        best_effort_unit: Nanos(0),
        quantum_packets,
    }
}

fn contract(message_bytes_max: u32) -> Contract {
    let interval = Nanos::from_millis(10);
    let contract = Contract::new(1, Rate::every(interval).expect("a rate"), 1, interval).expect("valid");
    Contract { message_bytes_max, ..contract }
}

/// A message costs a packet at least, and each quantum begins with a first packet. A unit is a quantum, or the message
/// where that is shorter.
#[test]
fn runs_of_a_message_are_quanta() {
    for (packets, quantum) in (0..7_u32).flat_map(|packets| (0..7_u32).map(move |quantum| (packets, quantum)))
    {
        // Each packet is copied by itself; one of no bytes is not.
        let (sent, kib) = (one(packets), if packets == 0 { 0 } else { 2 });
        let (run, runs) = (one(quantum).min(sent), sent.div_ceil(one(quantum)));
        let cost = 1_000 + 100 * runs + 10 * (sent - runs) + kib * sent;
        let unit = 1_000 + 100 + 10 * (run - 1) + kib * run;
        let demand = cpu(quantum).demand(&contract(packets * 1_500), 1_500, &COSTS, Nanos(0), Nanos(0));
        assert_eq!((demand.cost, demand.unit_cost_max), (Nanos(cost), Nanos(unit)), "{packets} {quantum}");
    }
}

/// Each started KiB of a run is copied.
#[test]
fn a_run_copies_each_started_kib() {
    for (bytes, kib) in
        [(0, 0), (1, 1), (1_023, 1), (1_024, 1), (1_025, 2), (2_047, 2), (2_048, 2), (2_049, 3)]
    {
        assert_eq!(COSTS.of(2, bytes), Nanos(1_000 + 100 + 10 + kib), "{bytes} B");
    }
}

/// A budget's period costs its packets, whose runs are cut by quanta and by messages, but no run is without a packet. Its
/// longest unit is that of a message, or all of it.
#[test]
fn a_budget_costs_its_period_and_its_longest_unit_is_no_longer() {
    let span = Nanos::from_millis(1);
    let mut shorter = 0;
    for (packets, quantum, messages) in (0..6 * 6 * 4_u32).map(|n| (n % 6 + 1, n / 6 % 6, n / 36 + 1)) {
        for timed in [false, true] {
            let activation = match timed {
                true => Activation::Periodic { period: span, packets },
                false => Activation::LowLatency { interarrival: span, packets },
            };
            let contract = Contract { activation, ..contract(4 * 1_500) };
            let service = Service { packets, messages, period: Nanos(77), wait: Nanos(0) };
            let first = (packets.div_ceil(quantum.max(1)) + messages - 1).min(packets);
            let [of_message, of_first, of_later, of_copy] =
                [messages * 1_000, first * 100, (packets - first) * 10, packets * 2]
                    .map(|ns| Nanos(ns.into()));
            let parts = CostParts::Cpu {
                message: of_message,
                first_packets: of_first,
                later_packets: of_later,
                copy: of_copy,
            };
            let what = format!("{packets} {quantum} {messages} {timed}");
            let cpu = cpu(quantum);
            assert_eq!(cpu.cost_parts_of(&contract, &service, 1_500, &COSTS), parts, "{what}");
            let demand = cpu.demand_of(&contract, &service, 1_500, &COSTS, Nanos(5));
            let plain = cpu.demand(&contract, 1_500, &COSTS, Nanos(5), Nanos(0));
            let class = if timed { Class::Guaranteed } else { Class::LowLatency };
            assert_eq!(demand.urgency, Urgency::of_period(class, Nanos(77)), "{what}");
            assert_eq!((demand.cost, demand.period), (parts.sum(), Nanos(77)), "{what}");
            let is_shorter = parts.sum() < plain.unit_cost_max;
            let unit = if is_shorter { parts.sum() } else { plain.unit_cost_max };
            assert_eq!(demand.unit_cost_max, unit, "{what}");
            assert_eq!((demand.release_latency, demand.early), (Nanos(5), Nanos(0)), "{what}");
            shorter += u32::from(is_shorter);
        }
    }
    assert!(shorter > 10, "{shorter}");
}

/// Without an activation of its own a message is served whole, at its policed interval, and waits for no timer. A budget's
/// period is its span less a 128th, rounded down.
#[test]
fn a_processor_reserves_for_the_policed_interval_or_the_budgets_span() {
    for bytes in [1_u32, 99, 100, 101, 1_000] {
        let (packets, period) = (bytes.div_ceil(100), contract(bytes).policed_interval());
        let plain = Service { packets, messages: 1, period, wait: Nanos(0) };
        assert_eq!(contract(bytes).service(100), Ok(plain), "{bytes}");
    }
    assert_eq!(contract(1).processor_period(), contract(1).policed_interval());
    for span in [1_u64, 2, 127, 128, 129, 256, 257, 1_000_000] {
        let less = Nanos(span - span.div_ceil(128));
        let low = Activation::LowLatency { interarrival: Nanos(span), packets: 1 };
        let timed = Activation::Periodic { period: Nanos(span), packets: 1 };
        for activation in [low, timed] {
            assert_eq!(Contract { activation, ..contract(1) }.processor_period(), less, "{activation:?}");
        }
    }
}

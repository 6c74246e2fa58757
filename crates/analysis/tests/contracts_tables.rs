//! Tables of contracts' values, and of their demand for processors and links. Other tests check correctness,
//! by theory and by brute force; this one detects every change of a number or text. For an intended change,
//! run with `PUNCTUAL_PIN=1` and review the difference (docs/adr/0049).

#[path = "tables/table.rs"]
mod table;

use punctual_analysis::{
    Activation, BitRate, ClipParameters, Contract, Cpu, Delivery, Horizon, Interference, Link, Nanos, Pacing,
    PathCosts, Policing, Ppb, Ppm, Rate, Soft, Statistical,
};
use table::Table;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;

fn contract(bytes: u32, interval: Nanos, burst: u32, deadline: Nanos) -> Contract {
    Contract::new(bytes, Rate::every(interval).expect("a rate"), burst, deadline).expect("valid")
}

fn contracts() -> Vec<Contract> {
    let plain = [
        contract(1, MS(1), 1, MS(2)),
        contract(200, MS(10), 3, MS(20)),
        contract(1_400, MS(5), 2, MS(50)),
        contract(9_000, MS(40), 1, MS(30)),
        contract(60_000, MS(100), 4, MS(300)),
    ];
    let mut all = Vec::new();
    for plain in plain {
        all.push(plain);
        all.push(Contract {
            activation: Activation::LowLatency { interarrival: MS(2), packets: 2 },
            horizon: Horizon::Regulated,
            ..plain
        });
        all.push(Contract {
            activation: Activation::Periodic { period: MS(1), packets: 3 },
            delivery: Delivery::AtDeadline,
            policing: Policing::Drop,
            ..plain
        });
        let mean_rate = Rate::every(plain.interval() * 4).expect("a rate");
        let miss_ratio = Ppb::new(1_000_000).expect("a ratio");
        let statistical = Some(Statistical { mean_rate, mean_over: MS(500), miss_ratio });
        all.push(Contract { statistical, ..plain });
        all.push(Contract { jitter: Some(MS(1)), ..plain });
    }
    all
}

#[test]
fn what_contracts_ask_of_stages() {
    let mut table = Table::default();
    let costs = [
        PathCosts::one_by_one(US(8), US(12), Nanos(500)),
        PathCosts { message: US(5), packet: US(10), packet_later: US(3), kib: Nanos(700) },
    ];
    for contract in contracts() {
        table.row("contract", &contract);
        table.row("  holds", &contract.validate());
        table.row("  policed", &(contract.policed_interval(), contract.guarantee(), Soft::of(&contract)));
        for fragment in [64, 1_000, 1_400] {
            table.row(&format!("  packets of {fragment} B"), &contract.packets_max(fragment));
            let service = contract.service(fragment);
            table.row("    service", &service);
            for (quantum, costs) in [1, 4].into_iter().zip(costs) {
                let cpu = Cpu {
                    utilisation_max: Ppm(900_000),
                    best_effort_share_min: Ppm(70_000),
                    interference: Interference { sigma: US(100), rho: Ppm(50_000) },
                    best_effort_unit: US(30),
                    quantum_packets: quantum,
                };
                table.row("    model", &cpu.model());
                table.row("    demand", &cpu.demand(&contract, fragment, &costs, US(200), MS(3)));
                table.row("    parts", &cpu.cost_parts(&contract, fragment, &costs));
                if let Ok(service) = &service {
                    let of = cpu.demand_of(&contract, service, fragment, &costs, US(200));
                    table.row("    in service", &(of, of.in_pieces()));
                    table.row("    its parts", &cpu.cost_parts_of(&contract, service, fragment, &costs));
                }
            }
            for deadline in [None, Some(MS(7))] {
                table.row("    clip", &ClipParameters::of(&contract, fragment, 5, deadline));
            }
        }
    }
    table.is_as_written("contracts");
}

#[test]
fn what_messages_cost_on_links() {
    let mut table = Table::default();
    for depth in [0, 1, 2, 3, 8] {
        for pacing in [Pacing::Clock, Pacing::Completion] {
            for (reaction, sigma, rho) in [(0, 0, 0), (100, 300, 100_000), (2_000, 50, 20_000)] {
                let link = Link {
                    rate: BitRate(50_000_000),
                    rate_error: Ppm(10_000),
                    overhead_bytes: 66,
                    mtu_wire_bytes: 1_530,
                    best_effort_wire_bytes: 900,
                    pipeline_depth: depth,
                    pacing,
                    reaction: US(reaction),
                    interference: Interference { sigma: US(sigma), rho: Ppm(rho) },
                    best_effort_share_min: Ppm(50_000),
                };
                table.row(&format!("depth {depth} {pacing:?} {reaction}"), &link.model());
                for bytes in [0, 1, 66, 1_464, 1_530, 1_531, 40_000] {
                    table.row(&format!("  {bytes} B"), &(link.cost_of(bytes), link.departure_latest(bytes)));
                }
                for contract in contracts().into_iter().step_by(3) {
                    let demand = link.demand(&contract, 1_400, US(150), MS(4));
                    table.row("  demand", &(demand, link.cost_parts(&contract, 1_400)));
                }
            }
        }
    }
    table.is_as_written("links");
}

#[test]
fn contracts_are_accepted_within_their_ranges() {
    type Change = fn(&mut Contract, u64);
    const KEYS: &[(&str, Change)] = &[
        ("bytes", |c, n| c.message_bytes_max = n as u32),
        ("burst", |c, n| c.burst_messages_max = n as u32),
        ("deadline", |c, n| c.deadline = Nanos(n)),
        ("interval", |c, n| c.rate_max = Rate::every(Nanos(n)).unwrap_or(c.rate_max)),
        ("jitter", |c, n| c.jitter = Some(Nanos(n))),
        ("low latency", |c, n| {
            c.activation = Activation::LowLatency { interarrival: Nanos(n), packets: (n % 3) as u32 };
        }),
        ("periodic", |c, n| {
            c.activation = Activation::Periodic { period: Nanos(n), packets: (n % 3) as u32 };
        }),
        ("mean", |c, n| {
            let Some(mean_rate) = Rate::every(Nanos(n)) else { return };
            let miss_ratio = Ppb::new(5).expect("a ratio");
            c.statistical = Some(Statistical { mean_rate, mean_over: MS(900), miss_ratio });
        }),
        ("mean over", |c, n| {
            let (mean_rate, miss_ratio) =
                (Rate::every(MS(30)).expect("a rate"), Ppb::new(7).expect("a ratio"));
            c.statistical = Some(Statistical { mean_rate, mean_over: Nanos(n), miss_ratio });
        }),
    ];
    let mut table = Table::default();
    for (key, change) in KEYS {
        for base in [
            1,
            2,
            99,
            1_000,
            9_999,
            10_000,
            65_535,
            1_000_000,
            10_000_000,
            50_000_000,
            1 << 24,
            3_600_000_000_000,
        ] {
            for number in [base - 1, base, base + 1] {
                let mut contract = contract(2_000, MS(10), 2, MS(50));
                change(&mut contract, number);
                let answer = contract.validate().map_err(|error| error.to_string());
                let spans =
                    (contract.policed_interval(), contract.jitter_allowance(), contract.early_service());
                table.row(&format!("{key} = {number}"), &(answer, spans, contract.guarantee()));
            }
        }
    }
    table.is_as_written("validity");
}

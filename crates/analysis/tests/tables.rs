//! What the analysis answers, in tables: decisions of every policy while channels come and go, costs and demands of stages, plans,
//! response times, suggestions, verdicts on arrivals. Other tests say which of it is right, by theory and by brute force; here no
//! number and no word of an answer changes unseen. Whoever means it reads the difference after `PUNCTUAL_PIN=1`.

use std::fmt::Debug;
use std::fmt::Write;
use std::path::PathBuf;

use punctual_analysis::buffers::{self, PoolPart};
use punctual_analysis::following::{Load, Sharing as Following};
use punctual_analysis::path::{self, PathStage, Prediction};
use punctual_analysis::plan::{self, Flow, Processor};
use punctual_analysis::rta::{self, Convention, Preemption, Task};
use punctual_analysis::sharing::{ShareStage, Sharing};
use punctual_analysis::suggest::{Frame, Packets, Trace, choices, fare};
use punctual_analysis::{
    Activation, Admission, AdmissionPolicy, Arrival, ArrivalTerms, ArrivalsWithin, BitRate, Blocking, Class,
    ClipParameters, Contract, Cpu, Delivery, Demand, EffectiveArrivals, FlowName, Horizon, Instant,
    Interference, Link, LogicalArrivals, Nanos, Pacing, PathCosts, Policing, Ppb, Ppm, Rate, Soft, StageKey,
    StageModel, Statistical, Urgency,
};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;

/// The same numbers in each run, on every machine (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
    fn between(&mut self, least: u64, most: u64) -> Nanos {
        Nanos(least + self.below(most - least))
    }
}

#[derive(Default)]
struct Table(String);

impl Table {
    fn row(&mut self, what: &str, answer: &impl Debug) {
        // Spans are many: their type says no more each time.
        let answer = format!("{answer:?}").replace("Nanos(", "(");
        writeln!(self.0, "{what}: {answer}").expect("a text");
    }

    /// Compares with `tables/NAME.txt`; `PUNCTUAL_PIN=1` writes that anew.
    fn is_as_written(&self, name: &str) {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tables/{name}.txt"));
        if std::env::var_os("PUNCTUAL_PIN").is_some() {
            std::fs::write(&file, &self.0).expect("it can be written");
        }
        let before = std::fs::read_to_string(&file).expect("it was written");
        for (number, (before, now)) in before.lines().zip(self.0.lines()).enumerate() {
            assert_eq!(before, now, "{name}.txt:{}", number + 1);
        }
        assert_eq!(before.lines().count(), self.0.lines().count(), "{name}.txt: one ends before the other");
    }
}

fn model(dice: &mut Dice, walk: u64) -> StageModel {
    let unit = dice.between(1_000, 400_000);
    let blocking = if walk.is_multiple_of(2) {
        Blocking::Pipeline(unit)
    } else {
        Blocking::LargestUnit { best_effort: unit }
    };
    let interference = Interference { sigma: dice.between(0, 300_000), rho: Ppm(dice.below(80_000) as u32) };
    StageModel { blocking, interference, utilisation_limit: Ppm(600_000 + dice.below(350_000) as u32) }
}

fn demand(dice: &mut Dice) -> Demand {
    let period = dice.between(2_000_000, 40_000_000);
    let cost = dice.between(20_000, 3_000_000);
    let soft = (dice.below(3) == 0).then(|| Soft {
        mean_period: period * (2 + dice.below(6)),
        mean_over: dice.between(0, 200_000_000),
        jitter: dice.between(0, 1_000_000),
        miss_ratio: Ppb::new(1_000 + dice.below(20_000_000) as u32).expect("a ratio"),
    });
    let class = if dice.below(4) == 0 { Class::LowLatency } else { Class::Guaranteed };
    Demand {
        cost,
        unit_cost_max: dice.between(1_000, 300_000).min(cost),
        period,
        release_latency: dice.between(0, 500_000),
        early: [Nanos::ZERO, dice.between(0, 9_000_000)][dice.below(2) as usize],
        urgency: Urgency::of_period(class, period),
        soft,
    }
}

/// One step of a walk, and what was answered.
fn step(dice: &mut Dice, policy: &mut dyn AdmissionPolicy, table: &mut Table, what: &str) {
    let key = StageKey(dice.below(9));
    let (demand, limit) = (demand(dice), dice.between(1_000_000, 60_000_000));
    match dice.below(8) {
        0 => table.row(&format!("{what} release {}", key.0), &policy.release(key)),
        1 => table.row(&format!("{what} relax {} to {}", key.0, limit.0), &policy.relax(key, limit)),
        2 => table.row(&format!("{what} hold {} at {}", key.0, limit.0), &policy.hold(key, &demand, limit)),
        _ => {
            let offer = policy.offer(&demand, limit);
            table.row(&format!("{what} offer within {}", limit.0), &offer);
            table.row("  made of", &policy.explain(&demand, limit));
            if let Ok(offer) = offer {
                table.row(&format!("  hold {}", key.0), &policy.hold(key, &demand, offer.bound));
            }
        }
    }
    let held: Vec<_> = (0..9)
        .map(StageKey)
        .filter_map(|key| Some((key.0, policy.bound(key)?.0, policy.rank(key), policy.is_soft(key))))
        .collect();
    table.row(&format!("  {} of {} channels", policy.utilisation().0, policy.len()), &held);
}

#[test]
fn decisions_while_channels_come_and_go() {
    for admission in Admission::ALL {
        let mut table = Table::default();
        for walk in 0..4 {
            let mut dice = Dice(walk);
            let mut policy = (admission.build)(model(&mut dice, walk));
            for number in 0..30 {
                step(&mut dice, policy.as_mut(), &mut table, &format!("{walk}.{number}"));
            }
        }
        table.is_as_written(&format!("decisions_{}", admission.name));
    }
}

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
fn plans_and_what_would_mend_them() {
    let mut table = Table::default();
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let flows: Vec<Flow> = (0..2 + dice.below(4) as usize)
            .map(|index| {
                let period = MS([4, 5, 10, 20, 40][dice.below(5) as usize]);
                let cost = dice.between(100_000, period.0 / 2);
                let deadline = Nanos(period.0 - dice.below(period.0 / 3));
                let after = if index > 0 && dice.below(2) == 0 {
                    vec![dice.below(index as u64) as usize]
                } else {
                    vec![]
                };
                let name = FlowName::new(&format!("f{index}")).expect("a name");
                Flow { name, period, cost, unit_cost_max: cost.min(US(200)), deadline, after }
            })
            .collect();
        let beside = [Demand { soft: None, ..demand(&mut dice) }];
        let model = model(&mut dice, seed);
        let processor = Processor { model, release_latency: US(100), beside: &beside[..seed as usize % 2] };
        let planned = plan::plan(&flows, processor);
        table.row(&format!("{seed}"), &planned);
        if let Ok(planned) = planned.clone() {
            table.row("  remedy", &plan::remedy(&flows, &planned, processor));
        }
    }
    table.is_as_written("plans");
}

#[test]
fn response_times_of_small_sets() {
    let mut table = Table::default();
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let tasks: Vec<Task> = (0..1 + dice.below(4))
            .map(|_| {
                let cost = dice.between(0, 30);
                let period = dice.between(1, 120);
                let preemption = [Preemption::Full, Preemption::None, Preemption::BetweenUnits(Nanos(7))]
                    [dice.below(3) as usize];
                let task = Task::new(cost, period, dice.between(1, 150), preemption);
                task.with_jitter(dice.between(0, 20))
            })
            .collect();
        let blocking = dice.between(0, 9);
        table.row(&format!("{seed}"), &tasks);
        for convention in [Convention::TextBook, Convention::Ticks] {
            table.row("  fixed", &rta::fixed_priority::response_times(&tasks, blocking, convention));
            table.row("  edf", &rta::edf::response_times(&tasks, blocking, convention));
        }
        table.row("  last", &rta::fixed_priority::response_time(&tasks, blocking));
    }
    table.is_as_written("responses");
}

#[test]
fn suggestions_for_streams() {
    let mut table = Table::default();
    let mut streams = vec![
        ("two at once, one later", vec![(0, 5_000), (0, 100), (40_000, 900)]),
        ("two in a microsecond", vec![(0, 300), (1, 300)]),
        ("a large one", vec![(0, 90_000), (33_000, 400), (66_000, 400), (100_000, 70_000)]),
        ("small ones", vec![(0, 1), (10_000, 2), (20_000, 0), (20_500, 1)]),
    ];
    let mut dice = Dice(9);
    let mut at = 0;
    streams.push((
        "drawn",
        (0..60)
            .map(|_| {
                at += 1_000 + dice.below(40_000);
                (at, 200 + dice.below(30_000) as u32)
            })
            .collect(),
    ));
    for (what, frames) in streams {
        let frames =
            frames.into_iter().map(|(us, bytes)| Frame { sent: Instant(us * 1_000), bytes }).collect();
        let trace = Trace::new(frames).expect("a stream");
        table.row(what, &(trace.bytes_max(), trace.gap_min(), trace.duration(), trace.bits_per_second()));
        for deadline in [5, 40, 300] {
            for packets in [Packets::default(), Packets { fragment_bytes: 500, overhead_bytes: 66 }] {
                for choice in choices(&trace, MS(deadline), &packets) {
                    table.row("  choice", &choice);
                    for policing in [Policing::Drop, Policing::Demote] {
                        let contract = Contract { policing, burst_messages_max: 1, ..choice.contract };
                        table.row("    with a burst of one", &fare(&trace, &contract));
                    }
                }
            }
        }
    }
    for text in [
        "",
        "a,b\n1,2",
        "pts_s,bytes\n0,1\nx,2",
        "pts_s,bytes\n0,1\n1,-2",
        "pts_s,bytes\n0,1",
        "pts_s,bytes\n1,1\n1,1",
        "bytes,key,pts_s\n10,1,0.5\n\n20,0,0.1\n",
        "pts_s,bytes\n-1,5\n2,7",
        "pts_s,bytes\n0,99999999999\n1,1",
    ] {
        let trace = Trace::parse_csv(text);
        table.row(&format!("{text:?}"), &trace);
        if let Err(error) = trace {
            writeln!(table.0, "  {error}").expect("a text");
        }
    }
    table.is_as_written("suggestions");
}

#[test]
fn verdicts_on_arrivals() {
    let mut table = Table::default();
    for policing in [Policing::Delay, Policing::Drop, Policing::Demote] {
        for (burst, jitter) in [(1, None), (3, None), (2, Some(MS(2)))] {
            let contract = Contract { jitter, ..contract(100, MS(10), burst, MS(30)) };
            let (mut arrivals, mut dice, mut now) = (LogicalArrivals::of(&contract), Dice(burst.into()), 0);
            table.row(&format!("{policing:?} {burst} {jitter:?}"), &arrivals);
            for _ in 0..25 {
                now += dice.below(14_000_000);
                let earliest = Instant(now + dice.below(3_000_000));
                let expected = (arrivals.peek(Instant(now)), arrivals.conforms(Instant(now)));
                let verdict = arrivals.accept_seen(Instant(now), earliest, policing);
                table.row(&format!("  {now}"), &(expected, verdict, arrivals.claimed()));
            }
        }
    }
    let mut within = ArrivalsWithin::new(MS(5), 3);
    let mut dice = Dice(4);
    for (number, message) in [0, 0, 0, 0, 0, 1, 1, 3, 3, 3, 3, 2, 4].into_iter().enumerate() {
        let reached = Instant(number as u64 * 1_700_000 + dice.below(2_000_000));
        table.row(&format!("{message} {}", reached.0), &within.accept(message, reached));
    }
    table.is_as_written("arrivals");
}

#[test]
fn what_receivers_make_of_packets() {
    let mut table = Table::default();
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let contract = contract(2_000, MS(10), 2, MS(30));
        let terms = ArrivalTerms {
            period: contract.policed_interval(),
            packets_max: contract.packets_max(1_400),
            wire_bytes_max: 2_200,
            early_max: contract.deadline + MS(5),
            jitter: US(dice.below(3_000)),
        };
        let (mut arrivals, mut nominal) = (EffectiveArrivals::default(), 50_000_000);
        table.row(&format!("{seed}"), &terms);
        for message in 0..12 {
            nominal += 4_000_000 + dice.below(12_000_000);
            for fragment in 0..1 + dice.below(4) {
                let received = Instant(nominal - 3_000_000 + dice.below(7_000_000));
                let message = if dice.below(7) == 0 { message / 2 } else { message };
                let arrival = Arrival {
                    message,
                    wire_bytes: 400 + dice.below(1_100) as u32,
                    received,
                    nominal: Instant(nominal),
                };
                let verdict = arrivals.accept(&terms, &arrival);
                table.row(&format!("  {message}.{fragment} at {}", received.0), &verdict);
            }
        }
    }
    table.is_as_written("receivers");
}

#[test]
fn ways_shares_and_buffers() {
    let mut table = Table::default();
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let count = 1 + dice.below(5) as usize;
        let stages: Vec<PathStage> = (0..count)
            .map(|_| PathStage {
                bound: dice.between(1, 9_000_000),
                propagation_max: dice.between(0, 400_000),
            })
            .collect();
        let bounds: Vec<Nanos> = stages.iter().map(|stage| stage.bound).collect();
        let (rho, deadline) = (Ppm(dice.below(400) as u32), dice.between(1_000_000, 60_000_000));
        let left = path::leftover(&stages, rho, deadline);
        table.row(&format!("{seed}"), &(path::end_to_end(&stages, rho), left));
        for mode in [Horizon::Cumulative, Horizon::Regulated] {
            let committed = path::committed_horizon(mode, deadline, bounds[0], stages[0].propagation_max);
            table.row("  horizons", &(path::horizons(mode, &bounds), committed));
        }
        let hop = Prediction {
            error: US(dice.below(900)),
            propagation_min: US(5),
            propagation_max: US(dice.below(300) + 5),
        };
        table.row("  jitter", &path::next_jitter(US(70), &hop, rho, bounds[0]));
        let shares: Vec<ShareStage> = (0..count)
            .map(|_| ShareStage {
                offered: dice.between(0, 5_000_000),
                cost: dice.between(0, 900_000),
                load: Ppm(dice.below(1_000_001) as u32),
            })
            .collect();
        for sharing in Sharing::ALL {
            let spare = left.unwrap_or(MS(3));
            table.row(sharing.name(), &(sharing.shares(spare, &shares), sharing.of_last(spare, &shares)));
        }
        let weights: Vec<u64> = (0..count).map(|_| dice.below(4)).collect();
        table.row("  weighed", &path::leftover_shares(deadline, &weights));
        let (period, jitter) = (dice.between(1_000_000, 20_000_000), dice.between(0, 2_000_000));
        table.row(
            "  buffers",
            &[
                buffers::source(count as u32, bounds[0], period),
                buffers::cumulative(deadline, bounds[0], jitter, period),
                buffers::regulated(bounds[0], jitter, deadline, jitter, period),
                buffers::sink_at_deadline(jitter, deadline, jitter, period),
            ],
        );
        let parts: Vec<PoolPart> = (0..3 + dice.below(60))
            .map(|_| PoolPart {
                most: dice.below(9) as u32,
                period,
                mean_period: period * (1 + dice.below(12)),
            })
            .collect();
        let pools = [10_000, 1_000_000, 100_000_000]
            .map(|ratio| buffers::pooled(&parts, Ppb::new(ratio).expect("a ratio")));
        table.row("  pools", &pools);
    }
    table.is_as_written("ways");
}

#[test]
fn shares_of_the_kernel_that_follow() {
    let mut table = Table::default();
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let sharing = Following {
            least: Ppm(dice.below(200_000) as u32),
            most: Ppm(300_000 + dice.below(690_000) as u32),
            sigma: dice.between(0, 900_000),
            blocking: dice.between(0, 500_000),
            utilisation_limit: Ppm(900_000 + dice.below(100_000) as u32),
        };
        let (mut load, mut parts) = (Load::default(), Vec::new());
        table.row(&format!("{seed}"), &(sharing, load.share_max(&sharing)));
        for _ in 0..14 {
            let demand = demand(&mut dice);
            let bound = dice.between(500_000, 90_000_000);
            parts.push(load.add(&demand, bound));
            let with = load.share_max(&sharing);
            if dice.below(3) > 0 {
                load.remove(parts.swap_remove(dice.below(parts.len() as u64) as usize));
            }
            table.row(&format!("  {}", bound.0), &(parts.last(), with, load.share_max(&sharing)));
        }
    }
    table.is_as_written("following");
}

#[test]
fn what_contracts_may_say() {
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

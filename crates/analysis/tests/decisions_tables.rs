//! Tables of decisions of policies while channels are opened and closed, of plans, response times, and shares
//! that follow admission. Other tests check correctness, by theory and by brute force; this one detects every
//! change of a number or text. For an intended change, run with `PUNCTUAL_PIN=1` and review the difference
//! (docs/adr/0049).

#[path = "tables/dice.rs"]
mod dice;
#[path = "tables/table.rs"]
mod table;

use dice::Dice;
use punctual_analysis::following::{Load, Sharing as Following};
use punctual_analysis::plan::{self, Flow, Processor};
use punctual_analysis::rta::{self, Convention, Preemption, Task};
use punctual_analysis::{
    Admission, AdmissionPolicy, Blocking, Class, Demand, FlowName, Interference, Nanos, Ppb, Ppm, Soft,
    StageKey, StageModel, Urgency,
};
use table::Table;

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;

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

/// One step of a random walk, and the answer to it.
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

//! RIO figures 6 and 7: what scheduled protocol processing costs an idle host's round trip of 64 B.
//!
//! The same stack in four worlds in turns: demand-driven (handlers in the order of arrival, the paper's default),
//! the same again (A/A), scheduled by deadline, and scheduled by ordinary threads below the applications (the
//! paper's kthreads of the system class).

use punctual::Ppm;
use serde::Serialize;

use super::rio_latency::{BYTES, INTERVAL, promise};
use super::{Conditions, Measured, instructions};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::measure::{Figures, Side, Statistic, compare_rounds};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::{Bed, Block, Contender, Hosting, Pair, Wait, rounds};
use crate::testbed::{LinkSpec, Options};
use crate::witness::Witness;

/// What the hosts are told of a direct link.
const TOLD: punctual::BitRate = punctual::BitRate(1_000_000_000);
/// The paper's overhead.
pub(super) const MEAN_MAX: f64 = 1.018;
/// Width of a histogram's bar in figure 7, in us.
const BAR_US: f64 = 5.0;

/// A world: its name, its policy, whether its processors are real-time threads.
const WORLDS: [(&str, &str, bool); 4] = [
    ("demand-driven", "fifo", true),
    ("demand-driven again", "fifo", true),
    ("scheduled, real-time", "edf", true),
    ("scheduled, low priority", "edf", false),
];
const DEFAULT: usize = 0;
const AGAIN: usize = 1;
const SCHEDULED: usize = 2;
const LOW: usize = 3;

#[derive(Serialize)]
struct Point {
    world: &'static str,
    #[serde(flatten)]
    figures: Figures,
    lost: u64,
    instructions_per_message: Option<f64>,
}

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let (mut contenders, _pairs) = worlds(conditions)?;
    let witness = conditions.witness()?;
    let (count, length) = if conditions.quick { (10, 420) } else { (40, 1_000) };
    let length = punctual::Nanos::from_millis(length);
    let block = Block { length, interval: INTERVAL, bytes: BYTES as usize, bulk: None };
    rounds(&mut contenders, count, 0, &block, |round| {
        conditions.progress(format_args!("round {} of {count}", round + 1));
    })?;
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, Ppm(0));
    conditions.progress(format_args!("counting instructions"));
    let counted = instructions::of_policies(conditions.quick);
    let mut measured = judge(&contenders, &counted, &excuses);
    measured.testimony = testimony;
    Ok(measured)
}

fn worlds(conditions: &Conditions) -> anyhow::Result<(Vec<Contender>, Vec<Pair>)> {
    let bed = Bed { link: LinkSpec::direct(TOLD), pinned: true };
    let (mut contenders, mut pairs) = (Vec::new(), Vec::new());
    let class = if conditions.real_time { Class::RealTime } else { Class::Ordinary };
    for (number, (name, policy, real_time)) in WORLDS.into_iter().enumerate() {
        let mut pair = Pair::create(&bed, conditions)?;
        let options = Options {
            driver: conditions.driver,
            real_time: real_time && conditions.real_time,
            processor: format!("policy = \"{policy}\"\n"),
            ..super::on_ports(number, conditions)
        };
        let engine = pair.start_engines(&options, Hosting::Embedded)?;
        let caller = pair.call_channels(engine, promise(), [Wait::Block; 2], class)?;
        contenders.push(Contender::new(name, class, &pair.place, caller, 1));
        pairs.push(pair);
    }
    Ok((contenders, pairs))
}

fn judge(contenders: &[Contender], counted: &Result<[f64; 2], String>, excuses: &Excuses) -> Measured {
    let columns = [
        "world",
        "samples",
        "mean_us",
        "std_us",
        "min_us",
        "p50_us",
        "p99_us",
        "p999_us",
        "max_us",
        "excused",
        "lost",
        "instructions_per_message",
    ];
    let mut measured = Measured::new("world", &columns);
    for (contender, (_, policy, _)) in contenders.iter().zip(WORLDS) {
        let figures = contender.sides[0].figures(excuses);
        measured.samples += figures.with_holes.samples as u64;
        measured.excused += figures.excused;
        let of_policy = usize::from(policy == "edf");
        let instructions_per_message = counted.as_ref().ok().map(|counts| counts[of_policy]);
        measured.add(&Point {
            world: contender.name,
            figures,
            lost: contender.lost[0],
            instructions_per_message,
        });
    }
    let side = |index: usize| -> &Side { &contenders[index].sides[0] };
    for (statistic, limit) in [(Statistic::Mean, MEAN_MAX), (Statistic::Max, 1.0), (Statistic::Jitter, 1.0)] {
        let found = compare_rounds(side(DEFAULT), side(SCHEDULED), side(AGAIN), statistic, excuses);
        let name = format!(
            "scheduled against demand-driven: {}, median of rounds (limit {limit} and the A/A half-width {:.4}; A/A {:.4})",
            statistic.name(),
            found.half_width,
            found.identical
        );
        measured.checks.push(Check::at_most(name, found.ratio, limit + found.half_width));
    }
    let lost: u64 = contenders.iter().map(|contender| contender.lost[0]).sum();
    measured.checks.push(Check::at_most("round trips without an answer".into(), lost as f64, 0.0));
    if let Err(why) = counted {
        measured.notes.push(format!("instructions were not counted: {why}"));
    }
    for (world, paper) in
        [(DEFAULT, "653, 807, 613, 19.6"), (SCHEDULED, "665, 824, 620, 18.8"), (LOW, "799, 1014, 729, 38.0")]
    {
        let found = side(world).figures(excuses).clean;
        let shown =
            format!("{:.0}, {:.0}, {:.0}, {:.1}", found.mean_us, found.max_us, found.min_us, found.std_us);
        let what = format!("{}: mean, max, min, jitter in us", contenders[world].name);
        measured.compare(&what, paper, shown, "-".into());
    }
    measured.plot = Some(plot(contenders, excuses));
    measured
}

/// Figure 7: how many samples at which latency.
fn plot(contenders: &[Contender], excuses: &Excuses) -> Plot {
    let bars = |side: &Side| {
        let mut counts = std::collections::BTreeMap::new();
        for sample in side.samples().filter(|sample| !sample.is_excused(excuses)) {
            let bar = (sample.span.as_u64() as f64 / 1e3 / BAR_US) as u64;
            *counts.entry(bar).or_insert(0u32) += 1;
        }
        counts.into_iter().map(|(bar, count)| ((bar as f64 + 0.5) * BAR_US, f64::from(count))).collect()
    };
    let series = [DEFAULT, SCHEDULED, LOW].into_iter().enumerate().map(|(colour, world)| Series {
        name: contenders[world].name.into(),
        colour,
        dashed: world == DEFAULT,
        dots: false,
        points: bars(&contenders[world].sides[0]),
    });
    Plot {
        title: "RIO figure 7: round trips of 64 B by latency".into(),
        x: Axis::logarithmic("round trip, us"),
        y: Axis::logarithmic("samples in 5 us"),
        series: series.collect(),
        marks: Vec::new(),
        legend: Legend::Top,
    }
}

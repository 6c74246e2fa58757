//! RIO 3.2.3: up to which load of bulk does a bound of 2 ms for the round trip of 64 B hold?

use punctual::{BitRate, Nanos};
use serde::Serialize;

use super::rio_latency::{BULK_BYTES, BYTES, INTERVAL, promise};
use super::{Conditions, Measured, judged};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::loads::{Bulk, Class};
use crate::measure::Figures;
use crate::report::{Axis, Plot, Series};
use crate::testbed::{Bed, Block, Contender, Hosting, LinkSpec, Options, Pair, Wait, rounds};

const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(20);
const BOUND: Nanos = Nanos::from_millis(2);
/// The paper's: the bound held at full load.
const LOAD_MIN: f64 = 1.0;
/// Bytes of a bulk message on the wire: six packets with their headers.
const BULK_WIRE_BYTES: u64 = BULK_BYTES as u64 + 6 * (64 + 66);

#[derive(Serialize)]
struct Point {
    load: f64,
    world: &'static str,
    #[serde(flatten)]
    figures: Figures,
    late_share: f64,
    lost: u64,
}

fn loads(conditions: &Conditions) -> &'static [f64] {
    if conditions.smoke {
        return &[0.8];
    }
    if conditions.quick { &[0.4, 0.8, 0.95, 1.2] } else { &[0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.2] }
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let bed = Bed { link: LinkSpec::new(LINK, QUEUE), pinned: true };
    let loads = loads(conditions);
    let (mut contenders, mut pairs) = worlds(&bed, loads.len(), conditions)?;
    let rate = pairs[0].link().rate;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((2, 1_800), (10, 2_000));
    for (index, load) in loads.iter().enumerate() {
        let offered = BitRate((rate.0 as f64 * load) as u64);
        let block = Block {
            length,
            interval: INTERVAL,
            bytes: BYTES as usize,
            bulk: Some(offered.time_of(BULK_WIRE_BYTES)),
        };
        rounds(&mut contenders, count, index, &block, |round| {
            conditions.progress(format_args!("load {load}: round {} of {count}", round + 1));
        })?;
    }
    let mut measured = judged(witness, |excuses| Ok(judge(&contenders, loads, excuses)))?;
    measured.doubt_demoted(&contenders, &mut pairs)?;
    Ok(measured)
}

fn worlds(bed: &Bed, loads: usize, conditions: &Conditions) -> anyhow::Result<(Vec<Contender>, Vec<Pair>)> {
    let class = if conditions.real_time { Class::RealTime } else { Class::Ordinary };
    let mut kernel = Pair::create(bed, conditions)?;
    let (caller, _) = kernel.call_sockets(Wait::Block, Class::Ordinary)?;
    let (outlet, sink) = kernel.send_sockets(BULK_BYTES, Class::Ordinary)?;
    let bulk = Bulk::start(outlet, BULK_BYTES as usize, &kernel.place, Class::Ordinary)?;
    let plain = Contender::new("plain", Class::Ordinary, &kernel.place, caller, loads).with_bulk(bulk, sink);
    let mut pair = Pair::create(bed, conditions)?;
    let options =
        Options { driver: conditions.driver, real_time: conditions.real_time, ..Options::default() };
    let engine = pair.start_engines(&options, Hosting::Embedded)?;
    let caller = pair.call_channels(engine, promise(), [Wait::Block, Wait::Direct], class)?;
    let (outlet, sink) = pair.send_engine(engine, None, BULK_BYTES, Class::Ordinary)?;
    let bulk = Bulk::start(outlet, BULK_BYTES as usize, &pair.place, Class::Ordinary)?;
    let ours = Contender::new("Punctual", class, &pair.place, caller, loads).with_bulk(bulk, sink);
    Ok((vec![plain, ours], vec![kernel, pair]))
}

fn judge(contenders: &[Contender], loads: &[f64], excuses: &Excuses) -> Measured {
    let columns = "load, world, samples, mean_us, p99_us, p999_us, max_us, late_share, excused, lost";
    let mut measured = Measured::new("bulk, share of the link", columns);
    let mut highest = [0.0_f64; 2];
    let mut curves = [Vec::new(), Vec::new()];
    for (index, &load) in loads.iter().enumerate() {
        for (world, contender) in contenders.iter().enumerate() {
            let side = &contender.sides[index];
            let figures = side.figures(excuses);
            let clean = side.samples().filter(|sample| !sample.is_excused(excuses));
            let late =
                clean.filter(|sample| sample.span > BOUND).count() as f64 + contender.lost[index] as f64;
            let late_share = late / (figures.clean.samples as f64 + contender.lost[index] as f64).max(1.0);
            measured.samples += figures.with_holes.samples as u64;
            measured.excused += figures.excused;
            // A load above one that broke the bound does not count.
            let unbroken = index == 0 || highest[world] == loads[index - 1];
            if late_share == 0.0 && figures.clean.samples > 0 && unbroken {
                highest[world] = load;
            }
            curves[world].push((load, figures.clean.p999_us.unwrap_or(figures.clean.p99_us) / 1e3));
            let lost = contender.lost[index];
            measured.add(&Point { load, world: contender.name, figures, late_share, lost });
        }
    }
    let [plain, ours] = highest;
    measured.checks.extend([
        Check::at_least("highest load that keeps 2 ms, against plain sockets".into(), ours, plain),
        Check::at_least("highest load that keeps 2 ms, of the link".into(), ours, LOAD_MIN),
    ]);
    let paper = "at most 50 % without RIO (estimated), full load with it";
    let shown = |load: f64| format!("{:.0} % of the link", load * 100.0);
    measured.compare("highest load that keeps 2 ms", paper, shown(ours), shown(plain));
    measured.plot = Some(plot(curves));
    measured
}

fn plot(curves: [Vec<(f64, f64)>; 2]) -> Plot {
    let bound = [curves[0].first(), curves[0].last()].into_iter().flatten();
    let bound = bound.map(|&(load, _)| (load, BOUND.as_millis_f64())).collect();
    let [plain, ours] = curves;
    let curve = |name: &str, colour, dashed, points| Series::new(name, colour, points).dashed(dashed);
    Plot::new(
        "RIO 3.2.3: the round trip of 64 B beside growing bulk",
        Axis::linear("bulk of 8 KB, share of the link"),
        Axis::logarithmic("p99.9 of the round trip (p99 below 10,000 samples), ms"),
        vec![
            curve("plain sockets", 0, true, plain),
            curve("Punctual", 1, false, ours),
            curve("bound", 6, true, bound),
        ],
    )
}

//! RIO 3.2.3: up to which load of bulk does a bound of 2 ms for the round trip of 64 B hold?

use punctual::{BitRate, Nanos};
use serde_json::json;

use super::contest::{Contest, block};
use super::rio_latency::{BULK_BYTES, BYTES, INTERVAL, promise};
use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::report::{Axis, Plot, Series};
use crate::testbed::{Block, Contender, LinkSpec, PairSetup, Wait};

const LINK: BitRate = BitRate(400_000_000);
const QUEUE: Nanos = Nanos::from_millis(20);
const BOUND: Nanos = Nanos::from_millis(2);
/// The paper's: the bound held at full load.
const LOAD_MIN: f64 = 1.0;
/// Bytes of a bulk message on the wire: six packets with their headers.
const BULK_WIRE_BYTES: u64 = BULK_BYTES as u64 + 6 * (64 + 66);

fn loads(conditions: &Conditions) -> &'static [f64] {
    let full = &[0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.2];
    conditions.pick(&[0.8], &[0.4, 0.8, 0.95, 1.2], full)
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::new(LINK, QUEUE), pinned: true };
    let loads = loads(conditions);
    let mut contest = Contest::new(setup, loads.len(), conditions);
    contest.sockets("plain", Wait::Block, Class::Ordinary, BULK_BYTES)?;
    contest.punctual(promise(), BULK_BYTES)?;
    let rate = contest.pairs[0].link().rate;
    let witness = conditions.witness()?;
    let (count, length) = conditions.rounds((2, 1_800), (10, 2_000));
    for (index, load) in loads.iter().enumerate() {
        let offered = BitRate((rate.0 as f64 * load) as u64);
        let bulk = Some(offered.time_of(BULK_WIRE_BYTES));
        let block = Block { bulk, ..block(length, INTERVAL, BYTES) };
        contest.rounds(&format!("load {load}: "), count, index, &block)?;
    }
    let mut measured = judged(witness, |excuses| Ok(judge(&contest.contenders, loads, excuses)))?;
    measured.doubt_demoted(&contest.contenders, &mut contest.pairs)?;
    Ok(measured)
}

fn judge(contenders: &[Contender], loads: &[f64], excuses: &Excuses) -> Measured {
    let columns = "load, world, samples, mean_us, p99_us, p999_us, max_us, late_share, excused, lost";
    let mut measured = Measured::new("bulk, share of the link", columns);
    let mut highest = [0.0_f64; 2];
    let mut curves = [Vec::new(), Vec::new()];
    for (index, &load) in loads.iter().enumerate() {
        for (world, contender) in contenders.iter().enumerate() {
            let side = &contender.sides[index];
            let (name, lost) = (contender.name, contender.lost[index]);
            let late = side.clean_spans(excuses).filter(|span| *span > BOUND).count() as f64 + lost as f64;
            let late_share = |samples: usize| late / (samples as f64 + lost as f64).max(1.0);
            let first = json!({ "load": load, "world": name });
            let clean = measured
                .add_side(
                    first,
                    side,
                    excuses,
                    |figures| json!({ "late_share": late_share(figures.clean.samples), "lost": lost }),
                )
                .clean;
            // A load does not count if a lower one broke the bound.
            let unbroken = index == 0 || highest[world] == loads[index - 1];
            if late == 0.0 && clean.samples > 0 && unbroken {
                highest[world] = load;
            }
            curves[world].push((load, clean.p999_us.unwrap_or(clean.p99_us) / 1e3));
        }
    }
    let [plain, ours] = highest;
    measured.at_least("highest load that keeps 2 ms, against plain sockets", ours, plain);
    measured.at_least("highest load that keeps 2 ms, of the link", ours, LOAD_MIN);
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

//! HARTS 5.2.2 left open how often a protocol thread should check for a more urgent one: `quantum`, the
//! packets that a handler finishes before it yields. This measures how long an urgent handler waits for the
//! CPU against the cost of the checks, on a node above a driver; the objective that selects the default is
//! declared in docs/PERFORMANCE.md.

use anyhow::Context;
use punctual_link::Link;
use serde_json::json;

use super::rio_cost::MEAN_MAX;
use super::{Conditions, Measured, judged};
use crate::excuse::Excuses;
use crate::loads::Class;
use crate::measure::{Ratio, Side, Statistic, compare_rounds};
use crate::report::{Check, Plot, Series};
use crate::testbed::nodes::Nodes;
use crate::testbed::{LinkSpec, Options, Pair, PairSetup};

const QUANTA: [u32; 6] = [1, 2, 4, 8, 16, 32];
const LONGEST: u32 = QUANTA[QUANTA.len() - 1];
/// Packets of the long message: a longest quantum.
const PACKETS: u32 = LONGEST;
const FRAGMENT_BYTES: u32 = 1_400;
/// What looking may cost of a packet's processing: what scheduling may cost (RIO 3.2.2).
const COST_MAX: f64 = MEAN_MAX;
/// The configured rate of the link; nothing waits for the pace.
const DECLARED_RATE: punctual::BitRate = punctual::BitRate(100_000_000_000);
const RECEIVE_BATCH: usize = 64;
/// Messages of a block before any counts: another quantum's nodes have displaced the caches.
const WARM_UP: usize = 3;

/// The results at one quantum.
#[derive(Default)]
struct Swept {
    quantum: u32,
    /// Time from the begin of the unit in which the urgent handler becomes ready until its own begins.
    access: Side,
    /// Whole processing of a message at its source.
    cost: Side,
    units: u32,
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let setup = PairSetup { link: LinkSpec::direct(DECLARED_RATE), pinned: true };
    let pair = Pair::create(&setup, conditions)?;
    let options = Options { driver: conditions.driver, ..Options::default() };
    let (mut source, mut sink) = pair.adapters(&options)?;
    let witness = conditions.witness()?;
    let swept = pair.place.on_cpu(Class::Ordinary, || sweep(source.as_mut(), sink.as_mut(), conditions))?;
    judged(witness, |excuses| judge(&swept, excuses))
}

/// All quanta in turns; the longest again at the end: A/A.
fn sweep(source: &mut dyn Link, sink: &mut dyn Link, conditions: &Conditions) -> anyhow::Result<Vec<Swept>> {
    let quanta = QUANTA.into_iter().chain([LONGEST]);
    let mut swept: Vec<Swept> = quanta.map(|quantum| Swept { quantum, ..Swept::default() }).collect();
    let nodes = swept.iter().map(|one| Nodes::with_quantum(one.quantum, PACKETS, FRAGMENT_BYTES));
    let mut nodes = nodes.collect::<anyhow::Result<Vec<_>>>()?;
    let (rounds, messages) = if conditions.quick { (400, 12) } else { (2_000, 12) };
    let mut received = Vec::with_capacity(RECEIVE_BATCH);
    conditions.in_turns("", rounds, &mut swept, |at, one| {
        one.block(&mut nodes[at], source, messages)?;
        while sink.receive(&mut received, RECEIVE_BATCH)? > 0 {
            received.clear();
        }
        Ok(())
    })?;
    Ok(swept)
}

impl Swept {
    /// Messages one after the other, each alone and then beside an urgent one.
    fn block(&mut self, nodes: &mut Nodes, link: &mut dyn Link, messages: usize) -> anyhow::Result<()> {
        punctual_os::interrupt::check()?;
        let (mut cost, mut access) = (Vec::with_capacity(messages), Vec::with_capacity(messages));
        for message in 0..WARM_UP + messages {
            nodes.offer();
            let driven = nodes.drive(link)?;
            anyhow::ensure!(driven.packets == PACKETS, "{} packets reached the driver", driven.packets);
            nodes.offer();
            let waited = nodes.urgent_access(link)?;
            // Take what a driver keeps until the call.
            link.completed();
            self.units = driven.units;
            if message >= WARM_UP {
                cost.push(driven.processing);
                access.push(waited);
            }
        }
        self.cost.push(cost);
        self.access.push(access);
        Ok(())
    }
}

/// What looking costs at a quantum.
struct Cost {
    quantum: u32,
    ratio: Ratio,
}

/// The shortest quantum that looking costs no more than it may: waiting grows with the quantum.
fn selected(costs: &[Cost]) -> Option<u32> {
    costs.iter().filter(|one| one.ratio.ratio <= COST_MAX).map(|one| one.quantum).min()
}

fn judge(swept: &[Swept], excuses: &Excuses) -> anyhow::Result<Measured> {
    let (again, swept) = swept.split_last().context("nothing was swept")?;
    let longest = &swept[swept.len() - 1];
    let columns = "quantum, samples, p50_us, mean_us, p99_us, max_us, us_per_packet, cost, half_width, \
             units_per_message";
    let mut measured = Measured::new("quantum, packets", columns);
    let (mut costs, mut curves) = (Vec::new(), [Vec::new(), Vec::new()]);
    for one in swept {
        let per_packet = one.cost.figures(excuses).clean.p50_us / f64::from(PACKETS);
        let ratio = compare_rounds(&longest.cost, &one.cost, &again.cost, Statistic::Median, excuses);
        let access = measured.count(&one.access, excuses).clean;
        measured.add([
            json!({ "quantum": one.quantum }),
            json!(access),
            // Against the longest quantum.
            json!({ "us_per_packet": per_packet, "cost": ratio.ratio, "half_width": ratio.half_width }),
            json!({ "units_per_message": one.units }),
        ]);
        curves[0].push((f64::from(one.quantum), access.p50_us));
        curves[1].push((f64::from(one.quantum), per_packet));
        costs.push(Cost { quantum: one.quantum, ratio });
    }
    let default = punctual_engine::profile::QUANTUM_MAX;
    measured.checks = checks(&costs, default);
    let access = |quantum| swept.iter().find(|one: &&Swept| one.quantum == quantum).map(|one| &one.access);
    if let Some(side) = access(default) {
        let found = compare_rounds(&longest.access, side, &again.access, Statistic::Median, excuses);
        let name = format!(
            "an urgent handler's wait at quantum {default} (the default) against {LONGEST} (limit 1 less the A/A \
             half-width {:.4})",
            found.half_width
        );
        measured.at_most(name, found.ratio, 1.0 - found.half_width);
    }
    let found = selected(&costs).map_or("none".into(), |quantum| quantum.to_string());
    measured.compare("quantum that the objective selects", "left open", found, "-");
    for (curve, what) in curves.iter().zip(["wait for the CPU", "processing of a packet"]) {
        let shown = format!("{:.2} and {:.2} us", curve[0].1, curve[curve.len() - 1].1);
        measured.compare(format!("{what}, quantum 1 and {LONGEST}"), "left open", shown, "-");
    }
    measured.note(
        "the processor serves an application on another thread when it checks its descriptors, after at most \
         50 us of work at any quantum",
    );
    let [access, cost] = curves;
    let series = [
        Series::new("an urgent handler waits for the CPU (median)", 0, access),
        Series::new("whole processing of a packet (median)", 1, cost).dashed(true),
    ];
    let title = "HARTS 5.2.2: how often a handler checks for a more urgent one";
    measured.plot = Some(Plot::log_log(title, "quantum, packets", "us", series));
    Ok(measured)
}

/// Checks that the objective selects the default, or cannot distinguish it from the best.
fn checks(costs: &[Cost], default: u32) -> Vec<Check> {
    let name = |quantum: u32, width: f64, sign| {
        format!(
            "a packet at quantum {quantum} against {LONGEST}: looking (limit {COST_MAX} {sign} the A/A half-width \
             {width:.4})"
        )
    };
    let swept = costs.iter().find(|one| one.quantum == default).map(|one| one.ratio);
    let check = swept.map_or_else(
        || Check::at_least(format!("quantum {default}, the default, is swept"), 0.0, 1.0),
        |ratio| {
            let name = name(default, ratio.half_width, "and");
            Check::at_most(name, ratio.ratio, COST_MAX + ratio.half_width)
        },
    );
    let mut checks = vec![check];
    if let Some(Cost { quantum, ratio }) = costs.iter().rfind(|one| one.quantum < default) {
        let limit = COST_MAX - ratio.half_width;
        checks.push(Check::at_least(name(*quantum, ratio.half_width, "less"), ratio.ratio, limit));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(ratios: [f64; 4]) -> Vec<Cost> {
        let cost = |(quantum, ratio)| Cost {
            quantum,
            ratio: Ratio { ratio, samples: 1, identical: 1.0, half_width: 0.002 },
        };
        [1, 2, 4, 8].into_iter().zip(ratios).map(cost).collect()
    }

    #[test]
    fn the_shortest_that_costs_no_more_than_it_may_is_selected() {
        assert_eq!(selected(&costs([1.1, 1.05, 1.017, 1.0])), Some(4));
        assert_eq!(selected(&costs([1.01, 1.0, 1.0, 1.0])), Some(1));
        assert_eq!(selected(&costs([1.1, 1.1, 1.1, 1.1])), None);
    }

    #[test]
    fn another_default_than_the_selected_one_fails_on_its_side() {
        let found = costs([1.1, 1.05, 1.01, 1.0]);
        let ok = |default| checks(&found, default).iter().map(|check| check.ok).collect::<Vec<_>>();
        assert_eq!(ok(4), [true, true]);
        assert_eq!(ok(2), [false, true], "looking costs too much");
        assert_eq!(ok(8), [true, false], "4 would wait less and cost no more than it may");
        assert_eq!(ok(3), [false, true], "no such point");
    }
}

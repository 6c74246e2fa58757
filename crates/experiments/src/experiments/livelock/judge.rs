//! What must hold under the floods, and what is shown of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::flood::{FLOODS, Flood};
use super::{Finished, promise};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::experiments::{Conditions, Measured};
use crate::measure::stream::Miss;
use crate::measure::{Question, StreamSummary};
use crate::report::{Axis, Legend, Plot, Series};
use crate::testbed::configuration::Driver;

#[derive(Serialize)]
struct Point {
    driver: Driver,
    flood: Flood,
    flood_per_s: f64,
    mbit_s: f64,
    offered: u64,
    delivered: u64,
    /// Refused at the sender, lost on the way, delivered late: the parts of `misses`, and what never was under way.
    refused: u64,
    lost: u64,
    late: u64,
    misses: u64,
    excused: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    unexcused: Vec<Miss>,
    stages: BTreeMap<String, u64>,
}

const COLUMNS: [&str; 13] = [
    "driver",
    "flood",
    "flood_per_s",
    "mbit_s",
    "offered",
    "delivered",
    "refused",
    "lost",
    "late",
    "excused",
    "p50_ms",
    "p99_ms",
    "max_ms",
];

pub(super) fn judge(worlds: &[Finished], excuses: &Excuses, conditions: &Conditions) -> Measured {
    let mut measured = Measured::new("flood", &COLUMNS);
    let mut series = Vec::new();
    for (colour, world) in worlds.iter().enumerate() {
        let mut quiet = 0.0;
        for (index, flood) in FLOODS.into_iter().enumerate() {
            let windows = &world.windows[index];
            let promise = promise();
            let question = Question {
                contract: Some(&promise),
                excuses,
                judged: windows,
                loaded: windows,
                steady: windows,
            };
            let summary = StreamSummary::new(&world.sent, &world.received, &question);
            let point = Point {
                driver: world.driver,
                flood,
                flood_per_s: world.floods_per_s[index],
                mbit_s: summary.delivered_mbit_s,
                offered: summary.offered,
                delivered: summary.delivered,
                refused: summary.refused,
                lost: summary.lost,
                late: summary.misses - summary.lost,
                misses: summary.misses,
                excused: summary.excused,
                p50_ms: summary.latency.p50_ms,
                p99_ms: summary.latency.p99_ms,
                max_ms: summary.latency.max_ms,
                unexcused: summary.unexcused_misses.clone(),
                stages: world.stages[index].clone(),
            };
            // Early demultiplexing is what is promised; the other driver is shown beside it.
            if world.driver == conditions.driver {
                hold(&mut measured, world.driver, flood, &summary, &mut quiet);
            }
            let shown = format!(
                "{} of {} missed, p99 {:.2} ms, under {:.0} thousand packets/s",
                point.misses,
                point.offered,
                point.p99_ms,
                point.flood_per_s / 1e3
            );
            measured.compare(&format!("{:?}, flood {flood:?}", world.driver), "-", shown, "-".into());
            measured.add(&point);
            series.push(Series {
                name: format!("{:?}, flood {flood:?}", world.driver),
                colour: index,
                dashed: colour > 0,
                dots: false,
                points: summary.exceedance(),
            });
        }
    }
    if conditions.driver != Driver::Xdp {
        measured
            .notes
            .push("without driver xdp there is no early demultiplexing: the targets are for xdp".into());
    }
    measured.plot = Some(plot(series));
    measured
}

/// What the driver under test must hold; `quiet` is its throughput without a flood, which comes first.
fn hold(measured: &mut Measured, driver: Driver, flood: Flood, summary: &StreamSummary, quiet: &mut f64) {
    measured.samples += summary.offered;
    measured.excused += summary.excused;
    let name = |what: &str| format!("{driver:?}, flood {flood:?}: {what}");
    let missed = summary.unexcused() as f64;
    measured.checks.push(Check::at_most(name("deadlines missed outside holes"), missed, 0.0));
    if flood == Flood::None {
        *quiet = summary.delivered_mbit_s;
        return;
    }
    let change = (summary.delivered_mbit_s / *quiet - 1.0).abs();
    measured.checks.push(Check::at_most(name("change of the guaranteed throughput"), change, 0.01));
}

fn plot(series: Vec<Series>) -> Plot {
    Plot {
        title: "Guaranteed messages later than, under floods".into(),
        x: Axis::logarithmic("latency, ms"),
        y: Axis::logarithmic("share"),
        series,
        marks: Vec::new(),
        legend: Legend::LowerLeft,
    }
}

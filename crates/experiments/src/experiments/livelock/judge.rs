//! What must hold under the floods, and what is shown of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::flood::{FLOODS, Flood};
use super::{Finished, Pressure, promise, title};
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::experiments::{Conditions, Measured};
use crate::measure::stream::Miss;
use crate::measure::{Question, StreamSummary};
use crate::report::{Axis, Legend, Plot, Series};
use punctual_host::config::Driver;

#[derive(Serialize)]
struct Point {
    driver: Driver,
    flood: Flood,
    #[serde(flatten)]
    pressure: Pressure,
    /// Delivered of what was due, over all of the time and over what no hole touches.
    mbit_s: f64,
    mbit_s_outside_holes: f64,
    offered: u64,
    delivered: u64,
    /// Refused at the sender though conforming, lost on the way, delivered late: the parts of `misses`.
    refused: u64,
    lost: u64,
    late: u64,
    misses: u64,
    excused: u64,
    /// The channel has lost its path, for that reason: all messages after that are lost.
    ended: Option<String>,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    unexcused: Vec<Miss>,
    stages: BTreeMap<String, u64>,
}

const COLUMNS: &str = "driver, flood, flood_per_s, handed_per_s, receive_cpu, mbit_s, mbit_s_outside_holes, \
         offered, delivered, refused, lost, late, excused, ended, p50_ms, p99_ms, max_ms";

impl Point {
    /// `rates`: the whole and what no hole touches, in Mbit/s.
    fn of(world: &Finished, index: usize, summary: &StreamSummary, rates: [f64; 2]) -> Self {
        Self {
            driver: world.driver,
            flood: FLOODS[index],
            pressure: world.pressures[index],
            mbit_s: rates[0],
            mbit_s_outside_holes: rates[1],
            offered: summary.offered,
            delivered: summary.delivered,
            refused: summary.refused_conforming,
            lost: summary.lost,
            late: summary.misses - summary.lost - summary.refused_conforming,
            misses: summary.misses,
            excused: summary.excused,
            ended: world.ended[index].clone(),
            p50_ms: summary.latency.p50_ms,
            p99_ms: summary.latency.p99_ms,
            max_ms: summary.latency.max_ms,
            unexcused: summary.unexcused_misses.clone(),
            stages: world.stages[index].clone(),
        }
    }
}

pub(super) fn judge(worlds: &[Finished], excuses: &Excuses, conditions: &Conditions) -> Measured {
    let mut measured = Measured::new("flood", COLUMNS);
    let mut series = Vec::new();
    for (colour, world) in worlds.iter().enumerate() {
        let mut quiet = [0.0; 2];
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
            let untouched = windows.without(excuses.touched(promise.deadline));
            let outside = StreamSummary::new(
                &world.sent,
                &world.received,
                &Question { steady: &untouched, ..question },
            );
            let rates = [summary.due_mbit_s, outside.due_mbit_s];
            let point = Point::of(world, index, &summary, rates);
            // Early demultiplexing is what is promised; the other driver is shown beside it.
            if world.driver == conditions.driver {
                hold(&mut measured, (world.driver, flood), &summary, rates, &mut quiet);
            }
            let ended =
                point.ended.as_ref().map_or_else(String::new, |why| format!("; the channel is lost: {why}"));
            let shown = format!(
                "{} of {} missed ({} excused), p99 {:.2} ms, under {:.0} thousand packets/s{ended}",
                point.misses,
                point.offered,
                point.excused,
                point.p99_ms,
                point.pressure.handed_per_s / 1e3
            );
            measured.compare(&title(world.driver, flood), "-", shown, "-".into());
            measured.add(&point);
            series.push(
                Series::new(title(world.driver, flood), index, summary.exceedance())
                    .dashed(colour > 0)
                    .without_dots(),
            );
        }
    }
    if !conditions.driver.bypasses_kernel() {
        measured
            .notes
            .push("without driver xdp there is no early demultiplexing: the targets are for xdp".into());
    }
    measured.plot = Some(plot(series));
    measured
}

/// What the driver under test must hold; `quiet` are its rates without a flood, which comes first. Both are the whole and
/// what no hole touches.
fn hold(
    measured: &mut Measured,
    (driver, flood): (Driver, Flood),
    summary: &StreamSummary,
    rates: [f64; 2],
    quiet: &mut [f64; 2],
) {
    measured.samples += summary.judged();
    measured.excused += summary.excused;
    let name = |what: &str| format!("{}: {what}", title(driver, flood));
    let missed = summary.unexcused() as f64;
    measured.checks.push(Check::at_most(name("messages late, lost or refused outside holes"), missed, 0.0));
    if flood == Flood::None {
        *quiet = rates;
        return;
    }
    let change = |which: usize| (rates[which] / quiet[which] - 1.0).abs();
    measured.checks.push(Check::at_most(
        name("change of the guaranteed throughput outside holes"),
        change(1),
        0.01,
    ));
    measured.notes.push(format!(
        "{}: {:.2} %",
        name("change of the guaranteed throughput, holes included"),
        change(0) * 100.0
    ));
}

fn plot(series: Vec<Series>) -> Plot {
    Plot::new(
        "Guaranteed messages later than, under floods",
        Axis::logarithmic("latency, ms"),
        Axis::logarithmic("share"),
        series,
    )
    .with_legend(Legend::LowerLeft)
}

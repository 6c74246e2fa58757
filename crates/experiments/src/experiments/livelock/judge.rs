//! The requirements under the floods, and the figures of the report.

use punctual_host::config::Driver;
use serde_json::{Value, json};

use super::flood::{FLOODS, Flood};
use super::{Finished, Turn, promise, title};
use crate::excuse::Excuses;
use crate::experiments::{Conditions, Measured};
use crate::measure::{Question, StreamSummary};
use crate::report::{Plot, Series};

const COLUMNS: &str = "driver, flood, flood_per_s, handed_per_s, receive_cpu, mbit_s, mbit_s_outside_holes, \
         offered, delivered, refused, lost, late, excused, ended, p50_ms, p99_ms, max_ms";

/// The results of the channel in a turn; `rates`: over all of it and outside holes, in Mbit/s.
fn point(summary: &StreamSummary, turn: &Turn, rates: [f64; 2]) -> Value {
    let StreamSummary { offered, delivered, lost, misses, excused, latency, .. } = summary;
    let refused = summary.refused_conforming;
    json!({
        // The delivered part of what was due, over all of the time and outside holes.
        "mbit_s": rates[0], "mbit_s_outside_holes": rates[1], "offered": offered, "delivered": delivered,
        // Refused at the sender though conforming, lost on the way, delivered late: the parts of `misses`.
        "refused": refused, "lost": lost, "late": misses - lost - refused, "misses": misses,
        "excused": excused,
        // The channel has lost its path, for that reason: all messages after that are lost.
        "ended": turn.ended,
        "p50_ms": latency.p50_ms, "p99_ms": latency.p99_ms, "max_ms": latency.max_ms,
        "unexcused": summary.unexcused_misses, "stages": turn.stages,
    })
}

pub(super) fn judge(worlds: &[Finished], excuses: &Excuses, conditions: &Conditions) -> Measured {
    let mut measured = Measured::new("flood", COLUMNS);
    let mut series = Vec::new();
    for (colour, world) in worlds.iter().enumerate() {
        let mut quiet = [0.0; 2];
        for (index, flood) in FLOODS.into_iter().enumerate() {
            let turn = &world.turns[index];
            let windows = &turn.windows;
            let promise = promise();
            let contract = Some(&promise);
            let question = Question { contract, excuses, judged: windows, loaded: windows, steady: windows };
            let summary = StreamSummary::new(&world.sent, &world.received, &question);
            let untouched = windows.without(excuses.touched(promise.deadline));
            let question = Question { steady: &untouched, ..question };
            let outside = StreamSummary::new(&world.sent, &world.received, &question);
            let rates = [summary.due_mbit_s, outside.due_mbit_s];
            // The promise is for early demultiplexing; the other driver is shown for comparison.
            if world.driver == conditions.driver {
                hold(&mut measured, (world.driver, flood), &summary, rates, &mut quiet);
            }
            let title = title(world.driver, flood);
            let ended = turn.ended.as_ref().map(|why| format!("; the channel is lost: {why}"));
            let shown = format!(
                "{} of {} missed ({} excused), p99 {:.2} ms, under {:.0} thousand packets/s{}",
                summary.misses,
                summary.offered,
                summary.excused,
                summary.latency.p99_ms,
                turn.pressure.handed_per_s / 1e3,
                ended.unwrap_or_default()
            );
            measured.compare(title.as_str(), "-", shown, "-");
            measured.add([
                json!({ "driver": world.driver, "flood": flood }),
                json!(turn.pressure),
                point(&summary, turn, rates),
            ]);
            series.push(Series::new(title, index, summary.exceedance()).dashed(colour > 0));
        }
    }
    if !conditions.driver.bypasses_kernel() {
        measured.note("without driver xdp there is no early demultiplexing: the targets are for xdp");
    }
    let title = "Guaranteed messages later than, under floods";
    measured.plot = Some(Plot::tails(title, "latency, ms", "share", series));
    measured
}

/// The requirements for the driver under test; `quiet` are its rates without a flood, which comes first. Both
/// are over all of the time and outside holes.
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
    measured.at_most(name("messages late, lost or refused outside holes"), missed, 0.0);
    if flood == Flood::None {
        *quiet = rates;
        return;
    }
    let change = |which: usize| (rates[which] / quiet[which] - 1.0).abs();
    measured.at_most(name("change of the guaranteed throughput outside holes"), change(1), 0.01);
    let name = name("change of the guaranteed throughput, holes included");
    measured.note(format!("{name}: {:.2} %", change(0) * 100.0));
}

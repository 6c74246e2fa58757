//! HARTS 5.2.2 left open how often a protocol thread should look for a more urgent one: `quantum`, the packets that a
//! handler finishes before it yields. The longest time that an urgent message waits for the CPU against what looking
//! costs; it justifies the default.
//!
//! On bare nodes: a long message is being cut when an urgent one comes; the CPU access latency is the work that is
//! finished before the urgent one's turn.

use serde::Serialize;

use super::{Conditions, Measured};
use crate::clock::now;
use crate::demo::outcome::Check;
use crate::excuse::Excuses;
use crate::measure::{Moments, Sample, Side};
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::nodes::Nodes;
use crate::witness::Witness;

const QUANTA: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// What the configuration says unless told otherwise.
const DEFAULT: u32 = 1;
/// Packets of the long message.
const PACKETS: u32 = 32;
const FRAGMENT_BYTES: u32 = 1_400;
/// The default may cost so many us more for each packet than the longest quantum: a tenth of what a driver takes for one.
const OVERHEAD_US_MAX: f64 = 0.3;

#[derive(Serialize)]
struct Point {
    quantum: u32,
    /// From the urgent message's arrival until it is processed.
    #[serde(flatten)]
    access: Moments,
    us_per_packet: f64,
    units_per_message: f64,
}

struct Found {
    quantum: u32,
    access: Side,
    cost: Side,
    units: f64,
}

/// Runs it.
///
/// # Errors
/// Where the channels do not open or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let witness = conditions.witness()?;
    let messages = if conditions.quick { 20_000 } else { 200_000 };
    let mut found = Vec::new();
    for quantum in QUANTA {
        conditions.progress(format_args!("quantum {quantum}"));
        found.push(measure(quantum, messages)?);
    }
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let excuses = Excuses::new(&testimony.holes, punctual::Ppm(0));
    let mut measured = judge(&found, &excuses);
    measured.testimony = testimony;
    Ok(measured)
}

fn measure(quantum: u32, messages: usize) -> anyhow::Result<Found> {
    let mut nodes = Nodes::with_quantum(quantum, PACKETS, FRAGMENT_BYTES)?;
    let (mut access, mut cost, mut units) = (Vec::new(), Vec::new(), 0);
    for message in 0..messages {
        crate::interrupt::check()?;
        // Alone: what cutting costs.
        nodes.offer();
        let begun = now();
        let done = nodes.process();
        let spent = now().since(begun);
        nodes.discard();
        // Beside an urgent one that comes when the first unit has begun.
        nodes.offer();
        let span = nodes.urgent_access()?;
        nodes.discard();
        // The first tenth warms the caches up.
        if message >= messages / 10 {
            units += done;
            cost.push(Sample { begun, span: spent });
            access.push(span);
        }
    }
    let side = |samples: Vec<Sample>| {
        let mut side = Side::default();
        side.push(samples);
        side
    };
    let counted = cost.len() as f64;
    Ok(Found { quantum, access: side(access), cost: side(cost), units: f64::from(units) / counted })
}

fn judge(found: &[Found], excuses: &Excuses) -> Measured {
    let columns =
        ["quantum", "samples", "p50_us", "mean_us", "p99_us", "max_us", "us_per_packet", "units_per_message"];
    let mut measured = Measured::new("quantum, packets", &columns);
    let mut curves = [Vec::new(), Vec::new()];
    for one in found {
        let access = one.access.figures(excuses);
        let per_packet = one.cost.figures(excuses).clean.p50_us / f64::from(PACKETS);
        measured.samples += access.with_holes.samples as u64;
        measured.excused += access.excused;
        curves[0].push((f64::from(one.quantum), access.clean.p50_us));
        curves[1].push((f64::from(one.quantum), per_packet));
        measured.add(&Point {
            quantum: one.quantum,
            access: access.clean,
            us_per_packet: per_packet,
            units_per_message: one.units,
        });
    }
    let at = |curve: usize, quantum: u32| {
        curves[curve].iter().find(|point| point.0 == f64::from(quantum)).map_or(0.0, |point| point.1)
    };
    let longest = QUANTA[QUANTA.len() - 1];
    measured.checks.extend([
        Check::at_most(
            format!(
                "us that a packet costs more at quantum {DEFAULT} (the default) than at {longest}: looking"
            ),
            at(1, DEFAULT) - at(1, longest),
            OVERHEAD_US_MAX,
        ),
        Check::at_most(
            format!("CPU access latency at quantum {DEFAULT} against quantum {longest}"),
            at(0, DEFAULT) / at(0, longest),
            0.5,
        ),
    ]);
    let shown = |curve, quantum| format!("{:.2} us", at(curve, quantum));
    measured.compare(
        "CPU access latency, quantum 1 and 32",
        "left open",
        format!("{} and {}", shown(0, 1), shown(0, longest)),
        "-".into(),
    );
    measured.compare(
        "cost of a packet, quantum 1 and 32",
        "left open",
        format!("{} and {}", shown(1, 1), shown(1, longest)),
        "-".into(),
    );
    measured.plot = Some(plot(curves));
    measured
}

/// Both medians over the quantum.
fn plot(curves: [Vec<(f64, f64)>; 2]) -> Plot {
    let [access, cost] = curves;
    let curve = |name: &str, colour, points| Series {
        name: name.into(),
        colour,
        dashed: colour == 1,
        dots: true,
        points,
    };
    Plot {
        title: "HARTS 5.2.2: how often a handler looks for a more urgent one".into(),
        x: Axis::logarithmic("quantum, packets"),
        y: Axis::logarithmic("us"),
        series: vec![
            curve("an urgent message waits for the CPU (median)", 0, access),
            curve("cost of a packet (median)", 1, cost),
        ],
        marks: Vec::new(),
        legend: Legend::Top,
    }
}

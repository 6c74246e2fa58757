//! HARTS 6.3: burstiness and message size. The same loads in messages of 4 to 32 KB; the paper's queues
//! overflowed and lost packets of channels that kept their contracts.

use punctual::{Nanos, counted};

use super::Conditions;
use super::findings::{Compared, Findings};
use super::harts::{self, CHANNELS, PACKET_BYTES};
use super::sweep::{Point, Sweep, Worlds};
use crate::demo::outcome::Check;
use crate::report::{Axis, Legend, Plot, Series};
use crate::session::System;

const PART: &str = "6.3";
/// Packets of a message: 4, 8, 16 and 32 KB.
const PACKETS: [usize; 4] = [3, 6, 12, 24];
/// The bursty source.
const BURSTY: &str = "channel-2";
/// Best-effort load: what is left of the link, all of it.
const BEST_EFFORT_PPS: f64 = 260.0;

const WARM_UP: Nanos = Nanos::from_millis(300);

/// Runs it.
///
/// # Errors
/// Where the test bed fails or the run is interrupted.
pub fn run(conditions: &Conditions) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for packets in PACKETS {
        findings.add(run_size(packets, conditions)?);
    }
    findings.x = "message KB";
    findings.check_guarantees();
    let lost = |findings: &Findings, system| -> u64 {
        let figures = CHANNELS.iter().flat_map(|stream| findings.of(PART, system, stream));
        figures.map(|one| one.figures.never_came()).sum()
    };
    let (ours, kernel) = (lost(&findings, System::Punctual), lost(&findings, System::Kernel));
    findings.checks.push(Check::at_most("conforming messages lost or refused".into(), ours as f64, 0.0));
    findings.compared = vec![Compared {
        what: "loss of conforming messages, 4 to 32 KB".into(),
        paper: "some, by the burstiness of the source".into(),
        punctual: counted(ours, "message"),
        kernel: counted(kernel, "message"),
    }];
    let rows: Vec<Compared> = PACKETS.iter().map(|&packets| latency_row(&findings, packets)).collect();
    findings.compared.extend(rows);
    findings.plot = Some(plot(&findings));
    Ok(findings)
}

fn kilobytes(packets: usize) -> f64 {
    (packets * PACKET_BYTES) as f64 / 1e3
}

fn run_size(packets: usize, conditions: &Conditions) -> anyhow::Result<Findings> {
    let sweep = Sweep {
        part: PART,
        streams: harts::streams(packets),
        points: vec![Point {
            x: kilobytes(packets),
            set: vec![(harts::BEST_EFFORT, harts::best_effort(BEST_EFFORT_PPS))],
        }],
        // Whole bursts of this size after the warm-up.
        slice: WARM_UP
            + harts::interval(packets) * if conditions.quick { 12 } else { 40 } * (24 / packets as u64),
        warm_up: WARM_UP,
        ..harts::sweep(PART, conditions)
    };
    Worlds::create(sweep.link, &sweep.link_options, conditions)?.run(&sweep, conditions)
}

fn latency_row(findings: &Findings, packets: usize) -> Compared {
    let x = kilobytes(packets);
    let show = |system| {
        let figure = findings.of(PART, system, BURSTY).find(|one| one.x == x);
        figure.map_or("-".into(), |one| {
            let latency = &one.figures.latency;
            format!(
                "p50 {:.1}, max {:.1} ms, {} lost",
                latency.p50_ms,
                latency.max_ms,
                one.figures.never_came()
            )
        })
    };
    Compared {
        what: format!(
            "bursty source, {x:.1} KB (bound {:.0} ms)",
            harts::promise(packets).deadline.as_millis_f64()
        ),
        paper: "-".into(),
        punctual: show(System::Punctual),
        kernel: show(System::Kernel),
    }
}

fn plot(findings: &Findings) -> Plot {
    let mut series = Vec::new();
    for (colour, stream) in CHANNELS.iter().enumerate() {
        for system in [System::Punctual, System::Kernel] {
            let lost = findings.of(PART, system, stream).map(|one| {
                let judged = one.figures.judged().max(1);
                (one.x, one.figures.never_came() as f64 * 100.0 / judged as f64)
            });
            series.push(Series {
                name: format!("{stream}, {}", system.name()),
                colour,
                dashed: system == System::Kernel,
                dots: true,
                points: lost.collect(),
            });
        }
    }
    Plot {
        title: "HARTS 6.3: loss of conforming messages by their size".into(),
        x: Axis::linear("message, KB"),
        y: Axis::linear("lost, %"),
        series,
        marks: Vec::new(),
        legend: Legend::Top,
    }
}

//! The demo's report: what was promised, what was observed, side by side.

use std::path::Path;

use punctual::counted;

use super::outcome::{Outcome, Verdict};
use super::scenario;
use super::table::{COLUMNS, latency_cells};
use crate::report::{Axis, Legend, Mark, Page, Plot, Series, Table, save};
use crate::session::System;

const PLOT_SIZE: (u32, u32) = (540, 330);

/// Writes report.html into `directory`.
///
/// # Errors
/// Where a plot cannot be drawn or the file system refuses.
pub fn write(outcome: &Outcome, directory: &Path) -> anyhow::Result<()> {
    let mut page = Page::new("Punctual: a film, a control loop and a flood over one link");
    let good = match outcome.verdict {
        Verdict::Held => Some(true),
        Verdict::Missed => Some(false),
        Verdict::Degraded | Verdict::Inconclusive => None,
    };
    page.verdict(good, &outcome.summary);
    page.text(
        "Three hosts a - r - b; r forwards; the link r - b drains at 40 Mbit/s. The same traffic runs through \
         Punctual's guaranteed channels and, in alternating slices on an identical network, through plain kernel UDP \
         sockets. A bulk transfer offers twice what the link carries. Half-way a second video joins that sends three \
         times what its contract allows.",
    );
    page.note(outcome.privilege.explain());
    page.heading("Promised and observed").table(&figures(outcome));
    page.text(&format!(
        "The link r - b was filled to {:.1} % through Punctual and to {:.1} % through kernel sockets, headers counted; \
         packets of messages that never became whole do not count.",
        outcome.link_filled[0] * 100.0,
        outcome.link_filled[1] * 100.0
    ));
    page.table(&contracts(outcome));
    page.note(
        "Latencies in ms from the logical arrival (design: l(i) = max(l(i-1) + I, t(i))) to the moment the receiving \
         application has the message; best effort from sending. Misses: late, lost or damaged. Policed: not taken \
         beyond the contract. Rates are payload in steady state.",
    );
    page.heading("Latency against the bound").plots(&latency_plots(outcome)?);
    page.heading("Delivered over time").plots(&throughput_plots(outcome)?);
    page.heading("What had to hold").table(&checks(outcome));
    page.heading("One channel too many");
    page.text(&format!("Asked for: {}. {}", outcome.refused.wanted, outcome.refused.reason));
    page.text(&format!("Offered instead: {}.", outcome.refused.offer.as_deref().unwrap_or("nothing")));
    page.heading("Platform holes").text(&format!(
        "{}, {:.1} ms in all, the longest {:.1} ms, {:.2} % of the CPUs' time; {} of {} excused.",
        counted(outcome.holes.count, "hole"),
        outcome.holes.total_ms,
        outcome.holes.longest_ms,
        outcome.holes.share * 100.0,
        outcome.holes.excused,
        counted(outcome.holes.samples, "sample")
    ));
    page.note(&outcome.holes.rule);
    save(&directory.join("report.html"), &page.finish())
}

/// Every stream through both systems.
pub fn figures(outcome: &Outcome) -> Table {
    let mut table = Table::new(&COLUMNS);
    for stream in &outcome.streams {
        let (ours, kernel) = (&stream.punctual, &stream.kernel);
        let guaranteed = stream.promised_ms.is_some();
        let counted = |count: u64| if guaranteed { count.to_string() } else { "-".into() };
        let marked = |count: u64| match (guaranteed, count) {
            (false, _) => "-".into(),
            (true, 0) => "+0".into(),
            (true, count) => format!("!{count}"),
        };
        let mut row =
            vec![stream.name.into(), stream.promised_ms.map_or("-".into(), |ms| format!("{ms:.0} ms"))];
        row.extend(latency_cells(&ours.latency));
        row.extend([marked(ours.unexcused()), counted(ours.excused), counted(ours.refused)]);
        row.push(format!("{:.2}", ours.delivered_mbit_s));
        row.extend(latency_cells(&kernel.latency));
        row.extend([marked(kernel.misses), format!("{:.2}", kernel.delivered_mbit_s)]);
        table.rows.push(row);
    }
    let mut round_trip = vec!["control, there and back".to_string(), "-".into()];
    round_trip.extend(latency_cells(&outcome.round_trip[0]));
    round_trip.extend(["", "", "", ""].map(Into::into));
    round_trip.extend(latency_cells(&outcome.round_trip[1]));
    table.rows.push(round_trip);
    table
}

fn contracts(outcome: &Outcome) -> Table {
    let mut table = Table::new(&["stream", "contract", "offered Mbit/s", "reserved", "messages"]);
    for stream in &outcome.streams {
        let figures = &stream.punctual;
        table.rows.push(vec![
            stream.name.into(),
            stream.contract.clone().unwrap_or("best effort".into()),
            format!("{:.2}", figures.offered_mbit_s),
            figures.reserved_mbit_s.map_or("-".into(), |mbit_s| format!("{mbit_s:.2}")),
            figures.offered.to_string(),
        ]);
    }
    table
}

fn latency_plots(outcome: &Outcome) -> anyhow::Result<Vec<String>> {
    let guaranteed = outcome.streams.iter().filter_map(|stream| Some((stream, stream.promised_ms?)));
    guaranteed
        .map(|(stream, promised)| {
            let series = [System::Punctual, System::Kernel].map(|system| Series {
                name: system.name().into(),
                colour: super::column(system),
                dashed: system == System::Kernel,
                dots: false,
                points: stream.of(system).exceedance(),
            });
            let plot = Plot {
                title: format!("{}: share of messages later than", stream.name),
                x: Axis::logarithmic("latency from the logical arrival, ms"),
                y: Axis::logarithmic("share of messages"),
                series: series.into(),
                marks: vec![Mark { x: promised, label: "bound".into(), colour: 3 }],
                legend: Legend::LowerLeft,
            };
            plot.svg(PLOT_SIZE)
        })
        .collect()
}

fn throughput_plots(outcome: &Outcome) -> anyhow::Result<Vec<String>> {
    [System::Punctual, System::Kernel]
        .map(|system| {
            let series = outcome.streams.iter().enumerate().map(|(colour, stream)| Series {
                name: stream.name.into(),
                colour,
                dashed: stream.promised_ms.is_none(),
                dots: false,
                points: stream.of(system).throughput.series(outcome.loaded[super::column(system)]),
            });
            let half = scenario::SLICE.as_secs_f64() * (scenario::SLICES / 2) as f64;
            let plot = Plot {
                title: format!("{}: delivered payload", system.name()),
                x: Axis::linear("time under load, s"),
                y: Axis::linear("Mbit/s"),
                series: series.collect(),
                marks: vec![Mark { x: half, label: "second video joins".into(), colour: 3 }],
                legend: Legend::Top,
            };
            plot.svg(PLOT_SIZE)
        })
        .into_iter()
        .collect()
}

fn checks(outcome: &Outcome) -> Table {
    let mut table = Table::new(&["check", "found", "limit", ""]);
    for check in &outcome.checks {
        let number =
            |value: f64| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") };
        let word = if check.ok { "+ok" } else { "!not ok" };
        table.rows.push(vec![check.name.clone(), number(check.value), number(check.limit), word.into()]);
    }
    table
}

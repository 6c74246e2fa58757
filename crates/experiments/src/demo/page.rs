//! The demo's report: what was promised, what was observed, side by side.

use std::path::Path;

use super::outcome::{Outcome, Verdict};
use super::scenario;
use super::table::latency_cells;
use crate::measure::LatencySummary;
use crate::report::{Axis, Mark, Page, Plot, Series, Table, save};
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
        "{} holes, {:.1} ms in all, the longest {:.1} ms, {:.2} % of the time; {} of {} samples excused.",
        outcome.holes.count,
        outcome.holes.total_ms,
        outcome.holes.longest_ms,
        outcome.holes.share * 100.0,
        outcome.holes.excused,
        outcome.holes.samples
    ));
    page.note(&outcome.holes.rule);
    save(&directory.join("report.html"), &page.finish())
}

/// Every stream through both systems.
pub fn figures(outcome: &Outcome) -> Table {
    let mut table = Table::new(&[
        "stream",
        "system",
        "contract",
        "bound",
        "p50",
        "p99",
        "max",
        "messages",
        "misses",
        "excused",
        "policed",
        "offered Mbit/s",
        "delivered",
    ]);
    for stream in &outcome.streams {
        for system in [System::Punctual, System::Kernel] {
            let figures = stream.of(system);
            let ours = system == System::Punctual;
            let guaranteed = stream.promised_ms.is_some();
            let bound = stream.promised_ms.map_or("-".into(), |ms| format!("{ms:.0} ms"));
            let mark = |count: u64| match (guaranteed, count) {
                (false, _) => "-".into(),
                (true, 0) => "+0".into(),
                (true, count) => format!("!{count}"),
            };
            let mut row = vec![stream.name.into(), system.name().into()];
            row.push(if ours {
                stream.contract.clone().unwrap_or("best effort".into())
            } else {
                String::new()
            });
            row.push(bound);
            row.extend(latency_cells(&figures.latency));
            row.push(figures.offered.to_string());
            row.push(mark(figures.misses - if ours { figures.excused } else { 0 }));
            row.push(if guaranteed { figures.excused.to_string() } else { "-".into() });
            row.push(if guaranteed { figures.refused.to_string() } else { "-".into() });
            row.push(format!("{:.2}", figures.offered_mbit_s));
            row.push(format!("{:.2}", figures.delivered_mbit_s));
            table.rows.push(row);
        }
    }
    round_trip_row(&mut table, System::Punctual, &outcome.round_trip[0]);
    round_trip_row(&mut table, System::Kernel, &outcome.round_trip[1]);
    for (system, filled) in
        [(System::Punctual, outcome.link_filled[0]), (System::Kernel, outcome.link_filled[1])]
    {
        let mut row = vec!["link r - b".to_string(), system.name().into(), "filled, headers counted".into()];
        row.extend(std::iter::repeat_n(String::new(), 9));
        row.push(format!("{:.1} %", filled * 100.0));
        table.rows.push(row);
    }
    table
}

fn round_trip_row(table: &mut Table, system: System, latency: &LatencySummary) {
    let mut row = vec!["control round trip".to_string(), system.name().into(), String::new(), "20 ms".into()];
    row.extend(latency_cells(latency));
    row.push(latency.samples.to_string());
    row.extend(std::iter::repeat_n(String::new(), 5));
    table.rows.push(row);
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
                points: stream.of(system).latencies.exceedance(),
            });
            let plot = Plot {
                title: format!("{}: share of messages later than", stream.name),
                x: Axis::logarithmic("latency from the logical arrival, ms"),
                y: Axis::logarithmic("share of messages"),
                series: series.into(),
                marks: vec![Mark { x: promised, label: "bound".into(), colour: 3 }],
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
                points: stream.of(system).throughput.series(),
            });
            let half = scenario::SLICE.as_secs_f64() * (scenario::SLICES / 2) as f64;
            let plot = Plot {
                title: format!("{}: delivered payload", system.name()),
                x: Axis::linear("time under load, s"),
                y: Axis::linear("Mbit/s"),
                series: series.collect(),
                marks: vec![Mark { x: half, label: "second video".into(), colour: 3 }],
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
        let word = if check.ok { "+held" } else { "!not held" };
        table.rows.push(vec![check.name.clone(), number(check.value), number(check.limit), word.into()]);
    }
    table
}

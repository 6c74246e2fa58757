//! The demo's report: promises and observations, side by side.

use std::path::Path;

use punctual::counted;

use super::by_hand::{self, Better, Promise, WorldOutcome};
use super::outcome::{Outcome, StreamOutcome, Verdict};
use super::phase::Phase;
use super::scenario;
use super::table::{COLUMNS, head};
use crate::measure::{LatencySummary, StreamSummary};
use crate::report::{Mark, Page, Plot, Series, Table, save};
use crate::testbed::System;

const PLOT_SIZE: (u32, u32) = (540, 330);

impl Outcome {
    /// The figures as text.
    pub fn table(&self) -> String {
        let by_hand = [
            Some(by_hand::where_by_hand_is_better(&self.comparison)),
            by_hand::what_too_many_did(&self.phases),
        ];
        let sentences: String = by_hand.into_iter().flatten().map(|one| one + "\n").collect();
        format!("{}\n{}\n{}", figures(self).text(), by_phase(self).text(), sentences)
    }
}

/// Writes report.html into `directory`.
///
/// # Errors
/// If a plot cannot be drawn or the file system refuses.
pub fn write(outcome: &Outcome, directory: &Path) -> anyhow::Result<()> {
    let mut page = Page::new("Punctual: a film, a control loop and a flood over one link");
    let good = match outcome.verdict {
        Verdict::Held => Some(true),
        Verdict::Missed => Some(false),
        Verdict::Degraded | Verdict::Inconclusive => None,
    };
    page.verdict(good, &outcome.summary);
    page.text(
        "Three hosts a - r - b; r forwards; the link r - b drains at 40 Mbit/s. The same traffic runs, in alternating \
         slices on identical networks, through Punctual's guaranteed channels, through plain kernel UDP sockets, and \
         through the same sockets with strict priority in front of every link: control, answer and videos in the high \
         class, bulk in the low one, the best that a user can do by hand. A bulk transfer offers twice what the link \
         carries. Half-way a second video joins that sends three times what its contract allows.",
    );
    page.note(outcome.privilege.explain());
    page.heading("What each promises").table(&promises(outcome));
    page.heading("Promised and observed").table(&figures(outcome));
    page.text(&filled(outcome));
    page.table(&contracts(outcome));
    page.note(
        "Latencies in ms to the moment the receiving application has the message: Punctual's from the logical arrival, from \
         which it promises (design: l(i) = max(l(i-1) + I, t(i))), those of kernel sockets and best effort from sending. \
         Missed: not there, whole, by the logical arrival and the bound, or refused though the contract allowed it; only \
         Punctual promised that, for the others the bound is what the application needs. In holes: those of them that a \
         platform hole explains, which are no fault of Punctual's. Policed: not taken beyond the contract. Rates are payload \
         in steady state.",
    );
    page.heading("Phase by phase").table(&by_phase(outcome));
    page.note(
        "In the last phase every sender keeps its contract, the second video too, and the channel that Punctual refused \
         sends what its contract would have allowed. Latencies from sending, in all systems; misses in holes are counted.",
    );
    page.text(&by_hand::what_too_many_did(&outcome.phases).unwrap_or_default());
    page.heading("Punctual and priority by hand")
        .text(&by_hand::where_by_hand_is_better(&outcome.comparison));
    page.table(&comparison(outcome));
    page.note(
        "Figures within 5 % of each other count as equal. Priority by hand was set on every host with a tbf at 99 % of the \
         link's rate and a pfifo_fast child, and by the type of service on every socket.",
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

/// Every stream through all systems, over the phases that all ran.
pub fn figures(outcome: &Outcome) -> Table {
    let mut table = Table::new(&COLUMNS).with_words(3);
    for stream in &outcome.streams {
        table.rows.extend(SYSTEMS.map(|system| row(stream, system)));
    }
    for (system, latency) in SYSTEMS.into_iter().zip(&outcome.round_trip) {
        let mut row = head("control, there and back", None, system).to_vec();
        row.extend(latency.cells());
        table.rows.push(row);
    }
    table
}

const SYSTEMS: [System; 3] = [System::Punctual, System::Kernel, System::KernelPriority];

fn row(stream: &StreamOutcome, system: System) -> Vec<String> {
    let figures = stream.of(system);
    let guaranteed = stream.promised_ms.is_some();
    let counted = |count: u64| if guaranteed { count.to_string() } else { "-".into() };
    let missed = if guaranteed { marked(system, figures) } else { "-".into() };
    let mut row = head(stream.name, stream.promised_ms, system).to_vec();
    row.extend(latency(system, figures).cells());
    row.extend([missed, counted(figures.excused), counted(figures.refused)]);
    row.push(format!("{:.2}", figures.delivered_mbit_s));
    row
}

/// Punctual's promise counts from the logical arrival; kernel sockets send at once whatever the contract.
const fn latency(system: System, figures: &StreamSummary) -> &LatencySummary {
    match system {
        System::Punctual => &figures.latency,
        System::Kernel | System::KernelPriority => &figures.from_sending,
    }
}

/// All misses, in holes or not; bad if no hole excuses them. Systems without guarantees need no excuses.
fn marked(system: System, figures: &StreamSummary) -> String {
    let bad = if system == System::Punctual { figures.unexcused() } else { figures.misses };
    format!("{}{}", if bad == 0 { '+' } else { '!' }, figures.misses)
}

/// What each phase did to those with contracts, system by system.
pub fn by_phase(outcome: &Outcome) -> Table {
    let missed = format!("missed: control, answer, video, {}, {}", scenario::INTRUDER, scenario::EXTRA);
    let columns = format!("phase, through, control p50 ms, p99, max, {missed}, bulk Mbit/s");
    let mut table = Table::with_columns(&columns).with_words(2);
    for one in &outcome.phases {
        let mut name = one.phase.name();
        for system in SYSTEMS {
            let cells = match one.of(system) {
                Some(world) => phase_cells(world),
                None if system == System::Punctual && outcome.refused.refused => vec!["refused".into()],
                None => continue,
            };
            table.rows.push([name.into(), system.name().into()].into_iter().chain(cells).collect());
            name = "";
        }
    }
    table
}

fn phase_cells(world: &WorldOutcome) -> Vec<String> {
    let control = world.stream("control").map(|control| control.from_sending.cells());
    let missed = ["control", "answer", scenario::FILM, scenario::INTRUDER, scenario::EXTRA].map(|name| {
        let cell =
            |figures: &StreamSummary| format!("{} of {}", marked(world.world, figures), figures.judged());
        world.stream(name).map_or("-".into(), cell)
    });
    let bulk = world.stream(scenario::BULK).map_or(0.0, |bulk| bulk.delivered_mbit_s);
    control.into_iter().flatten().chain(missed).chain([format!("{bulk:.2}")]).collect()
}

fn promises(outcome: &Outcome) -> Table {
    let head =
        ["through", "a message that keeps its contract", "a sender that breaks it", "one channel more"];
    let row = |one: &Promise| [one.world.name(), one.message, one.breach, one.admission].map(String::from);
    Table::of(head, &outcome.promises, row).with_words(4)
}

fn filled(outcome: &Outcome) -> String {
    let shares: Vec<String> = SYSTEMS
        .into_iter()
        .zip(outcome.link_filled)
        .map(|(system, share)| format!("{:.1} % ({})", share * 100.0, system.name()))
        .collect();
    format!(
        "The link r - b was filled to {}, headers counted; packets of messages that never became whole do not count.",
        shares.join(", ")
    )
}

fn comparison(outcome: &Outcome) -> Table {
    let mut table = Table::new(&["phase", "figure", "Punctual", "by hand", "", "better"]).with_words(2);
    let mut last = None::<Phase>;
    for one in &outcome.comparison {
        let name = if last.replace(one.phase) == Some(one.phase) { "" } else { one.phase.name() };
        let better = match one.better {
            Better::Punctual => "Punctual",
            Better::ByHand => "by hand",
            Better::Neither => "equal",
        };
        let numbers = [one.punctual, one.by_hand].map(by_hand::number);
        let cells = [name, one.figure, &numbers[0], &numbers[1], one.unit, better];
        table.rows.push(cells.map(String::from).to_vec());
    }
    table
}

fn contracts(outcome: &Outcome) -> Table {
    let head = ["stream", "contract", "offered Mbit/s", "reserved", "messages"];
    let row = |stream: &StreamOutcome| {
        let figures = &stream.punctual;
        [
            stream.name.into(),
            stream.contract.clone().unwrap_or("best effort".into()),
            format!("{:.2}", figures.offered_mbit_s),
            figures.reserved_mbit_s.map_or("-".into(), |mbit_s| format!("{mbit_s:.2}")),
            figures.offered.to_string(),
        ]
    };
    Table::of(head, &outcome.streams, row).with_words(2)
}

fn latency_plots(outcome: &Outcome) -> anyhow::Result<Vec<String>> {
    let guaranteed = outcome.streams.iter().filter_map(|stream| Some((stream, stream.promised_ms?)));
    let plot = |(stream, promised): (&StreamOutcome, f64)| {
        let series = SYSTEMS.map(|system| {
            Series::new(system.name(), system as usize, exceedance(stream, system))
                .dashed(system == System::Kernel)
        });
        let title = format!("{}: share of messages later than", stream.name);
        Plot::tails(&title, "latency, ms", "share of messages", series)
            .with_marks(vec![Mark { x: promised, label: "bound".into(), colour: 3 }])
            .svg(PLOT_SIZE)
    };
    guaranteed.map(plot).collect()
}

fn exceedance(stream: &StreamOutcome, system: System) -> Vec<(f64, f64)> {
    match system {
        System::Punctual => stream.punctual.exceedance(),
        System::Kernel | System::KernelPriority => stream.of(system).exceedance_from_sending(),
    }
}

fn throughput_plots(outcome: &Outcome) -> anyhow::Result<Vec<String>> {
    let plot = |system: System| {
        let series = outcome.streams.iter().enumerate().map(|(colour, stream)| {
            let points = stream.of(system).throughput.series(outcome.loaded[system as usize]);
            Series::new(stream.name, colour, points).dashed(stream.promised_ms.is_none()).without_dots()
        });
        let half = scenario::SLICE.as_secs_f64() * (scenario::SLICES / 2) as f64;
        let title = format!("{}: delivered payload", system.name());
        Plot::linear(&title, "time under load, s", "Mbit/s", series)
            .with_marks(vec![Mark { x: half, label: "second video joins".into(), colour: 3 }])
            .svg(PLOT_SIZE)
    };
    SYSTEMS.into_iter().map(plot).collect()
}

fn checks(outcome: &Outcome) -> Table {
    let number =
        |value: f64| if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    Table::of(["check", "found", "limit", ""], &outcome.checks, |check| {
        let word = if check.ok { "+ok" } else { "!not ok" };
        [check.name.clone(), number(check.value), number(check.limit), word.into()]
    })
}

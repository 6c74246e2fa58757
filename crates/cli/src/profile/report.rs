//! What `punctual profile` prints, and its plot.

use std::fs;
use std::path::{Path, PathBuf};

use punctual::counted;
use punctual_engine::profile::{self, BLOCK_UNITS, MARGIN_DEFAULT, Profile};
use punctual_experiments::excuse::HoleSummary;
use punctual_experiments::report::{Axis, Legend, Plot, Series, save};
use serde::Serialize;

use super::Request;
use super::api::SizeRow;
use super::basics::Basics;
use super::links::MeasuredLink;
use super::paths::Measured;
use super::rows::{self, Row};
use super::wake::Wakes;

const PLOT_SIZE: (u32, u32) = (860, 460);

/// The CPU time that the kernel withholds from real-time threads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Throttling {
    /// `sched_rt_period_us`.
    pub period_us: i64,
    /// `sched_rt_runtime_us`; -1: none.
    pub runtime_us: i64,
}

impl Throttling {
    fn here() -> Option<Self> {
        let read = |what: &str| {
            fs::read_to_string(format!("/proc/sys/kernel/sched_rt_{what}_us")).ok()?.trim().parse().ok()
        };
        Some(Self { period_us: read("period")?, runtime_us: read("runtime")? })
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether it was shortened.
    pub quick: bool,
    /// The profile as it was written.
    pub profile: Profile,
    /// File that the profile was written to.
    pub output: PathBuf,
    /// How the values that are used come about.
    pub rule: String,
    /// What admission adds unless configured otherwise, in ppm.
    pub margin_default_ppm: u32,
    /// The papers' tables beside ours.
    pub rows: Vec<Row>,
    /// The configured links.
    pub links: Vec<MeasuredLink>,
    /// How long the processor takes to react to its clock (delta), in ns: wake-up, turn and longest unit.
    pub reaction_ns: u64,
    /// Platform holes while it was measured.
    pub holes: HoleSummary,
    /// RT throttling.
    pub throttling: Option<Throttling>,
    /// The plot.
    pub plot: PathBuf,
}

impl Report {
    #[allow(clippy::too_many_arguments, reason = "one of each kind of measurement")]
    pub(super) fn new(
        request: &Request,
        profile: Profile,
        basics: &Basics,
        api: &[SizeRow],
        wakes: &[Wakes],
        paths: &[Measured],
        links: Vec<MeasuredLink>,
        holes: HoleSummary,
    ) -> Self {
        let costs = profile.costs;
        let unit = costs.send_packet_ns.max(costs.forward_packet_ns).max(costs.receive_packet_ns)
            + 2 * costs.copy_kib_ns;
        let rows = [rows::basics(basics), rows::api(api), rows::wakes(wakes), rows::paths(paths)].concat();
        Self {
            quick: request.quick,
            output: request.output.clone(),
            rule: format!(
                "used: the dearer of idle and loaded; the 99th percentile of the means of {BLOCK_UNITS} consecutive units \
                 without their longest (interrupts are interference), \
                 units of 1 ms and more (platform holes) left out; admission adds profile_margin ({} % by default)",
                MARGIN_DEFAULT.0 / 10_000
            ),
            margin_default_ppm: MARGIN_DEFAULT.0,
            rows,
            links,
            reaction_ns: profile.wake_up_ns + profile.turn_ns + unit,
            holes,
            throttling: Throttling::here(),
            plot: request.plot.clone(),
            profile,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let throttling = self.throttling.map_or_else(
            || "not reported by this kernel".into(),
            |one| match one.runtime_us {
                -1 => "off".into(),
                runtime => format!("{runtime} of {} us", one.period_us),
            },
        );
        let machine = &self.profile.machine;
        let links: Vec<String> = self.links.iter().map(link_line).collect();
        format!(
            "{}, {}, kernel {}, host {}, driver {}\n\n{}\n\n{}\nreaction to the clock (delta) {:.1} us; RT throttling {throttling}; {}\n{}\nprofile: {}\nplot: {}",
            machine.cpu,
            counted(machine.cores, "CPU"),
            machine.kernel,
            machine.host,
            machine.driver,
            table(&self.rows),
            self.rule,
            self.reaction_ns as f64 / 1e3,
            holes_line(&self.holes),
            links.join("\n"),
            self.output.display(),
            self.plot.display(),
        )
    }

    /// The distribution of the main costs, idle and loaded.
    ///
    /// # Errors
    /// If the plot cannot be written.
    pub(super) fn draw(&self, paths: &[Measured], path: &Path) -> anyhow::Result<()> {
        let driver = &self.profile.machine.driver;
        let mut series = Vec::new();
        for one in paths.iter().filter(|one| one.driver.name() == *driver) {
            let samples = &one.samples;
            let of = [
                ("send, first packet", samples.of(profile::Series::SendFirstLarge)),
                ("send, other packets", samples.of(profile::Series::SendLaterLarge)),
                ("forward", samples.of(profile::Series::ForwardLarge)),
                ("receive", samples.of(profile::Series::ReceiveMiddleLarge)),
            ];
            for (colour, (name, values)) in of.into_iter().enumerate() {
                let load = if one.loaded { "loaded" } else { "idle" };
                series.push(
                    Series::new(format!("{name}, {load}"), colour, exceeded(values))
                        .dashed(one.loaded)
                        .without_dots(),
                );
            }
        }
        let plot = Plot::new(
            format!("Cost of a 1400 B packet over {driver}: share of units that took longer"),
            Axis::logarithmic("us"),
            Axis::logarithmic("share of units"),
            series,
        )
        .with_legend(Legend::LowerLeft);
        save(path, &plot.svg(PLOT_SIZE)?)
    }
}

/// Words to the left, figures to the right.
fn table(rows: &[Row]) -> String {
    let line = |[table, what, paper, median, p999, used]: [&str; 6]| {
        format!("{table:<11}{what:<66}{paper:<34}{median:>10}{p999:>11}{used:>9}").trim_end().to_owned()
    };
    let number = |value: f64| if value < 0.01 { format!("{value:.6}") } else { format!("{value:.3}") };
    let mut lines = vec![line(["table", "what", "paper", "median us", "p99.9 us", "used us"])];
    lines.extend(rows.iter().map(|row| {
        let used = row.used_us.map_or_else(|| "-".into(), number);
        line([row.table, &row.what, &row.paper, &number(row.median_us), &number(row.p999_us), &used])
    }));
    lines.join("\n")
}

/// (us, share of the samples that took at least this long), thinned out.
fn exceeded(values: &[u64]) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let count = sorted.len();
    let step = (count / 400).max(1);
    let kept = (0..count).filter(|at| at % step == 0 || at + 20 >= count);
    kept.map(|at| (sorted[at] as f64 / 1e3, (count - at) as f64 / count as f64)).collect()
}

fn link_line(link: &MeasuredLink) -> String {
    let mbit = |rate: u64| format!("{:.1} Mbit/s", rate as f64 / 1e6);
    match (link.rate_measured, &link.not_measured) {
        (Some(rate), _) => format!(
            "link {} ({}): drains {} (configured {}), backlog at most {} B{}",
            link.name,
            link.driver,
            mbit(rate),
            mbit(link.rate_configured),
            link.backlog_bytes_max.unwrap_or(0),
            completion(link)
        ),
        (None, why) => format!(
            "link {} ({}): drain rate not measured ({}); configured {}",
            link.name,
            link.driver,
            why.as_deref().unwrap_or("it was not asked for"),
            mbit(link.rate_configured)
        ),
    }
}

fn completion(link: &MeasuredLink) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    link.completion_ns.map_or_else(String::new, |[half, most]| {
        format!(", completions seen after {:.1} us (p99 {:.1} us)", us(half), us(most))
    })
}

fn holes_line(holes: &HoleSummary) -> String {
    let HoleSummary { count, total_ms, longest_ms, share, inconclusive, .. } = holes;
    let verdict = if *inconclusive { ": too much, INCONCLUSIVE, measure again" } else { "" };
    format!(
        "platform holes: {count}, {total_ms:.1} ms together, the longest {longest_ms:.1} ms, {:.2} % of the time{verdict}",
        share * 100.0
    )
}

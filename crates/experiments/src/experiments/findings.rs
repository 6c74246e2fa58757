//! What an experiment found, and the report that is made of it (design 13).

use std::path::PathBuf;

use punctual::{BitRate, Ppm};
use serde::Serialize;

use super::{Conditions, Experiment};
use crate::demo::outcome::Check;
use crate::excuse::{HoleSummary, summarise};
use crate::measure::StreamSummary;
use crate::report::{Plot, Series, Table, save};
use crate::session::System;
use crate::witness::Testimony;

const PLOT_SIZE: (u32, u32) = (860, 460);

/// One stream through one system at one point of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Which curve family, where an experiment has several: "6a", "case 1".
    pub part: &'static str,
    /// What was varied, in the unit of the sweep.
    pub x: f64,
    /// Which system.
    pub system: System,
    /// Which stream.
    pub stream: &'static str,
    /// Whether it was guaranteed.
    pub guaranteed: bool,
    /// Most messages or packets of its reservation in use at the source at once; Punctual only.
    pub slots_max: Option<u32>,
    /// What was measured.
    #[serde(flatten)]
    pub figures: StreamSummary,
}

/// A row of what the paper measured beside what we did.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What.
    pub what: String,
    /// In the paper.
    pub paper: String,
    /// Through Punctual.
    pub punctual: String,
    /// Through plain kernel sockets.
    pub kernel: String,
}

/// Everything that an experiment found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What was varied, for tables.
    pub x: &'static str,
    /// Every stream at every point.
    pub figures: Vec<Figure>,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// The paper beside us.
    pub compared: Vec<Compared>,
    /// The figure, redrawn.
    pub plot: Option<Plot>,
    /// Platform holes of all its sweeps.
    pub testimony: Testimony,
    /// g.
    pub guaranteed_load: Ppm,
}

/// What `punctual bench` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub experiment: &'static str,
    /// Which figure of which paper.
    pub paper: &'static str,
    /// Whether it was shortened.
    pub quick: bool,
    /// Whether processors ran in the real-time class; without it nothing is guaranteed.
    pub real_time: bool,
    /// Platform holes.
    pub holes: HoleSummary,
    /// What was varied.
    pub x: &'static str,
    /// Every stream at every point.
    pub points: Vec<Figure>,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// The paper beside us.
    pub compared: Vec<Compared>,
    /// Where the plot is.
    pub plot: PathBuf,
}

impl Findings {
    /// Adds what another sweep of the same experiment found.
    pub fn add(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.checks.extend(other.checks);
        self.compared.extend(other.compared);
        self.testimony.add(other.testimony);
        self.guaranteed_load = self.guaranteed_load.max(other.guaranteed_load);
    }

    /// A curve for each stream and system of a part: `value` over what was varied.
    pub fn curves(
        &self,
        part: &'static str,
        streams: &[&str],
        value: impl Fn(&StreamSummary) -> f64,
    ) -> Vec<Series> {
        let mut series = Vec::new();
        for (colour, stream) in streams.iter().enumerate() {
            for system in [System::Punctual, System::Kernel] {
                series.push(Series {
                    name: format!("{stream}, {}", system.name()),
                    colour,
                    dashed: system == System::Kernel,
                    dots: true,
                    points: self.of(part, system, stream).map(|one| (one.x, value(&one.figures))).collect(),
                });
            }
        }
        series
    }

    /// The figures of one stream through one system, by x.
    pub fn of<'a>(
        &'a self,
        part: &'a str,
        system: System,
        stream: &'a str,
    ) -> impl Iterator<Item = &'a Figure> + 'a {
        let wanted = move |one: &&Figure| one.part == part && one.system == system && one.stream == stream;
        self.figures.iter().filter(wanted)
    }

    /// The checks that hold for every experiment: no conforming message late, every channel has its rate.
    pub fn check_guarantees(&mut self) {
        const DELIVERED_RATIO_MIN: f64 = 0.98;
        let ours = || self.figures.iter().filter(|one| one.guaranteed && one.system == System::Punctual);
        let missed: u64 = ours().map(|one| one.figures.unexcused()).sum();
        let damaged: u64 = ours().map(|one| one.figures.damaged).sum();
        let least = ours().map(|one| one.figures.delivered_ratio).fold(f64::INFINITY, f64::min);
        self.checks.extend([
            Check::at_most(
                "conforming messages late or lost outside platform holes".into(),
                missed as f64,
                0.0,
            ),
            Check::at_most("guaranteed messages that were not what was sent".into(), damaged as f64, 0.0),
            Check::at_least(
                "least delivered rate of a guaranteed channel against min(offered, reserved)".into(),
                least,
                DELIVERED_RATIO_MIN,
            ),
        ]);
    }

    /// Best effort keeps its peak when over-offered, and all traffic together fills the link, headers counted.
    /// Both at the largest load of the sweep.
    pub fn check_best_effort(&mut self, part: &'static str, best_effort: &str, link: BitRate) {
        const PEAK_KEPT_MIN: f64 = 0.95;
        const FILLED_MIN: f64 = 0.95;
        let ours = || self.figures.iter().filter(|one| one.part == part && one.system == System::Punctual);
        let curve = || ours().filter(|one| one.stream == best_effort).map(|one| one.figures.delivered_mbit_s);
        let peak = curve().fold(f64::MIN_POSITIVE, f64::max);
        let kept = curve().next_back().unwrap_or_default() / peak;
        let load_max = ours().map(|one| one.x).fold(0.0, f64::max);
        let all: f64 =
            ours().filter(|one| one.x == load_max).map(|one| one.figures.delivered_wire_mbit_s).sum();
        let filled = all * 1e6 / link.0 as f64;
        self.checks.extend([
            Check::at_least(
                format!("{part}: best effort at the largest load against its peak"),
                kept,
                PEAK_KEPT_MIN,
            ),
            Check::at_least(
                format!("{part}: link filled by all traffic at the largest load"),
                filled,
                FILLED_MIN,
            ),
        ]);
    }

    /// The report; draws the plot.
    ///
    /// # Errors
    /// Where the plot cannot be drawn or written.
    pub fn report(self, experiment: &Experiment, conditions: &Conditions) -> anyhow::Result<Report> {
        let plot = conditions.directory.join(format!("{}.svg", experiment.name));
        if let Some(drawn) = &self.plot {
            save(&plot, &drawn.svg(PLOT_SIZE)?)?;
        }
        let ours = || self.figures.iter().filter(|one| one.guaranteed && one.system == System::Punctual);
        let samples = ours().map(|one| one.figures.offered - one.figures.refused).sum();
        let excused = ours().map(|one| one.figures.excused).sum();
        let holes = summarise(&self.testimony, samples, excused);
        let report = Report {
            experiment: experiment.name,
            paper: experiment.paper,
            quick: conditions.quick,
            real_time: conditions.real_time,
            holes,
            x: self.x,
            points: self.figures,
            checks: self.checks,
            compared: self.compared,
            plot,
        };
        let json = serde_json::to_string_pretty(&report)?;
        save(&conditions.directory.join(format!("{}.json", experiment.name)), &json)?;
        Ok(report)
    }
}

impl Report {
    /// 0 where everything held, 1 where something did not, 3 where the run proves nothing.
    pub fn exit_status(&self) -> i32 {
        let ok = self.checks.iter().all(|check| check.ok);
        match (self.real_time && !self.holes.inconclusive, ok) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 3,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut points = Table::new(&[
            self.x,
            "part",
            "stream",
            "system",
            "offered Mbit/s",
            "delivered",
            "ratio",
            "p50 ms",
            "p99",
            "max",
            "misses",
            "excused",
            "refused",
        ]);
        for one in &self.points {
            let figures = &one.figures;
            let mut row =
                vec![format!("{:.0}", one.x), one.part.into(), one.stream.into(), one.system.name().into()];
            row.extend(
                [figures.offered_mbit_s, figures.delivered_mbit_s, figures.delivered_ratio]
                    .map(|v| format!("{v:.3}")),
            );
            row.extend(crate::demo::table::latency_cells(&figures.latency));
            row.extend([figures.misses, figures.excused, figures.refused].map(|count| count.to_string()));
            points.rows.push(row);
        }
        let mut compared = Table::new(&["", "paper", "Punctual", "kernel UDP"]);
        for row in &self.compared {
            compared.rows.push(vec![
                row.what.clone(),
                row.paper.clone(),
                row.punctual.clone(),
                row.kernel.clone(),
            ]);
        }
        let mut checks = Table::new(&["check", "found", "limit", ""]);
        for check in &self.checks {
            let word = if check.ok { "ok" } else { "NOT OK" };
            checks.rows.push(vec![
                check.name.clone(),
                format!("{:.3}", check.value),
                format!("{:.3}", check.limit),
                word.into(),
            ]);
        }
        format!(
            "{} ({})\n\n{}\n{}\n{}\nholes: {} of {:.1} ms in all ({:.2} % of the CPUs' time), {} of {} samples excused\nplot: {}\n{}",
            self.experiment,
            self.paper,
            points.text(),
            compared.text(),
            checks.text(),
            self.holes.count,
            self.holes.total_ms,
            self.holes.share * 100.0,
            self.holes.excused,
            self.holes.samples,
            self.plot.display(),
            self.last_word(),
        )
    }

    fn last_word(&self) -> &'static str {
        match self.exit_status() {
            0 => "everything held",
            1 => "something did not hold",
            _ if !self.real_time => "degraded: no real-time class, nothing is guaranteed",
            _ => "inconclusive: the platform took too much time away; run it again",
        }
    }
}

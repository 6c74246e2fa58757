//! What an experiment over streams found.

use punctual::{BitRate, Ppm};
use serde::Serialize;

use super::measured::Measured;
use crate::demo::outcome::Check;
use crate::measure::StreamSummary;
use crate::report::{Plot, Series, Table};
use crate::testbed::System;
use crate::witness::Testimony;

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

impl Compared {
    /// Of what `show` says of each system.
    pub fn of(what: impl Into<String>, paper: &str, show: impl Fn(System) -> String) -> Self {
        let (punctual, kernel) = (show(System::Punctual), show(System::Kernel));
        Self { what: what.into(), paper: paper.into(), punctual, kernel }
    }
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
                series.push(
                    Series::new(
                        format!("{stream}, {}", system.name()),
                        colour,
                        self.of(part, system, stream).map(|one| (one.x, value(&one.figures))),
                    )
                    .dashed(system == System::Kernel),
                );
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
                "conforming messages late, lost or refused outside platform holes".into(),
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

    /// As every experiment is told.
    pub fn measured(self) -> Measured {
        let ours = || self.figures.iter().filter(|one| one.guaranteed && one.system == System::Punctual);
        let samples = ours().map(|one| one.figures.judged()).sum();
        let excused = ours().map(|one| one.figures.excused).sum();
        let table = self.table();
        Measured {
            x: self.x,
            points: self.figures.iter().map(|one| serde_json::json!(one)).collect(),
            table,
            checks: self.checks,
            compared: self.compared,
            plot: self.plot,
            testimony: self.testimony,
            samples,
            excused,
            ..Measured::default()
        }
    }

    fn table(&self) -> Table {
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
            "refused conforming",
            "refused",
        ]);
        for one in &self.figures {
            let figures = &one.figures;
            let mut row =
                vec![format!("{:.0}", one.x), one.part.into(), one.stream.into(), one.system.name().into()];
            row.extend(
                [figures.offered_mbit_s, figures.delivered_mbit_s, figures.delivered_ratio]
                    .map(|v| format!("{v:.3}")),
            );
            row.extend(crate::demo::table::latency_cells(&figures.latency));
            let counts = [figures.misses, figures.excused, figures.refused_conforming, figures.refused];
            row.extend(counts.map(|count| count.to_string()));
            points.rows.push(row);
        }
        points
    }
}

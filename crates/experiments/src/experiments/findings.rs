//! What an experiment over streams found.

use punctual::BitRate;
use serde::Serialize;

use super::{Compared, Measured};
use crate::measure::StreamSummary;
use crate::report::{Plot, Series, Table};
use crate::testbed::System;

/// One stream through one system at one point of a sweep.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Which curve family, where an experiment has several: "6a", "case 1".
    pub part: &'static str,
    /// The value of the varied quantity, in the unit of the sweep.
    pub x: f64,
    /// Which system.
    pub system: System,
    /// Which stream.
    pub stream: &'static str,
    /// Whether it was guaranteed.
    pub guaranteed: bool,
    /// Most messages or packets of its reservation in use at the source at once; Punctual only.
    pub slots_max: Option<u32>,
    /// The measured figures.
    #[serde(flatten)]
    pub figures: StreamSummary,
}

/// Everything that an experiment found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Every stream at every point.
    pub figures: Vec<Figure>,
    /// The conclusions: checks, rows beside the paper's, the figure; and the platform holes of all sweeps.
    pub measured: Measured,
}

impl Findings {
    /// Adds what another sweep of the same experiment found.
    pub fn add(&mut self, other: Self) {
        self.figures.extend(other.figures);
        self.measured.checks.extend(other.measured.checks);
        self.measured.testimony.add(other.measured.testimony);
    }

    /// A curve for each stream and system of a part: `value` over the varied quantity.
    pub fn curves(
        &self,
        part: &'static str,
        streams: &[&str],
        value: impl Fn(&StreamSummary) -> f64,
    ) -> Vec<Series> {
        let curve = |colour, stream: &str, system: System| {
            let points = self.of(part, system, stream).map(|one| (one.x, value(&one.figures)));
            Series::new(format!("{stream}, {}", system.name()), colour, points)
                .dashed(system == System::Kernel)
        };
        let both =
            |(colour, stream): (usize, &&str)| System::COMPARED.map(|system| curve(colour, stream, system));
        streams.iter().enumerate().flat_map(both).collect()
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

    /// Ours under a contract.
    fn guaranteed(&self) -> impl Iterator<Item = &StreamSummary> + Clone {
        let ours = self.figures.iter().filter(|one| one.guaranteed && one.system == System::Punctual);
        ours.map(|one| &one.figures)
    }

    /// The checks that hold for every experiment: no conforming message late, every channel has its rate.
    pub fn check_guarantees(&mut self) {
        const DELIVERED_RATIO_MIN: f64 = 0.98;
        let ours = self.guaranteed();
        let missed: u64 = ours.clone().map(StreamSummary::unexcused).sum();
        let damaged: u64 = ours.clone().map(|figures| figures.damaged).sum();
        let least = ours.map(|figures| figures.delivered_ratio).fold(f64::INFINITY, f64::min);
        let late = "conforming messages late, lost or refused outside platform holes";
        let rate = "least delivered rate of a guaranteed channel against min(offered, reserved)";
        self.measured.at_most(late, missed as f64, 0.0);
        self.measured.at_most("guaranteed messages that were not what was sent", damaged as f64, 0.0);
        self.measured.at_least(rate, least, DELIVERED_RATIO_MIN);
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
        let name = format!("{part}: best effort at the largest load against its peak");
        self.measured.at_least(name, kept, PEAK_KEPT_MIN);
        let name = format!("{part}: link filled by all traffic at the largest load");
        self.measured.at_least(name, filled, FILLED_MIN);
    }

    /// The form in which every experiment reports, with `x` for what was varied, rows beside the paper's and
    /// the figure.
    pub fn measured(self, x: &'static str, compared: Vec<Compared>, plot: Plot) -> Measured {
        let samples = self.guaranteed().map(StreamSummary::judged).sum();
        let excused = self.guaranteed().map(|figures| figures.excused).sum();
        let points = self.figures.iter().map(|one| serde_json::json!(one)).collect();
        let table = self.table(x);
        Measured { x, points, table, samples, excused, compared, plot: Some(plot), ..self.measured }
    }

    fn table(&self, x: &str) -> Table {
        let columns = format!(
            "{x}, part, stream, system, offered Mbit/s, delivered, ratio, p50 ms, p99, max, misses, excused, \
             refused conforming, refused"
        );
        let rows = self.figures.iter().map(|one| {
            let Figure { x, part, stream, system, figures, .. } = one;
            let rates = [figures.offered_mbit_s, figures.delivered_mbit_s, figures.delivered_ratio];
            let counts = [figures.misses, figures.excused, figures.refused_conforming, figures.refused];
            let first = [&format!("{x:.0}"), *part, *stream, system.name()].map(String::from).into_iter();
            let numbers = rates.map(|rate| format!("{rate:.3}")).into_iter().chain(figures.latency.cells());
            first.chain(numbers).chain(counts.map(|count| count.to_string())).collect()
        });
        Table { rows: rows.collect(), ..Table::with_columns(&columns) }
    }
}

//! What an experiment measured, whatever its points are, and the report that is made of it.

use std::path::PathBuf;

use punctual::{Ppm, counted};
use serde::Serialize;
use serde_json::Value;

use super::{Experiment, Wanted};
use crate::excuse::{Excuses, HoleSummary, WatcherRecords, summarise};
use crate::measure::{Figures, Side};
use crate::report::{Check, Plot, Row, Table, save};
use crate::testbed::{Contender, Pair, System};
use crate::witness::Witness;

const PLOT_SIZE: (u32, u32) = (860, 460);

/// What an experiment measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measured {
    /// The varied quantity.
    pub x: &'static str,
    /// One for each thing measured.
    pub points: Vec<Value>,
    /// The results as a table.
    #[serde(skip)]
    pub table: Table,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// The paper beside us.
    pub compared: Vec<Compared>,
    /// The figure, redrawn.
    #[serde(skip)]
    pub plot: Option<Plot>,
    /// Rows below the plot.
    #[serde(skip)]
    pub rows: Vec<Row>,
    /// Platform holes.
    #[serde(skip)]
    pub testimony: WatcherRecords,
    /// Samples that count.
    #[serde(skip)]
    pub samples: u64,
    /// Samples among these that holes excuse.
    #[serde(skip)]
    pub excused: u64,
    /// Further remarks for the reader.
    pub notes: Vec<String>,
    /// Why the run proves nothing, besides holes.
    pub doubts: Vec<String>,
}

/// A row with the paper's measurement beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// What.
    pub what: String,
    /// The paper's value.
    pub paper: String,
    /// Through Punctual.
    pub punctual: String,
    /// Through plain kernel sockets.
    pub kernel: String,
}

impl Compared {
    /// Makes a row from the text that `show` returns for each system.
    pub fn of(what: impl Into<String>, paper: &str, show: impl Fn(System) -> String) -> Self {
        let (punctual, kernel) = (show(System::Punctual), show(System::Kernel));
        Self { what: what.into(), paper: paper.into(), punctual, kernel }
    }
}

/// What `punctual bench` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// Which figure of which paper.
    pub paper: &'static str,
    /// Whether it was shortened.
    pub quick: bool,
    /// The test setup; `None` for a simulation.
    #[serde(flatten)]
    pub ground: Option<RunConditions>,
    /// Platform holes.
    pub holes: HoleSummary,
    /// Results of the experiment.
    #[serde(flatten)]
    pub measured: Measured,
    /// Path of the plot.
    pub plot: PathBuf,
}

/// What hosts ran on.
#[derive(Clone, Debug, Serialize)]
pub struct RunConditions {
    /// Whether processors ran in the real-time class; otherwise nothing is guaranteed.
    pub real_time: bool,
    /// What carried Punctual's links: `udp`, `xdp`, `memory`, `null-device`, or `none`.
    pub driver: &'static str,
    /// The other machine, if there was one.
    pub peer: Option<String>,
}

/// The result of `judge`, with the holes that excuse the samples so far.
pub(super) fn judged(
    witness: Option<Witness>,
    judge: impl FnOnce(&Excuses) -> anyhow::Result<Measured>,
) -> anyhow::Result<Measured> {
    judged_under(Ppm(0), witness, judge)
}

/// The same if the guaranteed load `load` drains beside the backlog of a hole.
pub(super) fn judged_under(
    load: Ppm,
    witness: Option<Witness>,
    judge: impl FnOnce(&Excuses) -> anyhow::Result<Measured>,
) -> anyhow::Result<Measured> {
    let testimony = witness.map(Witness::stop).unwrap_or_default();
    let measured = judge(&Excuses::new(&testimony.holes, load))?;
    Ok(Measured { testimony, ..measured })
}

impl Measured {
    /// No results yet, over the axis `x`. `columns`: columns of the table, separated by a comma and a blank.
    pub fn new(x: &'static str, columns: &str) -> Self {
        Self { x, table: Table::with_columns(columns), ..Self::default() }
    }

    /// Adds a point of these parts, each an object; its table cells are the values of the columns' names in it.
    pub fn add(&mut self, parts: impl IntoIterator<Item = Value>) {
        let objects = parts.into_iter().filter_map(|part| match part {
            Value::Object(object) => Some(object),
            _ => None,
        });
        let value = Value::Object(objects.flatten().collect());
        let cell = |column: &String| value.get(column).map_or("-".into(), shown);
        self.table.rows.push(self.table.head.iter().map(cell).collect());
        self.points.push(value);
    }

    /// Adds a point of a side's measurement, between `first` and the value that `last` makes from it; its
    /// samples count.
    pub fn add_side(
        &mut self,
        first: Value,
        side: &Side,
        excuses: &Excuses,
        last: impl FnOnce(&Figures) -> Value,
    ) -> Figures {
        let figures = self.count(side, excuses);
        self.add([first, serde_json::json!(figures), last(&figures)]);
        figures
    }

    /// Counts the samples of a side; its figures.
    pub fn count(&mut self, side: &Side, excuses: &Excuses) -> Figures {
        let figures = side.figures(excuses);
        self.samples += figures.with_holes.samples as u64;
        self.excused += figures.excused;
        figures
    }

    /// Adds a row with the paper's measurement beside ours.
    pub fn compare(
        &mut self,
        what: impl Into<String>,
        paper: &str,
        punctual: impl Into<String>,
        kernel: impl Into<String>,
    ) {
        let (punctual, kernel) = (punctual.into(), kernel.into());
        self.compared.push(Compared { what: what.into(), paper: paper.into(), punctual, kernel });
    }

    /// `value` may be `limit` at most.
    pub fn at_most(&mut self, name: impl Into<String>, value: f64, limit: f64) {
        self.checks.push(Check::at_most(name, value, limit));
    }

    /// `value` must be `limit` at least.
    pub fn at_least(&mut self, name: impl Into<String>, value: f64, limit: f64) {
        self.checks.push(Check::at_least(name, value, limit));
    }

    /// Adds a remark for the reader.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Marks the run as doubtful if clients lost the lead of their engines or handlers were demoted: for some
    /// messages the waiting was then not the one in the world's name.
    ///
    /// # Errors
    /// If a host does not report it.
    pub fn doubt_demoted(&mut self, contenders: &[Contender], pairs: &mut [Pair]) -> anyhow::Result<()> {
        let led_no_more: u64 = contenders.iter().map(|contender| contender.led_no_more).sum();
        if led_no_more > 0 {
            self.doubts.push(format!(
                "in {} a client stayed away from its engine too long, and led it no more",
                counted(led_no_more, "block")
            ));
        }
        let demoted = pairs.iter_mut().map(Pair::demoted).sum::<anyhow::Result<u64>>()?;
        if demoted > 0 {
            self.doubts
                .push(format!("handlers that took too long, and were given threads of their own: {demoted}"));
        }
        Ok(())
    }

    /// The report of a run on `ground`; draws the plot.
    ///
    /// # Errors
    /// If the plot cannot be drawn or written.
    pub fn report(
        self,
        experiment: &Experiment,
        wanted: &Wanted,
        ground: Option<RunConditions>,
    ) -> anyhow::Result<Report> {
        let plot = wanted.directory.join(format!("{}.svg", experiment.name));
        if let Some(drawn) = &self.plot {
            save(&plot, &drawn.svg_above(&self.rows, PLOT_SIZE)?)?;
        }
        let holes = summarise(&self.testimony, self.samples, self.excused);
        let Experiment { name, paper, .. } = *experiment;
        let report =
            Report { experiment: name, paper, quick: wanted.quick, ground, holes, measured: self, plot };
        let json = serde_json::to_string_pretty(&report)?;
        save(&wanted.directory.join(format!("{name}.json")), &json)?;
        Ok(report)
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            if number.abs() >= 1_000.0 { format!("{number:.0}") } else { format!("{number:.3}") }
        }
        other => other.to_string(),
    }
}

impl Report {
    /// 0 if every check held, 1 if one failed, 3 if the run proves nothing.
    pub fn exit_status(&self) -> i32 {
        let proves_nothing =
            self.is_degraded() || self.holes.inconclusive || !self.measured.doubts.is_empty();
        match proves_nothing {
            true => 3,
            false if self.measured.checks.iter().any(Check::has_failed) => 1,
            false if self.measured.checks.iter().any(|check| check.inconclusive) => 3,
            false => 0,
        }
    }

    /// Whether hosts ran without the real-time class.
    fn is_degraded(&self) -> bool {
        self.ground.as_ref().is_some_and(|ground| !ground.real_time)
    }

    /// For people.
    pub fn text(&self) -> String {
        let Measured { compared, checks, notes, doubts, table, .. } = &self.measured;
        let compared = Table::of(["", "paper", "Punctual", "kernel"], compared, |row| {
            [&row.what, &row.paper, &row.punctual, &row.kernel].map(String::clone)
        });
        let checks = Table::of(["check", "found", "limit", ""], checks, |check| {
            [check.name.clone(), format!("{:.3}", check.value), format!("{:.3}", check.limit), check.word()]
        });
        let doubts = doubts.iter().map(|doubt| format!("doubt: {doubt}\n"));
        let notes: String = notes.iter().map(|note| format!("note: {note}\n")).chain(doubts).collect();
        format!(
            "{} ({})\n\n{}\n{}\n{}\n{notes}{} of {:.1} ms in all ({:.2} % of the CPUs' time), {} of {} excused\nplot: {}\n{}",
            self.experiment,
            self.paper,
            table.text(),
            compared.text(),
            checks.text(),
            counted(self.holes.count, "platform hole"),
            self.holes.total_ms,
            self.holes.share * 100.0,
            self.holes.excused,
            counted(self.holes.samples, "sample"),
            self.plot.display(),
            self.conclusion(),
        )
    }

    fn conclusion(&self) -> &'static str {
        match self.exit_status() {
            0 => "everything held",
            1 => "something did not hold",
            _ if self.is_degraded() => "degraded: no real-time class, nothing is guaranteed",
            _ if !self.measured.doubts.is_empty() => {
                "inconclusive: not everything was done as it is named; run it again"
            }
            _ if !self.holes.inconclusive => {
                "inconclusive: two equal sides differed too much; run it again, or in full length"
            }
            _ => "inconclusive: the platform took too much time away; run it again",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_pick_their_values() {
        let mut measured = Measured::new("x", "x, missing");
        measured.add([json!({ "x": 3 }), json!({ "inner": { "mean": 1.5 } })]);
        assert_eq!(measured.table.rows, [["3", "-"]]);
        assert_eq!(measured.points[0]["inner"]["mean"], 1.5);
    }
}

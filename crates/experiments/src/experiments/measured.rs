//! What an experiment measured, whatever its points are, and the report that is made of it.

use std::path::PathBuf;

use punctual::counted;
use serde::Serialize;
use serde_json::Value;

use super::findings::Compared;
use super::{Experiment, Wanted};
use crate::demo::outcome::Check;
use crate::excuse::{HoleSummary, summarise};
use crate::report::{Plot, Row, Table, save};
use crate::testbed::{Contender, Pair};
use crate::witness::Testimony;

const PLOT_SIZE: (u32, u32) = (860, 460);

/// What an experiment measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// What was varied.
    pub x: &'static str,
    /// One for each thing measured.
    pub points: Vec<Value>,
    /// The same for people.
    pub table: Table,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// The paper beside us.
    pub compared: Vec<Compared>,
    /// The figure, redrawn.
    pub plot: Option<Plot>,
    /// Below it.
    pub rows: Vec<Row>,
    /// Platform holes.
    pub testimony: Testimony,
    /// Samples that count.
    pub samples: u64,
    /// Of these excused by holes.
    pub excused: u64,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Why the run proves nothing, besides holes.
    pub doubts: Vec<String>,
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
    /// What it ran on; none where it was simulated.
    #[serde(flatten)]
    pub ground: Option<Ground>,
    /// Platform holes.
    pub holes: HoleSummary,
    /// What was varied.
    pub x: &'static str,
    /// One for each thing measured.
    pub points: Vec<Value>,
    /// What had to hold.
    pub checks: Vec<Check>,
    /// The paper beside us.
    pub compared: Vec<Compared>,
    /// What a reader must know besides.
    pub notes: Vec<String>,
    /// Why the run proves nothing, besides holes.
    pub doubts: Vec<String>,
    /// Where the plot is.
    pub plot: PathBuf,
    #[serde(skip)]
    table: Table,
}

/// What hosts ran on.
#[derive(Clone, Debug, Serialize)]
pub struct Ground {
    /// Whether processors ran in the real-time class; without it nothing is guaranteed.
    pub real_time: bool,
    /// What carried Punctual's links: `udp`, `xdp`, `memory`, `null-device`, or `none`.
    pub driver: &'static str,
    /// The other machine, where there was one.
    pub peer: Option<String>,
}

impl Measured {
    /// Of `x`, with a table of these columns, a comma and a blank between them.
    pub fn new(x: &'static str, columns: &str) -> Self {
        Self { x, table: Table::new(&columns.split(", ").collect::<Vec<_>>()), ..Self::default() }
    }

    /// Adds a point; its table cells are the values of the columns' names in it, flattened.
    pub fn add(&mut self, point: &impl Serialize) {
        let value = serde_json::json!(point);
        let cell = |column: &String| value.get(column).map_or("-".into(), shown);
        self.table.rows.push(self.table.head.iter().map(cell).collect());
        self.points.push(value);
    }

    /// Adds a row of what the paper measured beside what we did.
    pub fn compare(&mut self, what: &str, paper: &str, punctual: String, kernel: String) {
        self.compared.push(Compared { what: what.into(), paper: paper.into(), punctual, kernel });
    }

    /// Doubts the run where clients led their engines no more or handlers were demoted: some messages were waited for in
    /// another way than the world's name says.
    ///
    /// # Errors
    /// If a host does not say.
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
        ground: Option<Ground>,
    ) -> anyhow::Result<Report> {
        let plot = wanted.directory.join(format!("{}.svg", experiment.name));
        if let Some(drawn) = &self.plot {
            save(&plot, &drawn.svg_above(&self.rows, PLOT_SIZE)?)?;
        }
        let report = Report {
            experiment: experiment.name,
            paper: experiment.paper,
            quick: wanted.quick,
            ground,
            holes: summarise(&self.testimony, self.samples, self.excused),
            x: self.x,
            points: self.points,
            checks: self.checks,
            compared: self.compared,
            notes: self.notes,
            doubts: self.doubts,
            plot,
            table: self.table,
        };
        let json = serde_json::to_string_pretty(&report)?;
        save(&wanted.directory.join(format!("{}.json", experiment.name)), &json)?;
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
    /// 0 where everything held, 1 where something did not, 3 where the run proves nothing.
    pub fn exit_status(&self) -> i32 {
        let proves_nothing = self.is_degraded() || self.holes.inconclusive || !self.doubts.is_empty();
        match proves_nothing {
            true => 3,
            false if self.checks.iter().any(Check::has_failed) => 1,
            false if self.checks.iter().any(|check| check.inconclusive) => 3,
            false => 0,
        }
    }

    /// Whether hosts ran without the real-time class.
    fn is_degraded(&self) -> bool {
        self.ground.as_ref().is_some_and(|ground| !ground.real_time)
    }

    /// For people.
    pub fn text(&self) -> String {
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
            checks.rows.push(vec![
                check.name.clone(),
                format!("{:.3}", check.value),
                format!("{:.3}", check.limit),
                check.word(),
            ]);
        }
        let doubts = self.doubts.iter().map(|doubt| format!("doubt: {doubt}\n"));
        let notes: String = self.notes.iter().map(|note| format!("note: {note}\n")).chain(doubts).collect();
        format!(
            "{} ({})\n\n{}\n{}\n{}\n{notes}{} of {:.1} ms in all ({:.2} % of the CPUs' time), {} of {} excused\nplot: {}\n{}",
            self.experiment,
            self.paper,
            self.table.text(),
            compared.text(),
            checks.text(),
            counted(self.holes.count, "platform hole"),
            self.holes.total_ms,
            self.holes.share * 100.0,
            self.holes.excused,
            counted(self.holes.samples, "sample"),
            self.plot.display(),
            self.last_word(),
        )
    }

    fn last_word(&self) -> &'static str {
        match self.exit_status() {
            0 => "everything held",
            1 => "something did not hold",
            _ if self.is_degraded() => "degraded: no real-time class, nothing is guaranteed",
            _ if !self.doubts.is_empty() => {
                "inconclusive: not everything was done as it is named; run it again"
            }
            _ if !self.holes.inconclusive => {
                "inconclusive: two equal sides differed too much to tell; run it again, or in full length"
            }
            _ => "inconclusive: the platform took too much time away; run it again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row {
        x: u32,
        inner: Inner,
    }

    #[derive(Serialize)]
    struct Inner {
        mean: f64,
    }

    #[test]
    fn columns_pick_their_values() {
        let mut measured = Measured::new("x", "x, missing");
        measured.add(&Row { x: 3, inner: Inner { mean: 1.5 } });
        assert_eq!(measured.table.rows, [["3", "-"]]);
        assert_eq!(measured.points[0]["inner"]["mean"], 1.5);
    }
}

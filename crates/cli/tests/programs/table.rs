//! The figures of all programs.

use std::fmt;

use crate::world::Way;

/// What was measured, its unit, and the value.
pub type Figures = Vec<(String, &'static str, f64)>;

/// Bytes in a time, in MB/s.
pub fn mb_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}

struct Row {
    program: &'static str,
    what: String,
    unit: &'static str,
    values: [Option<f64>; Way::ALL.len()],
}

/// One row for each figure, one column for each way.
#[derive(Default)]
pub struct Table(Vec<Row>);

impl Table {
    pub fn add(&mut self, program: &'static str, way: Way, figures: Figures) {
        for (what, unit, value) in figures {
            let at = self.0.iter().position(|row| row.program == program && row.what == what).unwrap_or_else(
                || {
                    self.0.push(Row { program, what, unit, values: Default::default() });
                    self.0.len() - 1
                },
            );
            self.0[at].values[way as usize] = Some(value);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [plain, before_server, before_client] = Way::ALL.map(|way| way.to_string());
        writeln!(
            out,
            "{:<16}{:<32}{:<8}{plain:>14}{before_server:>24}{before_client:>24}",
            "program", "what", "unit"
        )?;
        for Row { program, what, unit, values } in &self.0 {
            let [plain, server, client] =
                values.map(|value| value.map_or_else(|| "failed".to_owned(), |value| format!("{value:.1}")));
            writeln!(out, "{program:<16}{what:<32}{unit:<8}{plain:>14}{server:>24}{client:>24}")?;
        }
        Ok(())
    }
}

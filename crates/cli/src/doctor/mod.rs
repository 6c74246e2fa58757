//! The checks of `punctual doctor`. Each check is one function that returns one finding. Checks change
//! nothing, but `--repair` restores settings that a killed daemon left changed.

pub mod configuration;
pub mod daemon;
pub mod leftovers;
mod preemption;
mod rate;
pub mod system;
mod traffic;

use serde::Serialize;

pub use punctual_host::finding::{Finding, State};

/// All findings.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether there is no problem.
    pub ok: bool,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Makes the report from these findings.
    pub fn new(findings: Vec<Finding>) -> Self {
        Self { ok: findings.iter().all(|finding| finding.state != State::Problem), findings }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Finding { name, state, found, fix } in &self.findings {
            let mark = match state {
                State::Ok => "ok     ",
                State::Note => "note   ",
                State::Problem => "PROBLEM",
            };
            text += &format!("{mark}  {name:<20}  {found}\n");
            if !fix.is_empty() {
                text += &format!("{:31}fix: {fix}\n", "");
            }
        }
        text + if self.ok {
            "this host can guarantee"
        } else {
            "this host cannot guarantee anything in this state: see PROBLEM"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_decides_and_every_fix_is_shown() {
        let note = Finding::judge("b", "odd", false, Finding::note, "do this");
        let fine =
            Report::new(vec![Finding::judge("a", "fine", true, Finding::problem, "never"), note.clone()]);
        assert!(fine.ok && fine.text().contains("fix: do this") && !fine.text().contains("never"));
        let bad = Report::new(vec![note, Finding::problem("c", "bad", "do that")]);
        assert!(!bad.ok && bad.text().contains("PROBLEM  c") && bad.text().contains("fix: do that"));
    }
}

//! Finds the smallest part of a plan that still fails in the same way: delta debugging (Zeller and
//! Hildebrandt 2002) over its channels, transfers, faults and hosts, and a shorter time.
//!
//! Items are left out of the plan, not of the dice: the rest of the run may differ from the original, so
//! every candidate is run, and only one that shows the same violation counts.

use std::collections::BTreeSet;

use crate::batch::caught;
use crate::cut::{Cut, FrameFault};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::scenario::{Scenario, ScenarioError};

/// Runs that a search takes at most.
pub const RUNS_MAX: u32 = 2_000;

/// The smallest plan that was found.
#[derive(Clone, Debug)]
pub struct Minimum {
    /// The remaining part.
    pub cut: Cut,
    /// The plan.
    pub plan: Scenario,
    /// Its outcome.
    pub outcome: Outcome,
    /// Number of plans that were run.
    pub runs: u32,
}

/// Result of a search.
#[derive(Clone, Debug)]
pub enum Found {
    /// The whole plan violates nothing.
    Nothing(Box<Outcome>),
    /// The smallest plan with the violation of the whole one.
    Smallest(Box<Minimum>),
}

/// Searches the smallest plan of `seed` that shows the first violation of the whole plan. `progress` gets
/// each smaller plan, and the number of runs.
///
/// # Errors
/// If the topology or a configuration cannot be used.
pub fn minimise(
    seed: u64,
    options: &Options,
    progress: impl FnMut(&Cut, u32),
) -> Result<Found, ScenarioError> {
    let whole = Scenario::draw(seed, options)?;
    let outcome = caught(seed, || crate::run_scenario(seed, whole.clone(), options))?;
    let Some(first) = outcome.violations.first() else { return Ok(Found::Nothing(outcome.into())) };
    let wanted = kind(&first.what);
    let mut search = Search { seed, options, whole: &whole, wanted, runs: 1, progress, best: Cut::default() };
    search.run();
    let (cut, runs) = (search.best, search.runs);
    let mut plan = whole.clone();
    cut.apply(&mut plan);
    let outcome = caught(seed, || crate::run_scenario(seed, plan.clone(), options))?;
    Ok(Found::Smallest(Minimum { cut, plan, outcome, runs }.into()))
}

/// The kind of a violation, without the parts that differ from run to run: numbers, times, names, lists.
pub fn kind(what: &str) -> String {
    let mut depth = 0_u32;
    let mut text = String::new();
    for letter in what.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    let words = text.split_whitespace().map(|word| word.trim_end_matches([':', ',', ';', '.']));
    let unit = |word: &str| matches!(word, "ns" | "us" | "ms" | "s" | "B" | "ppm" | "");
    let words = words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()) && !unit(word));
    words.collect::<Vec<_>>().join(" ")
}

struct Search<'a, P> {
    seed: u64,
    options: &'a Options,
    whole: &'a Scenario,
    wanted: String,
    runs: u32,
    progress: P,
    best: Cut,
}

impl<P: FnMut(&Cut, u32)> Search<'_, P> {
    fn run(&mut self) {
        loop {
            let before = self.best.clone();
            self.shorten();
            self.lists();
            self.hosts();
            if self.best == before || self.runs >= RUNS_MAX {
                return;
            }
        }
    }

    /// Accepts `cut` if it shows the violation too.
    fn take(&mut self, cut: Cut) -> bool {
        if self.runs >= RUNS_MAX {
            return false;
        }
        let mut plan = self.whole.clone();
        cut.apply(&mut plan);
        if plan.hosts.is_empty() {
            return false;
        }
        self.runs += 1;
        let outcome = caught(self.seed, || crate::run_scenario(self.seed, plan, self.options));
        let same = outcome.is_ok_and(|o| o.violations.iter().any(|v| kind(&v.what) == self.wanted));
        if same {
            self.best = cut;
            (self.progress)(&self.best, self.runs);
        }
        same
    }

    fn shorten(&mut self) {
        let planned = self.whole.times.traffic().0 / 1_000_000;
        let mut traffic = self.best.traffic_ms.unwrap_or(planned);
        while traffic > 1 && self.take(Cut { traffic_ms: Some(traffic / 2), ..self.best.clone() }) {
            traffic /= 2;
        }
    }

    fn lists(&mut self) {
        let plan = self.whole;
        self.list(plan.floods.len(), |cut| &mut cut.floods);
        self.list(plan.schedule.len(), |cut| &mut cut.schedule);
        self.list(plan.channels.len(), |cut| &mut cut.channels);
        self.list(plan.requests.len(), |cut| &mut cut.requests);
        self.list(plan.tcp.connections.len(), |cut| &mut cut.connections);
        let frames = self.best.frames.clone().unwrap_or_else(|| {
            let (mut faults, mut of_tcp) = (plan.faults, plan.tcp.faults);
            let mut chance = |fault: &FrameFault| fault.chance(&mut faults).max(fault.chance(&mut of_tcp)).0;
            FrameFault::ALL.into_iter().filter(|fault| chance(fault) > 0).collect()
        });
        for fault in &frames {
            let mut left = self.best.frames.clone().unwrap_or_else(|| frames.clone());
            left.retain(|other| other != fault);
            self.take(Cut { frames: Some(left), ..self.best.clone() });
        }
    }

    fn hosts(&mut self) {
        self.list(self.whole.hosts.len(), |cut| &mut cut.hosts);
    }

    /// Leaves out as many items of one list as possible: halves first, single items at the end.
    fn list(&mut self, len: usize, of: impl Fn(&mut Cut) -> &mut Option<Vec<usize>>) {
        let mut kept = of(&mut self.best).clone().unwrap_or_else(|| (0..len).collect());
        let mut chunk = kept.len();
        while chunk > 0 {
            let mut at = 0;
            while at < kept.len() {
                let without: BTreeSet<usize> = kept.iter().skip(at).take(chunk).copied().collect();
                let left: Vec<usize> = kept.iter().copied().filter(|item| !without.contains(item)).collect();
                let mut cut = self.best.clone();
                *of(&mut cut) = Some(left.clone());
                if self.take(cut) {
                    kept = left;
                } else {
                    at += chunk;
                }
            }
            chunk /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_of_different_kinds_are_distinguished() {
        let late = "1404.200 ms: channel 3 (h0 to h2, Greedy): message 17 is late by 3.2 ms: due 1401.0 ms";
        let later = "99.1 ms: channel 12 (h1 to h5, Bursts): message 4 is late by 310 ns: due 98.0 ms";
        assert_eq!(kind(late), kind(later));
        assert!(kind(late).contains("is late by"), "{}", kind(late));
        assert_ne!(kind(late), kind("2.0 ms: channel 3 (h0 to h2, Greedy): #5 altered at byte 9"));
    }
}

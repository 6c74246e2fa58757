//! The result for all sets together.

use std::collections::BTreeMap;
use std::fmt;

use crate::opinion::{Gap, Opinion};
use crate::sets::Kind;

/// A median of bound by worst response beyond which a policy's bounds would be far too weak.
const RATIO_MAX: f64 = 2.0;

#[derive(Debug, Default)]
struct Row {
    sets: u64,
    complete: u64,
    least: Vec<Gap>,
    nearest: Vec<Gap>,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub searched: u64,
    pub complete: u64,
    channels: u64,
    states: u64,
    /// Rows of sets that were searched completely.
    rows: BTreeMap<(&'static str, Kind), Row>,
    /// For each set of soft channels, the parts of their bounds that they needed.
    pub soft: Vec<f64>,
    soft_channels: u64,
    soft_messages: u64,
    soft_misses: u64,
    pub broken: Vec<String>,
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Medians of ticks and of ratios.
fn medians(gaps: &[Gap]) -> Option<(f64, f64)> {
    Some((median(gaps.iter().map(|gap| gap.ticks))?, median(gaps.iter().map(|gap| gap.ratio))?))
}

impl Tally {
    pub fn add(&mut self, one: &Opinion) {
        self.broken.extend(one.broken.iter().chain(&one.refuted).cloned());
        if let Some(searched) = &one.searched {
            self.searched += 1;
            self.channels += searched.channels as u64;
            self.states += searched.states as u64;
            self.complete += u64::from(searched.complete);
            let row = self.rows.entry((searched.policy, searched.kind)).or_default();
            row.sets += 1;
            if searched.complete {
                row.complete += 1;
                row.least.extend(searched.least);
                row.nearest.extend(searched.nearest);
            }
        }
        if let Some(soft) = &one.soft {
            self.soft.push(soft.needed);
            self.soft_channels += soft.soft_channels as u64;
            self.soft_messages += soft.messages;
            self.soft_misses += soft.misses;
        }
    }

    /// Policies and kinds of stages whose bounds lie far above the worst that was found.
    #[cfg_attr(feature = "mutations", allow(dead_code))]
    pub fn far(&self) -> Vec<(&'static str, Kind)> {
        let is_far = |row: &Row| medians(&row.least).is_none_or(|(_, ratio)| ratio > RATIO_MAX);
        self.rows.iter().filter(|(_, row)| is_far(row)).map(|(&key, _)| key).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { searched, complete, channels, states, .. } = self;
        writeln!(
            f,
            "{searched} stages with {channels} channels, {complete} of them in all release patterns; {states} states; \
             {} wrong",
            self.broken.len()
        )?;
        writeln!(f, "of those, bound over longest response, in ticks and as a ratio, medians:")?;
        for ((policy, kind), row) in &self.rows {
            let printed = |gaps: &[Gap]| match medians(gaps) {
                Some((ticks, ratio)) => format!("{ticks:.2} {ratio:.2}"),
                None => "-".into(),
            };
            writeln!(
                f,
                "  {policy:14} {:11} {:6} of {:6} sets: of who came last {}, of the nearest in a set {}",
                format!("{kind:?}"),
                row.complete,
                row.sets,
                printed(&row.least),
                printed(&row.nearest)
            )?;
        }
        let needed = median(self.soft.iter().copied()).unwrap_or_default();
        write!(
            f,
            "{} stages with {} soft channels: {} of {} messages missed; all but what may miss needed {:.0} % of its bound \
             in the median, {:.0} % at most",
            self.soft.len(),
            self.soft_channels,
            self.soft_misses,
            self.soft_messages,
            needed * 100.0,
            self.soft.iter().copied().fold(0.0, f64::max) * 100.0
        )
    }
}

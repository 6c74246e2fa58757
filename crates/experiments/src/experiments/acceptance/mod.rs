//! How many channels fit over a path of stages, by load, policy and the way in which the leftover of D is shared among
//! the hops (HARTS 3.2; CLIPS leaves it to each hop). Pure computation: no host takes part, and each run gives the same.

mod network;

use network::{BoundChoice, Shape, accepted};
use punctual_analysis::Admission;
use punctual_analysis::sharing::Sharing;
use serde_json::json;

use super::{Conditions, Measured};
use crate::report::{Legend, Plot, Row, Series};

const STAGES: [usize; 2] = [3, 8];
const LOADS: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 1.0];
const POLICIES: [Admission; 4] =
    [Admission::EDF, Admission::D_ORDER, Admission::FIXED_PRIORITY, Admission::RMDP];
/// The varied quantity.
const LOAD: &str = "load of the fullest stage that the channels ask for";
/// Minimum result of the chosen way, as a fraction of the search's.
const OF_SEARCH_MIN: f64 = 0.9;

/// All channels of all sets of a kind.
#[derive(Clone, Copy, Default)]
struct Sum {
    accepted: u64,
    offered: u64,
}

impl Sum {
    fn ratio(self) -> f64 {
        self.accepted as f64 / self.offered.max(1) as f64
    }
}

fn choices() -> impl Iterator<Item = BoundChoice> {
    Sharing::ALL.into_iter().map(BoundChoice::Shared).chain([BoundChoice::Search])
}

fn name(choice: BoundChoice) -> &'static str {
    match choice {
        BoundChoice::Shared(sharing) => sharing.name(),
        BoundChoice::Search => "search",
    }
}

/// All sets of all shapes at each load.
fn sums(policy: Admission, choice: BoundChoice, stages: usize, sets: u64) -> Vec<Sum> {
    let at = |&load: &f64| {
        let all = Shape::ALL.into_iter().flat_map(|shape| (0..sets).map(move |seed| (shape, seed)));
        all.fold(Sum::default(), |sum, (shape, seed)| {
            let (taken, asked) = accepted(policy, choice, shape, stages, load, seed);
            Sum { accepted: sum.accepted + taken, offered: sum.offered + asked }
        })
    };
    LOADS.iter().map(at).collect()
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let sets = conditions.pick(1, 4, 24);
    let mut measured =
        Measured::new(LOAD, "policy, stages, sharing, load, accepted, offered, ratio, of_search");
    let mut plots = POLICIES.map(|policy| of_policy(policy, sets, &mut measured, conditions)).into_iter();
    measured.plot = plots.next();
    measured.rows = plots.map(Row::Plot).collect();
    measured.compare(
        "leftover of D shared evenly, against all to the bottleneck",
        "not said",
        "see the points: it depends on the path, and both are below what signalling does",
        "-",
    );
    Ok(measured)
}

/// Everything under one policy, and its plot.
fn of_policy(policy: Admission, sets: u64, measured: &mut Measured, conditions: &Conditions) -> Plot {
    let policy_name = policy.name;
    let mut series = Vec::new();
    for stages in STAGES {
        let search = sums(policy, BoundChoice::Search, stages, sets);
        for (colour, choice) in choices().enumerate() {
            let name = name(choice);
            conditions.progress(format_args!("{policy_name}, {stages} stages, {name}"));
            let found = if choice == BoundChoice::Search {
                search.clone()
            } else {
                sums(policy, choice, stages, sets)
            };
            for ((load, one), reference) in LOADS.iter().zip(&found).zip(&search) {
                let of_search = one.ratio() / reference.ratio().max(f64::MIN_POSITIVE);
                measured.add([json!({
                    "policy": policy_name, "stages": stages, "sharing": name, "load": load,
                    "accepted": one.accepted, "offered": one.offered, "ratio": one.ratio(),
                    "of_search": of_search,
                })]);
            }
            let is_chosen = choice == BoundChoice::Shared(Sharing::default());
            if is_chosen {
                let all = |sums: &[Sum]| sums.iter().map(|sum| sum.accepted).sum::<u64>() as f64;
                let check = format!("{policy_name}, {stages} stages: {name} against the search");
                measured.at_least(check, all(&found) / all(&search), OF_SEARCH_MIN);
            }
            if stages == 8 || is_chosen {
                let points = LOADS.iter().zip(&found).map(|(&load, sum)| (load, sum.ratio()));
                let curve = Series::new(format!("{name}, {stages} stages"), colour, points);
                series.push(curve.dashed(stages == 3));
            }
        }
    }
    let title = format!("Channels accepted under {policy_name}, by load and way of sharing the leftover");
    Plot::linear(&title, LOAD, "share of channels accepted", series).with_legend(Legend::LowerLeft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What signalling does reaches 0.9 of a search that sees the whole path, whatever the path is like, and of
    /// the best of all ways for each set, known afterwards.
    #[test]
    fn the_way_of_sharing_reaches_nine_tenths_of_the_search() {
        for stages in STAGES {
            for shape in Shape::ALL {
                let (mut chosen, mut search, mut best, mut even) = (0, 0, 0, 0);
                for seed in 0..8 {
                    let of: Vec<(BoundChoice, u64)> = choices()
                        .map(|choice| (choice, accepted(Admission::EDF, choice, shape, stages, 0.7, seed).0))
                        .collect();
                    let by = |wanted| {
                        of.iter().find(|(choice, _)| *choice == wanted).map_or(0, |(_, taken)| *taken)
                    };
                    chosen += by(BoundChoice::Shared(Sharing::default()));
                    even += by(BoundChoice::Shared(Sharing::Even));
                    search += by(BoundChoice::Search);
                    best += of.iter().map(|(_, taken)| *taken).max().unwrap_or(0);
                }
                println!(
                    "{stages} stages, {shape:?}: chosen {chosen}, search {search}, best afterwards {best}, evenly {even}"
                );
                assert!(
                    chosen as f64 >= OF_SEARCH_MIN * search as f64,
                    "{stages} {shape:?}: {chosen} {search}"
                );
                assert!(chosen as f64 >= OF_SEARCH_MIN * best as f64, "{stages} {shape:?}: {chosen} {best}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same() {
        let once = || accepted(Admission::RMDP, BoundChoice::Search, Shape::Mixed, 3, 0.6, 5);
        assert_eq!(once(), once());
        assert_ne!(once(), accepted(Admission::RMDP, BoundChoice::Search, Shape::Mixed, 3, 0.6, 6));
    }
}

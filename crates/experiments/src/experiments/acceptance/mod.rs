//! How many channels fit over a path of stages, by load, policy and the way in which the leftover of D is shared among
//! the hops (HARTS 3.2; CLIPS leaves it to each hop). Pure computation: no host takes part, and each run gives the same.

mod network;

use network::{Shape, Way, accepted};
use punctual_analysis::Admission;
use punctual_analysis::sharing::Sharing;
use serde::Serialize;

use super::{Conditions, Measured};
use crate::demo::outcome::Check;
use crate::report::{Axis, Legend, Plot, Row, Series};

const STAGES: [usize; 2] = [3, 8];
const LOADS: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 1.0];
const POLICIES: [Admission; 4] =
    [Admission::EDF, Admission::D_ORDER, Admission::FIXED_PRIORITY, Admission::RMDP];
/// What the chosen way must reach of the search.
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

#[derive(Serialize)]
struct Point {
    policy: &'static str,
    stages: usize,
    sharing: &'static str,
    load: f64,
    accepted: u64,
    offered: u64,
    ratio: f64,
    of_search: f64,
}

fn ways() -> impl Iterator<Item = Way> {
    Sharing::ALL.into_iter().map(Way::Shared).chain([Way::Search])
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Shared(sharing) => sharing.name(),
        Way::Search => "search",
    }
}

fn sum(policy: Admission, way: Way, shapes: &[Shape], stages: usize, load: f64, sets: u64) -> Sum {
    let mut sum = Sum::default();
    for &shape in shapes {
        for seed in 0..sets {
            let (taken, asked) = accepted(policy, way, shape, stages, load, seed);
            sum.accepted += taken;
            sum.offered += asked;
        }
    }
    sum
}

/// Runs it.
pub fn run(conditions: &Conditions) -> anyhow::Result<Measured> {
    let sets = match conditions.smoke {
        true => 1,
        false if conditions.quick => 4,
        false => 24,
    };
    let mut measured = Measured::new(
        "load of the fullest stage that the channels ask for",
        "policy, stages, sharing, load, accepted, offered, ratio, of_search",
    );
    let mut plots = Vec::new();
    for policy in POLICIES {
        let policy_name = policy.name;
        let mut series = Vec::new();
        for stages in STAGES {
            let search: Vec<Sum> =
                LOADS.iter().map(|&load| sum(policy, Way::Search, &Shape::ALL, stages, load, sets)).collect();
            for (colour, way) in ways().enumerate() {
                conditions.progress(format_args!("{policy_name}, {stages} stages, {}", name(way)));
                let found: Vec<Sum> = match way {
                    Way::Search => search.clone(),
                    _ => {
                        LOADS.iter().map(|&load| sum(policy, way, &Shape::ALL, stages, load, sets)).collect()
                    }
                };
                for ((&load, one), reference) in LOADS.iter().zip(&found).zip(&search) {
                    measured.add(&Point {
                        policy: policy_name,
                        stages,
                        sharing: name(way),
                        load,
                        accepted: one.accepted,
                        offered: one.offered,
                        ratio: one.ratio(),
                        of_search: one.ratio() / reference.ratio().max(f64::MIN_POSITIVE),
                    });
                }
                let all = |sums: &[Sum]| sums.iter().map(|sum| sum.accepted).sum::<u64>() as f64;
                if way == Way::Shared(Sharing::default()) {
                    measured.checks.push(Check::at_least(
                        format!("{policy_name}, {stages} stages: {} against the search", name(way)),
                        all(&found) / all(&search),
                        OF_SEARCH_MIN,
                    ));
                }
                if stages == 8 || way == Way::Shared(Sharing::default()) {
                    series.push(curve(format!("{}, {stages} stages", name(way)), colour, stages, &found));
                }
            }
        }
        plots.push(plot(policy_name, series));
    }
    measured.compare(
        "leftover of D shared evenly, against all to the bottleneck",
        "not said",
        "see the points: it depends on the path, and both are below what signalling does".into(),
        "-".into(),
    );
    let mut plots = plots.into_iter();
    measured.plot = plots.next();
    measured.rows = plots.map(Row::Plot).collect();
    Ok(measured)
}

fn curve(name: String, colour: usize, stages: usize, found: &[Sum]) -> Series {
    let points = LOADS.iter().zip(found).map(|(&load, sum)| (load, sum.ratio()));
    Series::new(name, colour, points).dashed(stages == 3)
}

fn plot(policy: &str, series: Vec<Series>) -> Plot {
    Plot::new(
        format!("Channels accepted under {policy}, by load and way of sharing the leftover"),
        Axis::linear("load of the fullest stage that the channels ask for"),
        Axis::linear("share of channels accepted"),
        series,
    )
    .with_legend(Legend::LowerLeft)
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
                    let of: Vec<(Way, u64)> = ways()
                        .map(|way| (way, accepted(Admission::EDF, way, shape, stages, 0.7, seed).0))
                        .collect();
                    let by =
                        |wanted| of.iter().find(|(way, _)| *way == wanted).map_or(0, |(_, taken)| *taken);
                    chosen += by(Way::Shared(Sharing::default()));
                    even += by(Way::Shared(Sharing::Even));
                    search += by(Way::Search);
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
        let once = || accepted(Admission::RMDP, Way::Search, Shape::Mixed, 3, 0.6, 5);
        assert_eq!(once(), once());
        assert_ne!(once(), accepted(Admission::RMDP, Way::Search, Shape::Mixed, 3, 0.6, 6));
    }
}

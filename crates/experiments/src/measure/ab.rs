//! Is B slower than A, or is it noise? Blocks of A, B and A again (A') in turns, in one run.
//!
//! The difference between two identical sides is the machine's noise: a ratio of B to A within the half-width
//! of A'/A is not significant. The half-width comes from a bootstrap over *rounds* (one block of each side):
//! the samples of one block share the state of the machine, so they are drawn together.

use punctual_analysis::Nanos;
use serde::Serialize;

use super::samples::{Moments, Sample, Statistic};
use crate::excuse::Excuses;

/// Resamplings of the bootstrap.
const RESAMPLINGS: usize = 400;
/// Seed of its random numbers: the same run gives the same figures.
const SEED: u64 = 0x5eed_ab5e;
/// Share of the resampled ratios that is within the half-width.
const CONFIDENCE: f64 = 0.95;

/// The measurements of one side: a block per round.
#[derive(Clone, Debug, Default)]
pub struct Side {
    blocks: Vec<Vec<Sample>>,
}

/// A side's figures without what platform holes explain, and with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Samples without a hole.
    #[serde(flatten)]
    pub clean: Moments,
    /// Samples in which one does.
    pub excused: u64,
    /// All of them.
    pub with_holes: Moments,
}

/// A ratio of two sides, and its accuracy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ratio {
    /// B / A.
    pub ratio: f64,
    /// Samples of the side that has fewer, without those that holes excuse.
    pub samples: u64,
    /// A' / A: one, but for the noise.
    pub identical: f64,
    /// 95 of 100 resampled A' / A are within this distance of one.
    pub half_width: f64,
}

impl Side {
    /// A side with a single block.
    pub fn of(block: Vec<Sample>) -> Self {
        Self { blocks: vec![block] }
    }

    /// Adds the block of the next round.
    pub fn push(&mut self, block: Vec<Sample>) {
        self.blocks.push(block);
    }

    /// Every sample, in order.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.blocks.iter().flatten()
    }

    /// What no hole touches, in order.
    pub fn clean_spans(&self, excuses: &Excuses) -> impl Iterator<Item = Nanos> {
        self.samples().filter(|sample| !sample.is_excused(excuses)).map(|sample| sample.span)
    }

    /// Figures of the side.
    pub fn figures(&self, excuses: &Excuses) -> Figures {
        let clean = self.clean(excuses).concat();
        let all: Vec<f64> = self.samples().map(|sample| sample.span.0 as f64).collect();
        let excused = (all.len() - clean.len()) as u64;
        Figures { clean: Moments::of(clean), excused, with_holes: Moments::of(all) }
    }

    /// Block by block, what no hole touched, in ns.
    fn clean(&self, excuses: &Excuses) -> Vec<Vec<f64>> {
        let block = |block: &Vec<Sample>| {
            let clean = block.iter().filter(|sample| !sample.is_excused(excuses));
            clean.map(|sample| sample.span.0 as f64).collect()
        };
        self.blocks.iter().map(block).collect()
    }
}

/// Compares B with A by `statistic`; `again` is A', measured in the same rounds.
pub fn compare(a: &Side, b: &Side, again: &Side, statistic: Statistic, excuses: &Excuses) -> Ratio {
    let [a, b, again] = [a, b, again].map(|side| side.clean(excuses));
    let of = |blocks: &[Vec<f64>]| statistic.of(&mut blocks.concat());
    let base = of(&a);
    Ratio {
        ratio: of(&b) / base,
        samples: fewer(&a, &b),
        identical: of(&again) / base,
        half_width: half_width(&a, &again, statistic),
    }
}

/// Compares B with A round by round: the median over the rounds of the ratio of `statistic` of B's block to
/// that of A's. Slow changes over a run affect all blocks of a round alike and cancel out; the half-width is
/// that of the same median of A' to A, with its rounds resampled.
pub fn compare_rounds(a: &Side, b: &Side, again: &Side, statistic: Statistic, excuses: &Excuses) -> Ratio {
    let [a, b, again] = [a, b, again].map(|side| side.clean(excuses));
    let ratios = |over: &[Vec<f64>]| -> Vec<f64> {
        let both = over.iter().zip(&a).filter(|(over, under)| !over.is_empty() && !under.is_empty());
        both.map(|(over, under)| statistic.of(&mut over.clone()) / statistic.of(&mut under.clone())).collect()
    };
    let (mut found, mut identical) = (ratios(&b), ratios(&again));
    if found.is_empty() || identical.is_empty() {
        return Ratio { ratio: f64::NAN, samples: 0, identical: f64::NAN, half_width: f64::INFINITY };
    }
    let mut random = Random(SEED);
    let mut drawn = vec![0.0; identical.len()];
    let half_width = width_of(|| {
        drawn.iter_mut().for_each(|one| *one = identical[random.below(identical.len())]);
        Statistic::Median.of(&mut drawn)
    });
    let median = |ratios: &mut [f64]| Statistic::Median.of(ratios);
    Ratio { ratio: median(&mut found), samples: fewer(&a, &b), half_width, identical: median(&mut identical) }
}

/// Samples of the side that has fewer.
fn fewer(a: &[Vec<f64>], b: &[Vec<f64>]) -> u64 {
    let [a, b] = [a, b].map(|blocks| blocks.iter().map(Vec::len).sum::<usize>());
    a.min(b) as u64
}

/// The difference of two identical sides, below which 95 of 100 resamplings of their rounds are. Both are
/// drawn from all blocks of the two: they are one population.
fn half_width(a: &[Vec<f64>], again: &[Vec<f64>], statistic: Statistic) -> f64 {
    let rounds: Vec<&Vec<f64>> = a.iter().chain(again).filter(|block| !block.is_empty()).collect();
    if rounds.is_empty() {
        return f64::INFINITY;
    }
    let mut random = Random(SEED);
    let mut pool = Vec::new();
    let mut draw = || {
        pool.clear();
        for _ in 0..rounds.len().div_ceil(2) {
            pool.extend_from_slice(rounds[random.below(rounds.len())]);
        }
        statistic.of(&mut pool)
    };
    width_of(|| draw() / draw())
}

/// How close to one 95 of 100 draws are.
fn width_of(mut draw: impl FnMut() -> f64) -> f64 {
    let mut off: Vec<f64> = (0..RESAMPLINGS).map(|_| (draw() - 1.0).abs()).collect();
    off.sort_by(f64::total_cmp);
    off[((RESAMPLINGS as f64 * CONFIDENCE) as usize).min(RESAMPLINGS - 1)]
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let word = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(word) * limit as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::{Instant, Ppm};

    use super::*;
    use crate::excuse::Hole;

    /// Rounds of 200 samples: a base with a round's own mood (up to `mood`) and a sawtooth within.
    fn side(base: u64, mood: u64, seed: u64) -> Side {
        let mut random = Random(seed);
        let mut side = Side::default();
        for round in 0..40u64 {
            let shift = random.below(mood as usize + 1) as u64;
            let block = (0..200u64).map(|n| Sample {
                begun: Instant((round * 200 + n) * 1_000_000),
                span: Nanos(base + shift + n % 7),
            });
            side.push(block.collect());
        }
        side
    }

    /// Whether the ratio distinguishes B from A at all.
    fn is_significant(ratio: &Ratio) -> bool {
        (ratio.ratio - 1.0).abs() > ratio.half_width
    }

    fn none() -> Excuses {
        Excuses::new(&[], Ppm(0))
    }

    #[test]
    fn equal_sides_show_no_difference() {
        let (a, again, b) = (side(50_000, 5_000, 1), side(50_000, 5_000, 2), side(50_000, 5_000, 3));
        for statistic in [Statistic::Mean, Statistic::Median] {
            let ratio = compare(&a, &b, &again, statistic, &none());
            assert!(!is_significant(&ratio), "{statistic:?}: {ratio:?}");
            assert!(ratio.half_width < 0.03, "{ratio:?}");
        }
    }

    #[test]
    fn a_true_difference_shows_through_the_noise() {
        let (a, again, b) = (side(50_000, 5_000, 1), side(50_000, 5_000, 2), side(55_000, 5_000, 3));
        let ratio = compare(&a, &b, &again, Statistic::Mean, &none());
        assert!(is_significant(&ratio) && (1.05..1.15).contains(&ratio.ratio), "{ratio:?}");
    }

    #[test]
    fn a_restless_machine_widens_the_width() {
        let width = |mood| {
            let (a, again) = (side(50_000, mood, 1), side(50_000, mood, 2));
            compare(&a, &a, &again, Statistic::Mean, &none()).half_width
        };
        assert!(width(20_000) > 2.0 * width(2_000));
        assert_eq!(width(0), 0.0);
    }

    #[test]
    fn round_by_round_a_slow_mood_cancels_out() {
        // The same moods on all sides: a machine that is slow for a while.
        let (a, again, b) = (side(50_000, 20_000, 1), side(50_000, 20_000, 1), side(50_500, 20_000, 1));
        let ratio = compare_rounds(&a, &b, &again, Statistic::Median, &none());
        assert!(is_significant(&ratio) && (1.005..1.012).contains(&ratio.ratio), "{ratio:?}");
        assert!(ratio.half_width < 0.001, "{ratio:?}");
        let other = compare_rounds(&a, &b, &side(50_000, 20_000, 2), Statistic::Median, &none());
        assert!(!is_significant(&other), "moods of their own: {other:?}");
        let nothing = compare_rounds(&a, &b, &Side::default(), Statistic::Median, &none());
        assert!(nothing.half_width.is_infinite() && nothing.ratio.is_nan());
    }

    #[test]
    fn holes_are_counted_apart_and_both_figures_shown() {
        let mut a = side(50_000, 0, 1);
        let late = Sample { begun: Instant(10_000_000_000), span: Nanos(9_000_000) };
        a.push(vec![late]);
        let hole = Hole { start: Instant(10_001_000_000), end: Instant(10_008_000_000) };
        let figures = a.figures(&Excuses::new(&[hole], Ppm(0)));
        assert_eq!(figures.excused, 1);
        assert!(figures.clean.max_us < 51.0 && figures.with_holes.max_us == 9_000.0, "{figures:?}");
    }

    #[test]
    fn nothing_measured_is_no_proof() {
        let ratio = compare(&Side::default(), &Side::default(), &Side::default(), Statistic::Mean, &none());
        assert!(ratio.half_width.is_infinite() && !is_significant(&ratio));
    }
}

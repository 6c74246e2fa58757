//! The windows in which soft messages may lack time.

use alloc::vec::Vec;

use crate::chernoff::{Variables, tail};
use crate::multiset::Multiset;
use crate::mutation::{Mutation, active};
use crate::policy::Demand;
use crate::stage::StageModel;
use crate::statistical::Soft;
use crate::units::Nanos;

/// Each window is longer than the previous one by this part.
const STEP: u64 = 16;
/// Most windows: with such steps 695 of them reach from a nanosecond to the longest time.
const WINDOWS_MAX: usize = 700;

/// Hard channels that take the same time from soft ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HardKind {
    cost: Nanos,
    period: Nanos,
    /// Largest shift of arrivals: release latency and early service.
    jitter: Nanos,
}

impl HardKind {
    pub(super) fn of(demand: &Demand) -> Self {
        let (cost, period) = (demand.cost, demand.period.max(Nanos(1)));
        let early = if active(Mutation::HardEarlyNotCounted) { Nanos::ZERO } else { demand.early };
        Self { cost, period, jitter: demand.release_latency + early }
    }

    /// The largest work that may arrive in a window, its ends included.
    pub(super) fn within(&self, window: Nanos) -> Nanos {
        self.cost * ((window + self.jitter).0 / self.period.0 + 1)
    }
}

/// Soft channels of the same demand and bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SoftKind {
    /// d - r: the shortest window in which a first message may be due.
    first: Nanos,
    cost: Nanos,
    period: Nanos,
    soft: Soft,
}

impl SoftKind {
    pub(super) fn of(demand: &Demand, soft: Soft, bound: Nanos) -> Self {
        Self {
            first: rounded(bound - demand.release_latency),
            cost: demand.cost,
            period: demand.period.max(Nanos(1)),
            soft,
        }
    }

    /// Most messages that are due in a window.
    fn most(&self, window: Nanos) -> u64 {
        let Some(arrivals) = window.checked_sub(self.first) else { return 0 };
        let peak = arrivals.0 / self.period.0 + 1;
        peak.min((arrivals + self.soft.mean_over).0 / self.soft.mean_period.0.max(1) + 1)
    }

    /// The time that they take as a random variable; `None` if nothing is due.
    fn variables(&self, count: u32, window: Nanos) -> Option<Variables> {
        let most = self.most(window);
        let arrivals = window.checked_sub(self.first)?;
        let mean = (arrivals + self.soft.jitter).0 as f64 / self.soft.mean_period.0.max(1) as f64;
        Some(Variables {
            count: f64::from(count),
            most: self.cost.0 as f64 * most as f64,
            mean_share: (mean / most as f64).min(1.0),
        })
    }
}

/// Down to five binary digits, so that channels of one contract and much the same bound are of one kind.
fn rounded(bound: Nanos) -> Nanos {
    let dropped = bound.0.checked_ilog2().unwrap_or(0).saturating_sub(4);
    Nanos(bound.0 >> dropped << dropped)
}

/// The largest term that may be left out: such terms of all `windows` are at most a hundredth of the
/// strictest ratio.
pub(super) fn negligible(strictest: f64, windows: usize) -> f64 {
    strictest / (100 * windows) as f64
}

/// All windows of a stage's soft channels.
pub(super) struct Windows<'a> {
    model: &'a StageModel,
    hard: Vec<(HardKind, u32)>,
    soft: Vec<(SoftKind, u32)>,
}

impl<'a> Windows<'a> {
    pub(super) fn new(model: &'a StageModel, hard: &Multiset<HardKind>, soft: &Multiset<SoftKind>) -> Self {
        let hard = hard.counts().iter().map(|(&kind, &count)| (kind, count)).collect();
        Self { model, hard, soft: soft.counts().iter().map(|(&kind, &count)| (kind, count)).collect() }
    }

    pub(super) fn add_hard(&mut self, kind: HardKind) {
        self.hard.push((kind, 1));
    }

    pub(super) fn add_soft(&mut self, kind: SoftKind) {
        self.soft.push((kind, 1));
    }

    /// Whether each soft channel misses at most with its ratio: the sum over the windows that may contain its
    /// message, the longest first.
    pub(super) fn keep_all(&self) -> bool {
        let Some(edges) = self.edges() else { return false };
        let mut by_first: Vec<_> =
            self.soft.iter().map(|(kind, _)| (kind.first, kind.soft.miss_ratio)).collect();
        by_first.sort_unstable();
        let strictest = by_first.iter().map(|(_, ratio)| ratio.as_f64()).fold(1.0, f64::min);
        let negligible = negligible(strictest, edges.len());
        let (mut sum, mut theta) = (0.0, 0.0);
        let mut variables = Vec::with_capacity(self.soft.len());
        for edge in edges.windows(2).rev() {
            sum += self.probability((edge[0], edge[1]), negligible, &mut variables, &mut theta);
            // Take the channels whose first window this is, or the strictest of longer ones.
            while let Some(&(_, ratio)) = by_first.last().filter(|(first, _)| *first >= edge[0]) {
                if sum > ratio.as_f64() {
                    return false;
                }
                by_first.pop();
            }
            if sum > 1.0 {
                return false;
            }
        }
        by_first.iter().all(|&(_, ratio)| sum <= ratio.as_f64())
    }

    /// The edges of the windows: from the shortest in which a message is due to the length from which on even
    /// all peaks fit; `None` if there is no such length.
    fn edges(&self) -> Option<Vec<Nanos>> {
        let shortest = self.soft.iter().map(|(kind, _)| kind.first).min()?.max(Nanos(1));
        let longest = self.longest()?;
        let mut edges = Vec::from([shortest]);
        let mut at = shortest;
        while at < longest {
            at += Nanos(at.0 / STEP + 1);
            edges.push(at);
        }
        debug_assert!(edges.len() <= WINDOWS_MAX, "{} windows", edges.len());
        // Add one more edge, so that there is a window where the peaks fit at once.
        edges.push(at + Nanos(at.0 / STEP + 1));
        Some(edges)
    }

    /// Longest window to check: beyond it, a line above all work and a line below all time do not meet again.
    pub(super) fn longest(&self) -> Option<Nanos> {
        let mut share = f64::from(self.model.interference.rho.0) / 1e6;
        let mut offset =
            self.model.interference.sigma.0 as f64 + self.model.blocking.by(Nanos::ZERO).0 as f64;
        for (kind, count) in &self.hard {
            let rate = f64::from(*count) * kind.cost.0 as f64 / kind.period.0 as f64;
            share += rate;
            offset += rate * (kind.period + kind.jitter).0 as f64;
        }
        for (kind, count) in &self.soft {
            let rate = f64::from(*count) * kind.cost.0 as f64 / kind.soft.mean_period.0.max(1) as f64;
            share += rate;
            offset += rate * (kind.soft.mean_over + kind.soft.mean_period).0 as f64;
        }
        (share < 1.0).then(|| Nanos(((offset / (1.0 - share)) as u64).saturating_add(1)))
    }

    /// Bound on the probability that the soft messages due in a window need more time than the window has
    /// left. The window is `from` to `to` long.
    fn probability(
        &self,
        (from, to): (Nanos, Nanos),
        negligible: f64,
        variables: &mut Vec<Variables>,
        theta: &mut f64,
    ) -> f64 {
        let most: Nanos =
            self.soft.iter().map(|(kind, count)| kind.cost * kind.most(to) * u64::from(*count)).sum();
        let taken = self.model.blocking.by(Nanos::ZERO)
            + self.model.interference.within(to)
            + self.hard.iter().map(|(kind, count)| kind.within(to) * u64::from(*count)).sum();
        let Some(left) = from.checked_sub(taken) else { return 1.0 };
        if most <= left {
            return 0.0;
        }
        // The channel of the message may send as much as it may at that time, whichever channel it is.
        let own = self.soft.iter().map(|(kind, _)| kind.cost * kind.most(to)).max().unwrap_or_default();
        let Some(for_others) = left.checked_sub(own) else { return 1.0 };
        variables.clear();
        variables.extend(self.soft.iter().filter_map(|(kind, count)| kind.variables(*count, to)));
        tail(variables, for_others.0 as f64, negligible, theta)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::policies::testing::{random_demand, random_model};
    use crate::statistical::Ppb;

    /// All messages that may be due have the time that they need in windows beyond the longest one. Each kind
    /// occurs as often as its count.
    fn repeated<K: Copy + Ord, const N: usize>(kinds: &[K], counts: [usize; N]) -> Multiset<K> {
        let mut all = Multiset::default();
        for (kind, count) in kinds.iter().zip(counts) {
            (0..count).for_each(|_| all.add(*kind));
        }
        all
    }

    #[test]
    fn even_peaks_fit_into_all_longer_windows() {
        let mut unbounded = 0;
        for seed in 0..400 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let model = random_model(&mut rng);
            let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
            for _ in 0..rng.random_range(0..6) {
                windows.add_hard(HardKind::of(&random_demand(&mut rng)));
            }
            for _ in 0..rng.random_range(1..8) {
                let demand = random_demand(&mut rng);
                let mean_period = demand.period * rng.random_range(1..9);
                let mean_over = Nanos(rng.random_range(0..900_000_000));
                let miss_ratio = Ppb::new(1_000_000).expect("a ratio");
                let soft = Soft { mean_period, mean_over, jitter: Nanos::ZERO, miss_ratio };
                windows.add_soft(SoftKind::of(&demand, soft, Nanos::from_millis(rng.random_range(1..300))));
            }
            let Some(longest) = windows.longest() else {
                unbounded += 1;
                continue;
            };
            for stretch in [1_000, 1_001, 1_017, 1_300, 2_000, 17_000] {
                let window = Nanos(longest.0 * stretch / 1_000);
                let taken = model.blocking.by(Nanos::ZERO)
                    + model.interference.within(window)
                    + windows.hard.iter().map(|(kind, n)| kind.within(window) * u64::from(*n)).sum()
                    + windows
                        .soft
                        .iter()
                        .map(|(kind, n)| kind.cost * kind.most(window) * u64::from(*n))
                        .sum();
                assert!(taken <= window, "seed {seed}: {taken} in {window}");
            }
        }
        assert!(unbounded < 200, "{unbounded}");
    }

    /// Shares that are the whole stage together, and a little less as floating-point numbers: the longest
    /// window is unbounded.
    #[test]
    fn shares_that_sum_to_one_are_refused() {
        let blocking = crate::stage::Blocking::Pipeline(Nanos::from_micros(10));
        let (interference, utilisation_limit) = (Default::default(), crate::units::Ppm::ONE);
        let model = StageModel { blocking, interference, utilisation_limit };
        let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
        for number in 1..=9 {
            let period = Nanos::from_millis(number);
            windows.add_hard(HardKind { cost: period / 10, period, jitter: Nanos::ZERO });
        }
        let period = Nanos::from_millis(10);
        let miss_ratio = Ppb::new(1).expect("a ratio");
        let soft = Soft { mean_period: period, mean_over: Nanos::ZERO, jitter: Nanos::ZERO, miss_ratio };
        windows.add_soft(SoftKind { first: period, cost: period / 10, period, soft });
        let rates = windows.hard.iter().map(|(kind, _)| kind.cost.0 as f64 / kind.period.0 as f64);
        assert!(rates.sum::<f64>() + 0.1 < 1.0, "the sum is rounded down");
        assert_eq!(windows.longest(), Some(Nanos::MAX));
        assert!(!windows.keep_all());
    }

    /// The windows that count for a channel are those that may contain its first message: the one as long as
    /// its bound is included, no shorter one.
    #[test]
    fn each_channel_bears_the_windows_from_its_bound_on() {
        let blocking = crate::stage::Blocking::Pipeline(Nanos::ZERO);
        let (interference, utilisation_limit) = (Default::default(), crate::units::Ppm::ONE);
        let model = StageModel { blocking, interference, utilisation_limit };
        let soft = |miss_ratio: u32| Soft {
            mean_period: Nanos::from_millis(40),
            mean_over: Nanos::from_millis(100),
            jitter: Nanos::from_millis(10),
            miss_ratio: Ppb::new(miss_ratio).expect("a ratio"),
        };
        let kind = |first: Nanos, miss_ratio: u32| SoftKind {
            first,
            cost: Nanos::from_micros(100),
            period: Nanos::from_millis(10),
            soft: soft(miss_ratio),
        };
        let set = |own: SoftKind| {
            let many = repeated(&[kind(Nanos::from_millis(10), 1_000_000_000)], [270]);
            let mut windows = Windows::new(&model, &Multiset::default(), &many);
            windows.add_soft(own);
            windows
        };
        let edges = set(kind(Nanos::from_secs(1), 1)).edges().expect("there is time");
        let mut seen = 0;
        for at in 2..edges.len() - 2 {
            let first = edges[at];
            let windows = set(kind(first, 1));
            let of = |(from, to)| windows.probability((from, to), 1e-12, &mut Vec::new(), &mut 0.0);
            let from =
                |least: usize| edges[least..].windows(2).map(|edge| of((edge[0], edge[1]))).sum::<f64>();
            let (borne, beyond) = (from(at), from(at - 1));
            let miss_ratio = (borne * 1.02 * 1e9) as u32 + 1;
            if beyond < f64::from(miss_ratio) * 1.05 / 1e9 {
                continue;
            }
            seen += 1;
            assert!(set(kind(first, miss_ratio)).keep_all(), "{first}");
            assert!(!set(kind(first - Nanos(1), miss_ratio)).keep_all(), "{first}");
        }
        assert!(seen > 3, "{seen}");
    }

    /// The mean of what is due is the arrivals of the window over the mean period, down to a mean period of a
    /// nanosecond, as which a shorter one counts.
    #[test]
    fn the_mean_is_that_of_the_mean_period_however_short() {
        let (window, cost) = (Nanos(1_000), Nanos(7));
        for (mean_period, counts_as) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
            let soft = Soft {
                mean_period: Nanos(mean_period),
                mean_over: Nanos::ZERO,
                jitter: Nanos::ZERO,
                miss_ratio: Ppb::new(1).expect("a ratio"),
            };
            let kind = SoftKind { first: Nanos::ZERO, cost, period: Nanos(1), soft };
            let variables = kind.variables(1, window).expect("messages are due");
            let expected = (window.0 * cost.0) as f64 / f64::from(counts_as);
            let mean = variables.most * variables.mean_share;
            assert!((mean / expected - 1.0).abs() < 1e-9, "{mean_period} ns: {mean}, expected {expected}");
        }
    }

    /// A channel whose bound is longer than every window that work can fill misses nothing, however late others are.
    #[test]
    fn a_bound_beyond_all_windows_of_work_is_never_missed() {
        let blocking = crate::stage::Blocking::Pipeline(Nanos::ZERO);
        let (interference, utilisation_limit) = (Default::default(), crate::units::Ppm::ONE);
        let model = StageModel { blocking, interference, utilisation_limit };
        let kind = |first: Nanos, cost: Nanos, miss_ratio: u32| {
            let (mean_period, miss_ratio) = (Nanos::from_secs(10), Ppb::new(miss_ratio).expect("a ratio"));
            let soft = Soft { mean_period, mean_over: Nanos::ZERO, jitter: Nanos::ZERO, miss_ratio };
            SoftKind { first, cost, period: mean_period, soft }
        };
        // Its message takes longer than its bound, which its ratio allows.
        let always_late = kind(Nanos::from_millis(16), Nanos::from_micros(16_200), 1_000_000_000);
        let keeps_all = |first: Nanos| {
            let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
            windows.add_soft(always_late);
            windows.add_soft(kind(first, Nanos(1_000), 1));
            assert!(windows.longest().is_some_and(|longest| longest < Nanos::from_millis(17)));
            windows.keep_all()
        };
        assert!(keeps_all(Nanos::from_millis(20)), "all work is done by then");
        assert!(!keeps_all(Nanos::from_millis(16)), "the other's message is not done by then");
    }

    /// At its peak a channel sends a message each period, even one of a nanosecond. A period of zero counts as one.
    #[test]
    fn a_peak_has_a_message_each_period_down_to_a_nanosecond() {
        let demand = random_demand(&mut SmallRng::seed_from_u64(1));
        let (mean_period, miss_ratio) = (Nanos(1), Ppb::new(1).expect("a ratio"));
        let soft = Soft { mean_period, mean_over: Nanos(1_000), jitter: Nanos::ZERO, miss_ratio };
        for (period, due) in [(0, 101), (1, 101), (2, 51), (3, 34)] {
            let kind = SoftKind::of(&Demand { period: Nanos(period), ..demand }, soft, Nanos::from_millis(1));
            assert_eq!(kind.most(kind.first + Nanos(100)), due, "{period} ns");
        }
    }

    /// Channels of one kind are counted together and take the same time as if counted one by one.
    #[test]
    fn channels_of_one_kind_take_what_they_take_apart() {
        for seed in 0..100 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let model = random_model(&mut rng);
            let hard: Vec<_> = (0..3).map(|_| HardKind::of(&random_demand(&mut rng))).collect();
            let soft: Vec<_> = (0..3)
                .map(|_| {
                    let demand = random_demand(&mut rng);
                    let (mean_period, mean_over) = (demand.period * 5, Nanos::from_millis(40));
                    let (jitter, miss_ratio) = (Nanos::from_millis(2), Ppb::new(1_000_000).expect("a ratio"));
                    let soft = Soft { mean_period, mean_over, jitter, miss_ratio };
                    SoftKind::of(&demand, soft, Nanos::from_millis(100))
                })
                .collect();
            let counts = [1, 2, 5];
            let together = Windows::new(&model, &repeated(&hard, counts), &repeated(&soft, counts));
            let mut apart = Windows::new(&model, &Multiset::default(), &Multiset::default());
            for (kind, count) in hard.iter().zip(counts) {
                (0..count).for_each(|_| apart.add_hard(*kind));
            }
            for (kind, count) in soft.iter().zip(counts) {
                (0..count).for_each(|_| apart.add_soft(*kind));
            }
            assert_eq!(together.keep_all(), apart.keep_all(), "seed {seed}");
            let longest = [together.longest(), apart.longest()];
            let [Some(one), Some(other)] = longest else {
                assert_eq!(longest, [None; 2], "seed {seed}");
                continue;
            };
            assert!(one.0.abs_diff(other.0) <= 1 + one.0 / 1_000_000, "seed {seed}: {one} {other}");
            for part in 1..40 {
                let (from, to) = (one * part / 40, one * (part + 1) / 40);
                let of =
                    |windows: &Windows| windows.probability((from, to), 1e-12, &mut Vec::new(), &mut 0.0);
                let (one, other) = (of(&together), of(&apart));
                assert!((one - other).abs() <= 1e-6 * one.max(1e-6), "seed {seed}: {one} {other} in {to}");
            }
        }
    }

    /// What may be due in a window, written out.
    #[test]
    fn what_is_due_in_a_window_is_that_of_the_formulas() {
        let miss_ratio = Ppb::new(1).expect("a ratio");
        let (release_latency, early) = (Nanos(3), Nanos(5));
        let demand = random_demand(&mut SmallRng::seed_from_u64(1));
        for (cost, period, mean_period, mean_over, jitter) in
            [(7, 10, 40, 100, 0), (7, 10, 40, 0, 25), (1, 4, 5, 11, 3), (9, 100, 100, 0, 1)]
        {
            let demand =
                Demand { cost: Nanos(cost), period: Nanos(period), release_latency, early, ..demand };
            let [mean_period, mean_over, jitter] = [mean_period, mean_over, jitter].map(Nanos);
            let soft = Soft { mean_period, mean_over, jitter, miss_ratio };
            let (hard, soft_kind) = (HardKind::of(&demand), SoftKind::of(&demand, soft, Nanos(15)));
            for window in 0..400 {
                assert_eq!(hard.within(Nanos(window)), Nanos(cost * ((window + 8) / period + 1)), "{window}");
                // Its bound is 15, of which 3 are its latency.
                let most = |since: u64| (since / period).min((since + mean_over.0) / mean_period.0) + 1;
                let (expected, variables) = (window.checked_sub(12), soft_kind.variables(3, Nanos(window)));
                assert_eq!(soft_kind.most(Nanos(window)), expected.map_or(0, most), "{window}");
                let expected = expected.map(|since| {
                    let share = (since + jitter.0) as f64 / mean_period.0 as f64 / most(since) as f64;
                    (3.0, (cost * most(since)) as f64, share.min(1.0))
                });
                let found = variables.map(|found| (found.count, found.most, found.mean_share));
                assert_eq!(found, expected, "{window}");
            }
        }
    }

    /// Bounds are rounded down to five binary digits.
    #[test]
    fn bounds_of_one_kind_have_the_same_first_five_binary_digits() {
        for bound in 0..5_000_u64 {
            let unit = if bound < 32 { 1 } else { (1 << bound.ilog2()) / 16 };
            assert_eq!(rounded(Nanos(bound)), Nanos(bound / unit * unit), "{bound}");
        }
    }

    /// Windows begin with the shortest bound, each is longer by a sixteenth and a nanosecond, and one more follows the first that
    /// is as long as the longest: where the work's mean line and its largest excess end.
    #[test]
    fn edges_reach_from_the_shortest_bound_to_where_all_work_is_done() {
        use crate::stage::{Blocking, Interference};
        let (blocking, miss_ratio) = (Blocking::Pipeline(Nanos(300)), Ppb::new(1).expect("a ratio"));
        let interference = Interference { sigma: Nanos(200), rho: crate::units::Ppm(125_000) };
        let model = StageModel { blocking, interference, utilisation_limit: crate::units::Ppm::ONE };
        let soft = Soft { mean_period: Nanos(800), mean_over: Nanos(1_600), jitter: Nanos::ZERO, miss_ratio };
        let soft = |first| SoftKind { first: Nanos(first), cost: Nanos(100), period: Nanos(400), soft };
        let hard = HardKind { cost: Nanos(100), period: Nanos(400), jitter: Nanos(80) };
        for (shortest, begin) in [(0, 1), (1, 1), (90, 90), (1_000_000, 1_000_000)] {
            let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
            [shortest + 7, shortest, shortest + 900]
                .into_iter()
                .for_each(|first| windows.add_soft(soft(first)));
            windows.add_hard(hard);
            // A line with 1/8 + 1/4 + 3/8 of the time and 500 + 120 + 3·300 more.
            assert_eq!(windows.longest(), Some(Nanos(1_520 * 4 + 1)));
            let edges = windows.edges().expect("there is time");
            assert_eq!(edges[0], Nanos(begin));
            assert!(edges.windows(2).all(|edge| edge[1] == edge[0] + Nanos(edge[0].0 / 16 + 1)));
            let reached = edges.iter().position(|edge| edge.0 >= 6_081).expect("they reach it");
            assert_eq!(edges.len(), reached + 2, "{shortest}");
        }
    }

    /// A window in which all peaks fit is never missed; one that has no time for the message itself always is.
    #[test]
    fn what_is_certain_is_no_question_of_probability() {
        use crate::stage::{Blocking, Interference};
        let (blocking, miss_ratio) = (Blocking::Pipeline(Nanos(10)), Ppb::new(1).expect("a ratio"));
        let interference = Interference { sigma: Nanos(5), rho: crate::units::Ppm::default() };
        let model = StageModel { blocking, interference, utilisation_limit: crate::units::Ppm::ONE };
        let soft =
            Soft { mean_period: Nanos(9_000), mean_over: Nanos::ZERO, jitter: Nanos::ZERO, miss_ratio };
        let mut windows = Windows::new(&model, &Multiset::default(), &Multiset::default());
        windows.add_hard(HardKind { cost: Nanos(20), period: Nanos(1_000), jitter: Nanos::ZERO });
        for cost in [30, 40, 50] {
            windows.add_soft(SoftKind { first: Nanos(1), cost: Nanos(cost), period: Nanos(9_000), soft });
        }
        let of = |from: u64| windows.probability((Nanos(from), Nanos(500)), 1e-9, &mut Vec::new(), &mut 0.0);
        // 10 + 5 + 20 are taken, 30 + 40 + 50 may be due, of which the largest is the message itself.
        let uncertain = |from: u64| (1e-12..0.999).contains(&of(from));
        assert_eq!([of(155), of(1_000)], [0.0; 2]);
        assert!([154, 120, 100].into_iter().all(uncertain), "{:?}", [154, 120, 100].map(of));
        assert_eq!([of(0), of(34), of(35), of(84)], [1.0; 4]);
    }
}

//! Chernoff's bound for sums of independent bounded variables (Hoeffding 1963, theorem 1).
//!
//! A variable between 0 and b with mean m has E exp(theta·X) <= 1 + m/b·(exp(theta·b) - 1), so that
//! P(sum >= x) <= exp(-theta·x)·product of these, for every theta > 0. Every theta gives a bound; the search for
//! the best one may stop anywhere. Floats are of basic operations only: the same result on every machine.

use crate::mutation::{Mutation, active};

/// A number of independent variables of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables {
    pub(crate) count: f64,
    /// Largest value.
    pub(crate) most: f64,
    /// Mean over largest value: 0 to 1.
    pub(crate) mean_share: f64,
}

/// Steps of the search for theta.
const STEPS_MAX: u32 = 24;
/// Largest exponent; exp is infinite beyond it.
const EXPONENT_MAX: f64 = 600.0;
/// More than all rounding.
const ROUNDING: f64 = 1.0 + 1e-9;

/// A bound on the probability that the sum reaches `least`; the search stops at a bound below `negligible`.
/// `theta` is the start of the search, and its result afterwards: results of similar problems are good
/// starts.
pub(crate) fn tail(kinds: &[Variables], least: f64, negligible: f64, theta: &mut f64) -> f64 {
    let most: f64 = kinds.iter().map(|kind| kind.count * kind.most).sum();
    if least > most {
        return 0.0;
    }
    let mean: f64 = kinds.iter().map(|kind| kind.count * kind.most * kind.mean_share).sum();
    if least <= mean {
        return 1.0;
    }
    let largest = kinds.iter().map(|kind| kind.most).fold(0.0, f64::max);
    let (mut low, mut high) = (0.0, EXPONENT_MAX / largest);
    let mut at = if *theta < high { *theta } else { 1.0 / largest };
    let (mut best, enough) = (0.0_f64, ln(negligible));
    for _ in 0..STEPS_MAX {
        let (logarithm, slope, curvature) = terms(kinds, at);
        let value = logarithm - at * least;
        let better = value < best - 1e-3;
        best = best.min(value);
        if best <= enough {
            break;
        }
        // The exponent is convex in theta: Newton within a bracket.
        if slope < least {
            low = at
        } else {
            high = at
        }
        let newton = at + (least - slope) / curvature.max(f64::MIN_POSITIVE);
        let next = if newton > low && newton < high { newton } else { 0.5 * (low + high) };
        let near = next - at < 1e-3 * at && at - next < 1e-3 * at;
        at = next;
        if near && !better {
            break;
        }
    }
    *theta = at;
    let exponent = if active(Mutation::TailExponentTenthOff) { best * 1.1 } else { best };
    (exp(exponent) * ROUNDING).min(1.0)
}

/// The logarithm of the product at `theta`, and its first two derivatives.
fn terms(kinds: &[Variables], theta: f64) -> (f64, f64, f64) {
    let mut sums = (0.0, 0.0, 0.0);
    for kind in kinds {
        let raised = kind.mean_share * exp(theta * kind.most);
        let whole = 1.0 - kind.mean_share + raised;
        let share = raised / whole;
        sums.0 += kind.count * ln(whole);
        sums.1 += kind.count * kind.most * share;
        sums.2 += kind.count * kind.most * kind.most * share * (1.0 - share);
    }
    sums
}

const LN_2: f64 = core::f64::consts::LN_2;

/// e^x for x up to some 700, to 13 digits; 0 for x below -700.
fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let doublings = (x / LN_2 + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let rest = x - doublings as f64 * LN_2;
    // |rest| <= ln 2 / 2: the series is exact to 10^-16 after 14 terms.
    let series = (1..=14).rev().fold(1.0, |sum, n| 1.0 + sum * rest / f64::from(n));
    series * f64::from_bits(((doublings + 1_023) as u64) << 52)
}

/// The natural logarithm of a positive normal number, to 13 digits.
fn ln(x: f64) -> f64 {
    const EXPONENT_BITS: u64 = 0x7ff << 52;
    let bits = x.to_bits();
    let doublings = ((bits & EXPONENT_BITS) >> 52) as i64 - 1_023;
    let mantissa = f64::from_bits(bits & !EXPONENT_BITS | 1_023 << 52);
    let (mantissa, doublings) = if mantissa > core::f64::consts::SQRT_2 {
        (mantissa / 2.0, doublings + 1)
    } else {
        (mantissa, doublings)
    };
    // ln m = 2·artanh((m - 1)/(m + 1)), with (m - 1)/(m + 1) at most 0.172.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let series = (0..10).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    2.0 * ratio * series + doublings as f64 * LN_2
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn exponentials_and_logarithms() {
        let values = [0.0, 1.0, -1.0, 0.3, 17.3, -40.0, 300.5, -600.0, -699.9, -700.0];
        for x in values {
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "{x}");
        }
        assert!(exp(-700.000_001) <= 0.0);
        for x in [1.0, 1.5, 1e-9, 0.7, 123.456, 1e200, f64::MIN_POSITIVE] {
            assert!((ln(x) - x.ln()).abs() <= 1e-13 * x.ln().abs().max(1.0), "{x}");
        }
    }

    /// Never below the true tail of a binomial, and within a factor that falls with its size.
    #[test]
    fn the_bound_holds_for_binomials_and_is_near() {
        for (count, p) in [(10, 0.1), (50, 0.3), (400, 0.05)] {
            let kinds = [Variables { count: f64::from(count), most: 3.0, mean_share: p }];
            let mut mass = (0..count).fold(1.0, |product, _| product * (1.0 - p));
            let mut above = 1.0;
            let mut theta = 0.0;
            for k in 0..=count {
                let bound = tail(&kinds, 3.0 * f64::from(k), 1e-300, &mut theta);
                // The rest of 1 is exact to 10^-15.
                let known = above > 1e-12;
                assert!(!known || bound >= above * (1.0 - 1e-3), "{count} {p} {k}: {bound} {above}");
                if known && above < 1e-3 {
                    assert!(bound < above * 40.0, "{count} {p} {k}: {bound} {above}");
                }
                above -= mass;
                mass *= f64::from(count - k) / f64::from(k + 1) * p / (1.0 - p);
            }
            assert!(tail(&kinds, 3.0 * f64::from(count) + 0.1, 1e-300, &mut theta) <= 0.0);
        }
    }

    /// Probability that a sum of variables reaches `least`. Each variable is 0 or its maximum, a whole
    /// number.
    fn exact_tail(kinds: &[Variables], least: f64) -> f64 {
        let mut masses = std::collections::BTreeMap::from([(0_u64, 1.0)]);
        for kind in kinds {
            for _ in 0..kind.count as u64 {
                let mut next = std::collections::BTreeMap::new();
                for (sum, mass) in masses {
                    *next.entry(sum).or_insert(0.0) += mass * (1.0 - kind.mean_share);
                    *next.entry(sum + kind.most as u64).or_insert(0.0) += mass * kind.mean_share;
                }
                masses = next;
            }
        }
        masses.iter().filter(|(sum, _)| **sum as f64 >= least).map(|(_, mass)| mass).sum()
    }

    /// The best bound of many thetas, by the formula of the module.
    fn best_of_all(kinds: &[Variables], least: f64) -> f64 {
        let largest = kinds.iter().map(|kind| kind.most).fold(0.0, f64::max);
        let at = |theta: f64| {
            let of = |kind: &Variables| {
                kind.count * (1.0 + kind.mean_share * ((theta * kind.most).exp() - 1.0)).ln()
            };
            (kinds.iter().map(of).sum::<f64>() - theta * least).exp()
        };
        (0..6_000).map(|step| at(f64::from(step) / 200.0 / largest)).fold(1.0, f64::min)
    }

    /// Kinds that differ in every value have good bounds wherever the search begins: no tail is above its
    /// bound, and no theta gives a bound that is better by more than a tenth.
    #[test]
    fn mixed_kinds_are_bounded_as_well_as_any_theta_does() {
        let kind = |count, most, mean_share| Variables { count, most, mean_share };
        let sets = [
            std::vec![kind(6.0, 1.0, 0.2), kind(3.0, 5.0, 0.1)],
            std::vec![kind(1.0, 9.0, 0.01), kind(9.0, 2.0, 0.5), kind(2.0, 4.0, 0.3)],
            std::vec![kind(12.0, 3.0, 0.05)],
            std::vec![kind(2.0, 7.0, 0.9), kind(5.0, 1.0, 1.0)],
        ];
        for kinds in sets {
            let most: f64 = kinds.iter().map(|kind| kind.count * kind.most).sum();
            let mean: f64 = kinds.iter().map(|kind| kind.count * kind.most * kind.mean_share).sum();
            for begin in [0.0, -3.0, 1e-6, 0.7, 40.0, 1e9] {
                for least in 0..=most as u64 {
                    let least = least as f64;
                    let mut theta = begin;
                    let bound = tail(&kinds, least, 1e-300, &mut theta);
                    let (exact, best) = (exact_tail(&kinds, least), best_of_all(&kinds, least));
                    let what = std::format!("{kinds:?} {least} from {begin}: {bound}, {exact}, {best}");
                    assert!(bound >= exact * (1.0 - 1e-9), "below the tail: {what}");
                    assert!(bound <= best * 1.1 || best < 1e-12, "the search stops early: {what}");
                    assert!((least <= mean) == (bound >= 1.0) || (least - mean).abs() < 0.5, "{what}");
                }
            }
            assert!(tail(&kinds, most + 0.5, 1e-300, &mut 0.0) <= 0.0, "more than there is");
        }
    }

    /// Where a search ends it leaves its theta, which alone gives the bound: a good start for a similar
    /// problem. Nothing is searched, and nothing is left, where the answer is clear.
    #[test]
    fn a_search_leaves_the_theta_of_its_bound() {
        let kind = |count, most, mean_share| Variables { count, most, mean_share };
        let kinds = [kind(6.0, 1.0, 0.2), kind(3.0, 5.0, 0.1), kind(9.0, 2.0, 0.5)];
        let (most, mean) = (39.0, 11.7);
        for begin in [0.0, 1e-6, 0.7, 40.0, 1e9] {
            for least in [12.0, 15.0, 20.0, 30.0, 38.0] {
                let mut theta = begin;
                let bound = tail(&kinds, least, 1e-300, &mut theta);
                let there = exp(terms(&kinds, theta).0 - theta * least);
                assert!(
                    (there / bound - 1.0).abs() < 1e-3,
                    "{least} from {begin}: {bound}, {there} at {theta}"
                );
            }
            for least in [mean - 0.1, most + 0.1] {
                let mut theta = begin;
                tail(&kinds, least, 1e-300, &mut theta);
                assert!((theta - begin).abs() <= 0.0, "{least} from {begin}: {theta}");
            }
        }
    }

    /// Seconds or nanoseconds: a bound is the same in each unit, wherever the search begins.
    #[test]
    fn a_bound_does_not_depend_on_the_unit() {
        let kinds =
            |unit: f64| {
                [(6.0, 1.0, 0.2), (3.0, 5.0, 0.1), (9.0, 2.0, 0.5)]
                    .map(|(count, most, mean_share)| Variables { count, most: most * unit, mean_share })
            };
        for least in [12.0, 15.0, 20.0, 30.0, 38.0] {
            let bound = tail(&kinds(1.0), least, 1e-300, &mut 0.0);
            for unit in [1e-9, 1e-3, 1e3, 1e6, 1e9] {
                for begin in [0.0, 1e-3 / unit, 1.0 / unit, 1e20, f64::INFINITY] {
                    let other = tail(&kinds(unit), least * unit, 1e-300, &mut { begin });
                    assert!(
                        (other / bound - 1.0).abs() < 1e-3,
                        "{least} {unit} from {begin}: {other} {bound}"
                    );
                }
            }
        }
    }

    /// The search ends with a step of Newton's method, which leaves theta where the slope is `least` to more digits than any
    /// bisection would have.
    #[test]
    fn the_theta_of_a_bound_is_precise() {
        let kind = |count, most, mean_share| Variables { count, most, mean_share };
        for kinds in [
            std::vec![kind(6.0, 1.0, 0.2), kind(3.0, 5.0, 0.1), kind(9.0, 2.0, 0.5)],
            std::vec![kind(12.0, 3.0, 0.05)],
            std::vec![kind(200.0, 4.0, 0.2)],
        ] {
            let most: f64 = kinds.iter().map(|kind| kind.count * kind.most).sum();
            let mean: f64 = kinds.iter().map(|kind| kind.count * kind.most * kind.mean_share).sum();
            for part in [0.1, 0.2, 0.3, 0.5, 0.7, 0.9] {
                let least = mean + (most - mean) * part;
                for begin in [0.0, 0.01, 0.3, 2.0] {
                    let mut theta = begin;
                    tail(&kinds, least, 1e-300, &mut theta);
                    let (_, slope, curvature) = terms(&kinds, theta);
                    let error = (slope - least) / curvature / theta;
                    assert!(error.abs() < 1e-5, "{kinds:?} {part} from {begin}: {theta} is {error} off");
                }
            }
        }
    }

    /// Where it is certain that the sum reaches the mean, or where certainty is negligible, nothing is searched.
    #[test]
    fn what_is_certain_is_not_searched() {
        let kinds = [Variables { count: 4.0, most: 2.0, mean_share: 0.5 }];
        for (least, negligible) in [(3.9, 1e-9), (4.0, 1e-9), (5.0, 1.0)] {
            let mut theta = 0.7;
            assert!(tail(&kinds, least, negligible, &mut theta) >= 1.0, "{least}");
            assert!((theta - 0.7).abs() <= 0.0, "{least} {negligible}: {theta}");
        }
    }

    /// A search begins where it is told to, if that is below the largest exponent; at the inverse of the largest value if not.
    #[test]
    fn a_search_begins_below_the_largest_exponent() {
        let kinds = [Variables { count: 4.0, most: 2.0, mean_share: 0.5 }];
        let inverse = 0.5;
        for (begin, first) in [
            (0.0, 0.0),
            (0.7, 0.7),
            (299.0, 299.0),
            (300.0, inverse),
            (301.0, inverse),
            (f64::INFINITY, inverse),
        ] {
            // The search ends at once, where it begins.
            let mut theta = begin;
            tail(&kinds, 5.0, 1.0, &mut theta);
            assert!((theta - first).abs() <= 0.0, "from {begin}: {theta}");
        }
    }

    /// A negligible bound need not be exact, but a bound that is not negligible is never reported as
    /// negligible.
    #[test]
    fn the_search_ends_at_what_is_negligible() {
        let kinds = [Variables { count: 40.0, most: 1.0, mean_share: 0.1 }];
        for least in 5..40 {
            let least = f64::from(least);
            let exact = tail(&kinds, least, 1e-300, &mut 0.0);
            for negligible in [1e-3, 1e-6, 1e-9] {
                let early = tail(&kinds, least, negligible, &mut 0.0);
                assert!(early <= negligible * 1.01 || early <= exact * 1.01, "{least} {negligible}: {early}");
                assert!(early >= exact * 0.99, "{least} {negligible}: {early} {exact}");
            }
        }
    }
}

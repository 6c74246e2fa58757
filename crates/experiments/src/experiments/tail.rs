//! How tails are judged: by the highest quantile for which there are enough samples.
//!
//! A quantile is meaningful if ten samples are above it: p99.9 from 10,000 on, p99 from 1,000 on. Below that
//! a run proves nothing about the tail, and its report states that.

use punctual::counted;

use super::Measured;
use crate::measure::latency::{SAMPLES_FOR_P99, SAMPLES_FOR_P999};
use crate::measure::{Ratio, Statistic};
use crate::report::Check;

/// Checks by the ratio of the sides' p99.9 or, if one of them has too few samples for that, of their p99;
/// p99.9 is then only reported. `named`: the check by that statistic.
pub fn check(
    measured: &mut Measured,
    named: impl Fn(Statistic) -> String,
    limit: f64,
    ratio: impl Fn(Statistic) -> Ratio,
) {
    let highest = ratio(Statistic::P999);
    let samples = Some(highest.samples);
    if highest.samples >= SAMPLES_FOR_P999 {
        let check = Check::at_most(named(Statistic::P999), highest.ratio, limit);
        return measured.checks.push(Check { samples, ..check });
    }
    if highest.samples < SAMPLES_FOR_P99 {
        measured.doubts.push(format!(
            "{}: one side has {}, and it takes {SAMPLES_FOR_P99}",
            named(Statistic::P99),
            counted(highest.samples, "sample")
        ));
    }
    let check = Check::at_most(named(Statistic::P99), ratio(Statistic::P99).ratio, limit);
    let note = format!("p99.9 is {:.3}, not judged below {SAMPLES_FOR_P999} samples", highest.ratio);
    measured.checks.push(Check { samples, note: Some(note), ..check });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(samples: u64) -> Measured {
        let mut measured = Measured::default();
        let ratio = |statistic| {
            let ratio = if statistic == Statistic::P999 { 0.9 } else { 0.4 };
            Ratio { ratio, samples, ..Ratio::default() }
        };
        check(&mut measured, |statistic| format!("bulk: {}", statistic.name()), 0.5, ratio);
        measured
    }

    #[test]
    fn few_samples_never_judge_the_highest_quantile() {
        let quick = checked(SAMPLES_FOR_P999 - 1);
        let [check] = &quick.checks[..] else { panic!("one check: {:?}", quick.checks) };
        assert_eq!((check.name.as_str(), check.value, check.limit, check.ok), ("bulk: p99", 0.4, 0.5, true));
        assert_eq!(check.samples, Some(SAMPLES_FOR_P999 - 1));
        assert!(check.note.as_deref().is_some_and(|note| note.contains("p99.9 is 0.900, not judged")));
        assert!(quick.doubts.is_empty());
        let json = serde_json::json!(check);
        assert!(json["samples"] == 9_999 && json["note"].is_string(), "{json}");
    }

    #[test]
    fn enough_samples_do() {
        let full = checked(SAMPLES_FOR_P999);
        let [check] = &full.checks[..] else { panic!("one check: {:?}", full.checks) };
        assert_eq!((check.name.as_str(), check.value, check.limit), ("bulk: p99.9", 0.9, 0.5));
        assert!(!check.ok && check.note.is_none() && check.samples == Some(SAMPLES_FOR_P999));
    }

    #[test]
    fn hardly_any_prove_nothing() {
        let measured = checked(SAMPLES_FOR_P99 - 1);
        assert!(
            measured.doubts.len() == 1 && measured.doubts[0].contains("999 samples"),
            "{:?}",
            measured.doubts
        );
        assert!(checked(SAMPLES_FOR_P99).doubts.is_empty());
    }
}

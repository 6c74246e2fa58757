//! How late a message was, as far as clocks tell (ADR 0025).

use punctual_analysis::{Nanos, Ppm};
use serde::{Deserialize, Serialize};

/// Most that clocks part by in `span`, as the path of messages reckons it: without a division of 128 bits. Spans of hours are
/// cut to five.
pub const fn drifted(drift: Ppm, span: Nanos) -> Nanos {
    Nanos(span.0.saturating_mul(drift.0 as u64) / 1_000_000 + 1)
}

/// What is known of how late a message was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timeliness {
    /// The message was not later than its deadline, whatever the clocks are.
    InTime,
    /// The message was delivered within the clocks' error of its deadline.
    PerhapsLate,
    /// Later than its deadline, whatever the clocks.
    Late,
    /// The lateness is unknown, because nobody knows the clocks.
    #[default]
    Unmeasured,
}

/// What `latency` says beside a deadline, where it may be wrong by `error` either way.
pub fn timeliness(latency: Nanos, error: Option<Nanos>, deadline: Nanos) -> Timeliness {
    match error {
        None => Timeliness::Unmeasured,
        Some(error) if latency > deadline + error => Timeliness::Late,
        Some(error) if latency + error > deadline => Timeliness::PerhapsLate,
        Some(_) => Timeliness::InTime,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeliness_is_sure_only_beyond_the_error() {
        let told = |latency| timeliness(Nanos(latency), Some(Nanos(10)), Nanos(50));
        assert_eq!([told(40), told(41)], [Timeliness::InTime, Timeliness::PerhapsLate]);
        assert_eq!([told(60), told(61)], [Timeliness::PerhapsLate, Timeliness::Late]);
        assert_eq!(timeliness(Nanos(5), None, Nanos(1)), Timeliness::Unmeasured);
    }
}

//! Lateness of a message, as far as the clocks show (ADR 0025).

use punctual_analysis::{Nanos, Ppm};
use serde::{Deserialize, Serialize};

/// The most that clocks drift apart in `span`, in the computation on the path of messages: without a division
/// of 128 bits. Spans of hours are cut to five.
pub const fn drifted(drift: Ppm, span: Nanos) -> Nanos {
    Nanos(span.0.saturating_mul(drift.0 as u64) / 1_000_000 + 1)
}

/// What is known of the timeliness of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timeliness {
    /// The message was not later than its deadline, whatever the clocks are.
    InTime,
    /// The message was delivered within the clocks' error of its deadline.
    PerhapsLate,
    /// The message was delivered later than its deadline, whatever the clocks' errors are.
    Late,
    /// The lateness is unknown, because the clock offsets are unknown.
    #[default]
    Unmeasured,
}

/// The timeliness that follows from `latency` and `deadline`, if the latency has an error of at most `error`
/// in either direction.
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
        let reported = |latency| timeliness(Nanos(latency), Some(Nanos(10)), Nanos(50));
        assert_eq!([reported(40), reported(41)], [Timeliness::InTime, Timeliness::PerhapsLate]);
        assert_eq!([reported(60), reported(61)], [Timeliness::PerhapsLate, Timeliness::Late]);
        assert_eq!(timeliness(Nanos(5), None, Nanos(1)), Timeliness::Unmeasured);
    }
}

//! Times that may never come.

use punctual_analysis::Instant;

/// The earlier of two times that may never come.
pub(crate) fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

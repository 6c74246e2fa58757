//! A finding of `punctual doctor`. Each link driver makes the findings about its own links.

use serde::Serialize;

/// The advice if the daemon has a device that this network namespace does not have.
pub const ELSEWHERE: &str =
    "run punctual doctor in the daemon's network namespace: ip netns exec NAMESPACE punctual doctor";

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Everything is as it should be.
    Ok,
    /// The finding is worth knowing; guarantees are possible.
    Note,
    /// Guarantees are not possible like this.
    Problem,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub name: &'static str,
    /// How to take the finding.
    pub state: State,
    /// The observation.
    pub found: String,
    /// The fix; empty if none is needed.
    pub fix: String,
}

impl Finding {
    /// A finding of a check that is satisfied.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), fix: String::new() }
    }
    /// A finding that is worth knowing.
    pub fn note(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Note, found: found.into(), fix: fix.into() }
    }
    /// A finding that is in the way of guarantees.
    pub fn problem(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, state: State::Problem, found: found.into(), fix: fix.into() }
    }
    /// `ok`, or the finding that `otherwise` makes from the name and the observation.
    pub fn judge(
        name: &'static str,
        found: impl Into<String>,
        ok: bool,
        otherwise: fn(&'static str, String, String) -> Self,
        fix: &str,
    ) -> Self {
        if ok { Self::ok(name, found) } else { otherwise(name, found.into(), fix.into()) }
    }
}

//! What had to hold.

use punctual::counted;
use serde::Serialize;

/// One thing that had to hold.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// The result.
    pub value: f64,
    /// The limit.
    pub limit: f64,
    /// Whether it held.
    pub ok: bool,
    /// Number of samples behind it, if that decides what may be judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// A remark for the reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether there is no conclusion: the check neither held nor failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inconclusive: bool,
}

/// An A/A half-width beyond this widens no limit: a difference within it is not significant.
const HALF_WIDTH_MAX: f64 = 0.25;

impl Check {
    /// `value` may be `limit` at most.
    pub fn at_most(name: impl Into<String>, value: f64, limit: f64) -> Self {
        let name = name.into();
        Self { name, value, limit, ok: value <= limit, samples: None, note: None, inconclusive: false }
    }
    /// `value` must be `limit` at least.
    pub fn at_least(name: impl Into<String>, value: f64, limit: f64) -> Self {
        Self { ok: value >= limit, ..Self::at_most(name, value, limit) }
    }
    /// The ratio of two sides may be at most `limit` plus the half-width of two equal ones. If the half-width
    /// exceeds [`HALF_WIDTH_MAX`], the check holds or fails only by more than the half-width, and is
    /// inconclusive between.
    pub fn ratio_at_most(name: impl Into<String>, ratio: f64, limit: f64, half_width: f64) -> Self {
        if half_width <= HALF_WIDTH_MAX {
            return Self::at_most(name, ratio, limit + half_width);
        }
        let (ok, failed) = (ratio + half_width <= limit, ratio - half_width > limit);
        Self { ok, inconclusive: !ok && !failed, ..Self::at_most(name, ratio, limit) }
    }
    /// Whether it certainly did not hold.
    pub const fn has_failed(&self) -> bool {
        !self.ok && !self.inconclusive
    }
    /// "ok" or not, with the samples behind it.
    pub fn word(&self) -> String {
        let word = match (self.ok, self.inconclusive) {
            (true, _) => "ok",
            (false, true) => "inconclusive",
            (false, false) => "NOT OK",
        };
        let samples = self.samples.map(|samples| counted(samples, "sample"));
        let behind: Vec<String> = samples.into_iter().chain(self.note.clone()).collect();
        if behind.is_empty() { word.into() } else { format!("{word} ({})", behind.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_half_width_widens_no_limit() {
        let word = |ratio, half_width| Check::ratio_at_most("", ratio, 1.0, half_width).word();
        assert_eq!([1.1, 1.3].map(|ratio| word(ratio, 0.2)), ["ok", "NOT OK"], "narrow: widened");
        let wide = [0.5, 0.7, 1.3, 1.5].map(|ratio| word(ratio, 0.4));
        assert_eq!(wide, ["ok", "inconclusive", "inconclusive", "NOT OK"]);
        assert_eq!(word(f64::NAN, f64::INFINITY), "inconclusive");
        let json =
            serde_json::json!([Check::at_most("a", 1.0, 2.0), Check::ratio_at_most("b", 1.0, 1.0, 1.0)]);
        assert!(json[0].get("inconclusive").is_none() && json[0]["ok"] == true);
        assert!(json[1]["inconclusive"] == true && json[1]["ok"] == false, "{json}");
    }
}

//! Sets of seeds as ranges: completed and remaining seeds of a campaign.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A set of numbers; written as `["0..100", "200..300"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Ranges {
    /// Start to end; neither empty nor touching one another.
    spans: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds one number; returns whether it is new.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let mut start = number;
        let mut end = number + 1;
        if let Some((&before, &until)) = self.spans.range(..=number).next_back()
            && until == number
        {
            start = before;
        }
        if let Some(until) = self.spans.remove(&end) {
            end = until;
        }
        self.spans.insert(start, end);
        true
    }

    /// Whether the set contains `number`.
    pub fn contains(&self, number: u64) -> bool {
        self.spans.range(..=number).next_back().is_some_and(|(_, &end)| number < end)
    }

    /// The parts of `wanted` that are not in the set, in order.
    pub fn missing(&self, wanted: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut from = wanted.start;
        for (&start, &end) in &self.spans {
            if start >= wanted.end {
                break;
            }
            if start > from {
                missing.push(from..start);
            }
            from = from.max(end);
        }
        if from < wanted.end {
            missing.push(from..wanted.end);
        }
        missing
    }
}

impl From<Ranges> for Vec<String> {
    fn from(ranges: Ranges) -> Self {
        ranges.spans.into_iter().map(|(start, end)| format!("{start}..{end}")).collect()
    }
}

impl TryFrom<Vec<String>> for Ranges {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let mut spans = BTreeMap::new();
        let mut last = None;
        for text in texts {
            let wrong = || format!("\"{text}\" is no range, or not behind the one before it");
            let (start, end) = text.split_once("..").ok_or_else(wrong)?;
            let (start, end) = (start.parse().map_err(|_| wrong())?, end.parse().map_err(|_| wrong())?);
            if start >= end || last.is_some_and(|last| last >= start) {
                return Err(wrong());
            }
            spans.insert(start, end);
            last = Some(end);
        }
        Ok(Self { spans })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_join_to_ranges_in_any_order() {
        let mut ranges = Ranges::default();
        for number in [5, 3, 4, 9, 0, 10, 8] {
            assert!(ranges.insert(number) && !ranges.insert(number), "{number}");
        }
        assert_eq!(Vec::from(ranges.clone()), ["0..1", "3..6", "8..11"]);
        assert_eq!(ranges.missing(0..12), [1..3, 6..8, 11..12]);
        let missing = |wanted| ranges.missing(wanted).into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(missing(4..9), [6, 7]);
        assert!(missing(3..6).is_empty());
        assert_eq!(missing(20..22), [20, 21]);
        assert_eq!(Ranges::try_from(Vec::from(ranges.clone())), Ok(ranges));
    }

    #[test]
    fn what_is_no_set_of_ranges_is_refused() {
        for wrong in [&["5"][..], &["3..3"], &["4..2"], &["0..5", "5..6"], &["7..8", "1..2"], &["a..b"]] {
            let texts: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            assert!(Ranges::try_from(texts).is_err(), "{wrong:?}");
        }
    }
}

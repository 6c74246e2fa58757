//! The spans of a run in which one of the two systems was loaded: its slices.

use punctual_analysis::{Instant, Nanos};

/// Ascending, disjoint spans.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    spans: Vec<(Instant, Instant)>,
}

impl Windows {
    /// One span from the clock's origin to its end.
    pub fn everything() -> Self {
        Self { spans: vec![(Instant::ZERO, Instant(u64::MAX))] }
    }

    /// Adds a span after all others; an empty one is left out.
    pub fn push(&mut self, from: Instant, until: Instant) {
        if from < until {
            self.spans.push((from, until));
        }
    }

    /// All of them together.
    pub fn total(&self) -> Nanos {
        self.spans.iter().map(|(from, until)| until.since(*from)).sum()
    }

    /// The spans.
    pub fn spans(&self) -> &[(Instant, Instant)] {
        &self.spans
    }

    /// The index of the span that contains `at`.
    pub fn index(&self, at: Instant) -> Option<usize> {
        let index = self.spans.partition_point(|&(_, until)| until <= at);
        self.spans.get(index).filter(|&&(from, _)| from <= at).map(|_| index)
    }

    /// The position of `at` if the spans are joined end to end; `None` outside of all.
    pub fn position(&self, at: Instant) -> Option<Nanos> {
        let index = self.index(at)?;
        let before: Nanos = self.spans[..index].iter().map(|(from, until)| until.since(*from)).sum();
        Some(before + at.since(self.spans[index].0))
    }

    /// The same without `others`, which ascend and do not overlap.
    #[must_use]
    pub fn without(&self, others: impl IntoIterator<Item = (Instant, Instant)> + Clone) -> Self {
        let mut left = Self::default();
        for &(from, until) in &self.spans {
            let mut at = from;
            for (begin, end) in others.clone().into_iter().filter(|&(begin, end)| end > from && begin < until)
            {
                left.push(at, begin);
                at = at.max(end);
            }
            left.push(at, until);
        }
        left
    }

    /// The same spans, each begun `warm_up` later: steady state.
    #[must_use]
    pub fn after(&self, warm_up: Nanos) -> Self {
        let mut later = Self::default();
        self.spans.iter().for_each(|&(from, until)| later.push(from + warm_up, until));
        later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_laid_end_to_end() {
        let mut windows = Windows::default();
        windows.push(Instant(10), Instant(20));
        windows.push(Instant(30), Instant(30));
        windows.push(Instant(40), Instant(45));
        assert_eq!(windows.total(), Nanos(15));
        let positions = [9, 10, 19, 20, 41, 45].map(|at| windows.position(Instant(at)).map(|n| n.0));
        assert_eq!(positions, [None, Some(0), Some(9), None, Some(11), None]);
        assert_eq!(windows.after(Nanos(5)).total(), Nanos(5));
    }

    #[test]
    fn what_is_taken_out_is_gone() {
        let mut windows = Windows::default();
        windows.push(Instant(10), Instant(20));
        windows.push(Instant(40), Instant(45));
        let holes = [(5, 11), (13, 15), (19, 41), (50, 60)].map(|(from, to)| (Instant(from), Instant(to)));
        let left: Vec<_> = windows.without(holes).spans().iter().map(|(from, to)| (from.0, to.0)).collect();
        assert_eq!(left, [(11, 13), (15, 19), (41, 45)]);
        assert_eq!(windows.without([]).total(), windows.total());
    }
}

//! How long segments are on this host before the program has what they bring.

use punctual_analysis::Nanos;

/// Delays of one connection: from a segment's arrival at the driver to the end of the call of the input handler that processed
/// it. The call hands the data to the program, unless the program's ring is full; that wait is not counted. A call that
/// processes several segments counts once, with the first one. Segments that came before the connection had its own handlers, by way
/// of the listener, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    calls: u64,
    sum: Nanos,
    max: Nanos,
}

impl Delays {
    pub(super) fn add(&mut self, delay: Nanos) {
        self.calls += 1;
        self.sum = Nanos(self.sum.0.saturating_add(delay.0));
        self.max = self.max.max(delay);
    }

    /// The mean; `None` before the first segment.
    pub const fn mean(&self) -> Option<Nanos> {
        match self.sum.0.checked_div(self.calls) {
            Some(mean) => Some(Nanos(mean)),
            None => None,
        }
    }

    /// The longest; `None` before the first segment.
    pub const fn max(&self) -> Option<Nanos> {
        if self.calls == 0 { None } else { Some(self.max) }
    }
}

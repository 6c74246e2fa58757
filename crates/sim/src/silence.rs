//! After invented message numbers: what a sink refuses before it believes honest ones again. So much is excused by count
//! and not by time: a channel that sends rarely is silent for longer than one that sends often.

use crate::time::SimTime;

/// Consecutive messages that a sink refuses before it takes the next one (GUARANTEES, what is not promised).
const REFUSED: u64 = 3;

/// Where a sink's silence is.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    since: SimTime,
    refused: u64,
    is_over: bool,
}

/// A message as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct SentMessage {
    /// When it was sent.
    pub sent: SimTime,
    /// It keeps the contract; what does not takes no number.
    pub promised: bool,
    /// It came.
    pub delivered: bool,
    /// Another fault touched it: it need not have reached the sink, and the next one begins a new run.
    pub touched: bool,
}

impl Silence {
    /// Numbers were honest again from `since` on.
    pub const fn new(since: SimTime) -> Self {
        Self { since, refused: 0, is_over: false }
    }

    /// Whether the sink believes what it is told.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The next message, in the order of sending; whether the silence may swallow it.
    pub fn swallows(&mut self, said: SentMessage) -> bool {
        if self.is_over || said.sent <= self.since || !said.promised {
            return false;
        }
        if said.touched {
            self.refused = 0;
            return false;
        }
        self.is_over = said.delivered || self.refused == REFUSED;
        self.refused += 1;
        !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swallowed(said: impl IntoIterator<Item = SentMessage>) -> Vec<bool> {
        let mut silence = Silence::new(SimTime(10));
        said.into_iter().map(|said| silence.swallows(said)).collect()
    }

    const LOST: SentMessage =
        SentMessage { sent: SimTime(11), promised: true, delivered: false, touched: false };

    #[test]
    fn three_are_swallowed_and_no_fourth() {
        assert_eq!(swallowed([LOST; 5]), [true, true, true, false, false]);
        let early = SentMessage { sent: SimTime(10), ..LOST };
        assert_eq!(swallowed([early, LOST, LOST, LOST, LOST]), [false, true, true, true, false]);
    }

    #[test]
    fn it_ends_with_the_first_that_comes() {
        let came = SentMessage { delivered: true, ..LOST };
        assert_eq!(swallowed([LOST, came, LOST, LOST]), [true, false, false, false]);
    }

    #[test]
    fn only_consecutive_numbers_count() {
        let touched = SentMessage { touched: true, ..LOST };
        let unnumbered = SentMessage { promised: false, ..LOST };
        assert_eq!(
            swallowed([LOST, LOST, touched, LOST, unnumbered, LOST, LOST, LOST]),
            [true, true, false, true, false, true, true, false]
        );
    }
}

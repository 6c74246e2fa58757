//! After forged message numbers: the messages that a sink refuses before it accepts honest numbers again. The
//! excuse is counted in messages, not in time: a channel that sends rarely is silent for longer than one that
//! sends often.

use crate::time::SimTime;

/// Consecutive messages that a sink refuses before it takes the next one (GUARANTEES, what is not promised).
const REFUSED: u64 = 3;

/// State of a sink's silence.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    since: SimTime,
    refused: u64,
    is_over: bool,
}

/// The relevant properties of a message.
#[derive(Clone, Copy, Debug)]
pub struct SentMessage {
    /// Time of sending.
    pub sent: SimTime,
    /// True if the message keeps the contract. Other messages have no number.
    pub promised: bool,
    /// True if the message was delivered.
    pub delivered: bool,
    /// Another fault touched it: it need not have reached the sink, and the next one begins a new run.
    pub touched: bool,
}

impl Silence {
    /// The numbers were honest again from `since` on.
    pub const fn new(since: SimTime) -> Self {
        Self { since, refused: 0, is_over: false }
    }

    /// Whether the sink accepts numbers again.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes the next message, in the order of sending; returns whether the silent sink may miss it.
    pub fn may_miss(&mut self, message: SentMessage) -> bool {
        if self.is_over || message.sent <= self.since || !message.promised {
            return false;
        }
        if message.touched {
            self.refused = 0;
            return false;
        }
        self.is_over = message.delivered || self.refused == REFUSED;
        self.refused += 1;
        !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_be_missed(message: impl IntoIterator<Item = SentMessage>) -> Vec<bool> {
        let mut silence = Silence::new(SimTime(10));
        message.into_iter().map(|message| silence.may_miss(message)).collect()
    }

    const LOST: SentMessage =
        SentMessage { sent: SimTime(11), promised: true, delivered: false, touched: false };

    #[test]
    fn three_are_missed_and_no_fourth() {
        assert_eq!(may_be_missed([LOST; 5]), [true, true, true, false, false]);
        let early = SentMessage { sent: SimTime(10), ..LOST };
        assert_eq!(may_be_missed([early, LOST, LOST, LOST, LOST]), [false, true, true, true, false]);
    }

    #[test]
    fn it_ends_with_the_first_that_comes() {
        let came = SentMessage { delivered: true, ..LOST };
        assert_eq!(may_be_missed([LOST, came, LOST, LOST]), [true, false, false, false]);
    }

    #[test]
    fn only_consecutive_numbers_count() {
        let touched = SentMessage { touched: true, ..LOST };
        let unnumbered = SentMessage { promised: false, ..LOST };
        assert_eq!(
            may_be_missed([LOST, LOST, touched, LOST, unnumbered, LOST, LOST, LOST]),
            [true, true, false, true, false, true, true, false]
        );
    }
}

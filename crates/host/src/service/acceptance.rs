//! Room in a receiver's ring for what comes before its program takes the first message.
//!
//! A source may send as soon as `open` has returned there; the receiver's program learns of the channel through two threads
//! of ordinary priority. What the protocol itself asks a ring to hold is sized for a program that is there already.

use punctual_analysis::{Contract, Nanos};

/// A program that takes the first message of a channel so long after it has come loses none.
pub const ACCEPT_TIME: Nanos = Nanos::from_millis(50);
/// At most so many messages are held for that.
pub const ACCEPT_MESSAGES_MAX: u32 = 1_024;
/// And at most so many bytes of messages.
pub const ACCEPT_BYTES_MAX: u32 = 1 << 20;

/// Messages of a ring for [`ACCEPT_TIME`], beyond those that the protocol asks for.
pub fn accept_messages(contract: &Contract) -> u32 {
    let by_time = ACCEPT_TIME.div_ceil(contract.policed_interval());
    let by_bytes = ACCEPT_BYTES_MAX / contract.message_bytes_max.max(1);
    u32::try_from(by_time).unwrap_or(u32::MAX).min(by_bytes).min(ACCEPT_MESSAGES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::Rate;

    fn messages(bytes: u32, per_second: u64) -> u32 {
        let rate = Rate::per_second(per_second).expect("a rate");
        let contract = Contract::new(bytes, rate, 1, Nanos::from_millis(5)).expect("a contract");
        accept_messages(&contract)
    }

    #[test]
    fn a_ring_has_room_for_the_time_that_accepting_takes_within_limits() {
        // 50 ms at 1 kHz, I' = I - 1/128.
        assert_eq!(messages(64, 1_000), 51);
        assert_eq!(messages(64, 10), 1);
        assert_eq!(messages(64, 1_000_000), ACCEPT_MESSAGES_MAX);
        assert_eq!(messages(100_000, 1_000), 10);
        assert_eq!(messages(2 << 20, 1_000), 0);
    }
}

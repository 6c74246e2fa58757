//! Sizes a receiver's ring for the messages that arrive while its program takes none: before it takes the
//! first one, and when it stalls later.
//!
//! A source may send as soon as its `open` has returned. The receiver's program is notified of the channel
//! through two threads of ordinary priority, and beside load an ordinary thread may not run for tens of
//! milliseconds. The ring size that the protocol itself requires is for a program that takes each message
//! when it arrives.

use punctual_analysis::{Contract, Nanos};

/// A program that takes the first message of a channel at most this long after it came loses none.
pub const ACCEPT_TIME: Nanos = Nanos::from_millis(50);
/// Most messages that are held for such a program.
pub const ACCEPT_MESSAGES_MAX: u32 = 1_024;
/// Most bytes of messages that are held for such a program.
pub const ACCEPT_BYTES_MAX: u32 = 1 << 20;
/// A program that takes no message for this long, at any time, loses none, unless it states another time.
pub const STALL_DEFAULT: Nanos = Nanos::from_millis(20);

/// Number of slots of a ring for which the protocol requires `messages`, for a program that may stall for
/// `stall` at any time.
pub fn slots(contract: &Contract, messages: u32, stall: Nanos) -> u32 {
    messages.saturating_add(within(contract, stall).max(accept_messages(contract)))
}

/// Messages for [`ACCEPT_TIME`], within its limits.
fn accept_messages(contract: &Contract) -> u32 {
    let by_bytes = ACCEPT_BYTES_MAX / contract.message_bytes_max.max(1);
    within(contract, ACCEPT_TIME).min(by_bytes).min(ACCEPT_MESSAGES_MAX)
}

/// Number of messages that arrive in `time` in addition to those that the protocol's part of the ring holds.
fn within(contract: &Contract, time: Nanos) -> u32 {
    u32::try_from(time.div_ceil(contract.policed_interval())).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_analysis::Rate;

    fn contract(bytes: u32, per_second: u64) -> Contract {
        let rate = Rate::per_second(per_second).expect("a rate");
        Contract::new(bytes, rate, 1, Nanos::from_millis(5)).expect("a contract")
    }

    fn messages(bytes: u32, per_second: u64) -> u32 {
        accept_messages(&contract(bytes, per_second))
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

    #[test]
    fn a_ring_follows_the_contract_and_the_stall() {
        let millis = Nanos::from_millis;
        // 10 of the protocol, and of 200 ms at 1 kHz.
        assert_eq!(slots(&contract(64, 1_000), 10, millis(200)), 10 + 202);
        // If accepting takes longer than the stall, its time counts.
        assert_eq!(slots(&contract(64, 1_000), 10, STALL_DEFAULT), 10 + 51);
        // The limits of acceptance are not those of a stall: 20 ms at 100 kHz, and of large messages.
        assert_eq!(slots(&contract(64, 100_000), 10, STALL_DEFAULT), 10 + 2_016);
        assert_eq!(slots(&contract(2 << 20, 200), 10, STALL_DEFAULT), 10 + 5);
        assert_eq!(slots(&contract(64, 1_000), u32::MAX, Nanos::from_secs(1 << 30)), u32::MAX);
    }
}

//! A clip's public parameters, and their computation from a contract (CLIPS 4.3).

use serde::{Deserialize, Serialize};

use crate::contract::Contract;
use crate::units::Nanos;

/// Parameters that the owner of a channel's endpoint on one host may read and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClipParameters {
    /// Packets that the handler may process in a period.
    pub packets: u32,
    /// The period.
    pub period: Nanos,
    /// Bytes of the message queue.
    pub buffer_bytes: u64,
    /// Time after the message's arrival by which a period's packets are processed.
    pub deadline: Nanos,
}

impl ClipParameters {
    /// The clip of a contract in fragments of `fragment_bytes` whose queue holds `messages`; `deadline` is the
    /// stage's bound d(k), or the period where it is `None`.
    pub fn of(contract: &Contract, fragment_bytes: u32, messages: u64, deadline: Option<Nanos>) -> Self {
        let period = contract.interval();
        Self {
            packets: contract.packets_max(fragment_bytes),
            period,
            buffer_bytes: messages.saturating_mul(u64::from(contract.message_bytes_max)),
            deadline: deadline.unwrap_or(period),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    #[test]
    fn a_contract_becomes_packets_a_period() {
        let contract =
            Contract::new(40_000, Rate::per_second(5).unwrap(), 10, Nanos::from_millis(200)).unwrap();
        let clip = ClipParameters::of(&contract, 1_400, 11, None);
        assert_eq!(clip.packets, 29);
        assert_eq!(clip.period, Nanos::from_millis(200));
        assert_eq!(clip.deadline, clip.period);
        assert_eq!(clip.buffer_bytes, 440_000);
        let tight = ClipParameters::of(&contract, 1_400, 11, Some(Nanos::from_millis(50)));
        assert_eq!(tight.deadline, Nanos::from_millis(50));
    }
}

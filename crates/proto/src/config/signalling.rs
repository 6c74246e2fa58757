//! Times and keys of signalling.

use punctual_analysis::{Nanos, Rate};
use serde::{Deserialize, Serialize};

use crate::limits;

/// Times and keys of RTCOP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignallingConfig {
    /// Authenticates signalling within the domain (keyed BLAKE3).
    pub domain_key: [u8; 32],
    /// A reservation that is not refreshed for this long is freed.
    pub lease: Nanos,
    /// Interval between HELLOs.
    pub hello_interval: Nanos,
    /// First retransmission after this; doubles.
    pub retransmit: Nanos,
    /// Retransmissions before a peer is given up.
    pub retransmits_max: u32,
    /// Longest time of the receiving application to consent to an incoming channel.
    pub consent_timeout: Nanos,
    /// Shortest time that a closing channel may take to drain, and longest time for all channels of a host
    /// that stops. A channel that is closed otherwise may take the time that the last message of its ring
    /// needs: its position in the ring times I, and D.
    pub grace: Nanos,
    /// Rate of the implicit signalling channel of each link, in packets a second.
    pub packets_per_second: u32,
    /// Handling of requests across a stage of this host that breaks its promise.
    pub while_broken: WhileBroken,
}

impl Default for SignallingConfig {
    fn default() -> Self {
        Self {
            domain_key: [0; 32],
            lease: limits::LEASE_DEFAULT,
            hello_interval: limits::HELLO_INTERVAL_DEFAULT,
            retransmit: Nanos::from_millis(100),
            retransmits_max: 6,
            consent_timeout: Nanos::from_secs(10),
            grace: Nanos::from_millis(500),
            packets_per_second: 50,
            while_broken: WhileBroken::default(),
        }
    }
}

impl SignallingConfig {
    /// Rate of the implicit signalling channel of each link; `None` if [`Self::packets_per_second`] is no
    /// valid rate.
    pub fn rate(&self) -> Option<Rate> {
        Rate::per_second(self.packets_per_second.into())
    }
}

/// Handling of a request for a channel across a stage that breaks its promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhileBroken {
    /// The channel is granted as degraded: nothing is guaranteed, and both ends get the name of the stage.
    #[default]
    Degrade,
    /// The channel is refused with the breach as the reason.
    Refuse,
}

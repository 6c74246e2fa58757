//! Messages of a measurement of a link (ADR 0030).

use serde::{Deserialize, Serialize};

use crate::ids::Cookie;
use crate::rate_sample::RateSample;

/// Messages of a measurement between two neighbours; `token` identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RateWord {
    /// The sender requests to fill the link towards the receiver.
    Ask {
        /// The filler packets carry it, too.
        token: Cookie,
    },
    /// Permission: the sender counts the packets.
    Go {
        /// See above.
        token: Cookie,
    },
    /// Refusal: the sender cannot be measured now.
    Busy {
        /// See above.
        token: Cookie,
        /// Guaranteed channels that use the link here; 0: another measurement is in progress.
        channels: u32,
    },
    /// All filler packets were sent before this message.
    Done {
        /// See above.
        token: Cookie,
    },
    /// The result of the count.
    Report {
        /// See above.
        token: Cookie,
        /// `None`: too few packets for a result.
        counted: Option<RateSample>,
    },
}

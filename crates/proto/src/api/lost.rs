//! Where messages of a channel were lost, and what each host has counted of that.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::StageName;

/// A place at which messages were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostAt {
    /// A host that threw them away, or a link: they left the host before it, and nobody counted them at the host behind (the
    /// wire, or that host's driver).
    pub stage: StageName,
    /// How many: packets that left the host before and did not come, or came and did not leave, at most as many as messages are
    /// missing.
    pub messages: u64,
    /// Why a host threw away most of what it did; `None` of a link.
    pub why: Option<LostWhy>,
}

/// Why a host throws packets of a channel away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LostWhy {
    /// All buffers of the channel were in use.
    NoBuffer,
    /// All slots of the channel in a link's queue were in use.
    NoSlot,
    /// The packet came later or faster than it may and was demoted, and best effort had no room for it.
    Demoted,
    /// The packet came too late for the deadline of a soft channel.
    Expired,
    /// The receiver's ring was full.
    ReceiverFull,
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoBuffer => "no buffer of the channel was free",
            Self::NoSlot => "no slot of the channel was free in a link's queue",
            Self::Demoted => "demoted, and no room as best effort",
            Self::Expired => "too late for the deadline of a soft channel",
            Self::ReceiverFull => "the receiver's ring was full",
        })
    }
}

/// Packets of a channel that have left its source, or come to a host: how many, and a digest of which. It does not depend on
/// their order; a packet that came twice makes it another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of packets.
    pub packets: u64,
    /// The sum of what [`Tally::mark`] says of each.
    pub digest: u64,
}

impl Tally {
    /// What one packet adds to the digest: sums of different packets are equal by chance only, one in 2^64 (a multiset hash;
    /// the mixing is that of SplitMix64).
    pub(crate) const fn mark(message: u64, fragment: u16) -> u64 {
        let mut mixed = message.rotate_left(16) ^ fragment as u64;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What of a channel has passed a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Packets that came in, whatever became of them.
    pub packets_in: u64,
    /// Packets that were handed to the link.
    pub packets_out: u64,
    /// Messages whose last packet went out.
    pub messages_out: u64,
    /// Packets that were thrown away, by reason.
    pub thrown: DroppedPackets,
}

/// Packets of a channel that a host has thrown away, by reason ([`LostWhy`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPackets {
    /// [`LostWhy::NoBuffer`].
    pub no_buffer: u64,
    /// [`LostWhy::NoSlot`].
    pub no_slot: u64,
    /// [`LostWhy::Demoted`].
    pub demoted: u64,
    /// [`LostWhy::Expired`].
    pub expired: u64,
    /// [`LostWhy::ReceiverFull`]; of messages, one each.
    pub receiver_full: u64,
}

impl DroppedPackets {
    fn by_reason(&self) -> [(LostWhy, u64); 5] {
        [
            (LostWhy::NoBuffer, self.no_buffer),
            (LostWhy::NoSlot, self.no_slot),
            (LostWhy::Demoted, self.demoted),
            (LostWhy::Expired, self.expired),
            (LostWhy::ReceiverFull, self.receiver_full),
        ]
    }
    /// Number of all packets that were thrown away.
    pub(crate) fn all(&self) -> u64 {
        self.by_reason().iter().fold(0, |sum: u64, (_, packets)| sum.saturating_add(*packets))
    }
    /// The reason of most.
    pub(crate) fn mostly(&self) -> Option<LostWhy> {
        let most = self.by_reason().into_iter().max_by_key(|(_, packets)| *packets);
        most.filter(|(_, packets)| *packets > 0).map(|(why, _)| why)
    }
}

//! Where messages of a channel were lost, and the counts of each host.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::StageName;

/// A place at which messages were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostAt {
    /// A host that dropped them, or a link: they left the host before it, and the host behind did not count
    /// them (they were lost on the wire, or in that host's driver).
    pub stage: StageName,
    /// Number of messages: packets that left the host before and did not arrive, or arrived and did not
    /// leave, at most the number of missing messages.
    pub messages: u64,
    /// Why a host dropped most of its part; `None` for a link.
    pub why: Option<LostWhy>,
}

/// Why a host drops packets of a channel.
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

/// Packets of a channel that have left its source, or come to a host: how many, and a digest of which. It
/// does not depend on their order; a duplicate packet changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of packets.
    pub packets: u64,
    /// The sum of [`Tally::mark`] over the packets.
    pub digest: u64,
}

impl Tally {
    /// The contribution of one packet to the digest: sums of different packets are equal only by chance, with
    /// probability 2^-64 (a multiset hash; the mixing is that of SplitMix64).
    pub(crate) const fn mark(message: u64, fragment: u16) -> u64 {
        let mut mixed = message.rotate_left(16) ^ fragment as u64;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Counts of what has passed a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Packets that arrived, whatever happened to them.
    pub packets_in: u64,
    /// Packets that were handed to the link.
    pub packets_out: u64,
    /// Messages whose last packet was sent.
    pub messages_out: u64,
    /// Packets that were dropped, by reason.
    pub thrown: DroppedPackets,
}

/// Packets of a channel that a host has dropped, by reason ([`LostWhy`]).
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
    /// [`LostWhy::ReceiverFull`]; counts messages, not packets.
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
    /// Number of all dropped packets.
    pub(crate) fn all(&self) -> u64 {
        self.by_reason().iter().fold(0, |sum: u64, (_, packets)| sum.saturating_add(*packets))
    }
    /// The most frequent reason.
    pub(crate) fn mostly(&self) -> Option<LostWhy> {
        let most = self.by_reason().into_iter().max_by_key(|(_, packets)| *packets);
        most.filter(|(_, packets)| *packets > 0).map(|(why, _)| why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of all reasons, and the reason with the largest part of it; no reason without a packet.
    #[test]
    fn dropped_packets_are_counted_and_have_a_main_reason() {
        let of = |counts: [u64; 5]| DroppedPackets {
            no_buffer: counts[0],
            no_slot: counts[1],
            demoted: counts[2],
            expired: counts[3],
            receiver_full: counts[4],
        };
        let reasons =
            [LostWhy::NoBuffer, LostWhy::NoSlot, LostWhy::Demoted, LostWhy::Expired, LostWhy::ReceiverFull];
        assert_eq!((of([0; 5]).all(), of([0; 5]).mostly()), (0, None));
        assert_eq!(of([u64::MAX, 1, 0, 0, 0]).all(), u64::MAX);
        for (index, reason) in reasons.into_iter().enumerate() {
            for most in [1, 2, 9] {
                let mut counts = [most - 1; 5];
                counts[index] = most;
                assert_eq!(of(counts).all(), 5 * (most - 1) + 1, "{counts:?}");
                assert_eq!(of(counts).mostly(), Some(reason), "{counts:?}");
            }
        }
    }
}

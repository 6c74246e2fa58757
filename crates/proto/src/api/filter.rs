//! Packet filters that a node sends to its drivers, so that they can classify and police before they use a
//! buffer.

use punctual_analysis::Nanos;

use crate::ids::{Cookie, PathId};
use crate::seal::SealKey;

/// A channel that comes in on a link.
///
/// Packets of an honest path never exceed its limits: the limits only bound what a driver spends on a path
/// that is not honest. Only packets that are not demoted count; demoted ones are best effort (and have no
/// meaningful slack).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFilter {
    /// Path id of the channel.
    pub path: PathId,
    /// Cookie that each of the channel's packets carries.
    pub cookie: Cookie,
    /// True if the channel's activation is `low_latency`: its packets are read before those of other
    /// channels.
    pub low_latency: bool,
    /// Longest packet, from our header on, in bytes.
    pub packet_bytes_max: u32,
    /// Token bucket: most packets at once, at least 1.
    pub burst_packets: u32,
    /// Token bucket: time for each further packet, at least 1 ns.
    pub interval: Nanos,
    /// Buffers reserved for it here: the most of its packets between the wire and their release, at least 1.
    pub buffers: u32,
    /// Packets of a soft channel with less slack than this, in ns, cannot arrive in time any more, however
    /// fast the rest of the route is. `None`: late packets are delivered.
    pub slack_ns_min: Option<i64>,
}

/// A change that a link's driver must make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterChange {
    /// Accept the channel's packets; replaces what was configured for the same path. Apply it before the next
    /// packet is transmitted, because that packet may permit the source to begin.
    Set(PathFilter),
    /// Remove the filter of this path.
    Clear(PathId),
    /// Signalling whose seal is made with this key, each number once, comes from the neighbour. All other
    /// signalling may come from any sender.
    Neighbour(SealKey),
}

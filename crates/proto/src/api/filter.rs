//! What a node tells its drivers about channels, so that they can classify and police before a buffer is spent.

use punctual_analysis::Nanos;

use crate::ids::{Cookie, PathId};
use crate::seal::SealKey;

/// A channel that comes in on a link.
///
/// An honest path never meets its limits: they bound what a driver spends on one that is not, and nothing else.
/// Only packets that are not demoted count; demoted ones are best effort (and their slack says nothing).
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
    /// Buffers reserved for it here: most of its packets between the wire and their release, at least 1.
    pub buffers: u32,
    /// Packets of a soft channel with less slack than this, in ns, cannot arrive in time any more, however fast the
    /// rest of the way. `None`: late ones are delivered.
    pub slack_ns_min: Option<i64>,
}

/// A change that a link's driver must make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterChange {
    /// Let it in; replaces what was configured for the same path. To be done before the next packet is transmitted: the
    /// one that tells the source to begin may be that.
    Set(PathFilter),
    /// The channel is not known any more.
    Clear(PathId),
    /// Signalling whose seal is made with this key, each number once, comes from the neighbour. All other
    /// signalling may come from anybody.
    Neighbour(SealKey),
}

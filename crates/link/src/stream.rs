//! Streams: the classes that a driver separates from the wire on, and the filters by which it distinguishes
//! them.
//!
//! A driver that can read a packet before any buffer is spent on it (early demultiplexing, RIO 2.0.1) steers
//! it into the ring of its stream and drops packets without a valid use, counted by reason. A driver that
//! cannot do this ignores filters. The receiver checks every packet again in any case.

use derive_more::{Add, AddAssign};

/// The classes of packets, the most urgent first: each has its own ring and its own share of the buffers, so that
/// a flood in one never takes a buffer of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// RTCOP and HELLO.
    Signalling,
    /// Channels whose activation is `low_latency`.
    LowLatency,
    /// All other channels.
    Guaranteed,
    /// Best effort and demoted packets.
    BestEffort,
}

impl Stream {
    /// All, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Signalling, Self::LowLatency, Self::Guaranteed, Self::BestEffort];
}

/// How long to keep polling after a packet of each stream, in ns, before the thread sleeps until a descriptor
/// is readable. The system throttles a thread of a real-time class that never sleeps: 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spins([u64; Stream::ALL.len()]);

impl Spins {
    /// Calls `of` for the time of each stream, in ns.
    pub fn new(of: impl FnMut(Stream) -> u64) -> Self {
        Self(Stream::ALL.map(of))
    }

    /// Time to poll after a packet of this stream, in ns.
    pub const fn after(&self, stream: Stream) -> u64 {
        self.0[stream as usize]
    }

    /// Longest time of all streams, in ns.
    pub fn longest(&self) -> u64 {
        self.0.into_iter().max().unwrap_or(0)
    }
}

/// A channel's id on the wire: source node, number there, epoch of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathKey {
    /// Source node.
    pub node: u32,
    /// Channel number at the source.
    pub channel: u32,
    /// Epoch of the source.
    pub epoch: u64,
}

/// The filter for a channel that comes in on a driver's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Path id of the channel.
    pub path: PathKey,
    /// The cookie of each of its packets; a packet with another one is forged or of another epoch.
    pub cookie: u32,
    /// The stream of its packets; demoted packets go to [`Stream::BestEffort`].
    pub stream: Stream,
    /// Longest packet, from our header on, in bytes.
    pub packet_bytes_max: u32,
    /// Token bucket: most packets at once, at least 1. Already wide enough for the jitter that is allowed here.
    pub burst_packets: u32,
    /// Token bucket: ns for each further packet, at least 1.
    pub interval_ns: u64,
    /// Buffers reserved for it here: maximum number of its packets between the wire and their release, at
    /// least 1. Further packets find no buffer. Demoted packets never count.
    pub buffers: u32,
    /// A packet with less slack than this is too late to be useful and is dropped; `None`: late packets are
    /// delivered.
    pub slack_ns_min: Option<i64>,
}

/// Key of the seals that the neighbour puts on its signalling, for one life of the neighbour: SipHash-2-4 of
/// a packet's number and length. By it a driver that classifies distinguishes packets of the neighbour from
/// those that another host sends under its address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealKey(pub [u8; 16]);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// Packets that the driver has thrown away before they took a buffer, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Add, AddAssign)]
pub struct StreamDrops {
    /// Packets beyond the contract's rate or burst.
    pub policed: u64,
    /// Inconsistent lengths, kinds or versions, or longer than the contract's packets.
    pub malformed: u64,
    /// No such path.
    pub unknown: u64,
    /// The cookie is not the channel's.
    pub wrong_cookie: u64,
    /// No reserved buffer was free.
    pub no_buffer: u64,
    /// Too late to be of use.
    pub expired: u64,
    /// Signalling of the neighbour that is a duplicate, or too old to check.
    pub replayed: u64,
    /// First fragments of segments of a flow or to a listener: without ports in every packet no flow is found.
    pub fragmented: u64,
}

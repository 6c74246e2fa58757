//! Streams: the classes that a driver keeps apart from the wire on, and the filters by which it tells them apart.
//!
//! A driver that can look at a packet before any buffer is spent on it (early demultiplexing, RIO 2.0.1) steers it
//! into the ring of its stream and drops what nobody may use, counted by reason. A driver that cannot ignores
//! filters; whoever receives checks every packet again in any case.

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

/// How long to go on looking for packets after one of each stream, in ns, before the thread sleeps until a descriptor is
/// readable. A thread of a real-time class that never sleeps is throttled by the system: 0 unless asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spins([u64; Stream::ALL.len()]);

impl Spins {
    /// Asks `of` for the time of each stream, in ns.
    pub fn new(of: impl FnMut(Stream) -> u64) -> Self {
        Self(Stream::ALL.map(of))
    }

    /// Time to look for packets after a packet of this stream, in ns.
    pub const fn after(&self, stream: Stream) -> u64 {
        self.0[stream as usize]
    }

    /// Longest time of all streams, in ns.
    pub fn longest(&self) -> u64 {
        self.0.into_iter().max().unwrap_or(0)
    }
}

/// A channel's name on the wire: source node, number there, life of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathKey {
    /// Source node.
    pub node: u32,
    /// Channel number at the source.
    pub channel: u32,
    /// Life of the source.
    pub epoch: u64,
}

/// What the driver is told about a channel that comes in on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Path id of the channel.
    pub path: PathKey,
    /// What each of its packets carries; another one is forged or of another life.
    pub cookie: u32,
    /// Where its packets go; demoted ones go to [`Stream::BestEffort`].
    pub stream: Stream,
    /// Longest packet, from our header on, in bytes.
    pub packet_bytes_max: u32,
    /// Token bucket: most packets at once, at least 1. Already wide enough for the jitter that is allowed here.
    pub burst_packets: u32,
    /// Token bucket: ns for each further packet, at least 1.
    pub interval_ns: u64,
    /// Buffers reserved for it here: most of its packets between the wire and their release, at least 1. What comes
    /// on top finds no buffer. Demoted packets never count.
    pub buffers: u32,
    /// A packet whose slack is below this is too late to be of use and is dropped; `None`: late ones are delivered.
    pub slack_ns_min: Option<i64>,
}

/// Keys the seals of what the neighbour signals in this life of its own: SipHash-2-4 of a packet's number and length. A
/// driver that classifies tells by it what comes from the neighbour from what somebody sends under its address.
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
    /// Signalling of the neighbour that came before, or that is too old to tell.
    pub replayed: u64,
    /// First fragments of segments of a flow or to a listener: without ports in every packet no flow is found.
    pub fragmented: u64,
}

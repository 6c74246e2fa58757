//! Limits of a connection.

use punctual_analysis::Nanos;

/// Full segments of the first flight, and the bytes of it that segments longer than 1,460 B leave room for (RFC 6928 2).
pub(crate) const FIRST_FLIGHT: (u32, u32) = (10, 14_600);
/// Ranges that the peer has acknowledged selectively, as many as are remembered. More are forgotten: they are sent again.
pub(crate) const SACKED_MAX: usize = 32;
/// Segments that may overtake one before it counts as lost, at most (Linux: `tcp_max_reordering`).
pub(crate) const REORDERED_MAX: u32 = 300;
/// The shortest time after which the end of a flight is probed for.
pub(crate) const PROBE_MIN: Nanos = Nanos::from_millis(10);
/// How long a peer may delay the acknowledgement of a single segment (RFC 8985 7.2, WCDelAckT).
pub(crate) const PEER_ACK_DELAY: Nanos = Nanos::from_millis(200);
/// The machine's shortest retransmission timeout (RFC 6298 2.4). A probe that would be later is left to it.
pub(crate) const TIMEOUT_MIN: Nanos = Nanos::from_secs(1);
/// The first wait for a probe of a repair where no round trip was measured: between the machine's timeouts, of one second and two.
pub(crate) const UNMEASURED_PROBE: Nanos = Nanos::from_millis(1_500);
/// The longest wait for a probe of a repair. One that would wait longer is left to the machine (RFC 6298 2.5: a timeout may be
/// bounded by 60 s).
pub(crate) const REPAIR_PROBE_MAX: Nanos = Nanos::from_secs(60);
/// The shortest and the longest time after which the oldest segment in flight leaves again although the machine has not sent it: above
/// the machine's first timeout of a second and its longest of a minute.
pub(crate) const FORGOTTEN_MIN: Nanos = Nanos::from_secs(3);
/// See [`FORGOTTEN_MIN`].
pub(crate) const FORGOTTEN_MAX: Nanos = Nanos::from_secs(90);
/// Segments that one acknowledgement counts as, at most: the work of a unit is bounded. A kernel takes 64 KiB at once, and
/// acknowledges them together.
pub(crate) const ACK_PARTS_MAX: u32 = 48;
/// Segments in a connection's queue that one acknowledgement may wait for, at most.
pub const ACK_SEGMENTS_MAX: u32 = 32;

//! A handshake that a listener has completed, as passed to a connection.

use punctual_analysis::Instant;

use crate::wire::Segment;

/// State of a handshake when its third segment arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// The peer's SYN, with its options.
    pub(crate) syn: Segment,
    /// The sequence number of our SYN.
    pub(crate) iss: u32,
    /// When our SYN left. None if a SYN of either end was sent again, or may have been: the round trip is not known then, and the
    /// first flight is small (RFC 5681 3.1).
    pub(crate) answered_at: Option<Instant>,
}

/// A completed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening(pub(crate) Handshake);

/// The scale of the window for a buffer of `bytes`; the machine computes the same.
pub(crate) const fn shift_of(bytes: usize) -> u8 {
    (usize::BITS - bytes.leading_zeros()).saturating_sub(16) as u8
}

//! A handshake that a listener did, as it hands it to a connection.

use crate::wire::Segment;

/// What a listener knows when the third segment of a handshake arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// The peer's SYN, with its options.
    pub(crate) syn: Segment,
    /// The number that our SYN had.
    pub(crate) iss: u32,
}

/// A completed handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening(pub(crate) Handshake);

/// The scale of a window that a buffer of `bytes` needs; the machine computes the same.
pub(crate) const fn shift_of(bytes: usize) -> u8 {
    (usize::BITS - bytes.leading_zeros()).saturating_sub(16) as u8
}

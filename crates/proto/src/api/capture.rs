//! The header in front of each packet in the ring of a capture: a fixed layout, little-endian.

use crate::ids::LinkId;

/// Bytes in front of the copy of a packet.
pub const CAPTURE_HEAD_BYTES: usize = 8;

/// Kind of a captured packet: what its bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturedKind {
    /// An IP packet.
    Ip,
    /// A packet of channels, from Punctual's header on.
    Data,
    /// A packet of signalling, from Punctual's header on.
    Signalling,
}

/// Header in front of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureHead {
    /// Kind of the packet.
    pub kind: CapturedKind,
    /// True if this host sent the packet, false if it received it.
    pub is_sent: bool,
    /// Link of the packet.
    pub link: LinkId,
    /// Bytes of the packet, which may be more than were copied.
    pub bytes: u32,
}

impl CaptureHead {
    /// The header as bytes in the ring.
    pub const fn to_bytes(self) -> [u8; CAPTURE_HEAD_BYTES] {
        let ([a, b], [c, d, e, f]) = (self.link.0.to_le_bytes(), self.bytes.to_le_bytes());
        [self.kind as u8, self.is_sent as u8, a, b, c, d, e, f]
    }

    /// Reads the header at the begin of a message in the ring; `None` if the bytes are no header.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let &[kind, is_sent, a, b, c, d, e, f] = message.first_chunk()?;
        let kinds = [CapturedKind::Ip, CapturedKind::Data, CapturedKind::Signalling];
        Some(Self {
            kind: *kinds.get(usize::from(kind))?,
            is_sent: is_sent != 0,
            link: LinkId(u16::from_le_bytes([a, b])),
            bytes: u32::from_le_bytes([c, d, e, f]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for kind in [CapturedKind::Ip, CapturedKind::Data, CapturedKind::Signalling] {
            for is_sent in [false, true] {
                let head = CaptureHead { kind, is_sent, link: LinkId(0x0102), bytes: 0x0304_0506 };
                assert_eq!(CaptureHead::parse(&[&head.to_bytes()[..], &[7; 3]].concat()), Some(head));
            }
        }
        assert_eq!(CaptureHead::parse(&[0; 7]), None, "too short");
        assert_eq!(CaptureHead::parse(&[3; 8]), None, "no kind");
    }
}

//! How a message is fragmented: every fragment but the last has the same size, the last carries the rest.

use crate::limits::{FRAGMENTS_MAX, HEADER_BYTES};

/// Bytes that a packet of `payload_bytes` takes on the wire; `overhead_bytes` is what the link adds (UDP, IP,
/// Ethernet, preamble, gap).
pub const fn packet_wire_bytes(payload_bytes: u32, overhead_bytes: u32) -> u32 {
    payload_bytes.saturating_add(HEADER_BYTES as u32).saturating_add(overhead_bytes)
}

/// Position of a fragment in its message, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of its first byte in the message.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// The fragmentation of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragmentation {
    message_bytes: u32,
    fragment_bytes: u32,
    fragments: u16,
}

impl Fragmentation {
    /// Cuts `message_bytes` into fragments of `fragment_bytes`. A message without bytes is one fragment
    /// without payload.
    ///
    /// `None` if `fragment_bytes` is zero or there would be more than [`FRAGMENTS_MAX`] fragments.
    pub const fn new(message_bytes: u32, fragment_bytes: u32) -> Option<Self> {
        if fragment_bytes == 0 {
            return None;
        }
        let fragments = message_bytes.div_ceil(fragment_bytes);
        match fragments {
            0 => Some(Self { message_bytes, fragment_bytes, fragments: 1 }),
            1..=FRAGMENTS_MAX => Some(Self { message_bytes, fragment_bytes, fragments: fragments as u16 }),
            _ => None,
        }
    }

    /// Fragments of the message, 1 or more.
    pub const fn fragments(self) -> u16 {
        self.fragments
    }

    /// Position of fragment `index`; `None` beyond the last.
    pub const fn extent(self, index: u16) -> Option<Extent> {
        if index >= self.fragments {
            return None;
        }
        let offset = index as u32 * self.fragment_bytes;
        let left = self.message_bytes - offset;
        Some(Extent { offset, len: if left < self.fragment_bytes { left } else { self.fragment_bytes } })
    }

    /// Bytes that the whole message takes on a link that adds `overhead_bytes` to each packet.
    pub const fn wire_bytes(self, overhead_bytes: u32) -> u64 {
        self.message_bytes as u64 + self.fragments as u64 * packet_wire_bytes(0, overhead_bytes) as u64
    }

    /// Bytes that its largest packet takes on such a link: the unit that blocks others.
    pub const fn unit_wire_bytes(self, overhead_bytes: u32) -> u32 {
        let first =
            if self.message_bytes < self.fragment_bytes { self.message_bytes } else { self.fragment_bytes };
        packet_wire_bytes(first, overhead_bytes)
    }
}

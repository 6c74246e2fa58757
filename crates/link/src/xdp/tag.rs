//! The tag that the program writes over the first bytes of a packet that it steers to us, in place of its
//! Ethernet header.
//!
//! An IP packet of a flow is not overwritten: the tag is in front of the frame.
//!
//! Those bytes are not needed any more, every driver lets a program write there (metadata in front of a packet it may
//! not), and copying the frame to user space takes them along.

/// Length of a [`Tag`] in bytes; headers of Ethernet, IP and UDP are longer.
pub const TAG_BYTES: usize = 24;

/// `struct tag` in `punctual.bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// When the driver had the packet, on `CLOCK_MONOTONIC`.
    pub received_ns: u64,
    /// Number of the packet in its stream on this queue; wraps around.
    pub stream_count: u32,
    /// Number of the packet in its path; wraps around. It has no meaning without a path.
    pub path_count: u32,
    /// Account of its path, flow or listener, or [`Tag::NO_PATH`].
    pub path: u32,
    /// Where our header (or the signalling packet, or an IP packet of a flow) begins, from the frame's first byte; [`TAG_BYTES`] at least.
    pub offset: u16,
    /// How long the UDP payload or the IP packet is, all of it within the frame.
    pub bytes: u16,
}

impl Tag {
    /// Value of [`Tag::path`] for signalling, best effort and demoted packets.
    pub const NO_PATH: u32 = u32::MAX;

    /// The tag at the start of a steered frame; `None` if the frame is shorter than a tag, or than the tag
    /// states.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let tag: &[u8; TAG_BYTES] = frame.first_chunk()?;
        let word = |at: usize| u32::from_ne_bytes([tag[at], tag[at + 1], tag[at + 2], tag[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([tag[at], tag[at + 1]]);
        let mut received = [0; 8];
        received.copy_from_slice(&tag[..8]);
        let tag = Self {
            received_ns: u64::from_ne_bytes(received),
            stream_count: word(8),
            path_count: word(12),
            path: word(16),
            offset: half(20),
            bytes: half(22),
        };
        (usize::from(tag.offset) >= TAG_BYTES && tag.offset as usize + tag.bytes as usize <= frame.len())
            .then_some(tag)
    }
}

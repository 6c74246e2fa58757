//! The header as a plain struct, and its only two conversions: `parse` and `write`.

use punctual_analysis::Instant;
use punctual_analysis::contract::MESSAGE_BYTES_MAX;
use thiserror::Error;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::clocks::{Age, ClockError};
use crate::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use crate::limits::{FRAGMENT_BYTES_MAX, HEADER_BYTES};

/// The version of the wire format that this crate implements. 2: the logical arrival is on the receiving
/// host's clock, with its error and the age at departure (ADR 0025).
pub const VERSION: u8 = 2;

/// Flag bit 0: the packet travels as best effort because it arrived at some stage too late, too early, or
/// beyond its contract.
const DEMOTED: u16 = 1;
/// Flag bit 1, only with bit 0: its source found it to break its contract, so it never had a guarantee.
const UNPROMISED: u16 = 2;
const BEYOND_CONTRACT: u16 = DEMOTED | UNPROMISED;

/// The kind of traffic that a data packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An admitted channel.
    Guaranteed,
    /// A best-effort flow.
    BestEffort,
}

impl Kind {
    const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Guaranteed),
            2 => Some(Self::BestEffort),
            _ => None,
        }
    }

    const fn to_wire(self) -> u8 {
        match self {
            Self::Guaranteed => 1,
            Self::BestEffort => 2,
        }
    }
}

/// Why a packet is dropped on reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// Another version of the protocol.
    #[error("packet of version {0}, this node uses version {VERSION}")]
    Version(u8),
    /// Not a packet of ours, or one that contradicts itself.
    #[error("malformed packet: {0}")]
    Malformed(#[from] Malformed),
}

/// The fault of a malformed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Fewer bytes than a header, or than the header states.
    #[error("it is shorter than its header states")]
    Short,
    /// There is no such kind of packet.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// Undefined flags, or `demoted` on best effort.
    #[error("flags {0:#06x} do not fit its kind")]
    Flags(u16),
    /// A source that is no node, or a best-effort packet without a destination.
    #[error("source or destination node does not fit its kind")]
    Nodes,
    /// Fragment index, count, message length and payload length contradict one another.
    #[error("fragment and message lengths contradict one another")]
    Lengths,
}

/// The header of a data packet. A parsed one has consistent counts (see the module's documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Guaranteed or best effort.
    pub kind: Kind,
    /// True if the packet travels as best effort because it arrived at some stage too late, too early, or
    /// beyond its contract. Only guaranteed data is demoted.
    pub demoted: bool,
    /// The source demoted the packet: the sender broke the contract, and the packet never had a guarantee.
    pub unpromised: bool,
    /// The channel, on every hop; for best effort its source and flow.
    pub path: PathId,
    /// The channel's cookie; for best effort the hash of the port's name.
    pub cookie: Cookie,
    /// The message's number in its channel.
    pub message: u64,
    /// Index of this fragment, below `fragments`.
    pub fragment: u16,
    /// Fragments of the message, 1 or more.
    pub fragments: u16,
    /// Length of the whole message in bytes.
    pub message_bytes: u32,
    /// Nominal arrival plus bound at the last stage, less the latest departure of the last bit there, in ns.
    pub slack_ns: i64,
    /// Logical arrival of the message: for a channel on the clock of the host that sent this packet
    /// (rewritten at each hop), for best effort on the source's.
    pub logical_arrival: Instant,
    /// Longest time from its logical arrival until the packet leaves its last host; 0 for best effort and
    /// without a guarantee.
    pub age: Age,
    /// Payload of this packet in bytes, at most [`FRAGMENT_BYTES_MAX`].
    pub payload_bytes: u32,
    /// For a channel: largest error of its logical arrival.
    pub clock_error: ClockError,
    /// Node that a best-effort packet goes to; node 0 for channels.
    pub destination: NodeId,
}

/// The bytes of the header in the order on the wire.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    version: u8,
    kind: u8,
    flags: U16,
    source: U32,
    channel: U32,
    cookie: U32,
    epoch: U64,
    message: U64,
    fragment: U16,
    fragments: U16,
    message_bytes: U32,
    slack_ns: I64,
    logical_arrival_ns: U64,
    payload_bytes: U16,
    age: U16,
    /// Destination of best effort, or clock error of a channel.
    end: U32,
}

const _: () = assert!(size_of::<Layout>() == HEADER_BYTES);
const _: () = assert!(FRAGMENT_BYTES_MAX <= u16::MAX as u32);

impl Header {
    /// Checks a packet completely; returns its header and payload. Bytes behind the payload (padding) are
    /// left out.
    ///
    /// # Errors
    /// [`WireError`] if the packet has another version or contradicts itself; the caller must drop it.
    pub fn parse(packet: &[u8]) -> Result<(Self, &[u8]), WireError> {
        match packet.first() {
            None => return Err(Malformed::Short.into()),
            Some(&version) if version != VERSION => return Err(WireError::Version(version)),
            Some(_) => {}
        }
        let (layout, rest) = Layout::ref_from_prefix(packet).map_err(|_| Malformed::Short)?;
        let header = layout.to_header()?;
        header.check_nodes()?;
        header.check_lengths()?;
        let payload = rest.get(..header.payload_bytes as usize).ok_or(Malformed::Short)?;
        Ok((header, payload))
    }

    /// Writes the header to the first [`HEADER_BYTES`] of `out`; returns their number. The caller is
    /// responsible for consistency: a header that [`Header::parse`] would refuse is written all the same.
    ///
    /// # Panics
    /// If `out` is shorter than a header.
    pub fn write(&self, out: &mut [u8]) -> usize {
        out[..HEADER_BYTES].copy_from_slice(Layout::from_header(self).as_bytes());
        HEADER_BYTES
    }

    /// Payload of every fragment of this message except the last, in bytes: fragment i begins at i times
    /// this. For a message of one fragment it is the message's length.
    ///
    /// `None` if the lengths contradict one another, which a parsed header's never do.
    pub fn fragment_bytes(&self) -> Option<u32> {
        let before_last = u32::from(self.fragments.checked_sub(1)?);
        let is_last = self.fragment.checked_add(1)? == self.fragments;
        if before_last == 0 {
            return (is_last && self.payload_bytes == self.message_bytes).then_some(self.message_bytes);
        }
        let size = if is_last {
            let whole = self.message_bytes.checked_sub(self.payload_bytes)?;
            if !whole.is_multiple_of(before_last) {
                return None;
            }
            whole / before_last
        } else {
            self.payload_bytes
        };
        let last = self.message_bytes.checked_sub(size.checked_mul(before_last)?)?;
        (self.fragment < self.fragments && (1..=size).contains(&last)).then_some(size)
    }

    fn check_nodes(&self) -> Result<(), Malformed> {
        let has_destination = self.destination != NodeId(0);
        let fits = has_destination == (self.kind == Kind::BestEffort);
        if fits && self.path.node != NodeId(0) { Ok(()) } else { Err(Malformed::Nodes) }
    }

    fn check_lengths(&self) -> Result<(), Malformed> {
        let fits = self.message_bytes <= MESSAGE_BYTES_MAX
            && self.fragment_bytes().is_some_and(|size| size <= FRAGMENT_BYTES_MAX);
        if fits { Ok(()) } else { Err(Malformed::Lengths) }
    }
}

impl Layout {
    fn to_header(&self) -> Result<Header, Malformed> {
        let kind = Kind::from_wire(self.kind).ok_or(Malformed::Kind(self.kind))?;
        let (demoted, unpromised) = match (kind, self.flags.get()) {
            (_, 0) => (false, false),
            (Kind::Guaranteed, DEMOTED) => (true, false),
            (Kind::Guaranteed, BEYOND_CONTRACT) => (true, true),
            (_, flags) => return Err(Malformed::Flags(flags)),
        };
        let (clock_error, destination) = match kind {
            Kind::Guaranteed => (ClockError::from_bits(self.end.get()), NodeId(0)),
            Kind::BestEffort => (ClockError::UNKNOWN, NodeId(self.end.get())),
        };
        Ok(Header {
            kind,
            demoted,
            unpromised,
            path: PathId {
                node: NodeId(self.source.get()),
                channel: ChannelNumber(self.channel.get()),
                epoch: Epoch(self.epoch.get()),
            },
            cookie: Cookie(self.cookie.get()),
            message: self.message.get(),
            fragment: self.fragment.get(),
            fragments: self.fragments.get(),
            message_bytes: self.message_bytes.get(),
            slack_ns: self.slack_ns.get(),
            logical_arrival: Instant(self.logical_arrival_ns.get()),
            age: Age::from_bits(self.age.get()),
            payload_bytes: self.payload_bytes.get().into(),
            clock_error,
            destination,
        })
    }

    fn from_header(header: &Header) -> Self {
        Self {
            version: VERSION,
            kind: header.kind.to_wire(),
            flags: U16::new(match (header.demoted, header.unpromised) {
                (false, _) => 0,
                (true, false) => DEMOTED,
                (true, true) => BEYOND_CONTRACT,
            }),
            source: U32::new(header.path.node.0),
            channel: U32::new(header.path.channel.0),
            cookie: U32::new(header.cookie.0),
            epoch: U64::new(header.path.epoch.0),
            message: U64::new(header.message),
            fragment: U16::new(header.fragment),
            fragments: U16::new(header.fragments),
            message_bytes: U32::new(header.message_bytes),
            slack_ns: I64::new(header.slack_ns),
            logical_arrival_ns: U64::new(header.logical_arrival.0),
            payload_bytes: U16::new(header.payload_bytes as u16),
            age: U16::new(header.age.to_bits()),
            end: U32::new(match header.kind {
                Kind::Guaranteed => header.clock_error.to_bits(),
                Kind::BestEffort => header.destination.0,
            }),
        }
    }
}

//! Flows: TCP that this host runs itself, native on the wire, with any host.
//!
//! A driver that knows flows hands over IP packets of theirs, from the IP header on, and the kernel never sees them. A flow
//! must be known to the driver before its first segment leaves, and until its TIME-WAIT is over: the kernel answers
//! segments of connections that it does not have with resets. A [`PortHold`](crate::kernel::PortHold) keeps the kernel
//! from giving the local port to others meanwhile.

use std::net::SocketAddr;

use crate::Stream;
use crate::mac::Mac;

/// The two ends of a TCP connection, as this host sees them; both of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

/// What bounds the packets of a flow or a listener before they cost a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlet {
    /// Ring that its packets come in on: any but [`Stream::Signalling`].
    pub stream: Stream,
    /// Token bucket: most packets at once, at least 1.
    pub burst_packets: u32,
    /// Token bucket: ns for each further packet, at least 1.
    pub interval_ns: u64,
    /// Buffers: most of its packets between the wire and their release, at least 1.
    pub buffers: u32,
}

/// Description of a flow for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// Addresses and ports of both ends.
    pub key: FlowKey,
    /// Names the flow in [`IpTarget::Flow`]; below the driver's bound, of no other flow at the same time.
    pub index: u32,
    /// Bounds.
    pub inlet: Inlet,
}

/// Description, for the driver, of an address and port at which connections are accepted. What comes for them and belongs
/// to no flow is the listener's: SYNs, and the third segments of handshakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerFilter {
    /// This host's address and port.
    pub local: SocketAddr,
    /// Names the listener in [`IpTarget::Listener`]; as [`FlowFilter::index`].
    pub index: u32,
    /// Bounds of all packets without a connection, so of floods too.
    pub inlet: Inlet,
}

/// Destination of an IP packet on this host: a flow, a listener, or ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IpTarget {
    /// A flow. A packet that came before its flow was cleared may show up when the index is another flow's: compare the
    /// addresses.
    Flow(u32),
    /// A listener.
    Listener(u32),
    /// An ICMP error that quotes a segment of a flow. The quote identifies the flow.
    Error,
}

/// What a driver knows of a received IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket {
    /// Destination of the packet.
    pub to: IpTarget,
    /// The hardware address that it came from: the answer to a sender without a connection goes there, without a look-up.
    pub sender: Mac,
}

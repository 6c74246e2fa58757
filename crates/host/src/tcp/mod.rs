//! TCP of this host's own: the parts of connections and listeners that take system calls, which the processor's thread may not
//! make (rings of segments, ports, next hops), and their end.
//!
//! Ownership: a local port is held from before its connection or listener begins until its engine has given the flow back. One
//! thread, the *releaser*, drops what connections leave behind.

pub(crate) mod address;
mod api;
pub(crate) mod daemon;
pub(crate) mod listener;
pub(crate) mod opener;
pub(crate) mod paths;
mod releaser;
mod route;
mod segments;
mod starter;
mod turns;

use std::io;
use std::net::{IpAddr, SocketAddr};

use punctual_engine::tcp::{ACK_SEGMENTS_MAX, TcpConfig, TcpRefusal, TcpTerms};
use punctual_engine::{CallError, EngineHandle};
use punctual_ipc::ring::{InboxWriter, OutboxReader, RingError, RingShape};
use punctual_link::kernel::KernelError;
use punctual_link::{Inlet, Stream};
use punctual_os::calls::Forbidden;
use punctual_proto::Nanos;
use punctual_proto::api::{RtuClass, RtuCost, RtuSending, RtuTarget, RtuTerms};
use punctual_proto::config::{CpuCosts, WorkKind};
use punctual_proto::ids::LinkId;
use punctual_proto::limits::RAW_TAG_BYTES;
use thiserror::Error;

pub use api::{api_end, api_settings, api_state, engine_setting};

/// The engine, with rings in shared memory.
pub(crate) type Handle = EngineHandle<OutboxReader, InboxWriter>;

/// Messages of a program's ring in each direction, and the bytes of one: what a program may write, or leave unread, beside the
/// connection's own buffers.
pub(crate) const RING: (u32, u32) = (64, 4_096);
/// Segments that wait between an output handler and the node.
pub(crate) const SEGMENTS: u32 = 64;
/// Packets of a connection between the wire and its input handler at most.
const BUFFERS: u32 = 256;
/// Time that a segment is declared to take where nothing was measured, in each direction, the copy to or from the program's ring
/// included: enough for a slow machine.
pub(crate) const SEGMENT_COST: RtuCost = RtuCost { run: Nanos::from_micros(5), unit: Nanos::from_micros(15) };
/// What a connection holds besides its rings, in bytes: its buffers in both directions, and its ring of segments.
pub(crate) const CONNECTION_BYTES: u64 = 640 << 10;
/// What is left of that in TIME-WAIT, in which a connection has neither rings nor buffers.
pub(crate) const RESTING_BYTES: u64 = 32 << 10;
/// What a listener holds for each connection that may wait.
pub(crate) const LISTENER_BYTES: u64 = 256 << 10;
/// Segments of a call of best effort.
const QUANTUM: u32 = 2;

/// Time of the longest call of a best-effort handler of TCP, with the node's part of it.
pub(crate) fn best_effort_call(costs: &CpuCosts, segment: RtuCost, packet_bytes: u32) -> Nanos {
    let sent = costs.of_unit(WorkKind::Send, 1, packet_bytes, true);
    costs.dispatch() + segment.of(QUANTUM) + sent * u64::from(QUANTUM)
}
/// Packets that every path carries, over IPv4 (RFC 791) and IPv6 (RFC 8200 5), in bytes.
const IP_PACKET_BYTES_MIN: [u32; 2] = [576, 1_280];

/// A link with room for connections.
#[derive(Clone, Debug)]
pub(crate) struct TcpLink {
    pub id: LinkId,
    /// Its longest packet.
    pub packet_bytes: u32,
    /// Its device. A link without one serves all addresses.
    pub device: Option<String>,
}

/// What TCP of a host is made of.
#[derive(Clone, Debug)]
pub(crate) struct TcpSetup {
    /// Links with room for connections.
    pub links: Vec<TcpLink>,
    /// What a segment is declared to take.
    pub segment: RtuCost,
    /// What the doorbell of a program costs the processor for each segment of a class with a budget, which pays for its rings:
    /// zero where programs are in this process.
    pub rings: Nanos,
    /// What happens to a thread at a system call that is not in its list.
    pub forbidden: Forbidden,
}

/// Why a connection or a listener cannot be had.
#[derive(Debug, Error)]
pub enum TcpError {
    /// Admission, the driver or the configuration refuses.
    #[error(transparent)]
    Refused(#[from] TcpRefusal),
    /// No link of this host leads to the peer.
    #[error("no link with flows_max above 0 leads to {peer}: {why}")]
    NoRoute {
        /// The peer.
        peer: IpAddr,
        /// What the kernel answers.
        why: String,
    },
    /// Addresses of a single network segment name no link.
    #[error(
        "{0} is a link-local address, which exists on every link: give a global or unique local address of the same host"
    )]
    LinkLocal(IpAddr),
    /// Port 0 is no program's.
    #[error("{0} names no program: give a port, 1 to 65535")]
    NoPort(SocketAddr),
    /// Connections to the address come over no link of this host.
    #[error(
        "no link with flows_max above 0 is on a device that has {address}{}: give an address of such a link's device",
        on(devices)
    )]
    NoLink {
        /// The address.
        address: IpAddr,
        /// Devices that have it.
        devices: Vec<String>,
    },
    /// The listener was closed.
    #[error("the listener is closed")]
    NotListening,
    /// The link's packets are shorter than those that IP requires.
    #[error(
        "packets of {bytes} B are too short for TCP: set packet and packet_best_effort of the link to {least} B or more"
    )]
    ShortPackets {
        /// Bytes of a packet of the link.
        bytes: u32,
        /// Bytes that TCP over this version of IP needs.
        least: u32,
    },
    /// A channel of the connection ended before it began.
    #[error("a channel of the connection has just ended")]
    PathLost,
    /// The local address or port cannot be held.
    #[error(transparent)]
    Port(#[from] KernelError),
    /// A ring cannot be made.
    #[error("cannot make a ring for a TCP connection: {0}")]
    Ring(#[from] RingError),
    /// The system refuses a descriptor.
    #[error("cannot make a ring for a TCP connection: {0}")]
    Os(#[from] io::Error),
    /// The engine has ended, or this is its own thread.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Names devices, if there are any.
fn on(devices: &[String]) -> String {
    if devices.is_empty() { String::new() } else { format!(" (it is on {})", devices.join(", ")) }
}

/// Rings of a program's doorbell that the budget of a connection pays for, for each segment: bytes to send, and room for
/// bytes that came (`engine::processor::doorbells`).
const RINGS_A_SEGMENT: u64 = 2;

/// What the rings of a program in another process cost for each segment.
pub(crate) fn rings_cost(costs: &CpuCosts) -> Nanos {
    costs.dispatch() * RINGS_A_SEGMENT
}

/// What a connection asks of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpWish {
    /// Class of both handlers of the connection, whose data units are segments.
    pub class: RtuClass,
    /// Settings of the connection.
    pub config: TcpConfig,
    /// What the program declares for handling the data of one segment on the processor: zero without a direct handler and
    /// without a leading thread.
    pub handler_time: Nanos,
}

impl TcpWish {
    /// What the input handler does besides processing a segment: calling the program, and handling its doorbell.
    fn program_time(&self, rings: Nanos) -> Nanos {
        if self.class == RtuClass::BestEffort { self.handler_time } else { self.handler_time + rings }
    }

    /// The settings for a class: a low-delay connection sends small segments at once.
    pub fn of(class: RtuClass) -> Self {
        let is_nodelay = matches!(class, RtuClass::LowDelay { .. });
        // The other classes have budgets: what is beyond them waits in the queue for a period, and would delay the acknowledgement.
        let ack_segments = if class == RtuClass::BestEffort { ACK_SEGMENTS_MAX } else { 1 };
        let config = TcpConfig { is_nodelay, ack_segments, ..TcpConfig::default() };
        Self { class, config, handler_time: Nanos::ZERO }
    }

    /// With the settings of a program, but for the number of segments that an acknowledgement may wait for: it belongs to the class.
    #[must_use]
    pub const fn with(mut self, settings: TcpConfig) -> Self {
        self.config = TcpConfig { ack_segments: self.config.ack_segments, ..settings };
        self
    }
}

/// Memory of the rings of a connection over a link with packets of at most `packet_bytes`, in bytes: the program's two, and that of
/// the segments that leave.
///
/// # Errors
/// If there is no ring for such packets.
pub fn tcp_rings_bytes(packet_bytes: u32) -> Result<u64, TcpError> {
    let (slots, bytes) = RING;
    let segments = RingShape::new(SEGMENTS, packet_bytes)?;
    Ok(2 * RingShape::new(slots, bytes)?.file_bytes() + segments.file_bytes())
}

/// Terms of the handlers of a class on a link. The program's own time for a segment is the input handler's.
fn terms(
    (class, cost): (RtuClass, RtuCost),
    handler_time: Nanos,
    link: LinkId,
    segment_bytes: u32,
) -> TcpTerms {
    let terms = handler_terms((class, cost), if class == RtuClass::BestEffort { QUANTUM } else { 1 });
    let sending = RtuSending { to: RtuTarget::Link(link), packets: 1, payload_bytes: segment_bytes };
    let stream = match class {
        RtuClass::LowDelay { .. } => Stream::LowLatency,
        RtuClass::Guaranteed { .. } => Stream::Guaranteed,
        RtuClass::BestEffort => Stream::BestEffort,
    };
    let inlet = Inlet { stream, burst_packets: BUFFERS, interval_ns: 1_000, buffers: BUFFERS };
    let mut input = terms;
    input.cost.unit += handler_time;
    TcpTerms { input, output: terms, sending, inlet }
}

/// Terms of a handler of a class that does so many segments in a call.
const fn handler_terms((class, cost): (RtuClass, RtuCost), quantum: u32) -> RtuTerms {
    // A segment waits for no period to begin, neither here nor at the other end.
    RtuTerms { class: class.sporadic(), deadline: None, quantum, cost }
}

/// Bytes of the longest segment on a link, behind which a tag has room.
fn segment_bytes(packet_bytes: u32, peer: IpAddr) -> Result<u32, TcpError> {
    let least = IP_PACKET_BYTES_MIN[usize::from(peer.is_ipv6())];
    let bytes = packet_bytes.saturating_sub(RAW_TAG_BYTES as u32);
    if bytes < least {
        return Err(TcpError::ShortPackets { bytes: packet_bytes, least: least + RAW_TAG_BYTES as u32 });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_segment_is_no_shorter_than_ip_requires() {
        let [v4, v6] = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        assert!(matches!(segment_bytes(584, v4), Ok(576)));
        assert!(matches!(segment_bytes(583, v4), Err(TcpError::ShortPackets { bytes: 583, least: 584 })));
        assert!(matches!(segment_bytes(1_464, v6), Ok(1_456)));
        assert!(matches!(segment_bytes(1_287, v6), Err(TcpError::ShortPackets { least: 1_288, .. })));
        assert!(matches!(segment_bytes(0, v4), Err(TcpError::ShortPackets { .. })));
    }

    /// The rings that a budget pays for are in the time of its segments; those of best effort count in the user's allowance.
    #[test]
    fn admission_counts_the_rings_of_a_class_with_a_budget() {
        let costs = CpuCosts { deliver_message: Nanos(700), ..CpuCosts::default() };
        let rings = rings_cost(&costs);
        assert_eq!(rings, Nanos(1_400));
        let time = |class| TcpWish { handler_time: Nanos(50), ..TcpWish::of(class) }.program_time(rings);
        assert_eq!(time(RtuClass::BestEffort), Nanos(50));
        assert_eq!(time(RtuClass::periodic(Nanos::from_millis(1), 4)), Nanos(1_450));
        let low_delay = RtuClass::LowDelay { interval: Nanos::from_millis(1), units: 4, priority: None };
        assert_eq!(time(low_delay), Nanos(1_450));
    }

    #[test]
    fn how_long_an_acknowledgement_waits_belongs_to_the_class() {
        let settings = TcpConfig { ack_segments: 7, receive_bytes: 9_000, ..TcpConfig::default() };
        let of = |class| TcpWish::of(class).with(settings).config;
        let best_effort = of(RtuClass::BestEffort);
        assert_eq!((best_effort.ack_segments, best_effort.receive_bytes), (ACK_SEGMENTS_MAX, 9_000));
        assert_eq!(of(RtuClass::periodic(Nanos::from_millis(1), 4)).ack_segments, 1);
    }

    /// The longest call of best effort has time for its segments and for what the node does to send them.
    #[test]
    fn a_call_of_best_effort_is_as_long_as_it_may_be() {
        let none = CpuCosts {
            send_message: Nanos(0),
            send_packet: Nanos(0),
            deliver_message: Nanos(0),
            copy_kib: Nanos(0),
            ..CpuCosts::default()
        };
        assert_eq!(best_effort_call(&none, SEGMENT_COST, 1_464), SEGMENT_COST.of(QUANTUM));
        let sends = CpuCosts { send_packet: Nanos(100), ..none };
        assert_eq!(
            best_effort_call(&sends, SEGMENT_COST, 1_464),
            SEGMENT_COST.of(QUANTUM) + Nanos(100) * u64::from(QUANTUM)
        );
    }
}

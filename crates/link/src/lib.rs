//! Frames in and out of a host: one trait, several drivers, one conformance suite for all.
//!
//! A driver handles packets, ports and times; it has no notion of channels. One thread (of the engine) owns
//! and drives it. Received bytes are in a [`Pool`] of buffers of fixed size: a [`Frame`] is an owned handle,
//! and dropping it, on any thread, gives the buffer back. When the pool is empty, packets stay in the
//! driver's queue, or are dropped where they are classified and reported by [`Link::stream_drops`].
//! Nothing is allocated once a link is open.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod kernel;
mod mac;
pub mod memory;
pub mod pool;
mod ring;
mod stream;
mod sync;
mod tcp_flow;
pub mod udp;
mod wake_flag;
pub mod xdp;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use derive_more::{Add, AddAssign};
use thiserror::Error;

pub use kernel::NextHop;
pub use memory::{MemoryLink, MemoryOptions};
pub use pool::{Frame, Pool};
pub use stream::{Filter, PathKey, SealKey, Spins, Stream, StreamDrops};
pub use tcp_flow::{FlowFilter, FlowKey, Inlet, IpPacket, IpTarget, ListenerFilter};
pub use udp::{UdpLink, UdpOptions};

/// The two well-known ports of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// Data of channels and best effort.
    Data,
    /// Signalling.
    Signalling,
}

impl Port {
    /// Both, in the order in which a link receives them.
    pub const ALL: [Self; 2] = [Self::Signalling, Self::Data];

    /// The stream of a packet according to its port alone.
    const fn stream(self) -> Stream {
        match self {
            Self::Signalling => Stream::Signalling,
            Self::Data => Stream::Guaranteed,
        }
    }
}

/// A packet that came in.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the packet, from our header on; of an IP packet from its IP header on.
    pub frame: Frame,
    /// Port that the packet came to; it has no meaning for an IP packet.
    pub port: Port,
    /// Set if this is an IP packet of a flow, of a listener, or about a flow.
    pub ip: Option<IpPacket>,
    /// Stream of the packet. A driver that does not distinguish streams knows only [`Stream::Signalling`] and
    /// [`Stream::Guaranteed`].
    pub stream: Stream,
    /// When the driver received it, on this host's `CLOCK_MONOTONIC`; never in the future, never decreasing
    /// within a port (within a stream, if the driver distinguishes streams).
    pub received_ns: u64,
}

/// The counters of a link since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Add, AddAssign)]
pub struct LinkStatistics {
    /// Packets received.
    pub packets_in: u64,
    /// Packets handed to the medium.
    pub packets_out: u64,
    /// Packets lost since a queue of the driver or of the kernel was full, on either way.
    pub overflows: u64,
    /// Packets that the kernel refused to send (no buffer, too long for the path, no route).
    pub send_errors: u64,
    /// Times at which sending had to wait for room in the kernel.
    pub send_waits: u64,
    /// Received packets that were longer than [`Link::packet_bytes_max`] and were dropped.
    pub truncated: u64,
    /// Times at which no packet could be received because every frame of the pool was in use.
    pub pool_dry: u64,
    /// Receive times that the kernel gave and that could not be true.
    pub times_clamped: u64,
    /// Times at which the network reported (ICMP) that an earlier packet did not arrive: its port has no
    /// receiver, or it was too long.
    pub peer_refused: u64,
}

/// Why a link cannot continue, or cannot be opened.
#[derive(Debug, Error)]
pub enum LinkError {
    /// An option of a driver is out of range.
    #[error("{0}")]
    Options(String),
    /// The operating system refused.
    #[error("{what}: {error}")]
    Os {
        /// The attempted operation, with the fix if there is one.
        what: String,
        /// Answer of the operating system.
        error: std::io::Error,
    },
    /// The kernel's device, route or neighbour is not as the link needs it.
    #[error(transparent)]
    Kernel(#[from] kernel::KernelError),
    /// The driver knows no flows, or was given no room for any.
    #[error("a link over {0} has no room for TCP flows: use driver = \"xdp\", with flows_max above 0")]
    NoFlows(String),
    /// A packet longer than the link carries was queued.
    #[error("a packet of {bytes} B does not fit the link's {bytes_max} B")]
    TooLong {
        /// Length of the packet in bytes.
        bytes: usize,
        /// Longest packet that fits, in bytes.
        bytes_max: usize,
    },
}

/// A point-to-point link to one neighbour, driven by one thread.
pub trait Link: Send {
    /// Appends up to `max` received packets to `out`; returns how many. Less than `max` means that no packet
    /// is left or that the pool is empty (see [`LinkStatistics::pool_dry`]). `out` is never grown beyond its
    /// capacity if that is at least its length plus `max`.
    ///
    /// # Errors
    /// If the link cannot continue; lost packets and an absent peer are counted instead.
    fn receive(&mut self, out: &mut Vec<Received>, max: usize) -> Result<usize, LinkError>;

    /// Receives as [`Link::receive`] does, but only from the streams that are at least as urgent as `least`,
    /// the most urgent first. The others stay in their rings. A driver with one ring for all receives
    /// everything.
    ///
    /// # Errors
    /// See [`Link::receive`].
    fn receive_from(
        &mut self,
        least: Stream,
        out: &mut Vec<Received>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let _ = least;
        self.receive(out, max)
    }

    /// A buffer of [`Link::packet_bytes_max`] bytes to fill; `None` while the driver is full ([`Link::flush`]
    /// and try again later).
    fn transmit_buffer(&mut self) -> Option<&mut [u8]>;

    /// Queues the first `len` bytes of the last [`Link::transmit_buffer`], which take `wire_bytes` on the wire.
    ///
    /// # Errors
    /// If `len` does not fit.
    fn transmit(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError>;

    /// Queues a received frame as it is, without a copy; the driver drops it when it has been sent. `Err` gives it
    /// back where its memory is not the driver's or the driver is full: copy it into a
    /// [`Link::transmit_buffer`] then.
    ///
    /// # Errors
    /// The frame.
    fn transmit_frame(&mut self, port: Port, frame: Frame, wire_bytes: u32) -> Result<(), Frame> {
        let _ = (port, wire_bytes);
        Err(frame)
    }

    /// Lets packets of a channel in and sets their account and stream; replaces the filter of the same path.
    /// A driver that does not classify ignores it.
    ///
    /// # Errors
    /// If the driver's table is full or the kernel refuses.
    fn set_filter(&mut self, filter: &Filter) -> Result<(), LinkError> {
        let _ = filter;
        Ok(())
    }

    /// Sets the key of the neighbour's seals: signalling with a valid seal comes from the neighbour, each
    /// number once. Other signalling is limited to the rate of unknown senders. A driver that does not
    /// classify ignores it.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn set_neighbour(&mut self, key: SealKey) -> Result<(), LinkError> {
        let _ = key;
        Ok(())
    }

    /// Removes the filter of a path: the path is unknown from now on.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn clear_filter(&mut self, path: PathKey) -> Result<(), LinkError> {
        let _ = path;
        Ok(())
    }

    /// The filters that the driver has; `None`: it does not classify, or does not keep them.
    fn filters(&self) -> Option<Vec<Filter>> {
        None
    }

    /// Hands over packets of a TCP flow from now on, and keeps them from the kernel; replaces the filter of the same flow,
    /// whose token bucket is kept. To be called before the flow's first segment leaves.
    ///
    /// # Errors
    /// If the driver knows no flows, its table is full, the index or a bound is out of range, or the device spreads packets
    /// over several receive queues; the fix is in the text.
    fn set_flow(&mut self, flow: &FlowFilter) -> Result<(), LinkError> {
        let _ = flow;
        Err(LinkError::NoFlows(self.mode()))
    }

    /// Leaves the flow's packets to the kernel; without effect if the flow is unknown.
    ///
    /// # Errors
    /// If the driver knows no flows or the kernel refuses.
    fn clear_flow(&mut self, flow: FlowKey) -> Result<(), LinkError> {
        let _ = flow;
        Err(LinkError::NoFlows(self.mode()))
    }

    /// Hands over TCP to an address and port of this host that belongs to no flow; otherwise as [`Link::set_flow`].
    ///
    /// # Errors
    /// See [`Link::set_flow`].
    fn set_listener(&mut self, listener: &ListenerFilter) -> Result<(), LinkError> {
        let _ = listener;
        Err(LinkError::NoFlows(self.mode()))
    }

    /// Leaves an address and port to the kernel; without effect if nothing listens there.
    ///
    /// # Errors
    /// If the driver knows no flows or the kernel refuses.
    fn clear_listener(&mut self, local: SocketAddr) -> Result<(), LinkError> {
        let _ = local;
        Err(LinkError::NoFlows(self.mode()))
    }

    /// The way to `remote`, which the kernel is asked for in the background: [`NextHop::state`] shows when it is known. It
    /// is followed while the handle exists. May allocate; for connections, not for packets.
    ///
    /// # Errors
    /// If the driver knows no flows, or no thread follows the kernel for it.
    fn next_hop(&mut self, remote: IpAddr) -> Result<NextHop, LinkError> {
        let _ = remote;
        Err(LinkError::NoFlows(self.mode()))
    }

    /// A buffer of [`Link::ip_bytes_max`] bytes to fill with an IP packet; the same as [`Link::transmit_buffer`] otherwise,
    /// and in its place: one of the two is filled and queued.
    fn transmit_ip_buffer(&mut self) -> Option<&mut [u8]> {
        None
    }

    /// Queues the first `len` bytes of the last [`Link::transmit_ip_buffer`], an IP packet with all its checksums, which take
    /// `wire_bytes` on the wire. While the hop's address is not known the packet is lost and counted as a send error.
    ///
    /// # Errors
    /// If the driver knows no flows or `len` does not fit.
    fn transmit_ip(&mut self, hop: &NextHop, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let _ = (hop, len, wire_bytes);
        Err(LinkError::NoFlows(self.mode()))
    }

    /// Longest IP packet of a flow, in bytes; 0: the driver knows no flows.
    fn ip_bytes_max(&self) -> usize {
        0
    }

    /// Hands what is queued to the medium, in order, as far as it takes it.
    ///
    /// # Errors
    /// If the link cannot continue.
    fn flush(&mut self) -> Result<(), LinkError>;

    /// Whether packets are queued that the medium has not taken: [`Link::flush`] again later.
    fn is_pending(&self) -> bool;

    /// Wire bytes that the adapter has finished with (sent or lost) since the last call. Never more than was
    /// queued; a late answer is allowed, an early one is not.
    fn completed(&mut self) -> u32;

    /// Descriptors that become readable when packets come in. They must be watched edge-triggered and never
    /// read: one edge may stand for many packets, so receive until fewer than `max` come.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// The descriptor that reports best effort only, if there is one: while many packets of best effort come
    /// at once, its ring may be polled at intervals instead.
    fn best_effort_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Longest packet, from our header on.
    fn packet_bytes_max(&self) -> usize;

    /// Statistics of the link since it was opened.
    fn statistics(&self) -> LinkStatistics;

    /// Packets that the driver dropped before it took a buffer. May cost a system call.
    fn stream_drops(&self) -> StreamDrops {
        StreamDrops::default()
    }

    /// How long the thread shall continue to poll before it sleeps.
    fn spins(&self) -> Spins {
        Spins::default()
    }

    /// Recent traffic of other senders on the link's device, in bits a second; `None`: not watched, or not
    /// known yet.
    fn foreign_bps(&self) -> Option<u64> {
        None
    }

    /// Requests that kernel traffic on the link's device is limited to this rate, in bits on the wire a
    /// second. [`Link::shaped`] reports when it is. Without effect if the driver has no shaper that can be
    /// changed.
    fn shape(&mut self, _rate_bps: u64) {}

    /// What kernel traffic is held to, once each time that it was changed.
    fn shaped(&mut self) -> Option<u64> {
        None
    }

    /// More details of the driver, for status reports: names and values.
    fn facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The mode of the driver, for status reports: "udp", "memory", "xdp (native, copy)", ...
    fn mode(&self) -> String;
}

#[cfg(test)]
mod tests;

//! [`XdpLink`]: a link over AF_XDP sockets.
//!
//! A frame of the region is held (ADR 0009) by the pool, by the kernel, as recorded in the link's [`Ledger`],
//! or by a [`Frame`]. A received frame is a `Frame` until it is dropped or sent on. Its
//! [`Receipt`](crate::pool::Receipt) then notifies the classifier that its stream and path may have another
//! one. Invariants:
//!
//! - The frames that the kernel has to receive into, and those received and still held, are always
//!   [`XdpOptions::receive_frames`] in sum (as soon as the link's thread has checked). Since the classifier
//!   lets no more packets of a stream through than its buffers, a flood in one stream never takes a frame of
//!   another.
//! - At most [`XdpOptions::transmit_frames`] are on their way out.
//!
//! A device that goes down loses what is sent meanwhile, counted; when it is up again the link continues. A
//! device that is gone for good ([`XdpLink::is_gone`]) needs a new link; the old one counts send errors and
//! receives nothing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use punctual_os::clock::coarse_monotonic_ns;

use super::headers::{Addresses, Headers};
use super::ledger::Ledger;
use super::queue::Queue;
use super::receive::{Holder, Receiver};
use super::transmit::Transmitter;
use super::umem::XdpMemory;
use super::{AttachMode, Classifier, ClassifierOptions, XdpOptions};
use crate::kernel::{Device, PathRequest, RESOLVE_PATIENCE};
use crate::{
    Filter, FlowFilter, FlowKey, Frame, Link, LinkError, LinkStatistics, ListenerFilter, NextHop, PathKey,
    Port, Received, SealKey, Stream, StreamDrops,
};

/// Interval between two checks for packets lost behind the program, in ns.
const SETTLE_INTERVAL_NS: u64 = 100_000_000;

/// A link over AF_XDP. Dropping it detaches its program and closes its sockets; frames that are still held stay valid.
pub struct XdpLink {
    // Dropped in this order: first no packet is steered to the sockets any more, then no socket uses the
    // frames, then they go back to the pool.
    classifier: Classifier,
    queue: Queue,
    ledger: Ledger,
    receiver: Receiver,
    transmitter: Transmitter,
    addresses: Addresses,
    packet_bytes_max: usize,
    flows: FlowFacts,
    statistics: LinkStatistics,
    settled_ns: u64,
}

impl XdpLink {
    /// Attaches the program to the device and binds the sockets, in the network namespace of this thread; the
    /// link works on any thread. If the options carry no addresses, they are requested from the kernel, which
    /// may take seconds.
    ///
    /// # Errors
    /// If an option is out of range, a right, the memory or the device is missing; the fix is in the text.
    pub fn open(options: &XdpOptions, memory: &XdpMemory) -> Result<Self, LinkError> {
        let sizes = options.check(memory)?;
        let (device, addresses) = path(options)?;
        let reservation = memory.reserve(options.frames_needed())?;
        let mut classifier = Classifier::attach(&options.classifier)?;
        let queue = Queue::open(&device, options.queue, zero_copy(options, &classifier), sizes, memory)?;
        for (stream, rx_socket) in Stream::ALL.into_iter().zip(&queue.rx) {
            classifier.register(options.queue, stream, rx_socket.socket.as_fd())?;
        }
        let holder = Arc::new(Holder::new(Arc::clone(classifier.accounts().returns()), reservation));
        let flows = FlowFacts::of(&device, options, classifier.mode());
        let mut link = Self {
            receiver: Receiver::new(options, memory, holder, flows.completes_checksums),
            flows,
            transmitter: Transmitter::new(options, memory, Headers::new(&options.classifier)),
            packet_bytes_max: options.classifier.packet_bytes_max as usize,
            ledger: Ledger::new(memory),
            classifier,
            queue,
            addresses,
            statistics: LinkStatistics::default(),
            settled_ns: 0,
        };
        link.receiver.refill(&mut link.queue, &mut link.ledger);
        Ok(link)
    }

    /// The Ethernet addresses that it sends with: a handle to change them while the link works.
    pub fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    /// Whether the device is permanently gone: open a new link when it is back.
    pub const fn is_gone(&self) -> bool {
        self.transmitter.is_gone()
    }

    /// Packets that have come in and were not received yet.
    pub fn packets_waiting(&self) -> u32 {
        self.queue.rx.iter().map(|rx_socket| rx_socket.ring.waiting()).sum()
    }

    /// Whether the kernel makes no copy.
    pub const fn is_zero_copy(&self) -> bool {
        self.queue.zero_copy
    }

    /// The program, to set rates and to read its counters.
    pub const fn classifier(&mut self) -> &mut Classifier {
        &mut self.classifier
    }

    /// Gives up packets that were lost behind the program, now and then.
    fn settle(&mut self) {
        let now_ns = coarse_monotonic_ns();
        if now_ns.saturating_sub(self.settled_ns) >= SETTLE_INTERVAL_NS {
            self.settled_ns = now_ns;
            self.receiver.settle(&self.queue, &mut self.classifier);
        }
    }
}

/// The device and the addresses to write, checked against the options.
fn path(options: &XdpOptions) -> Result<(Device, Addresses), LinkError> {
    let ClassifierOptions { device, local, peer, packet_bytes_max, .. } = &options.classifier;
    let request = PathRequest {
        device: device.clone(),
        local: *local,
        peer: *peer,
        queue: options.queue,
        packet_bytes_max: *packet_bytes_max,
    };
    let refused = |error: crate::kernel::KernelError| LinkError::Options(format!("xdp: {error}"));
    if let Some(addresses) = &options.addresses {
        return Ok((request.device().map_err(refused)?, addresses.clone()));
    }
    let path = request.resolve(RESOLVE_PATIENCE).map_err(refused)?;
    Ok((path.device, Addresses::new(path.source, path.destination)))
}

/// Sockets of a program that runs in the stack get socket buffers, so zero copy is not possible there.
fn zero_copy(options: &XdpOptions, classifier: &Classifier) -> super::ZeroCopy {
    match options.zero_copy {
        super::ZeroCopy::Auto if classifier.mode() == AttachMode::Generic => super::ZeroCopy::No,
        asked => asked,
    }
}

impl Link for XdpLink {
    fn receive(&mut self, out: &mut Vec<Received>, max: usize) -> Result<usize, LinkError> {
        self.receive_from(Stream::BestEffort, out, max)
    }

    fn receive_from(
        &mut self,
        least: Stream,
        out: &mut Vec<Received>,
        max: usize,
    ) -> Result<usize, LinkError> {
        let Self { receiver, queue, ledger, classifier, statistics, .. } = self;
        let count = receiver.receive(queue, ledger, classifier.accounts(), (least, max), out, statistics);
        receiver.refill(queue, ledger);
        Ok(count)
    }

    fn transmit_buffer(&mut self) -> Option<&mut [u8]> {
        self.transmitter.buffer(&mut self.queue.tx, &mut self.ledger)
    }

    fn transmit(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let Self { transmitter, queue, ledger, addresses, statistics, .. } = self;
        transmitter.queue(&mut queue.tx, ledger, addresses, (port, len, wire_bytes), statistics)
    }

    fn transmit_frame(&mut self, port: Port, frame: Frame, wire_bytes: u32) -> Result<(), Frame> {
        let Self { transmitter, queue, ledger, addresses, statistics, .. } = self;
        transmitter.queue_frame(&mut queue.tx, ledger, addresses, (port, frame, wire_bytes), statistics)
    }

    fn set_filter(&mut self, filter: &Filter) -> Result<(), LinkError> {
        self.classifier.set_filter(filter)
    }

    fn clear_filter(&mut self, path: PathKey) -> Result<(), LinkError> {
        self.classifier.clear_filter(path)
    }

    fn set_neighbour(&mut self, key: SealKey) -> Result<(), LinkError> {
        self.classifier.set_neighbour(key)
    }

    fn set_flow(&mut self, flow: &FlowFilter) -> Result<(), LinkError> {
        self.flows.check()?;
        self.classifier.set_flow(flow)
    }

    fn clear_flow(&mut self, flow: FlowKey) -> Result<(), LinkError> {
        self.classifier.clear_flow(flow)
    }

    fn set_listener(&mut self, listener: &ListenerFilter) -> Result<(), LinkError> {
        self.flows.check()?;
        self.classifier.set_listener(listener)
    }

    fn clear_listener(&mut self, local: SocketAddr) -> Result<(), LinkError> {
        self.classifier.clear_listener(local)
    }

    fn next_hop(&mut self, _: IpAddr) -> Result<NextHop, LinkError> {
        Err(LinkError::Options(
            "nothing follows the kernel's neighbours for this link: open it by kernel::follow, or use \
             kernel::hops"
                .into(),
        ))
    }

    fn transmit_ip_buffer(&mut self) -> Option<&mut [u8]> {
        self.transmitter.ip_buffer(&mut self.queue.tx, &mut self.ledger)
    }

    fn transmit_ip(&mut self, hop: &NextHop, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        let Self { transmitter, queue, ledger, addresses, statistics, .. } = self;
        transmitter.queue_ip(&mut queue.tx, ledger, addresses, (hop, len, wire_bytes), statistics)
    }

    fn ip_bytes_max(&self) -> usize {
        self.flows.ip_bytes_max
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let result = self.transmitter.flush(&mut self.queue, &mut self.ledger, &mut self.statistics);
        self.settle();
        result
    }

    fn is_pending(&self) -> bool {
        self.transmitter.is_pending(&self.queue.tx)
    }

    fn completed(&mut self) -> u32 {
        self.transmitter.completed(&mut self.queue.tx, &mut self.ledger)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.queue.descriptors()
    }

    fn best_effort_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queue.rx.get(Stream::BestEffort as usize).map(|rx_socket| rx_socket.socket.as_fd())
    }

    fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    fn statistics(&self) -> LinkStatistics {
        self.statistics
    }

    fn stream_drops(&self) -> StreamDrops {
        let drops = self.classifier.drops();
        StreamDrops { no_buffer: drops.no_buffer + self.queue.kernel_drops(), ..drops }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let completes = (self.flows.ip_bytes_max > 0 && self.flows.completes_checksums)
            .then(|| "completed, the device has left them to us".into());
        let takes_flows = (self.flows.ip_bytes_max > 0).then(|| "taken".into());
        let facts = [("tcp_checksums", completes), ("tcp_connections", takes_flows)];
        facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect()
    }

    fn mode(&self) -> String {
        let copies = if self.queue.zero_copy { "zero-copy" } else { "copy" };
        format!("xdp ({}, {copies})", self.classifier.mode())
    }
}

/// What flows need to know of the device.
struct FlowFacts {
    device: String,
    /// Receive queues that packets are spread over.
    rx_queues: u32,
    is_native: bool,
    /// 0: the tables have room for no flow.
    ip_bytes_max: usize,
    /// TCP checksums of local senders are left to hardware that there is not.
    completes_checksums: bool,
}

impl FlowFacts {
    fn of(device: &Device, options: &XdpOptions, mode: AttachMode) -> Self {
        Self {
            device: device.name.clone(),
            rx_queues: device.rx_queues_used(),
            is_native: mode == AttachMode::Native,
            ip_bytes_max: options.ip_bytes_max(),
            completes_checksums: device.kind.as_deref() == Some("veth"),
        }
    }

    /// Whether every packet of a flow comes in on the link's queue, as it was sent.
    fn check(&self) -> Result<(), LinkError> {
        let Self { device, rx_queues, .. } = self;
        if !self.is_native {
            return Err(LinkError::Options(format!(
                "interface {device} shows XDP programs segments that the kernel has merged (generic mode): TCP over xdp \
                 needs xdp_mode = \"native\", and a driver that has it"
            )));
        }
        if *rx_queues <= 1 {
            return Ok(());
        }
        Err(LinkError::Options(format!(
            "interface {device} spreads packets over {rx_queues} receive queues, and TCP over xdp reads one: ethtool -L \
             {device} combined 1 (or rx 1) before the link is opened"
        )))
    }
}

impl fmt::Debug for XdpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XdpLink({}, {:?})", self.mode(), self.statistics)
    }
}

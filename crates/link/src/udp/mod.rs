//! Kernel UDP sockets: needs no privilege, works with every NIC.
//!
//! Each port has a connected socket of its own, so that the kernel drops packets of all hosts but the
//! configured peer, and a flood of data cannot displace signalling. Batches go through `recvmmsg` and
//! `sendmmsg` with vectors that are made once; receive times are the kernel's own. An absent peer and lost
//! packets are counted, never fatal.

mod receive;
mod socket;
mod transmit;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::kernel::{DeviceCondition, Watched};
use crate::{Link, LinkError, LinkStatistics, Port, Received};

use receive::Receiver;
use transmit::Transmitter;

/// Packets in one system call, at most.
pub const BATCH_PACKETS: usize = 32;

/// How a UDP link is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Our address.
    pub local: IpAddr,
    /// The neighbour's address; of the same family.
    pub peer: IpAddr,
    /// Our port of data.
    pub data_port: u16,
    /// Our port of signalling.
    pub signalling_port: u16,
    /// The neighbour's port of data.
    pub peer_data_port: u16,
    /// The neighbour's port of signalling.
    pub peer_signalling_port: u16,
    /// Network interface to bind to (`SO_BINDTODEVICE`), if any.
    pub device: Option<String>,
    /// Another link of this host has the same address and ports and another peer.
    pub shared_port: bool,
    /// Longest packet in bytes, from our header on: up to 65,507.
    pub packet_bytes_max: usize,
    /// Receive buffers of this link, at least [`BATCH_PACKETS`] are wise.
    pub frames: u32,
    /// Bytes that each socket may buffer in the kernel, each way.
    pub socket_buffer_bytes: usize,
    /// Whether less than that is an error (or is taken as it comes).
    pub socket_buffer_required: bool,
    /// `SO_PRIORITY`: 0 to 6 without privilege; [`crate::kernel::FIRST_CLASS`] goes first in our shaper.
    pub priority: u32,
}

impl UdpOptions {
    /// Options of a link between two addresses, with the same ports at both ends.
    pub fn new(local: IpAddr, peer: IpAddr, data_port: u16, signalling_port: u16) -> Self {
        Self {
            local,
            peer,
            data_port,
            signalling_port,
            peer_data_port: data_port,
            peer_signalling_port: signalling_port,
            device: None,
            shared_port: false,
            packet_bytes_max: 1_464,
            frames: 1_024,
            socket_buffer_bytes: 2 << 20,
            socket_buffer_required: false,
            priority: 6,
        }
    }
}

/// A link over two UDP sockets.
pub struct UdpLink {
    data: OwnedFd,
    signalling: OwnedFd,
    receiver: Receiver,
    transmitter: Transmitter,
    packet_bytes_max: usize,
    statistics: LinkStatistics,
    watched: Option<Watched>,
}

impl UdpLink {
    /// Binds and connects both sockets.
    ///
    /// # Errors
    /// If an option is out of range or the kernel refuses; the fix is in the text.
    pub fn open(options: &UdpOptions) -> Result<Self, LinkError> {
        socket::check(options)?;
        let data = socket::open(options, Port::Data)?;
        let signalling = socket::open(options, Port::Signalling)?;
        Ok(Self {
            data,
            signalling,
            receiver: Receiver::new(options.frames, options.packet_bytes_max),
            transmitter: Transmitter::new(options.packet_bytes_max),
            packet_bytes_max: options.packet_bytes_max,
            statistics: LinkStatistics::default(),
            watched: None,
        })
    }

    /// From now on counts in an account what the link sends over its device.
    pub fn watch(&mut self, watched: Watched) {
        self.watched = Some(watched);
    }
}

impl Link for UdpLink {
    fn receive(&mut self, out: &mut Vec<Received>, max: usize) -> Result<usize, LinkError> {
        // Signalling first, but never all of a batch: neither port can starve the other.
        let signalling_max = max.div_ceil(2);
        let statistics = &mut self.statistics;
        let first = self.receiver.receive(
            self.signalling.as_fd(),
            Port::Signalling,
            out,
            signalling_max,
            statistics,
        )?;
        let second = self.receiver.receive(self.data.as_fd(), Port::Data, out, max - first, statistics)?;
        if first == signalling_max && first + second < max {
            let rest = max - first - second;
            let third =
                self.receiver.receive(self.signalling.as_fd(), Port::Signalling, out, rest, statistics)?;
            return Ok(first + second + third);
        }
        Ok(first + second)
    }

    fn transmit_buffer(&mut self) -> Option<&mut [u8]> {
        self.transmitter.buffer()
    }

    fn transmit(&mut self, port: Port, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        self.transmitter.queue(port, len, wire_bytes)?;
        if let Some(watched) = &self.watched {
            watched.count(len);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        self.transmitter.flush(self.data.as_fd(), self.signalling.as_fd(), &mut self.statistics)
    }

    fn is_pending(&self) -> bool {
        self.transmitter.is_pending()
    }

    fn completed(&mut self) -> u32 {
        self.transmitter.completed(self.data.as_fd(), self.signalling.as_fd())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.data.as_fd(), self.signalling.as_fd()]
    }

    fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max
    }

    fn statistics(&self) -> LinkStatistics {
        LinkStatistics { overflows: self.receiver.kernel_drops(), ..self.statistics }
    }

    fn foreign_bps(&self) -> Option<u64> {
        self.watched.as_ref()?.foreign_bps()
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let Some(watched) = &self.watched else { return Vec::new() };
        let DeviceCondition { device, qdisc, trouble } = watched.condition();
        let rest = [("qdisc", qdisc), ("trouble", trouble)];
        let rest = rest.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)));
        [("device", device)].into_iter().chain(rest).collect()
    }

    fn mode(&self) -> String {
        match self.watched.as_ref().and_then(|watched| watched.condition().trouble) {
            Some(trouble) => format!("udp; {trouble}"),
            None => "udp".into(),
        }
    }
}

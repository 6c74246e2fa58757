//! smoltcp alone on a driver: one connection, one thread, no admission, no scheduler, no second queue. This is the upper bound of a
//! stack that is built on it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use punctual::Nanos;
use punctual_link::kernel::Mac;
use punctual_link::{FlowFilter, FlowKey, Inlet, Link, LinkError, NextHop, Received, Stream};
use punctual_os::clock::now;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time;
use smoltcp::wire::{HardwareAddress, IpCidr};

/// What Ethernet adds to an IP packet on the wire.
const OVERHEAD_BYTES: usize = 38;
/// Packets that are taken from the driver at once.
const BATCH: usize = 64;
/// Packets of the connection that wait for this thread at most; the driver's own bound is lower.
const BUFFERS: u32 = 1 << 14;
/// How long a connection may take to open.
const OPEN_WITHIN: Nanos = Nanos::from_secs(5);
/// Longest sleep without looking whether the caller is done.
const NAP: Nanos = Nanos::from_millis(5);

/// A connection of this host over a link that has no other user.
pub struct BareTcp {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    wire: Wire,
}

/// The driver as smoltcp sees it.
struct Wire {
    link: Box<dyn Link>,
    hop: NextHop,
    mtu: usize,
    received: Vec<Received>,
    arrived: VecDeque<Received>,
    /// The first error within a token, which cannot return it.
    failed: Option<LinkError>,
}

struct Arrived(Received);
struct Leaving<'a>(&'a mut Wire);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0.frame.as_ref())
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Wire { link, hop, failed, .. } = self.0;
        let Some(buffer) = link.transmit_ip_buffer() else { return f(&mut vec![0; len]) };
        let made = f(&mut buffer[..len]);
        if let Err(error) = link.transmit_ip(hop, len, (len + OVERHEAD_BYTES) as u32) {
            failed.get_or_insert(error);
        }
        made
    }
}

impl Device for Wire {
    type RxToken<'t> = Arrived;
    type TxToken<'t> = Leaving<'t>;

    fn receive(&mut self, _: time::Instant) -> Option<(Arrived, Leaving<'_>)> {
        self.link.transmit_ip_buffer()?;
        let packet = self.arrived.pop_front()?;
        Some((Arrived(packet), Leaving(self)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Leaving<'_>> {
        self.link.transmit_ip_buffer()?;
        Some(Leaving(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

fn smoltcp_now() -> time::Instant {
    time::Instant::from_micros(i64::try_from(now().0 / 1_000).unwrap_or(i64::MAX))
}

impl BareTcp {
    /// Connects `local` to `remote`, whose host has the hardware address `neighbour`, over `link`, which knows flows; with
    /// `buffer_bytes` in each direction.
    ///
    /// # Errors
    /// If the driver knows no flows, or the peer does not answer.
    pub fn connect(
        mut link: Box<dyn Link>,
        [local, remote]: [SocketAddr; 2],
        neighbour: Mac,
        buffer_bytes: usize,
    ) -> anyhow::Result<Self> {
        // Bounds that bind nothing: the buffers of a window, and the rate of the machine.
        let inlet =
            Inlet { stream: Stream::BestEffort, burst_packets: 4_096, interval_ns: 1, buffers: BUFFERS };
        link.set_flow(&FlowFilter { key: FlowKey { local, remote }, index: 0, inlet })?;
        let mut wire = Wire {
            mtu: link.ip_bytes_max().min(1_500),
            link,
            hop: NextHop::fixed(neighbour),
            received: Vec::with_capacity(BATCH),
            arrived: VecDeque::with_capacity(BATCH),
            failed: None,
        };
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut wire, smoltcp_now());
        interface.update_ip_addrs(|addresses| {
            // There is room for at least one.
            let _ = addresses.push(IpCidr::new(local.ip().into(), 24));
        });
        let buffer = || SocketBuffer::new(vec![0; buffer_bytes]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(CongestionControl::Cubic);
        socket.set_nagle_enabled(false);
        let ends = ((remote.ip(), remote.port()), (local.ip(), local.port()));
        socket.connect(interface.context(), ends.0, ends.1).context("smoltcp")?;
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        let mut bare = Self { interface, sockets, handle, wire };
        let until = now() + OPEN_WITHIN;
        while bare.socket().state() != State::Established {
            ensure!(now() < until && bare.socket().is_open(), "smoltcp does not reach {remote}");
            bare.turn()?;
            bare.sleep()?;
        }
        Ok(bare)
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Takes what has come, and sends what may leave; whether anything came or left.
    fn turn(&mut self) -> anyhow::Result<bool> {
        let Self { interface, sockets, wire, .. } = self;
        wire.link.receive(&mut wire.received, BATCH)?;
        let came = !wire.received.is_empty();
        wire.arrived.extend(wire.received.drain(..).filter(|packet| packet.ip.is_some()));
        let before = wire.link.statistics().packets_out;
        interface.poll(smoltcp_now(), wire, sockets);
        wire.link.flush()?;
        wire.link.completed();
        if let Some(error) = wire.failed.take() {
            bail!(error);
        }
        Ok(came || wire.link.statistics().packets_out != before)
    }

    /// Sleeps until a packet comes, or smoltcp has work, or [`NAP`] is over.
    fn sleep(&mut self) -> anyhow::Result<()> {
        if self.wire.link.is_pending() {
            return Ok(());
        }
        let delay = self.interface.poll_delay(smoltcp_now(), &self.sockets);
        let delay = delay.map_or(NAP, |delay| Nanos(delay.total_micros().saturating_mul(1_000)).min(NAP));
        let patience = Timespec { tv_sec: 0, tv_nsec: delay.0.min(999_999_999) as _ };
        let descriptors = self.wire.link.descriptors();
        let mut readable: Vec<_> =
            descriptors.iter().map(|one| PollFd::from_borrowed_fd(*one, PollFlags::IN)).collect();
        match poll(&mut readable, Some(&patience)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends `bytes` again and again until `is_over`, and then waits until the peer has acknowledged all, at most for
    /// `patience`.
    ///
    /// # Errors
    /// If the driver or the connection breaks.
    pub fn send(&mut self, bytes: &[u8], is_over: impl Fn() -> bool, patience: Nanos) -> anyhow::Result<()> {
        while !is_over() {
            ensure!(self.socket().may_send(), "the peer has closed the connection");
            while self.socket().can_send() && self.socket().send_slice(bytes)? > 0 {}
            if !self.turn()? {
                self.sleep()?;
            }
        }
        let until = now() + patience;
        while self.socket().send_queue() > 0 && now() < until {
            if !self.turn()? {
                self.sleep()?;
            }
        }
        Ok(())
    }

    /// Waits for bytes, at most [`NAP`] long; how many came. At most as many as fit into `buffer`.
    ///
    /// # Errors
    /// If the driver or the connection breaks.
    pub fn receive(&mut self, buffer: &mut [u8]) -> anyhow::Result<usize> {
        if !self.socket().can_recv() && !self.turn()? {
            self.sleep()?;
            self.turn()?;
        }
        let socket = self.socket();
        ensure!(socket.may_recv(), "the peer has closed the connection");
        Ok(if socket.can_recv() { socket.recv_slice(buffer)? } else { 0 })
    }
}

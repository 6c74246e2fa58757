//! The only interface to smoltcp: one smoltcp interface and one socket for one connection. No other module
//! uses its sockets.
//!
//! A call processes one packet or makes one: the device of a call has room for one leaving packet. The
//! machine chooses sequence numbers of its own (its generator is predictable); `connection` translates them.
//! It computes no checksums: `wire` checks those that arrive, `edge` sets those that leave.

use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};
use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::config::Config;
use crate::wire::Flow;

pub(crate) use smoltcp::socket::tcp::State as MachineState;

/// Longest time that a SYN may stay unacknowledged (RFC 9293 3.8.3: at least three minutes).
const SYN_TIMEOUT: Nanos = Nanos::from_secs(180);

/// The device of one call: at most one packet in, at most one out.
struct Call<'a> {
    arriving: Option<&'a [u8]>,
    leaving: Option<&'a mut Vec<u8>>,
    mtu: u16,
}

struct Arriving<'a>(&'a [u8]);
struct Leaving<'a>(&'a mut Vec<u8>);

impl RxToken for Arriving<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Leaving<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.0.resize(len, 0);
        f(self.0)
    }
}

impl Device for Call<'_> {
    type RxToken<'t>
        = Arriving<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Leaving<'t>
    where
        Self: 't;

    fn receive(&mut self, _: time::Instant) -> Option<(Arriving<'_>, Leaving<'_>)> {
        let leaving = self.leaving.take()?;
        Some((Arriving(self.arriving.take()?), Leaving(leaving)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Leaving<'_>> {
        self.leaving.take().map(Leaving)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = usize::from(self.mtu);
        let mut sums = ChecksumCapabilities::default();
        (sums.ipv4, sums.tcp) = (Checksum::None, Checksum::None);
        capabilities.checksum = sums;
        capabilities
    }
}

fn time_of(now: Instant) -> time::Instant {
    time::Instant::from_micros(i64::try_from(now.0 / 1_000).unwrap_or(i64::MAX))
}

fn span_of(span: Nanos) -> time::Duration {
    time::Duration::from_micros(span.as_u64() / 1_000)
}

/// One connection's protocol machine.
pub(crate) struct Machine {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    mtu: u16,
    user_timeout: Nanos,
    answers: Answers,
    /// The socket has been replaced by one without buffers, and the state stays this one.
    rests_in: Option<State>,
}

/// Answers of a peer that takes nothing: the socket counts only those that it was given.
struct Answers {
    /// When the socket got a segment last.
    told: Instant,
    /// When one came last.
    heard: Instant,
    /// How long answers without a new acknowledgement keep the connection open.
    most: Nanos,
}

impl core::fmt::Debug for Machine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Machine").field("state", &self.state()).field("mtu", &self.mtu).finish()
    }
}

fn interface(flow: Flow, mtu: u16, now: Instant) -> Interface {
    let mut call = Call { arriving: None, leaving: None, mtu };
    let config = InterfaceConfig::new(HardwareAddress::Ip);
    let mut interface = Interface::new(config, &mut call, time_of(now));
    let address = IpAddress::from(flow.local.ip());
    let bits = if flow.is_v6() { 128 } else { 32 };
    interface.update_ip_addrs(|addresses| {
        // There is room for at least one.
        let _ = addresses.push(IpCidr::new(address, bits));
    });
    interface
}

impl Machine {
    /// A closed machine for `flow`, whose addresses must be usable (`wire::is_usable`).
    pub(crate) fn new(flow: Flow, config: &Config, now: Instant) -> Self {
        let buffer = |bytes| SocketBuffer::new(vec![0; bytes]);
        let mut socket = Socket::new(buffer(config.receive_bytes), buffer(config.send_bytes));
        socket.set_congestion_control(CongestionControl::Cubic);
        socket.set_ack_delay(Some(span_of(config.ack_delay)));
        // The value is a placeholder: a generator has no argument, so it has no clock. `connection` writes
        // the real one.
        socket.set_tsval_generator(config.has_timestamps.then_some(|| 0));
        let mut sockets = SocketSet::new(vec![]);
        let handle = sockets.add(socket);
        let mtu = config.mtu_bytes;
        let user_timeout = config.user_timeout;
        let interface = interface(flow, mtu, now);
        let answers = Answers { told: now, heard: now, most: Nanos(u64::MAX) };
        let mut machine = Self { interface, sockets, handle, mtu, user_timeout, answers, rests_in: None };
        machine.follow(config);
        machine
    }

    /// Takes over the settings that may change.
    pub(crate) fn follow(&mut self, config: &Config) {
        self.user_timeout = config.user_timeout;
        let socket = self.socket_mut();
        socket.set_nagle_enabled(!config.is_nodelay);
        socket.set_keep_alive(config.keep_alive.map(span_of));
        socket.set_hop_limit(Some(config.hop_limit.max(1)));
    }

    /// Begins an active open. Returns whether the flow allows one.
    pub(crate) fn connect(&mut self, flow: Flow) -> bool {
        let context = self.interface.context();
        let socket = self.sockets.get_mut::<Socket>(self.handle);
        let remote = (IpAddress::from(flow.remote.ip()), flow.remote.port());
        let local = (IpAddress::from(flow.local.ip()), flow.local.port());
        socket.connect(context, remote, local).is_ok()
    }

    /// Begins an active open anew, with nothing sent so far.
    pub(crate) fn connect_again(&mut self, flow: Flow) {
        self.socket_mut().abort();
        // The flow allowed it before.
        self.connect(flow);
    }

    /// Begins a passive open. Returns whether the flow allows one.
    pub(crate) fn listen(&mut self, flow: Flow) -> bool {
        let local = (IpAddress::from(flow.local.ip()), flow.local.port());
        self.socket_mut().listen(local).is_ok()
    }

    pub(crate) fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut::<Socket>(self.handle)
    }

    pub(crate) fn socket(&self) -> &Socket<'static> {
        self.sockets.get::<Socket>(self.handle)
    }

    pub(crate) fn state(&self) -> State {
        self.rests_in.unwrap_or_else(|| self.socket().state())
    }

    /// Gives the buffers back, if they are empty. The state stays as it is: the caller has nothing to receive or to send any more.
    pub(crate) fn rest(&mut self) {
        if self.rests_in.is_some() || self.socket().recv_queue() > 0 || self.socket().send_queue() > 0 {
            return;
        }
        self.rests_in = Some(self.state());
        let none = || SocketBuffer::new(Vec::new());
        self.sockets.remove(self.handle);
        self.handle = self.sockets.add(Socket::new(none(), none()));
    }

    /// Whether the buffers were given back.
    pub(crate) const fn rests(&self) -> bool {
        self.rests_in.is_some()
    }

    /// Processes one packet; an immediate reply is put in `reply`, which must be empty.
    pub(crate) fn input(&mut self, now: Instant, packet: &[u8], reply: &mut Vec<u8>) {
        let mut call = Call { arriving: Some(packet), leaving: Some(reply), mtu: self.mtu };
        let _ = self.interface.poll_ingress_single(time_of(now), &mut call, &mut self.sockets);
    }

    /// A segment comes that the socket is given.
    pub(crate) const fn told(&mut self, now: Instant) {
        (self.answers.told, self.answers.heard) = (now, now);
    }

    /// The peer answers, and takes nothing: its window is closed. It is not silent (RFC 9293 3.8.6.1).
    pub(crate) const fn heard(&mut self, now: Instant) {
        self.answers.heard = now;
    }

    /// Bounds how long such answers keep the connection open; without a limit at first.
    pub(crate) const fn set_answers_most(&mut self, most: Nanos) {
        self.answers.most = most;
    }

    /// Makes at most one packet, in `packet`, which is empty otherwise.
    pub(crate) fn output(&mut self, now: Instant, packet: &mut Vec<u8>) {
        packet.clear();
        self.arm_user_timeout();
        let mut call = Call { arriving: None, leaving: Some(packet), mtu: self.mtu };
        let _ = self.interface.poll_egress(time_of(now), &mut call, &mut self.sockets);
    }

    /// The socket would end an idle connection too; only data, a SYN, a FIN or a keep-alive may time out (RFC 9293 3.8.3).
    fn arm_user_timeout(&mut self) {
        let is_opening = matches!(self.state(), State::SynSent | State::SynReceived);
        // The socket counts from the last segment that it was given.
        let answered = self.answers.heard.since(self.answers.told).min(self.answers.most);
        let timeout = if is_opening { self.user_timeout.min(SYN_TIMEOUT) } else { self.user_timeout };
        let timeout = span_of(Nanos(timeout.0.saturating_add(answered.0)));
        let socket = self.socket_mut();
        let is_waiting = !matches!(socket.state(), State::Established | State::CloseWait | State::FinWait2)
            || socket.send_queue() > 0
            || socket.keep_alive().is_some();
        socket.set_timeout(is_waiting.then_some(timeout));
    }

    /// Time of the next work of `output`; `now` if at once, `None` if only a packet or the program can cause
    /// some.
    pub(crate) fn deadline(&mut self, now: Instant) -> Option<Instant> {
        self.arm_user_timeout();
        let at = self.interface.poll_at(time_of(now), &self.sockets)?;
        let ns = u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1_000);
        Some(Instant(ns.max(now.0)))
    }

    /// Makes packets of at most `mtu` bytes from now on. Interfaces read their device's size once, so this makes a new one;
    /// the socket stays.
    pub(crate) fn set_mtu(&mut self, flow: Flow, mtu: u16, now: Instant) {
        self.mtu = mtu;
        self.interface = interface(flow, mtu, now);
    }
}

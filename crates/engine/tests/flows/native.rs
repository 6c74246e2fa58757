//! A host that runs TCP of its own over a link: what an engine does, in one thread and without a schedule.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use punctual_analysis::Instant;
use punctual_link::kernel::{
    CareOptions, Device, Follow, FollowedLink, HopRoute, HopState, Mac, Opener, PathRequest, PortHold, follow,
};
use punctual_link::xdp::{Addresses, AttachMode, XdpLink, XdpMemory, XdpOptions};
use punctual_link::{
    FlowFilter, FlowKey, Inlet, IpTarget, Link, LinkError, ListenerFilter, NextHop, Received, Spins, Stream,
};
use punctual_os::clock::monotonic_ns;
use punctual_tcp::{Arrival, Config, Connection, ConnectionId, Secrets, Stack, wire};
use rustix::event::{Timespec, epoll};

use crate::kernel::{LONG, check, fill};
use crate::network::{A, B, ip};

pub const FLOWS_MAX: u32 = 16;

/// Wide bounds of a flow.
pub const WIDE: Inlet =
    Inlet { stream: Stream::Guaranteed, burst_packets: 100_000, interval_ns: 1, buffers: 900 };

struct Xdp {
    options: XdpOptions,
    addresses: Addresses,
    memory: XdpMemory,
}

impl Opener for Xdp {
    fn open(&mut self, _: &Device) -> Result<Box<dyn Link>, LinkError> {
        Ok(Box::new(XdpLink::open(&self.options, &self.memory)?))
    }

    fn set_addresses(&mut self, source: Mac, destination: Option<Mac>) {
        self.addresses.set_source(source);
        self.addresses.set_peer(destination);
    }
}

pub fn open(mode: AttachMode) -> FollowedLink {
    let (local, peer) = (ip(A[0]), ip(B[0]));
    let addresses = Addresses::new(Mac::default(), None);
    let mut options = XdpOptions::new("va", local, peer, 7_411, 7_412);
    options.addresses = Some(addresses.clone());
    options.classifier.mode = mode;
    options.classifier.flows_max = FLOWS_MAX;
    options.classifier.listeners_max = 2;
    let packet_bytes_max = options.classifier.packet_bytes_max;
    let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
    let request = PathRequest { device: "va".into(), local, peer, queue: options.queue, packet_bytes_max };
    let opener = Box::new(Xdp { options, addresses, memory });
    let wanted = Follow { request, care: CareOptions::default(), spins: Spins::default(), opener };
    follow(vec![wanted], || Ok(())).expect("a link").remove(0)
}

/// A connection's place in the driver.
struct Placed {
    index: u32,
    key: FlowKey,
    _hold: Option<PortHold>,
}

pub struct Native {
    pub link: FollowedLink,
    pub stack: Stack,
    pub config: Config,
    poller: OwnedFd,
    out: Vec<Received>,
    packet: Vec<u8>,
    hops: HashMap<IpAddr, NextHop>,
    placed: HashMap<ConnectionId, Placed>,
    free: Vec<u32>,
    listener: Option<PortHold>,
    /// Packets that came in, by whom they were for.
    pub seen: HashMap<IpTarget, u64>,
    /// IP packets that no connection could take, as it should never be.
    pub refused: u64,
}

impl Native {
    /// In the namespace of this thread, which must be that of `a`.
    pub fn open() -> Self {
        Self::over(open(AttachMode::Native))
    }

    /// With the program in the kernel's stack.
    pub fn open_generic() -> Self {
        Self::over(open(AttachMode::Generic))
    }

    fn over(link: FollowedLink) -> Self {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a poller");
        for descriptor in link.descriptors() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&poller, descriptor, epoll::EventData::new_u64(0), flags).expect("to watch");
        }
        // Short, so that the end of TIME-WAIT is seen.
        let msl = punctual_analysis::Nanos::from_millis(100);
        Self {
            link,
            stack: Stack::new(Secrets::new([7; 16])),
            config: Config { msl, ..Config::default() },
            poller,
            out: Vec::with_capacity(64),
            packet: Vec::with_capacity(2_048),
            hops: HashMap::new(),
            placed: HashMap::new(),
            free: (0..FLOWS_MAX).rev().collect(),
            listener: None,
            seen: HashMap::new(),
            refused: 0,
        }
    }

    pub fn now() -> Instant {
        Instant(monotonic_ns())
    }

    /// Receives, answers and sends what is due; whether anything was.
    pub fn turn(&mut self) -> bool {
        let mut busy = false;
        while self.link.receive(&mut self.out, 32).expect("a link never fails") > 0 {
            busy = true;
            let mut received = std::mem::take(&mut self.out);
            received.drain(..).for_each(|received| self.input(received));
            self.out = received;
        }
        while self.link.transmit_ip_buffer().is_some() {
            let mut packet = std::mem::take(&mut self.packet);
            let made = self.stack.output(Self::now(), &mut packet);
            if made {
                self.send(&packet);
            }
            self.packet = packet;
            busy |= made;
            if !made {
                break;
            }
        }
        self.link.flush().expect("a link never fails");
        self.link.completed();
        busy | self.forget()
    }

    fn input(&mut self, mut received: Received) {
        let ip = received.ip.expect("nothing but IP packets of flows comes");
        *self.seen.entry(ip.to).or_default() += 1;
        let segment = wire::parse(received.frame.as_ref());
        if let (IpTarget::Flow(index), Ok(segment)) = (ip.to, &segment) {
            let placed = self.placed.values().find(|placed| placed.index == index);
            let key = FlowKey { local: segment.flow.local, remote: segment.flow.remote };
            assert_eq!(placed.map(|placed| placed.key), Some(key), "the driver names the flow");
        }
        if let (IpTarget::Listener(_), Ok(segment)) = (ip.to, &segment) {
            // A socket that is not connected gets its answer at the address that it sent from.
            self.hops.entry(segment.flow.remote.ip()).or_insert(NextHop::fixed(ip.sender));
        }
        let mut reply = std::mem::take(&mut self.packet);
        match self.stack.input(Self::now(), received.frame.as_mut(), &mut reply) {
            Ok(Arrival::Connection(id)) if !self.placed.contains_key(&id) => self.place(id, None),
            Ok(_) => {}
            Err(_) => self.refused += 1,
        }
        if !reply.is_empty() {
            self.send(&reply);
        }
        self.packet = reply;
    }

    /// Tells the driver of a connection.
    fn place(&mut self, id: ConnectionId, hold: Option<PortHold>) {
        let flow = self.stack.get(id).expect("it is there").flow();
        let key = FlowKey { local: flow.local, remote: flow.remote };
        let index = self.free.pop().expect("room for a flow");
        self.link.set_flow(&FlowFilter { key, index, inlet: WIDE }).expect("room for a flow");
        self.hop(flow.remote.ip());
        self.placed.insert(id, Placed { index, key, _hold: hold });
    }

    /// The route to a destination, followed.
    pub fn hop(&mut self, remote: IpAddr) -> NextHop {
        let hop = self.link.next_hop(remote).expect("a link that is followed");
        self.hops.insert(remote, hop.clone());
        hop
    }

    /// Forgets connections that are over, those in TIME-WAIT when it ends; whether there was one.
    fn forget(&mut self) -> bool {
        let now = Self::now();
        let over: Vec<ConnectionId> =
            self.stack.ids().collect::<Vec<_>>().into_iter().filter(|id| self.at(*id).is_over(now)).collect();
        for id in &over {
            self.stack.remove(*id);
            if let Some(placed) = self.placed.remove(id) {
                self.link.clear_flow(placed.key).expect("to clear");
                self.free.push(placed.index);
            }
        }
        !over.is_empty()
    }

    pub fn at(&mut self, id: ConnectionId) -> &mut Connection {
        self.stack.get(id).expect("the connection is there")
    }

    pub fn is_there(&self, id: ConnectionId) -> bool {
        self.placed.contains_key(&id)
    }

    /// Sends an IP packet to its destination's next hop.
    fn send(&mut self, packet: &[u8]) {
        let remote = match packet[0] >> 4 {
            4 => IpAddr::from(<[u8; 4]>::try_from(&packet[16..20]).expect("four")),
            _ => IpAddr::from(<[u8; 16]>::try_from(&packet[24..40]).expect("sixteen")),
        };
        let hop = self.hops[&remote].clone();
        while self.link.transmit_ip_buffer().is_none() {
            self.link.flush().expect("a link never fails");
            self.link.completed();
        }
        let buffer = self.link.transmit_ip_buffer().expect("room");
        buffer[..packet.len()].copy_from_slice(packet);
        self.link.transmit_ip(&hop, packet.len(), packet.len() as u32 + 38).expect("it fits");
    }

    /// Works until `done`, asleep in between until a packet comes or a timer ends.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = std::time::Instant::now();
        loop {
            let mut busy = self.turn();
            if done(self) {
                return;
            }
            let left = LONG.saturating_sub(begun.elapsed());
            assert!(!left.is_zero(), "waited for {what}: {}", self.describe());
            busy |= self.turn();
            if !busy {
                self.wait(left);
            }
        }
    }

    /// Shown when the test fails.
    fn describe(&mut self) -> String {
        let ids: Vec<ConnectionId> = self.stack.ids().collect();
        let states: Vec<_> = ids.into_iter().map(|id| (self.at(id).state(), self.at(id).ended())).collect();
        format!(
            "{:?} {:?} {:?} {states:?} {:?}",
            self.link,
            self.link.facts(),
            self.link.stream_drops(),
            self.hops
        )
    }

    fn wait(&mut self, at_most: Duration) {
        let now = Self::now();
        let due = self.stack.next_deadline(now).map(|at| Duration::from_nanos(at.since(now).as_u64()));
        let mut patience = due.unwrap_or(at_most).min(at_most);
        if self.link.is_pending() || self.link.transmit_ip_buffer().is_none() {
            patience = Duration::ZERO;
        }
        let mut events = Vec::with_capacity(4);
        let slice =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
        let spare = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(self.poller.as_fd(), spare, Some(&slice)).expect("to wait");
    }

    /// The route to `remote` as soon as its next hop has answered.
    pub fn route(&mut self, remote: IpAddr) -> HopRoute {
        let hop = self.hop(remote);
        let mut found = None;
        self.until("a next hop", |_| {
            found = match hop.state() {
                Some(HopState::Known(route)) if route.is_answered => Some(route),
                Some(HopState::Refused(why)) => panic!("{why}"),
                _ => None,
            };
            found.is_some()
        });
        found.expect("found")
    }

    /// Begins to connect. The driver knows the flow, and the port is held, before the first segment leaves.
    pub fn connect(&mut self, remote: SocketAddr) -> ConnectionId {
        let route = self.route(remote.ip());
        let config = Config { mtu_bytes: route.mtu as u16, ..self.config };
        loop {
            let id = self.stack.connect(Self::now(), route.source, remote, &config).expect("a port is free");
            let local = self.at(id).flow().local;
            match PortHold::take(local) {
                Ok(hold) => {
                    self.place(id, Some(hold));
                    return id;
                }
                // The kernel has given it to another socket.
                Err(_) => drop(self.stack.remove(id)),
            }
        }
    }

    /// Listens with these bounds.
    pub fn listen(&mut self, local: SocketAddr, inlet: Inlet) {
        self.listener = Some(PortHold::take(local).expect("a port that is free"));
        self.link.set_listener(&ListenerFilter { local, index: 0, inlet }).expect("room for a listener");
        let config = self.config;
        self.stack.listen(local, &config, 8);
    }

    pub fn accept(&mut self, local: SocketAddr) -> ConnectionId {
        let mut accepted = None;
        self.until("a connection", |native| {
            accepted = native.stack.accept(local);
            accepted.is_some()
        });
        accepted.expect("accepted")
    }

    /// Sends `bytes` as side `side` and closes, while it reads as many of the other side, and then the end.
    pub fn exchange(&mut self, id: ConnectionId, side: u8, bytes: u64) {
        let (mut sent, mut read, mut chunk) = (0, 0, vec![0; 16_384]);
        self.until("every byte", |native| {
            let connection = native.at(id);
            while sent < bytes {
                let size = chunk.len().min((bytes - sent) as usize).min(connection.writable_bytes());
                fill(side, sent, &mut chunk[..size]);
                let taken = connection.send(&chunk[..size]).expect("open");
                sent += taken as u64;
                if sent == bytes {
                    connection.close();
                }
                if taken == 0 {
                    break;
                }
            }
            loop {
                let size = connection.recv(&mut chunk);
                check(1 - side, read, &chunk[..size]);
                read += size as u64;
                if size == 0 {
                    return read == bytes && sent == bytes && connection.is_finished();
                }
            }
        });
    }

    /// Waits until the connection is over at both ends, and its flow is the kernel's again.
    pub fn end(&mut self, id: ConnectionId) {
        self.until("the end", |native| !native.is_there(id));
    }
}

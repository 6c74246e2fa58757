//! Two daemons at the ends of a link without their sockets: the services, and engines that run in virtual time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use punctual_engine::capture::CaptureFilter;
use punctual_engine::tcp::TcpRefusal;
use punctual_host::DaemonTcp;
use punctual_host::config::TcpRights;
use punctual_host::service::{ClientId, Effect, Host, HostGone, Service};
use punctual_ipc::api::{Answer, Call, FromDaemon, Quotas, Request, VERSION};
use punctual_ipc::api::{CapturedLink, EngineStatus};
use punctual_ipc::ring::{InboxReader, InboxWriter, OutboxReader, OutboxWriter, RingHandles, RingShape};
use punctual_ipc::shm::Region;
use punctual_ipc::socket::Peer;
use punctual_ipc::wake::{Alarm, Rank};
use punctual_proto::api::{
    Account, BrokenStage, CloseReason, Event, LateStage, LinkChange, MeasuredRate, RateRefusal, RequestError,
    UserId,
};
use punctual_proto::config::NodeConfig;
use punctual_proto::ids::{ChannelId, LinkId, Name, NodeId};
use punctual_proto::memory::Memory;
use punctual_proto::node::Node;
use punctual_proto::{Contract, Instant, Nanos};
use punctual_sim::memory::SimFrame;

use crate::input::Input;
use crate::net::{Net, config};
use crate::shm::scribble;

const HOSTS: usize = 2;
/// Two clients a host.
const CLIENTS: usize = 4;
/// Few enough to be reached, and little enough memory to be made thousands of times a second.
const QUOTAS: Quotas = Quotas {
    users: 4,
    clients: 4,
    listeners: 4,
    channels: 8,
    buffer_bytes: 256 << 10,
    descriptors: 40,
    ..Quotas::UNLIMITED
};
const HEADER_BYTES: u64 = 256;
/// Number of the calls that a client's library makes by itself.
const ATTACHED: u64 = u64::MAX;
/// Offsets at which rings are written out of turn.
const OFFSETS: [u32; 8] = [0, 128, 136, 192, 256, 264, 320, 384];

/// Rings of the API, frames of the simulator.
pub struct RingMemory;

impl Memory for RingMemory {
    type Frame = SimFrame;
    type Outbox = OutboxReader;
    type Inbox = InboxWriter;
}

thread_local! {
    /// The alarm of all engines: descriptors are scarce.
    static ALARM: Alarm = Alarm::new().expect("an eventfd");
}

type Clock = Rc<RefCell<Instant>>;
/// Doorbells by their channels.
type Watched = Rc<RefCell<BTreeMap<ChannelId, Arc<OwnedFd>>>>;

/// An engine that runs on the caller's thread.
struct Engine {
    node: Rc<RefCell<Node<RingMemory>>>,
    config: NodeConfig,
    now: Clock,
    watched: Watched,
    bell: Alarm,
    rights: TcpRights,
}

impl Host for Engine {
    type Memory = RingMemory;
    type Scheduling = u8;

    fn priority(&self, _: &Contract) -> Result<u8, String> {
        Ok(20)
    }

    fn scheduling(&self, thread: u32) -> Result<u8, String> {
        if thread == 0 { Err("no such thread".into()) } else { Ok(0) }
    }

    fn set_priority(&self, thread: u32, _: u8) -> Result<(), String> {
        if thread.is_multiple_of(2) { Err("not permitted".into()) } else { Ok(()) }
    }

    fn restore(&self, _: u32, _: u8) {}

    fn rank(&self) -> Box<dyn Rank> {
        Box::new(NoRank)
    }

    fn stage_late(&self, _: &LateStage) {}

    fn expect_room(&self, _: u64) {}

    fn resolve(&self, host: &Name) -> Result<NodeId, RequestError> {
        self.config.resolve(host)
    }

    fn call<R, F>(&self, request: F) -> Result<R, HostGone>
    where
        R: Send + 'static,
        F: FnOnce(&mut Node<RingMemory>, Instant) -> R + Send + 'static,
    {
        Ok(request(&mut self.node.borrow_mut(), *self.now.borrow()))
    }

    fn filter_accounts(&self) -> Result<Vec<Account>, HostGone> {
        // No driver is here.
        Ok(Vec::new())
    }

    fn watch(&self, channel: ChannelId, doorbell: Arc<OwnedFd>, _: Option<UserId>) -> Result<Nanos, String> {
        self.watched.borrow_mut().insert(channel, doorbell);
        Ok(Nanos::ZERO)
    }

    fn unwatch(&self, channel: ChannelId) {
        self.watched.borrow_mut().remove(&channel);
    }

    fn serve_tcp(&self, _: &Alarm) -> std::io::Result<()> {
        Ok(())
    }

    fn serve_joined_tcp(&self, _: &Alarm) -> std::io::Result<()> {
        Ok(())
    }

    fn tcp(&self) -> Option<&DaemonTcp> {
        None
    }

    fn captured_links(&self) -> Vec<CapturedLink> {
        Vec::new()
    }

    fn may_capture(&self, _: UserId) -> bool {
        true
    }

    fn begin_capture(&self, _: ChannelId, _: CaptureFilter, _: (InboxWriter, u32)) -> Result<(), String> {
        Ok(())
    }

    fn end_capture(&self, _: ChannelId) {}

    fn tcp_rights(&self) -> &TcpRights {
        &self.rights
    }

    fn try_next_event(&self) -> Result<Option<Event>, HostGone> {
        Ok(self.node.borrow_mut().poll_event())
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn link_changed(&self, _: LinkId, _: LinkChange) {}

    fn rate_measured(&self, _: LinkId, _: Result<MeasuredRate, RateRefusal>) {}

    fn stage_changed(&self, _: &BrokenStage, _: bool) {}

    fn channel_closed(&self, _: UserId, _: &str, _: CloseReason) {}

    fn tcp_refused(&self, _: UserId, _: SocketAddr, _: &TcpRefusal) {}

    fn statistics(&self) -> EngineStatus {
        EngineStatus::default()
    }

    fn stop(&self) {
        self.node.borrow_mut().shutdown(*self.now.borrow());
    }
}

/// Threads have no scheduling class in virtual time.
struct NoRank;

impl Rank for NoRank {
    fn begin(&mut self) -> std::io::Result<()> {
        Ok(())
    }
    fn raise(&mut self) {}
    fn lower(&mut self) {}
    fn follows(&self) -> bool {
        false
    }
}

/// A ring in a client's hands, and a second mapping to write to it out of turn.
struct Ring {
    ends: Ends,
    region: Region,
}

enum Ends {
    Out(OutboxWriter),
    In(InboxReader),
}

struct Client {
    id: Option<ClientId>,
    rings: Vec<Ring>,
}

/// See the module.
pub struct Bench {
    net: Net<RingMemory>,
    now: Clock,
    services: Vec<Service<Engine>>,
    watched: Vec<Watched>,
    clients: Vec<Client>,
    /// The daemons' messages.
    pub journal: Option<Vec<Vec<u8>>>,
}

const fn peer(user: u32) -> Peer {
    Peer { user: UserId(user), process: None, pidfd: None }
}

impl Bench {
    /// Two daemons, two clients each.
    pub fn new() -> Self {
        let net = Net::line(HOSTS);
        let now = Rc::new(RefCell::new(net.now));
        let mut watched = Vec::new();
        let service = |index| {
            let engine = Engine {
                node: net.share(index),
                config: config(index, HOSTS),
                now: Rc::clone(&now),
                watched: Rc::default(),
                bell: ALARM.with(Clone::clone),
                rights: TcpRights::default(),
            };
            watched.push(Rc::clone(&engine.watched));
            Service::new(engine, QUOTAS).expect("an engine that runs")
        };
        let services = (0..HOSTS).map(service).collect();
        let clients = (0..CLIENTS).map(|_| Client { id: None, rings: Vec::new() }).collect();
        let mut bench = Self { net, now, services, watched, clients, journal: None };
        (0..CLIENTS).for_each(|client| bench.connect(client));
        bench
    }

    fn connect(&mut self, client: usize) {
        // The two clients of a host are of different users.
        let connected = {
            let peer = peer((client / HOSTS) as u32);
            let account = peer.user;
            self.services[client % HOSTS].connect(peer, account)
        };
        self.clients[client] = Client { id: connected.ok(), rings: Vec::new() };
    }

    /// A packet of a client, as its server handles it.
    pub fn send_bytes(&mut self, client: usize, bytes: &[u8]) {
        let Some(id) = self.clients[client].id else { return };
        let service = &mut self.services[client % HOSTS];
        match serde_json::from_slice::<Call>(bytes) {
            Ok(call) => service.handle(id, call),
            Err(error) => service.reject(id, error.to_string()),
        }
    }

    /// Milliseconds pass.
    pub fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds.div_ceil(5) {
            self.net.run_for(Nanos::from_millis(5));
            self.settle();
        }
    }

    /// A program ends, and another one starts.
    pub fn reconnect(&mut self, client: usize) {
        if let Some(id) = self.clients[client].id.take() {
            self.services[client % HOSTS].disconnect(id);
        }
        self.clients[client].rings.clear();
        self.connect(client);
    }

    /// A client sends by one of its rings.
    pub fn send(&mut self, client: usize, ring: usize) {
        for ring in self.clients[client].rings.iter_mut().skip(ring) {
            if let Ends::Out(writer) = &mut ring.ends {
                let len = (writer.shape().message_bytes_max as usize).min(100);
                let _ = writer.push(&[IoSlice::new(&[7; 100][..len])]);
            }
        }
    }

    /// A client takes from one of its rings.
    pub fn receive(&mut self, client: usize, ring: usize) {
        for ring in self.clients[client].rings.iter_mut().skip(ring) {
            if let Ends::In(reader) = &mut ring.ends {
                while reader.take(|bytes, _| bytes.len()).is_some_and(|len| len > 0) {}
            }
        }
    }

    /// A client writes to the memory of one of its rings out of turn.
    pub fn scribble(&mut self, client: usize, ring: usize, input: &mut Input<'_>) -> Option<()> {
        let rings = &self.clients[client].rings;
        match rings.get(ring) {
            Some(ring) => scribble(&ring.region, input, &OFFSETS),
            None => input.u64().map(|_| ()),
        }
    }

    /// Handles doorbells, passes events on, delivers packets.
    pub fn settle(&mut self) {
        *self.now.borrow_mut() = self.net.now;
        for (host, watched) in self.watched.iter().enumerate() {
            let channels: Vec<_> = watched.borrow().keys().copied().collect();
            channels
                .into_iter()
                .for_each(|channel| self.net.node_mut(host).handle_ring(channel, self.net.now));
        }
        self.net.settle();
        for host in 0..HOSTS {
            let service = &mut self.services[host];
            service.close_broken();
            while service.has_left() {
                service.end_some();
            }
            service.handle_events().expect("the engine runs");
            while let Some(effect) = self.services[host].next_effect() {
                self.apply(host, effect);
            }
        }
        self.net.settle();
    }

    fn apply(&mut self, host: usize, effect: Effect) {
        match effect {
            Effect::Send(id, packet) => {
                if let Some(journal) = &mut self.journal {
                    journal.push(packet.bytes.clone());
                }
                let client = self.clients.iter().position(|client| client.id == Some(id));
                let answer = packet.parse().expect("a daemon's packets are of the API");
                let Some(client) = client.filter(|client| client % HOSTS == host) else { return };
                self.take_ring(client, answer, packet.descriptors);
            }
            Effect::Cut(id) => {
                let found = (0..CLIENTS)
                    .find(|client| client % HOSTS == host && self.clients[*client].id == Some(id));
                found.into_iter().for_each(|client| self.reconnect(client));
            }
        }
    }

    fn take_ring(&mut self, client: usize, answer: FromDaemon, descriptors: Vec<OwnedFd>) {
        let (channel, shape): (ChannelId, RingShape) = match answer {
            FromDaemon::Answer {
                result: Ok(Answer::Opened { channel, ring, .. } | Answer::Ring { channel, ring }),
                ..
            } => (channel, ring),
            _ => return,
        };
        let out = descriptors.len() == 4;
        let bytes = if out { shape.file_bytes() } else { HEADER_BYTES };
        let region = Region::map(&descriptors[1], bytes).expect("a second mapping");
        let handles = RingHandles { shape, descriptors };
        let ends = match out {
            true => Ends::Out(OutboxWriter::attach(handles).expect("an outgoing ring")),
            false => Ends::In(InboxReader::attach(handles).expect("an incoming ring")),
        };
        self.clients[client].rings.push(Ring { ends, region });
        let attached = Call { id: ATTACHED, request: Request::Attached { channel } };
        let id = self.clients[client].id.expect("it has just been reported");
        self.services[client % HOSTS].handle(id, attached);
    }

    /// All clients disconnect; then the daemons hold none of their resources.
    ///
    /// # Panics
    /// If they do.
    pub fn finish(mut self) {
        for client in 0..CLIENTS {
            if let Some(id) = self.clients[client].id.take() {
                self.services[client % HOSTS].disconnect(id);
            }
        }
        for _ in 0..6 {
            self.net.run_for(Nanos::from_secs(6));
            self.settle();
        }
        for host in 0..HOSTS {
            let status = self.net.node(host).status(self.net.now);
            assert_eq!(
                (status.channels, status.buffer_bytes),
                (0, 0),
                "{:?}",
                self.net.node(host).channels()
            );
            assert!(self.watched[host].borrow().is_empty(), "a doorbell is still watched");
            let service = &mut self.services[host];
            let id = service.connect(peer(9), UserId(9)).expect("everybody else is gone");
            service.handle(
                id,
                Call { id: 1, request: Request::Hello { version: VERSION, program: String::new() } },
            );
            service.handle(id, Call { id: 2, request: Request::Status });
            let mut users = None;
            while let Some(effect) = service.next_effect() {
                let Effect::Send(_, packet) = effect else { continue };
                if let Ok(FromDaemon::Answer { result: Ok(Answer::Status(status)), .. }) = packet.parse() {
                    users = Some(status.users);
                }
            }
            let users = users.expect("a status");
            assert!(
                matches!(users[..], [one] if (one.user.0, one.clients, one.channels, one.descriptors) == (9, 1, 0, 3)),
                "{users:?}"
            );
        }
    }
}

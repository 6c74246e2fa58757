//! TCP connections beside channels (ADR 0054) and over them (ADR 0055): the same endsystem and the same handlers that an engine
//! drives, with programs that write, read, close and vanish, and checks that share no code with them.
//!
//! | module | owns |
//! |---|---|
//! | `opening` | a connection from its request until everything is given back, as the engine does it |
//! | `calls` | the calls of handlers |
//! | `path` | both channels of a connection whose path is reserved, from the client's request until they are closed |
//! | `joined` | such a connection on the processor: its handlers, its rings, and the packets that its channels carry |
//! | `late` | the handler of each link for connections in TIME-WAIT, and for resets |
//! | `wire` | segments between two hosts: faults, the classifier at the receiver, the kernel behind it |
//! | `programs` | both ends' programs, and the bytes that they exchange ([`crate::stream`]) |
//! | `account` | what handlers may do in a period: an account of their calls that is independent of the node |
//! | `share` | what handlers hold of processors and links |
//! | `promise` | the data of a guaranteed connection, period by period |
//! | `verdict` | what must be true when all connections are over |

mod account;
mod calls;
mod joined;
mod late;
mod opening;
mod path;
mod programs;
mod promise;
mod share;
mod verdict;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use punctual_analysis::Instant;
use punctual_proto::api::{RtuClass, RtuCost, RtuId, RtuSending, RtuTarget, RtuTerms};
use punctual_proto::ids::LinkId;
use punctual_tcp::endsystem::{Endsystem, Segments};
use punctual_tcp::{Ended, Secrets};

use self::account::Account;
use self::calls::Running;
use self::joined::Joined;
use self::late::LateHandler;
use self::path::{Path, path_address};
use self::promise::Promise;
use super::call::{Call, TcpCall};
use super::{Event, World};
use crate::dice::{Dice, Draw};
use crate::filters::Held;
use crate::memory::{Delivered, InboxWatch, SimFrame, SimMemory, SimOutbox};
use crate::scenario::ConnectionPlan;
use crate::scenario::tcp::quantum;
use crate::stream::Stream;
use crate::time::SimTime;

/// Keys of connections' messages: above those of handlers.
pub(super) const TCP_KEYS: u64 = 1 << 48;
/// Port of the listener of connection 0.
const SERVER_PORT: u16 = 80;
/// Port of the client of connection 0.
const CLIENT_PORT: u16 = 40_000;
/// Connections and listeners of a host at once, and connections over channels.
const CONNECTIONS_MAX: usize = 64;
const PATHS_MAX: usize = 64;
const LISTENERS_MAX: usize = 64;
/// Half-open connections of a listener.
const BACKLOG: usize = 8;
/// Segments that wait between an output handler and the node.
const SEGMENTS: u32 = 64;
/// Packets of a connection between the wire and its input handler at most, and of a listener.
const BUFFERS: u32 = 256;
/// Messages of a program's rings, and the bytes of one that it reads.
const RING: (u32, u32) = (64, 4_096);

/// What programs do, by connection and end.
#[derive(Clone, Copy, Debug)]
pub(super) enum TcpAct {
    /// The client connects.
    Open(usize),
    /// A listener's program accepts what waits, in this life of its host.
    Accept {
        /// Its host.
        host: usize,
        /// Number of the listener.
        listener: u32,
        /// Life of the host.
        life: u32,
    },
    /// An end writes.
    Write(usize, usize),
    /// An end reads the oldest message that it has not read.
    Read(usize, usize),
    /// An end aborts or is gone.
    Break(usize),
    /// The client opens the channel to the server, which has opened the one from it.
    Forward(usize),
    /// An end has both channels.
    Join(usize, usize),
    /// An end closes its channels.
    ClosePath(usize, usize),
    /// A program asks its host something.
    Ask(TcpCall),
    /// Connections that need not end by themselves are reset.
    EndExcused,
    /// All connections must be over.
    Over,
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Input(u32),
    Output(u32),
    Listener(u32),
    Late(LinkId),
}

/// TCP of one host: the parts that an engine and its driver have.
pub(super) struct TcpHost {
    endsystem: Endsystem<SimMemory>,
    roles: BTreeMap<RtuId, Role>,
    places: BTreeMap<u32, Place>,
    listeners: BTreeMap<u32, Listening>,
    lates: BTreeMap<LinkId, LateHandler>,
    driver: Driver,
    /// Classified packets that the processor has not taken.
    arrived: VecDeque<ClassifiedPacket>,
    accounts: BTreeMap<RtuId, Account>,
    running: Option<Running>,
    /// The handler whose call was finished last.
    called: Option<Role>,
    /// Connections that the last call of a link's handler has served.
    served: Vec<u32>,
}

/// Tables of a host's drivers.
#[derive(Default)]
struct Driver {
    /// By local and remote end.
    flows: BTreeMap<(SocketAddr, SocketAddr), Inlet>,
    listeners: BTreeMap<(u16, SocketAddr), Inlet>,
}

/// Destination of packets, and how many of them wait.
#[derive(Clone)]
struct Inlet {
    index: u32,
    held: Held,
}

/// A classified packet.
struct ClassifiedPacket {
    to: Role,
    /// Hardware address that it came from.
    address: u64,
    frame: SimFrame,
}

/// What belongs to a connection outside of the endsystem.
struct Place {
    /// Connection of the plan, and which end.
    of: (usize, usize),
    input: RtuId,
    output: RtuId,
    segments: SegmentRing,
    /// Handlers that are granted.
    granted: u8,
    held: Held,
    /// Its handlers were given back: that of its link answers for it.
    is_late: bool,
    /// What carries its packets, if that is no link.
    joined: Option<Joined>,
}

/// A listener.
struct Listening {
    handler: RtuId,
    segments: SegmentRing,
    held: Held,
    /// Whether its program has been notified and has not accepted yet.
    is_notified: bool,
}

/// The end of a ring of segments that a handler fills.
#[derive(Clone)]
struct SegmentRing {
    ring: SimOutbox,
    /// Packets that were put so far.
    puts: u64,
    tag: Tag,
    now: Instant,
    /// Packets for a channel that the last call has put.
    put_now: Vec<Box<[u8]>>,
}

/// What is behind a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    /// Its number.
    Number,
    /// The hardware address that it goes to.
    Address,
    /// Nothing: it is a message of a channel.
    None,
}

impl SegmentRing {
    fn new(tag: Tag) -> Self {
        Self::of(SimOutbox::new(TCP_KEYS, SEGMENTS), tag)
    }

    const fn of(ring: SimOutbox, tag: Tag) -> Self {
        Self { ring, puts: 0, tag, now: Instant::ZERO, put_now: Vec::new() }
    }
}

impl Segments for SegmentRing {
    fn has_room(&self) -> bool {
        self.ring.has_room()
    }

    fn put(&mut self, packet: &[u8], address: u64) {
        let tag = match self.tag {
            Tag::Number => self.puts,
            Tag::Address => address,
            Tag::None => {
                self.put_now.push(packet.into());
                self.ring.send_bytes(packet, self.now);
                self.puts += 1;
                return;
            }
        };
        self.ring.send_bytes(&[packet, &tag.to_le_bytes()].concat(), self.now);
        self.puts += 1;
    }
}

/// A connection of the plan.
pub(super) struct Conversation {
    plan: ConnectionPlan,
    ends: [End; 2],
    /// What each end writes.
    streams: [Stream; 2],
    promise: Option<Promise>,
    /// Its channels, if its path is reserved.
    path: Option<Path>,
    /// Why it need not be complete, if it need not.
    excuse: Option<&'static str>,
}

/// One end of a connection, with its program.
#[derive(Default)]
struct End {
    stage: Stage,
    /// Number at its host.
    index: Option<u32>,
    outbox: Option<SimOutbox>,
    inbox: Option<InboxWatch>,
    /// Messages that it has not read.
    unread: VecDeque<Delivered>,
    ended: Option<Ended>,
    /// Whether its program has no more to do with it.
    is_released: bool,
    wire: Traces,
}

/// What was seen of an end on its link.
#[derive(Clone, Copy, Debug, Default)]
struct Traces {
    /// Its first FIN left, and the first FIN for it came.
    fin_left: Option<SimTime>,
    fin_came: Option<SimTime>,
    /// A reset left or came.
    was_reset: bool,
}

/// How far an end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It has not begun.
    #[default]
    Planned,
    /// Admission decides about its handlers.
    Asked,
    /// The handshake is under way.
    Opening,
    /// It is open.
    Open,
    /// The connection ended; its handlers and its flow are there.
    Ended,
    /// Everything was given back.
    Over,
}

impl End {
    fn is_alive(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Open | Stage::Ended)
    }
}

impl TcpHost {
    /// TCP of host `number` in its `life`.
    fn new(seed: u64, number: u64, life: u32) -> Self {
        let mut dice = Dice::of(seed ^ (u64::from(life) << 32), Draw::TcpHost(number));
        let secret = u128::from(dice.bits()) << 64 | u128::from(dice.bits());
        Self {
            endsystem: Endsystem::new(Secrets::new(secret.to_le_bytes()), CONNECTIONS_MAX, LISTENERS_MAX)
                .with_paths(PATHS_MAX),
            roles: BTreeMap::new(),
            places: BTreeMap::new(),
            listeners: BTreeMap::new(),
            lates: BTreeMap::new(),
            driver: Driver::default(),
            arrived: VecDeque::new(),
            accounts: BTreeMap::new(),
            running: None,
            called: None,
            served: Vec::new(),
        }
    }
}

/// The address of a host.
fn address(host: usize, is_v6: bool) -> IpAddr {
    let number = host as u32 + 1;
    match is_v6 {
        false => Ipv4Addr::from(0x0a00_0000 | number).into(),
        true => Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(number)).into(),
    }
}

/// The hardware address of a host.
const fn hardware(host: usize) -> u64 {
    host as u64 + 1
}

impl ConnectionPlan {
    /// Address and port of an end of connection `number`.
    fn end(&self, number: usize, end: usize) -> SocketAddr {
        let port = if end == 0 { CLIENT_PORT + number as u16 } else { SERVER_PORT + self.leader as u16 };
        let host = self.hosts[end];
        let ip = if self.path.is_some() { path_address(host) } else { address(host, self.is_v6) };
        SocketAddr::new(ip, port)
    }
}

impl World {
    /// The connections of the plan.
    pub(super) fn conversations(connections: &[ConnectionPlan]) -> Vec<Conversation> {
        let talk = |(number, plan): (usize, &ConnectionPlan)| Conversation {
            plan: *plan,
            ends: Default::default(),
            streams: [0, 1].map(|end| Stream::new(key_of(number, end))),
            promise: Promise::of(plan),
            path: plan.path.map(Path::new),
            excuse: None,
        };
        connections.iter().enumerate().map(talk).collect()
    }

    pub(super) fn schedule_tcp(&mut self) {
        for number in 0..self.conversations.len() {
            let plan = &self.conversations[number].plan;
            if plan.is_left_out {
                self.conversations[number].excuse = Some("it is left out");
                continue;
            }
            let at = plan.opens_at;
            self.queue.schedule(at, Event::Tcp(TcpAct::Open(number)));
        }
        if !self.conversations.is_empty() {
            let ends = self.scenario.tcp_ends();
            self.queue.schedule(ends - verdict::RESETS, Event::Tcp(TcpAct::EndExcused));
            self.queue.schedule(ends, Event::Tcp(TcpAct::Over));
        }
    }

    pub(super) fn act_tcp(&mut self, act: TcpAct) {
        match act {
            TcpAct::Open(number) => {
                let host = self.conversations[number].plan.hosts[0];
                self.plan_break(number);
                if self.conversations[number].path.is_some() {
                    return self.request_path(number);
                }
                self.call(host, Call::Tcp(TcpCall::Connect(number)));
            }
            TcpAct::Forward(number) => self.open_forward(number),
            TcpAct::Join(number, end) => {
                let host = self.conversations[number].plan.hosts[end];
                self.call(host, Call::Tcp(TcpCall::Join(number, end)));
            }
            TcpAct::ClosePath(number, end) => self.close_path(number, end),
            TcpAct::Accept { host, listener, life } => {
                if self.hosts[host].life == life {
                    self.call(host, Call::Tcp(TcpCall::Accept(listener)));
                }
            }
            TcpAct::Write(number, end) => self.write_tcp(number, end),
            TcpAct::Read(number, end) => self.read_oldest(number, end),
            TcpAct::Break(number) => self.break_tcp(number),
            TcpAct::Ask(call) => self.pass_tcp(call),
            TcpAct::EndExcused => self.end_excused(),
            TcpAct::Over => self.check_over(),
        }
    }

    pub(super) fn do_tcp_call(&mut self, host: usize, call: TcpCall, now: Instant) {
        match call {
            TcpCall::Connect(number) => self.connect_tcp(number, now),
            TcpCall::Accept(listener) => self.accept_tcp(host, listener, now),
            TcpCall::Ready(number, end) => self.change_tcp(host, (number, end), now, |_, _| {}),
            TcpCall::Close(number, end) => {
                self.change_tcp(host, (number, end), now, |tcp, index| tcp.close(index));
            }
            TcpCall::Abort(number, end) => {
                self.change_tcp(host, (number, end), now, |tcp, index| tcp.abort(index));
            }
            TcpCall::Join(number, end) => self.join_tcp((number, end), now),
            TcpCall::Attach(number, end) => self.attach_tcp((number, end), now),
            TcpCall::Cut(number, end) => {
                self.change_tcp(host, (number, end), now, |tcp, index| tcp.cut(index));
            }
            TcpCall::Release(number, end) => {
                self.change_tcp(host, (number, end), now, |tcp, index| tcp.release(index, now));
            }
        }
    }

    /// A host starts: it has TCP if the plan has.
    pub(super) fn start_tcp(&mut self, host: usize) {
        if self.conversations.is_empty() {
            return;
        }
        let life = self.hosts[host].life;
        self.hosts[host].tcp = Some(Box::new(TcpHost::new(self.outcome.seed, host as u64, life)));
        self.serve_late(host);
        self.listen_tcp(host);
    }

    /// A host has lost everything: so have its ends of connections.
    pub(super) fn forget_tcp(&mut self, host: usize) {
        self.hosts[host].tcp = None;
        for talk in &mut self.conversations {
            for end in (0..2).filter(|end| talk.plan.hosts[*end] == host) {
                talk.excuse.get_or_insert("a host crashed");
                talk.promise = None;
                if talk.ends[end].stage != Stage::Planned {
                    talk.ends[end] = End { stage: Stage::Over, is_released: true, ..End::default() };
                }
            }
        }
    }
}

/// Terms of a handler of this class.
const fn terms_of(class: RtuClass, cost: RtuCost) -> RtuTerms {
    RtuTerms { class: class.sporadic(), deadline: None, quantum: quantum(class), cost }
}

/// What an output handler sends over a link.
const fn sending_over(link: LinkId, payload_bytes: u32) -> RtuSending {
    RtuSending { to: RtuTarget::Link(link), packets: 1, payload_bytes }
}

/// Key of what an end writes.
const fn key_of(number: usize, end: usize) -> u64 {
    TCP_KEYS + number as u64 * 2 + end as u64
}

/// Connection and end of a key.
const fn of_key(key: u64) -> (usize, usize) {
    let number = key - TCP_KEYS;
    ((number / 2) as usize, (number % 2) as usize)
}

//! TCP connections on the processor: which handlers, flows and rings belong to each, from the request to the time when all is
//! given back (ADR 0054).
//!
//! Ownership: [`Tcp`] owns connections and their rings, the node owns the handlers' accounts, and the link's driver owns the
//! flow. A connection has its flow from the grant of both handlers until it is over, so that the kernel never sees a segment
//! of it.

mod calls;
mod life;
mod listen;
mod paths;
mod time_wait;

use std::collections::BTreeMap;
use std::net::IpAddr;

use punctual_link::{FlowFilter, FlowKey, Inlet, ListenerFilter, NextHop};
use punctual_proto::api::{RtuGrant, RtuId, RtuRefusal, RtuSending, RtuTerms};
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};
use punctual_tcp::endsystem::{Endsystem, Rings, Segments};
use punctual_tcp::{Flow, Secrets};

use self::time_wait::TimeWait;
use super::Processor;
use crate::command::Answer;
use crate::memory::HostMemory;
use crate::tcp::{
    DisposeRings, EndedConnection, Refused, TcpBounds, TcpConnect, TcpEvent, TcpId, TcpLimits, TcpParts,
    TcpRefusal, TcpStatus, TcpTerms,
};

/// All of one processor.
pub(super) struct Tcp<O: Outbox, I: Inbox> {
    endsystem: Endsystem<HostMemory<O, I>>,
    limits: TcpLimits,
    roles: BTreeMap<RtuId, Role>,
    places: BTreeMap<u32, Place<O, I>>,
    listeners: BTreeMap<u32, Listening>,
    /// What answers late segments, by link.
    time_waits: BTreeMap<LinkId, TimeWait>,
    /// Connections over channels, by the channel that brings their packets.
    incoming: BTreeMap<ChannelId, u32>,
    /// Connections of programs in other processes, by the handles of their doorbells.
    doorbells: BTreeMap<ChannelId, TcpId>,
    /// Connections so far.
    count: u64,
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input(u32),
    Output(u32),
    Listener(u32),
    TimeWait(LinkId),
}

/// What belongs to a connection outside of it.
struct Place<O: Outbox, I: Inbox> {
    way: Way,
    /// Version of the next hop that the connection follows.
    hop_version: u32,
    flow: Flow,
    /// Terms of the input handler.
    terms: RtuTerms,
    input: RtuId,
    output: RtuId,
    bounds: TcpBounds,
    owned: Owned<O, I>,
    /// A handler on the processor takes its bytes.
    is_direct: bool,
    phase: Phase,
    /// Connections before this one.
    count: u64,
    /// When it began.
    since: Instant,
}

/// What carries the packets of a connection.
enum Way {
    /// A link, to this next hop, with bounds of its packets in the driver.
    Link(LinkId, NextHop, Inlet),
    /// Two channels.
    Channels(Channels),
}

/// The channels of a connection, as far as the processor needs them.
struct Channels {
    /// Brings packets.
    incoming: ChannelId,
    /// How soon to check whether a ring that was full has room.
    pause: Nanos,
}

impl Way {
    /// The link that it is bound to.
    const fn link(&self) -> Option<LinkId> {
        match self {
            Self::Link(link, ..) => Some(*link),
            Self::Channels(_) => None,
        }
    }

    const fn hop(&self) -> Option<&NextHop> {
        match self {
            Self::Link(_, hop, _) => Some(hop),
            Self::Channels(_) => None,
        }
    }
}

/// What its owner has given, and gets back.
struct Owned<O: Outbox, I: Inbox> {
    /// `None` in TIME-WAIT.
    segments: Option<Box<dyn Segments + Send>>,
    dispose: DisposeRings<O, I>,
    notify: Box<dyn FnMut(TcpEvent) + Send>,
}

/// What belongs to a listener outside of it.
struct Listening {
    link: LinkId,
    handler: RtuId,
    segments: Box<dyn Segments + Send>,
    notify: Box<dyn FnMut() + Send>,
    filter: ListenerFilter,
    /// Set while a program waits for the answer of admission.
    asker: Option<Answer<Result<u32, TcpRefusal>>>,
}

/// How far a connection is.
enum Phase {
    /// Admission decides about its handlers; so many are granted.
    Asked(u8, Option<Answer<Result<TcpId, Refused>>>),
    /// The handshake is under way.
    Opening,
    /// It is open.
    Open,
    /// It ended; its program was notified.
    Ended,
    /// Only late segments of the peer can come. Its handlers and its rings were given back, and its buffers if it `rests`.
    TimeWait { rests: bool },
}

impl<O: Outbox, I: Inbox> Owned<O, I> {
    /// What its owner drops.
    fn remains(mut self, rings: Option<Rings<HostMemory<O, I>>>) -> EndedConnection {
        let rings = rings.map(self.dispose);
        EndedConnection(Box::new((rings, self.segments.take(), self.notify)))
    }
}

impl<O: Outbox, I: Inbox> Tcp<O, I> {
    pub fn new(limits: TcpLimits) -> Self {
        let TcpLimits { connections_max, listeners_max, paths_max, .. } = limits;
        let [connections, listeners, paths] =
            [connections_max, listeners_max, paths_max].map(|max| max as usize);
        let endsystem = Endsystem::new(Secrets::new(limits.secret), connections, listeners);
        Self {
            endsystem: endsystem.with_paths(paths),
            limits,
            roles: BTreeMap::new(),
            places: BTreeMap::new(),
            listeners: BTreeMap::new(),
            time_waits: BTreeMap::new(),
            incoming: BTreeMap::new(),
            doorbells: BTreeMap::new(),
            count: 0,
        }
    }

    /// From now on a ring of this handle's doorbell is one of the connection's program. Returns the terms of its input
    /// handler; `None`: it is over.
    pub fn add_doorbell(&mut self, channel: ChannelId, connection: TcpId) -> Option<RtuTerms> {
        let place = self.places.get(&connection.index).filter(|place| place.count == connection.count)?;
        self.doorbells.insert(channel, connection);
        Some(place.terms)
    }

    pub fn remove_doorbell(&mut self, channel: ChannelId) {
        self.doorbells.remove(&channel);
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// TCP of a link that has a handler for late segments.
    fn tcp(&mut self, link: LinkId) -> Result<&mut Tcp<O, I>, TcpRefusal> {
        let tcp = self.programs.tcp.as_mut().ok_or(TcpRefusal::NoTcp)?;
        let is_served = tcp.time_waits.get(&link).is_some_and(TimeWait::is_granted);
        if is_served { Ok(tcp) } else { Err(TcpRefusal::NoTcp) }
    }

    pub fn next_hop(&mut self, link: LinkId, remote: IpAddr) -> Result<NextHop, TcpRefusal> {
        let port = self.ports.get_mut(usize::from(link.0)).ok_or(TcpRefusal::NoTcp)?;
        port.next_hop(remote).map_err(|error| TcpRefusal::Driver(error.to_string()))
    }

    pub fn connect_tcp(
        &mut self,
        wanted: TcpConnect<O, I>,
        dispose: DisposeRings<O, I>,
        answer: Answer<Result<TcpId, Refused>>,
        at: Instant,
    ) {
        let TcpConnect { flow, link, hop, config, parts } = wanted;
        let TcpParts { terms, rings, segments_out, segments_in, notify } = parts;
        let owned = Owned { segments: Some(segments_in), dispose, notify };
        self.make_room(link, at);
        let index = match self.tcp(link) {
            Ok(tcp) => tcp
                .endsystem
                .connect(flow, &config, rings, at)
                .map_err(|rings| (TcpRefusal::Exhausted(tcp.limits.connections_max), rings)),
            Err(refusal) => Err((refusal, rings)),
        };
        let index = match index {
            Ok(index) => index,
            Err((refusal, rings)) => return answer.send(Err((refusal, owned.remains(Some(rings))))),
        };
        let TcpTerms { input, output, sending, inlet } = terms;
        let way = Way::Link(link, hop, inlet);
        let sends = Some((sending, segments_out));
        match self.place_tcp(index, (flow, way), [input, output], (sends, owned), at) {
            Ok(place) => self.insert_place(index, Place { phase: Phase::Asked(0, Some(answer)), ..place }),
            Err(refused) => answer.send(Err(refused)),
        }
        self.process_handler_events();
    }

    /// Registers the input and the output handler of a connection; forgets it if that is refused.
    fn place_tcp(
        &mut self,
        index: u32,
        (flow, way): (Flow, Way),
        terms: [RtuTerms; 2],
        (sends, owned): (Option<(RtuSending, O)>, Owned<O, I>),
        at: Instant,
    ) -> Result<Place<O, I>, Refused> {
        let (input, output) = match self.register_handlers(terms, sends, at) {
            Ok(handlers) => handlers,
            Err(refusal) => {
                let rings = self.refuse_tcp(index, way.link(), at);
                return Err((refusal, owned.remains(rings)));
            }
        };
        let mut count = 0;
        if let Some(tcp) = &mut self.programs.tcp {
            tcp.roles.extend([(input, Role::Input(index)), (output, Role::Output(index))]);
            count = tcp.count;
            tcp.count += 1;
        }
        let phase = Phase::Asked(0, None);
        Ok(Place {
            way,
            hop_version: 0,
            flow,
            terms: terms[0],
            input,
            output,
            bounds: TcpBounds::default(),
            owned,
            is_direct: false,
            phase,
            count,
            since: at,
        })
    }

    fn register_handlers(
        &mut self,
        terms: [RtuTerms; 2],
        sends: Option<(RtuSending, O)>,
        at: Instant,
    ) -> Result<(RtuId, RtuId), TcpRefusal> {
        let refused = |handler| move |refusal| TcpRefusal::Handler { handler, refusal };
        let input = self.node.register_handler(terms[0], at).map_err(refused("input"))?;
        let output = match sends {
            Some((sending, ring)) => self.node.register_sender(terms[1], &sending, ring, at),
            // What it sends goes to a channel, whose contract admission has counted.
            None => self.node.register_handler(terms[1], at),
        };
        let output = output.map_err(|refusal| {
            self.node.remove_handler(input, at);
            refused("output")(refusal)
        })?;
        Ok((input, output))
    }

    fn insert_place(&mut self, index: u32, place: Place<O, I>) {
        if let Some(tcp) = &mut self.programs.tcp {
            tcp.places.insert(index, place);
        }
    }

    /// Admission has decided about a handler; whether it is one of TCP.
    pub(super) fn tcp_decided(
        &mut self,
        id: RtuId,
        answer: &Result<RtuGrant, RtuRefusal>,
        at: Instant,
    ) -> bool {
        let Some(tcp) = &mut self.programs.tcp else { return false };
        let Some(&role) = tcp.roles.get(&id) else { return false };
        let (index, handler) = match role {
            Role::Input(index) => (index, "input"),
            Role::Output(index) => (index, "output"),
            Role::Listener(index) => {
                self.listener_decided(index, answer, at);
                return true;
            }
            Role::TimeWait(link) => {
                self.time_wait_decided(link, answer);
                return true;
            }
        };
        let refused = match answer {
            Ok(grant) => {
                self.set_tcp_bound(role, Some(*grant));
                self.tcp_granted(index, at).err()
            }
            Err(refusal) => Some(TcpRefusal::Handler { handler, refusal: *refusal }),
        };
        if let Some(refusal) = refused {
            self.give_up_tcp(index, refusal, at);
        }
        true
    }

    /// A handler of a connection has this grant; `None`: it was demoted and has none any more.
    fn set_tcp_bound(&mut self, role: Role, grant: Option<RtuGrant>) {
        let (Role::Input(index) | Role::Output(index)) = role else { return };
        let place = self.programs.tcp.as_mut().and_then(|tcp| tcp.places.get_mut(&index));
        let Some(TcpBounds { input, output }) = place.map(|place| &mut place.bounds) else { return };
        match role {
            Role::Input(_) => *input = grant.and_then(|grant| grant.bound),
            _ => *output = grant.and_then(|grant| grant.sent.or(grant.bound)),
        }
    }

    /// A handler was demoted; its status has the reason.
    pub(super) fn tcp_demoted(&mut self, id: RtuId) {
        let role = self.programs.tcp.as_ref().and_then(|tcp| tcp.roles.get(&id).copied());
        if let Some(role) = role {
            self.set_tcp_bound(role, None);
        }
    }

    /// One more handler of a connection is granted. With both, the driver learns the flow, and the SYN may leave.
    fn tcp_granted(&mut self, index: u32, at: Instant) -> Result<(), TcpRefusal> {
        let tcp = self.programs.tcp.as_mut().ok_or(TcpRefusal::NoTcp)?;
        let Some(place) = tcp.places.get_mut(&index) else { return Ok(()) };
        let Phase::Asked(granted, _) = &mut place.phase else { return Ok(()) };
        *granted += 1;
        if *granted < 2 {
            return Ok(());
        }
        if let Way::Link(link, hop, inlet) = &place.way {
            let key = FlowKey { local: place.flow.local, remote: place.flow.remote };
            let filter = FlowFilter { key, index, inlet: *inlet };
            let port = self.ports.get_mut(usize::from(link.0)).ok_or(TcpRefusal::NoTcp)?;
            port.set_flow(&filter, (place.output, hop.clone()))
                .map_err(|error| TcpRefusal::Driver(error.to_string()))?;
        }
        let asked = std::mem::replace(&mut place.phase, Phase::Opening);
        if let Phase::Asked(_, Some(answer)) = asked {
            answer.send(Ok(TcpId { index, count: place.count }));
        }
        self.call_input(index, at);
        Ok(())
    }

    /// The number of a connection that is not over.
    fn index_of(&self, id: TcpId) -> Option<u32> {
        let place = self.programs.tcp.as_ref()?.places.get(&id.index)?;
        (place.count == id.count).then_some(id.index)
    }

    /// A program in another process has rung; whether it is one of a connection.
    pub(super) fn ring_tcp(&mut self, channel: ChannelId, at: Instant) -> bool {
        let connection = self.programs.tcp.as_ref().and_then(|tcp| tcp.doorbells.get(&channel).copied());
        if let Some(connection) = connection {
            self.ready_tcp(connection, at);
        }
        connection.is_some()
    }

    /// The program of the connection with this number, if there is one, has used its rings. If the number has gone to another
    /// connection meanwhile, that one's handlers find nothing to do.
    pub(in crate::processor) fn ready_index(&mut self, index: u32, at: Instant) {
        if self.programs.tcp.as_ref().is_some_and(|tcp| tcp.places.contains_key(&index)) {
            self.call_input(index, at);
        }
    }

    /// The program has used its rings.
    pub fn ready_tcp(&mut self, id: TcpId, at: Instant) {
        if let Some(index) = self.index_of(id) {
            self.call_input(index, at);
        }
    }

    /// Its input handler gives the program what waits for room, if anything does.
    fn call_input(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let has_input = tcp.endsystem.has_input(index);
        if let Some(handler) = has_input.then(|| tcp.wake(index)).flatten() {
            self.node.make_ready(handler, at);
        }
        self.settle_tcp(index, at);
    }

    pub fn change_tcp(
        &mut self,
        id: TcpId,
        at: Instant,
        change: impl FnOnce(&mut Endsystem<HostMemory<O, I>>, u32),
    ) {
        let Some(index) = self.index_of(id) else { return };
        if let Some(tcp) = &mut self.programs.tcp {
            change(&mut tcp.endsystem, index);
        }
        self.call_input(index, at);
    }

    /// Passes `change` the program's incoming ring, to which it gives a handler, and has bytes that waited for room delivered.
    pub fn with_tcp_inbox<R>(
        &mut self,
        id: TcpId,
        at: Instant,
        change: impl FnOnce(Option<&mut I>) -> R,
    ) -> R {
        let index = self.index_of(id);
        let rings =
            (self.programs.tcp.as_mut()).zip(index).and_then(|(tcp, index)| tcp.endsystem.rings_mut(index));
        let result = change(rings.map(|rings| &mut rings.inbox));
        if let Some(index) = index {
            if let Some(place) = self.programs.tcp.as_mut().and_then(|tcp| tcp.places.get_mut(&index)) {
                place.is_direct = true;
            }
            self.call_input(index, at);
        }
        result
    }

    pub fn tcp_status(&self, id: TcpId) -> Option<TcpStatus> {
        let index = self.index_of(id)?;
        let tcp = self.programs.tcp.as_ref()?;
        let connection = tcp.endsystem.status(index)?;
        Some(TcpStatus { connection, bounds: tcp.places.get(&index)?.bounds })
    }
}

//! TCP connections on the processor: which handlers, flows and rings belong to each, from the request to the time when all is
//! given back (ADR 0054).
//!
//! Ownership: [`Tcp`] owns connections and their rings, the node owns the handlers' accounts, and the link's driver owns the
//! flow. A connection has its flow from the grant of both handlers until it is over, so that the kernel never sees a segment
//! of it.

mod calls;
mod listen;

use std::collections::BTreeMap;
use std::net::IpAddr;

use punctual_link::{FlowFilter, FlowKey, ListenerFilter, NextHop};
use punctual_proto::api::{RtuGrant, RtuId, RtuRefusal};
use punctual_proto::ids::LinkId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};
use punctual_tcp::endsystem::{Endsystem, Segments};
use punctual_tcp::{Ended, Flow, Secrets, State};

use super::Processor;
use crate::command::Answer;
use crate::memory::HostMemory;
use crate::tcp::{Bury, Remains, TcpConnect, TcpEvent, TcpLimits, TcpParts, TcpRefusal, TcpStatus, TcpTerms};

/// How soon to check again whether the last segment of a connection has left.
const LAST_SEGMENT_CHECK: Nanos = Nanos::from_micros(500);

/// All of one processor.
pub(super) struct Tcp<O: Outbox, I: Inbox> {
    endsystem: Endsystem<HostMemory<O, I>>,
    limits: TcpLimits,
    roles: BTreeMap<RtuId, Role>,
    places: BTreeMap<u32, Place<O, I>>,
    listeners: BTreeMap<u32, Listening>,
}

/// What a handler does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input(u32),
    Output(u32),
    Listener(u32),
}

/// What belongs to a connection outside of it.
struct Place<O: Outbox, I: Inbox> {
    link: LinkId,
    flow: Flow,
    hop: NextHop,
    terms: TcpTerms,
    input: RtuId,
    output: RtuId,
    owned: Owned<O, I>,
    phase: Phase,
    /// When it began.
    since: Instant,
}

/// What its owner has given, and gets back.
struct Owned<O: Outbox, I: Inbox> {
    segments: Box<dyn Segments + Send>,
    bury: Bury<O, I>,
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
    Asked(u8, Option<Answer<Result<u32, TcpRefusal>>>),
    /// The handshake is under way.
    Opening,
    /// It is open.
    Open,
    /// It ended; its program was notified.
    Ended,
}

impl<O: Outbox, I: Inbox> Tcp<O, I> {
    pub fn new(limits: TcpLimits) -> Self {
        let [connections, listeners] = [limits.connections_max, limits.listeners_max].map(|max| max as usize);
        Self {
            endsystem: Endsystem::new(Secrets::new(limits.secret), connections, listeners),
            limits,
            roles: BTreeMap::new(),
            places: BTreeMap::new(),
            listeners: BTreeMap::new(),
        }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    fn tcp(&mut self) -> Result<&mut Tcp<O, I>, TcpRefusal> {
        self.programs.tcp.as_mut().ok_or(TcpRefusal::NoTcp)
    }

    pub fn next_hop(&mut self, link: LinkId, remote: IpAddr) -> Result<NextHop, TcpRefusal> {
        let port = self.ports.get_mut(usize::from(link.0)).ok_or(TcpRefusal::NoTcp)?;
        port.next_hop(remote).map_err(|error| TcpRefusal::Driver(error.to_string()))
    }

    pub fn connect_tcp(
        &mut self,
        wanted: TcpConnect<O, I>,
        bury: Bury<O, I>,
        answer: Answer<Result<u32, TcpRefusal>>,
        at: Instant,
    ) {
        let TcpConnect { flow, link, hop, config, parts } = wanted;
        let tcp = match self.tcp() {
            Ok(tcp) => tcp,
            Err(refusal) => return answer.send(Err(refusal)),
        };
        let TcpParts { terms, rings, segments_out, segments_in, notify } = parts;
        let owned = Owned { segments: segments_in, bury, notify };
        let connections_max = tcp.limits.connections_max;
        let Some(index) = tcp.endsystem.connect(flow, &config, rings, at) else {
            return answer.send(Err(TcpRefusal::Exhausted(connections_max)));
        };
        let begun = self.place_tcp(index, (flow, link, hop), terms, (segments_out, owned), at);
        match begun {
            Ok(place) => self.insert_place(index, Place { phase: Phase::Asked(0, Some(answer)), ..place }),
            Err(refusal) => {
                self.forget_connection(index);
                answer.send(Err(refusal));
            }
        }
        self.hear_of_handlers();
    }

    /// Registers both handlers of a connection.
    fn place_tcp(
        &mut self,
        index: u32,
        (flow, link, hop): (Flow, LinkId, NextHop),
        terms: TcpTerms,
        (segments_out, owned): (O, Owned<O, I>),
        at: Instant,
    ) -> Result<Place<O, I>, TcpRefusal> {
        let refused = |handler| move |refusal| TcpRefusal::Handler { handler, refusal };
        let input = self.node.register_handler(terms.input, at).map_err(refused("input"))?;
        let output = self.node.register_sender(terms.output, &terms.sending, segments_out, at);
        let output = output.map_err(|refusal| {
            self.node.remove_handler(input, at);
            refused("output")(refusal)
        })?;
        let tcp = self.tcp()?;
        tcp.roles.extend([(input, Role::Input(index)), (output, Role::Output(index))]);
        let phase = Phase::Asked(0, None);
        Ok(Place { link, flow, hop, terms, input, output, owned, phase, since: at })
    }

    fn insert_place(&mut self, index: u32, place: Place<O, I>) {
        if let Some(tcp) = &mut self.programs.tcp {
            tcp.places.insert(index, place);
        }
    }

    fn forget_connection(&mut self, index: u32) {
        if let Some(tcp) = &mut self.programs.tcp {
            tcp.endsystem.remove(index);
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
        };
        let refused = match answer {
            Ok(_) => self.tcp_granted(index, at).err(),
            Err(refusal) => Some(TcpRefusal::Handler { handler, refusal: *refusal }),
        };
        if let Some(refusal) = refused {
            self.give_up_tcp(index, refusal, at);
        }
        true
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
        let key = FlowKey { local: place.flow.local, remote: place.flow.remote };
        let filter = FlowFilter { key, index, inlet: place.terms.inlet };
        let port = self.ports.get_mut(usize::from(place.link.0)).ok_or(TcpRefusal::NoTcp)?;
        port.set_flow(&filter, (place.output, place.hop.clone()))
            .map_err(|error| TcpRefusal::Driver(error.to_string()))?;
        let asked = std::mem::replace(&mut place.phase, Phase::Opening);
        if let Phase::Asked(_, Some(answer)) = asked {
            answer.send(Ok(index));
        }
        self.node.make_ready(place.input, at);
        self.settle_tcp(index, at);
        Ok(())
    }

    /// A connection that cannot begin: the peer of one that a listener has opened gets no answer any more.
    fn give_up_tcp(&mut self, index: u32, refusal: TcpRefusal, at: Instant) {
        let Some(place) = self.programs.tcp.as_mut().and_then(|tcp| tcp.places.get_mut(&index)) else {
            return;
        };
        let answer = match std::mem::replace(&mut place.phase, Phase::Ended) {
            Phase::Asked(_, answer) => answer,
            _ => None,
        };
        tracing::warn!(peer = %place.flow.remote, %refusal, "a TCP connection was refused");
        // The program of an accepted connection has its stream already: it must not see a plain end.
        (place.owned.notify)(TcpEvent::Ended(Ended::Aborted));
        self.give_back_tcp(index, at);
        if let Some(answer) = answer {
            answer.send(Err(refusal));
        }
    }

    /// Gives everything of a connection back.
    fn give_back_tcp(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let Some(place) = tcp.places.remove(&index) else { return };
        let rings = tcp.endsystem.remove(index);
        for handler in [place.input, place.output] {
            tcp.roles.remove(&handler);
            self.node.remove_handler(handler, at);
        }
        if let Some(port) = self.ports.get_mut(usize::from(place.link.0)) {
            port.clear_flow(FlowKey { local: place.flow.local, remote: place.flow.remote }, place.output);
        }
        let Owned { segments, bury, mut notify } = place.owned;
        notify(TcpEvent::Over(Remains(Box::new((rings.map(bury), segments)))));
    }

    /// Something of a connection has changed: has its output handler called when it has work, and notifies its program.
    fn settle_tcp(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let Some(place) = tcp.places.get_mut(&index) else { return };
        if matches!(place.phase, Phase::Asked(..)) {
            return;
        }
        match tcp.endsystem.due(index, at) {
            Some(due) if due <= at => {
                self.node.make_ready_at(place.output, None);
                self.node.make_ready(place.output, at);
            }
            due => self.node.make_ready_at(place.output, due),
        }
        let Some(status) = tcp.endsystem.status(index) else { return };
        let is_open = !matches!(status.state, State::SynSent | State::SynReceived | State::Closed);
        if matches!(place.phase, Phase::Opening) && is_open {
            place.phase = Phase::Open;
            (place.owned.notify)(TcpEvent::Open);
        }
        if let Some(ended) = status.ended.filter(|_| !matches!(place.phase, Phase::Ended)) {
            place.phase = Phase::Ended;
            (place.owned.notify)(TcpEvent::Ended(ended));
        }
        if tcp.endsystem.is_over(index, at) {
            // The last segment, perhaps a reset, leaves before its handler goes.
            if self.node.is_sending(place.output) {
                self.node.make_ready_at(place.output, Some(at + LAST_SEGMENT_CHECK));
            } else {
                self.give_back_tcp(index, at);
            }
        }
    }

    pub fn ready_tcp(&mut self, index: u32, at: Instant) {
        let input = self.programs.tcp.as_ref().and_then(|tcp| Some(tcp.places.get(&index)?.input));
        if let Some(input) = input {
            // Its handler gives the program what waits for room.
            self.node.make_ready(input, at);
            self.settle_tcp(index, at);
        }
    }

    pub fn change_tcp(
        &mut self,
        index: u32,
        at: Instant,
        change: impl FnOnce(&mut Endsystem<HostMemory<O, I>>),
    ) {
        if let Some(tcp) = &mut self.programs.tcp {
            change(&mut tcp.endsystem);
        }
        self.ready_tcp(index, at);
    }

    pub fn tcp_status(&self, index: u32) -> Option<TcpStatus> {
        self.programs.tcp.as_ref()?.endsystem.status(index)
    }
}

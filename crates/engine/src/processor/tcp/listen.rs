//! Listeners: one handler each, within whose budget all SYNs are answered (RTU 6; ADR 0054).

use punctual_link::{Frame, ListenerFilter};
use punctual_proto::Instant;
use punctual_proto::api::{RtuGrant, RtuId, RtuRefusal};
use punctual_proto::ids::LinkId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_tcp::endsystem::ListeningStatus;
use punctual_tcp::{Segment, wire};

use super::{Listening, Owned, Processor, Role, Tcp, Way};
use crate::command::Answer;
use crate::tcp::{Accepted, DisposeRings, Refused, TcpId, TcpListen, TcpParts, TcpRefusal, TcpTerms};

impl<O: Outbox, I: Inbox> Tcp<O, I> {
    /// Gives a packet that came for a connection which is over to the listener at its address, if it is a SYN; returns the handler of
    /// that.
    pub(super) fn begin_again(&mut self, link: LinkId, syn: Frame, address: u64) -> Option<RtuId> {
        let segment = wire::parse(syn.as_ref()).ok().filter(Segment::begins)?;
        let local = segment.flow.local;
        let is_there = |listening: &Listening| listening.link == link && listening.filter.local == local;
        let (index, listening) = self.listeners.iter().find(|(_, listening)| is_there(listening))?;
        self.endsystem.arrived_at_listener(*index, syn, address).then_some(listening.handler)
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    pub fn listen_tcp(&mut self, wanted: TcpListen<O>, answer: Answer<Result<u32, TcpRefusal>>, at: Instant) {
        match self.begin_listening(wanted, at) {
            Ok((index, listening)) => {
                let listening = Listening { asker: Some(answer), ..listening };
                if let Some(tcp) = &mut self.programs.tcp {
                    tcp.listeners.insert(index, listening);
                }
            }
            Err(refusal) => answer.send(Err(refusal)),
        }
        self.process_handler_events();
    }

    fn begin_listening(&mut self, wanted: TcpListen<O>, at: Instant) -> Result<(u32, Listening), TcpRefusal> {
        let TcpListen { local, link, config, backlog, terms, sending, inlet, .. } = wanted;
        let tcp = self.tcp(link)?;
        let listeners_max = tcp.limits.listeners_max;
        let index = tcp.endsystem.listen(&config, backlog as usize);
        let index = index.ok_or(TcpRefusal::ListenersExhausted(listeners_max))?;
        let asked = self.node.register_sender(terms, &sending, wanted.segments_out, at);
        let tcp = self.programs.tcp.as_mut().ok_or(TcpRefusal::NoTcp)?;
        let handler = asked.map_err(|refusal| {
            tcp.endsystem.stop_listening(index);
            TcpRefusal::Handler { handler: "listener's", refusal }
        })?;
        tcp.roles.insert(handler, Role::Listener(index));
        let filter = ListenerFilter { local, index, inlet };
        let (segments, notify) = (wanted.segments_in, wanted.notify);
        Ok((index, Listening { link, handler, segments, notify, filter, asker: None }))
    }

    /// Admission has decided about a listener's handler.
    pub(super) fn listener_decided(
        &mut self,
        index: u32,
        answer: &Result<RtuGrant, RtuRefusal>,
        at: Instant,
    ) {
        let listening = self.programs.tcp.as_mut().and_then(|tcp| tcp.listeners.get_mut(&index));
        let Some(listening) = listening else { return };
        let asker = listening.asker.take();
        let set = match answer {
            Ok(_) => match self.ports.get_mut(usize::from(listening.link.0)) {
                Some(port) => port
                    .set_listener(&listening.filter)
                    .map_err(|error| TcpRefusal::Driver(error.to_string())),
                None => Err(TcpRefusal::NoTcp),
            },
            Err(refusal) => Err(TcpRefusal::Handler { handler: "listener's", refusal: *refusal }),
        };
        if set.is_err() {
            self.stop_listening_tcp(index, at);
        }
        if let Some(asker) = asker {
            asker.send(set.map(|()| index));
        }
    }

    /// State of a listener; `None`: there is none.
    pub fn listening_status(&self, index: u32) -> Option<ListeningStatus> {
        self.programs.tcp.as_ref()?.endsystem.listening_status(index)
    }

    /// Ends a listener. Returns what its owner drops: dropping it takes time and system calls.
    pub fn stop_listening_tcp(&mut self, index: u32, at: Instant) -> Option<Box<dyn Send>> {
        let tcp = self.programs.tcp.as_mut()?;
        let listening = tcp.listeners.remove(&index)?;
        let waiting: Vec<_> = std::iter::from_fn(|| tcp.endsystem.accept(index)).collect();
        tcp.endsystem.stop_listening(index);
        tcp.roles.remove(&listening.handler);
        self.node.remove_handler(listening.handler, at);
        if let Some(port) = self.ports.get_mut(usize::from(listening.link.0)) {
            port.clear_listener(listening.filter.local);
        }
        for opened in waiting {
            self.reset_tcp(listening.link, opened.refuse(at), at);
        }
        Some(Box::new((listening.segments, listening.notify)))
    }

    /// A listener's handler was called: has it called again when it has work, and its owner notified of new connections.
    pub(super) fn settle_listener(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        while let Some(woken) = tcp.endsystem.poll_woken() {
            if let Some(handler) = tcp.wake(woken) {
                self.node.make_ready(handler, at);
            }
        }
        let Some(listening) = tcp.listeners.get_mut(&index) else { return };
        self.node.make_ready_at(listening.handler, tcp.endsystem.listener_due(index));
        if tcp.endsystem.has_opened(index) {
            (listening.notify)();
        }
    }

    /// Adopts a connection that a listener has opened; gives the parts back if none waits.
    pub fn accept_tcp(
        &mut self,
        listener: u32,
        parts: Box<TcpParts<O, I>>,
        dispose: DisposeRings<O, I>,
        at: Instant,
    ) -> Result<Accepted<O, I>, Refused> {
        let waits_on = |tcp: &mut Tcp<O, I>| {
            let listening = tcp.listeners.get(&listener)?;
            tcp.endsystem.has_opened(listener).then_some(listening.link)
        };
        if let Some(link) = self.programs.tcp.as_mut().and_then(waits_on) {
            self.make_room(link, at);
        }
        let Some(tcp) = self.programs.tcp.as_mut() else { return Ok(Accepted::None(parts)) };
        let link = tcp.listeners.get(&listener).map(|listening| listening.link);
        let Some((link, opened)) = link.zip(tcp.endsystem.accept(listener)) else {
            return Ok(Accepted::None(parts));
        };
        let flow = opened.flow();
        let TcpParts { terms, rings, segments_out, segments_in, notify } = *parts;
        let owned = Owned { segments: Some(segments_in), dispose, notify };
        let index = match tcp.endsystem.adopt(opened, rings) {
            Ok(index) => index,
            Err((opened, rings)) => {
                let refusal = TcpRefusal::Exhausted(tcp.limits.connections_max);
                self.reset_tcp(link, opened.refuse(at), at);
                return Err((refusal, owned.remains(Some(rings))));
            }
        };
        let hop = match self.next_hop(link, flow.remote.ip()) {
            Ok(hop) => hop,
            Err(refusal) => {
                let rings = self.refuse_tcp(index, Some(link), at);
                return Err((refusal, owned.remains(rings)));
            }
        };
        let TcpTerms { input, output, sending, inlet } = terms;
        let (way, sends) = (Way::Link(link, hop, inlet), Some((sending, segments_out)));
        let place = self.place_tcp(index, (flow, way), [input, output], (sends, owned), at)?;
        let id = TcpId { index, count: place.count };
        self.insert_place(index, place);
        self.process_handler_events();
        Ok(Accepted::One(id, flow))
    }
}

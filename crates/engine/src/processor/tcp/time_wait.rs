//! Connections from which only late segments of the peer can come: in TIME-WAIT, or in FIN-WAIT-2 without a program. One
//! best-effort handler of each link answers them all, so a connection that is closed holds no admission and no ring for the
//! minute that follows. (RTU does not treat this time.)

use std::collections::{BTreeSet, VecDeque};

use punctual_link::NextHop;
use punctual_os::now;
use punctual_proto::Instant;
use punctual_proto::api::{RtuGrant, RtuId, RtuRefusal, UpcallDone, Work};
use punctual_proto::ids::LinkId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_tcp::endsystem::{Endsystem, Segments, Worked};

use super::{Phase, Place, Processor, Role, Tcp};
use crate::command::Answer;
use crate::memory::HostMemory;
use crate::tcp::{Remains, TcpEvent, TcpRefusal, TcpTimeWait};

/// What answers the late segments of a link.
pub(super) struct TimeWait {
    handler: RtuId,
    segments: Box<dyn Segments + Send>,
    /// Connections with work, each once.
    ready: VecDeque<u32>,
    /// When connections have work without a packet.
    due: BTreeSet<(Instant, u32)>,
    /// Set until admission has decided.
    asker: Option<Answer<Result<(), TcpRefusal>>>,
}

/// A connection's own part of it.
#[derive(Default)]
pub(super) struct Late {
    is_ready: bool,
    due: Option<Instant>,
}

/// Sends to one hardware address.
struct To<'a>(&'a mut dyn Segments, u64);

impl Segments for To<'_> {
    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn put(&mut self, packet: &[u8], _: u64) {
        self.0.put(packet, self.1);
    }
}

impl TimeWait {
    pub const fn is_granted(&self) -> bool {
        self.asker.is_none()
    }

    /// The next connection with work.
    fn next(&mut self, at: Instant) -> Option<u32> {
        let is_due = self.due.first().is_some_and(|(due, _)| *due <= at);
        if is_due && let Some((_, index)) = self.due.pop_first() {
            return Some(index);
        }
        self.ready.pop_front()
    }

    fn has_work(&self, at: Instant) -> bool {
        !self.ready.is_empty() || self.due.first().is_some_and(|(due, _)| *due <= at)
    }
}

impl<O: Outbox, I: Inbox> Tcp<O, I> {
    /// Notes that a connection has work; returns the handler that does it.
    pub(super) fn wake(&mut self, index: u32) -> Option<RtuId> {
        let place = self.places.get_mut(&index)?;
        let Phase::TimeWait(late) = &mut place.phase else { return Some(place.input) };
        let time_wait = self.time_waits.get_mut(&place.way.link()?)?;
        if !late.is_ready {
            late.is_ready = true;
            time_wait.ready.push_back(index);
        }
        Some(time_wait.handler)
    }

    /// A connection is over.
    pub(super) fn forget_late(&mut self, link: LinkId, index: u32, late: &Late) {
        let Some(time_wait) = self.time_waits.get_mut(&link) else { return };
        if late.is_ready {
            time_wait.ready.retain(|ready| *ready != index);
        }
        if let Some(due) = late.due {
            time_wait.due.remove(&(due, index));
        }
    }

    /// Processes a segment of one connection and makes one.
    fn answer_late(
        endsystem: &mut Endsystem<HostMemory<O, I>>,
        (index, place): (u32, &mut Place<O, I>),
        segments: &mut dyn Segments,
        at: Instant,
    ) -> Worked {
        let Phase::TimeWait(late) = &mut place.phase else { return Worked::default() };
        *late = Late::default();
        let destination = place.way.hop().and_then(NextHop::destination);
        let address = destination.map_or(0, |address| address.to_number());
        let input = endsystem.input(index, 1, at);
        let output = endsystem.output(index, 1, at, &mut To(segments, address));
        Worked {
            units: (input.units + output.units).max(1),
            more: input.more || output.more,
            delivered: false,
        }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    pub fn serve_tcp(
        &mut self,
        link: LinkId,
        wanted: TcpTimeWait<O>,
        answer: Answer<Result<(), TcpRefusal>>,
        at: Instant,
    ) {
        let TcpTimeWait { terms, sending, segments_out, segments_in: segments } = wanted;
        let Some(tcp) = &mut self.programs.tcp else { return answer.send(Err(TcpRefusal::NoTcp)) };
        if tcp.time_waits.contains_key(&link) {
            return answer.send(Ok(()));
        }
        match self.node.register_sender(terms, &sending, segments_out, at) {
            Ok(handler) => {
                let (ready, due) = (VecDeque::new(), BTreeSet::new());
                let time_wait = TimeWait { handler, segments, ready, due, asker: Some(answer) };
                tcp.roles.insert(handler, Role::TimeWait(link));
                tcp.time_waits.insert(link, time_wait);
            }
            Err(refusal) => answer.send(Err(TcpRefusal::Handler { handler: "late segments'", refusal })),
        }
        self.hear_of_handlers();
    }

    /// Admission has decided about the handler of a link.
    pub(super) fn time_wait_decided(&mut self, link: LinkId, answer: &Result<RtuGrant, RtuRefusal>) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let asker = tcp.time_waits.get_mut(&link).and_then(|time_wait| time_wait.asker.take());
        let result = answer.as_ref().map(drop).map_err(|refusal| {
            if let Some(time_wait) = tcp.time_waits.remove(&link) {
                tcp.roles.remove(&time_wait.handler);
            }
            TcpRefusal::Handler { handler: "late segments'", refusal: *refusal }
        });
        if let Some(asker) = asker {
            asker.send(result);
        }
    }

    /// Gives the handlers and the rings of a connection back, which goes on with those of its link.
    pub(super) fn enter_time_wait(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        let Some(place) = tcp.places.get_mut(&index) else { return };
        place.phase = Phase::TimeWait(Late::default());
        for handler in [place.input, place.output] {
            tcp.roles.remove(&handler);
            self.node.remove_handler(handler, at);
        }
        if let Some(link) = place.way.link()
            && let Some(port) = self.ports.get_mut(usize::from(link.0))
        {
            port.forget_hop(place.output);
        }
        let rings = tcp.endsystem.detach(index).map(place.owned.bury);
        let remains = Remains(Box::new((rings, place.owned.segments.take())));
        (place.owned.notify)(TcpEvent::TimeWait(remains));
        self.settle_late(index, at);
    }

    /// Calls the handler of a link: so many connections with work.
    pub(super) fn call_time_wait(&mut self, link: LinkId, work: &Work) {
        let begun = now();
        let (mut units, mut served) = (0, Vec::new());
        if let Some(Tcp { endsystem, places, time_waits, .. }) = &mut self.programs.tcp
            && let Some(time_wait) = time_waits.get_mut(&link)
        {
            while units < work.packets && time_wait.segments.has_room() {
                let Some(index) = time_wait.next(begun) else { break };
                let Some(place) = places.get_mut(&index) else { continue };
                let worked = Tcp::answer_late(endsystem, (index, place), &mut *time_wait.segments, begun);
                units += worked.units;
                served.push((index, worked.more));
            }
        }
        let ended = now();
        for (index, more) in served {
            if let (true, Some(tcp)) = (more, &mut self.programs.tcp) {
                tcp.wake(index);
            }
            self.settle_tcp(index, ended);
        }
        let time_wait = self.programs.tcp.as_ref().and_then(|tcp| tcp.time_waits.get(&link));
        let more = time_wait.is_some_and(|time_wait| time_wait.has_work(ended));
        // Those that are over have set no time: that of the others must not be lost with them.
        if let Some(TimeWait { handler, due, .. }) = time_wait {
            self.node.make_ready_at(*handler, due.first().map(|(due, _)| *due));
        }
        let done = UpcallDone { units, more, took: ended.since(begun) };
        self.node.finish_upcall(work, done, ended);
    }

    /// Notes when a connection has work again, or gives back what is over.
    pub(super) fn settle_late(&mut self, index: u32, at: Instant) {
        let Some(tcp) = &mut self.programs.tcp else { return };
        if tcp.endsystem.is_over(index, at) {
            let ended = tcp.endsystem.status(index).and_then(|status| status.ended);
            if let (Some(why), Some(place)) = (ended, tcp.places.get_mut(&index)) {
                (place.owned.notify)(TcpEvent::Ended(why));
            }
            return self.give_back_tcp(index, at);
        }
        let due = tcp.endsystem.due(index, at);
        let Some(place) = tcp.places.get_mut(&index) else { return };
        let time_wait = place.way.link().and_then(|link| tcp.time_waits.get_mut(&link));
        let Some(time_wait) = time_wait else { return };
        let Phase::TimeWait(late) = &mut place.phase else { return };
        if let Some(before) = std::mem::replace(&mut late.due, due) {
            time_wait.due.remove(&(before, index));
        }
        time_wait.due.extend(due.map(|due| (due, index)));
        let next = time_wait.due.first().map(|(due, _)| *due);
        self.node.make_ready_at(time_wait.handler, next);
    }
}

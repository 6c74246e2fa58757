//! Connections from which only late segments of the peer can come: in TIME-WAIT, or in FIN-WAIT-2 without a program. One
//! best-effort handler of each link answers them all, so a connection that is closed holds no admission and no ring for the
//! minute that follows. (RTU does not treat this time.) It sends the resets of connections that could not begin, too.

use punctual_link::NextHop;
use punctual_os::now;
use punctual_proto::Instant;
use punctual_proto::api::{RtuGrant, RtuId, RtuRefusal, UpcallDone, Work};
use punctual_proto::ids::LinkId;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_tcp::endsystem::{Late, Reset, Rings, Segments};

use super::{Phase, Processor, Role, Tcp};
use crate::command::Answer;
use crate::memory::HostMemory;
use crate::tcp::{EndedConnection, TcpBounds, TcpEvent, TcpRefusal, TcpTimeWait};

/// Connections that are looked at for one in TIME-WAIT: bounds the work.
const LOOKED_AT_MAX: usize = 32;

/// What answers the late segments of a link.
pub(super) struct TimeWait {
    handler: RtuId,
    segments: Box<dyn Segments + Send>,
    late: Late,
    /// Set until admission has decided.
    asker: Option<Answer<Result<(), TcpRefusal>>>,
}

impl TimeWait {
    pub const fn is_granted(&self) -> bool {
        self.asker.is_none()
    }
}

impl<O: Outbox, I: Inbox> Tcp<O, I> {
    /// Notes that a connection has work; returns the handler that does it.
    pub(super) fn wake(&mut self, index: u32) -> Option<RtuId> {
        let place = self.places.get(&index)?;
        let Phase::TimeWait { .. } = place.phase else { return Some(place.input) };
        let time_wait = self.time_waits.get_mut(&place.way.link()?)?;
        time_wait.late.wake(index);
        Some(time_wait.handler)
    }

    /// A connection is over.
    pub(super) fn forget_late(&mut self, link: LinkId, index: u32) {
        if let Some(time_wait) = self.time_waits.get_mut(&link) {
            time_wait.late.remove(index);
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
                let time_wait = TimeWait { handler, segments, late: Late::default(), asker: Some(answer) };
                tcp.roles.insert(handler, Role::TimeWait(link));
                tcp.time_waits.insert(link, time_wait);
            }
            Err(refusal) => answer.send(Err(TcpRefusal::Handler { handler: "late segments'", refusal })),
        }
        self.process_handler_events();
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
        place.phase = Phase::TimeWait { rests: false };
        place.bounds = TcpBounds::default();
        for handler in [place.input, place.output] {
            tcp.roles.remove(&handler);
            self.node.remove_handler(handler, at);
        }
        if let Some(link) = place.way.link() {
            if let Some(time_wait) = tcp.time_waits.get_mut(&link) {
                time_wait.late.add(index);
            }
            if let Some(port) = self.ports.get_mut(usize::from(link.0)) {
                port.forget_hop(place.output);
            }
        }
        let rings = tcp.endsystem.detach(index).map(place.owned.dispose);
        let remains = EndedConnection(Box::new((rings, place.owned.segments.take())));
        (place.owned.notify)(TcpEvent::TimeWait(remains));
        self.settle_late(index, at);
    }

    /// Where every number of a flow is taken, the oldest connection of the link in TIME-WAIT ends early, as in kernels that have too
    /// many.
    pub(super) fn make_room(&mut self, link: LinkId, at: Instant) {
        let Some(Tcp { endsystem, time_waits, .. }) = &mut self.programs.tcp else { return };
        let Some(time_wait) = time_waits.get(&link).filter(|_| !endsystem.has_room()) else { return };
        let oldest = time_wait.late.soonest().take(LOOKED_AT_MAX).find(|index| endsystem.rests(*index));
        if let Some(index) = oldest {
            endsystem.cut(index);
            self.settle_late(index, at);
        }
    }

    /// The peer of a connection that cannot begin has seen it open: the handler of the link resets it.
    pub(super) fn reset_tcp(&mut self, link: LinkId, reset: Option<Reset>, at: Instant) {
        let time_wait = self.programs.tcp.as_mut().and_then(|tcp| tcp.time_waits.get_mut(&link));
        if let (Some(reset), Some(time_wait)) = (reset, time_wait) {
            time_wait.late.reset(reset);
            self.node.make_ready(time_wait.handler, at);
        }
    }

    /// Forgets a connection that cannot begin, and resets its peer if that has seen it open.
    pub(super) fn refuse_tcp(
        &mut self,
        index: u32,
        link: Option<LinkId>,
        at: Instant,
    ) -> Option<Rings<HostMemory<O, I>>> {
        let tcp = self.programs.tcp.as_mut()?;
        let reset = tcp.endsystem.refuse(index, at);
        let rings = tcp.endsystem.remove(index);
        if let Some(link) = link {
            self.reset_tcp(link, reset, at);
        }
        rings
    }

    /// Calls the handler of a link: so many resets and segments.
    pub(super) fn call_time_wait(&mut self, link: LinkId, work: &Work) {
        let begun = now();
        let (mut units, mut served) = (0, Vec::new());
        if let Some(Tcp { endsystem, places, time_waits, .. }) = &mut self.programs.tcp
            && let Some(TimeWait { late, segments, .. }) = time_waits.get_mut(&link)
        {
            let address_of = |index| {
                let hop = places.get(&index).and_then(|place| place.way.hop());
                hop.and_then(NextHop::destination).map_or(0, |address| address.to_number())
            };
            (units, served) = late.call(endsystem, (work.packets, begun), &mut **segments, address_of);
        }
        let ended = now();
        for index in served {
            self.settle_tcp(index, ended);
        }
        let time_wait = self.programs.tcp.as_ref().and_then(|tcp| tcp.time_waits.get(&link));
        let more = time_wait.is_some_and(|time_wait| time_wait.late.has_work(ended));
        // Those that are over have set no time: that of the others must not be lost with them.
        if let Some(TimeWait { handler, late, .. }) = time_wait {
            self.node.make_ready_at(*handler, late.next_due());
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
        if tcp.endsystem.rests(index)
            && let Some(place) = tcp.places.get_mut(&index)
            && let Phase::TimeWait { rests: rests @ false } = &mut place.phase
        {
            *rests = true;
            (place.owned.notify)(TcpEvent::Rests);
        }
        let due = tcp.endsystem.due(index, at);
        let link = tcp.places.get(&index).and_then(|place| place.way.link());
        let Some(time_wait) = link.and_then(|link| tcp.time_waits.get_mut(&link)) else { return };
        time_wait.late.set_due(index, due);
        self.node.make_ready_at(time_wait.handler, time_wait.late.next_due());
    }
}

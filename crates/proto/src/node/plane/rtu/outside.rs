//! Programs' handlers as the driver of the node uses them.

use punctual_analysis::Instant;

use super::Sends;
use super::sending::{Route, Sending};
use crate::api::{
    RateRefusal, RtuEvent, RtuId, RtuRefusal, RtuSending, RtuStatus, RtuTarget, RtuTerms, UpcallDone, Work,
};
use crate::ids::{ChannelId, Cookie};
use crate::memory::Memory;
use crate::node::Node;
use crate::node::plane::Owner;

impl<M: Memory> Node<M> {
    /// Registers a program's handler. Where this returns its name, the answer follows: [`RtuEvent::Granted`] or
    /// [`RtuEvent::Refused`] by [`Node::poll_rtu`], at once unless admission decides elsewhere.
    ///
    /// # Errors
    /// If it cannot be honoured here whatever else is admitted: a range, the processor's order, the length of a call.
    pub fn register_handler(&mut self, terms: RtuTerms, now: Instant) -> Result<RtuId, RtuRefusal> {
        let id = self.plane.register_rtu(terms, Sends::Nothing)?;
        self.settle_rtus(now);
        Ok(id)
    }

    /// Registers a handler that sends: what its body puts into the ring behind `outbox` is taken when the call is finished
    /// ([`Node::finish_upcall`]).
    ///
    /// # Errors
    /// Those of [`Node::register_handler`], and if the link cannot carry what it sends.
    pub fn register_sender(
        &mut self,
        terms: RtuTerms,
        sending: &RtuSending,
        outbox: M::Outbox,
        now: Instant,
    ) -> Result<RtuId, RtuRefusal> {
        let (channel, route) = self.sender_route(&sending.to)?;
        if self.is_measured(route.link) {
            return Err(RtuRefusal::Rate(RateRefusal::Busy));
        }
        let id = self.plane.register_rtu(terms, Sends::Packets(channel, route, sending, outbox))?;
        self.settle_rtus(now);
        Ok(id)
    }

    /// A handle for a handler that sends, and its route.
    fn sender_route(&mut self, to: &RtuTarget) -> Result<(ChannelId, Route), RtuRefusal> {
        match to {
            RtuTarget::Port(to) => {
                let (channel, way) = self.flow_route(to).map_err(|_| RtuRefusal::NoRoute)?;
                let receiver = Some((Cookie(way.to.port.port_hash()), way.destination));
                Ok((channel, Route { link: way.link, path: way.path, receiver }))
            }
            RtuTarget::Link(link) if usize::from(link.0) < self.plane.config().links.len() => {
                let (channel, path) = self.flow_path();
                Ok((channel, Route { link: *link, path, receiver: None }))
            }
            RtuTarget::Link(_) => Err(RtuRefusal::NoRoute),
        }
    }

    /// The handler has work from now on. Without effect while it has some. Where it is not granted yet, its work counts from
    /// the grant on.
    pub fn make_ready(&mut self, id: RtuId, now: Instant) {
        self.plane.ready_rtu(id, now);
    }

    /// Makes the handler ready at `at`, or at once if that is past; replaces the time of the call before, and `None` takes it
    /// back. For protocols with timers: they are in the executor's queue like all work (RTU 5.2).
    pub fn make_ready_at(&mut self, id: RtuId, at: Option<Instant>) {
        self.plane.schedule_rtu(id, at);
    }

    /// Forgets a handler and gives back what it holds; does nothing where there is none.
    pub fn remove_handler(&mut self, id: RtuId, now: Instant) {
        self.plane.remove_rtu(id, now);
    }

    /// Whether packets of a handler that sends have not left.
    pub fn is_sending(&self, id: RtuId) -> bool {
        let sending = self.plane.rtus.handlers.get(&id).and_then(|rtu| rtu.sending.as_ref());
        sending.is_some_and(Sending::is_busy)
    }

    /// The handler whose body is to be called for a unit that [`Node::begin_work`] has picked; `None` for all other units,
    /// those of handlers in other processes among them: the node itself wakes their programs.
    /// `packets` of the unit is how many PDUs it may process.
    pub fn upcall(&self, work: &Work) -> Option<RtuId> {
        match self.plane.context.processor.owner(work.handler)? {
            Owner::Rtu(id) | Owner::RtuRest(id) => {
                self.plane.rtus.handlers.get(&id).filter(|rtu| rtu.remote.is_none()).map(|_| id)
            }
            _ => None,
        }
    }

    /// The effects of a unit whose body was called: instead of [`Node::finish_work`], which takes a body to have done all
    /// that it was given in the time that it has declared.
    pub fn finish_upcall(&mut self, work: &Work, done: UpcallDone, now: Instant) {
        self.plane.finish_rtu(work, &done, now);
    }

    /// A handler has given something to a program that runs on this CPU below the processor. Unless the handler is best effort,
    /// the program precedes best effort, which gives way for [`GIVE_WAY`](crate::limits::GIVE_WAY), at most half of the time.
    pub fn gave_program(&mut self, id: RtuId, now: Instant) {
        if self.plane.rtus.handlers.get(&id).is_some_and(|rtu| rtu.own.is_some()) {
            self.plane.context.processor.executor.give_way(now);
        }
    }

    /// News of programs' handlers.
    pub fn poll_rtu(&mut self) -> Option<RtuEvent> {
        self.plane.rtus.news.own.pop_front()
    }

    /// All programs' handlers, by name.
    pub fn handlers(&self) -> impl Iterator<Item = RtuStatus> + '_ {
        self.plane.rtus.handlers.iter().map(|(&id, rtu)| RtuStatus {
            id,
            terms: rtu.terms,
            bound: rtu.own.map(|own| own.bound),
            demoted: rtu.demoted,
            counters: rtu.counters,
            sent: rtu
                .sending
                .as_ref()
                .map(|sending| sending.status(self.plane.link_state(sending.link()), rtu.own)),
        })
    }

    /// Handles the decisions of admission.
    pub(in crate::node) fn settle_rtus(&mut self, now: Instant) {
        while let Some(answer) = self.plane.stages.poll_rtu() {
            self.plane.install_rtu(answer, now);
        }
    }
}

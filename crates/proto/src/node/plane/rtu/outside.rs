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
    /// Registers a program's handler, and returns its id. The decision follows as [`RtuEvent::Granted`] or
    /// [`RtuEvent::Refused`] from [`Node::poll_rtu`]: at once, unless another thread makes admission decisions.
    ///
    /// # Errors
    /// If this host can never grant the terms: a value is out of range, the run order does not allow them, or one
    /// call takes too long.
    pub fn register_handler(&mut self, terms: RtuTerms, now: Instant) -> Result<RtuId, RtuRefusal> {
        let id = self.plane.register_rtu(terms, Sends::Nothing)?;
        self.settle_rtus(now);
        Ok(id)
    }

    /// Registers a handler that sends packets. When a call is finished ([`Node::finish_upcall`]), the node takes what
    /// the body has put into the ring behind `outbox`.
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

    /// Makes the handler ready: it has work from now on. No effect if it has work already. If the handler is not
    /// granted yet, its work counts from the grant on.
    pub fn make_ready(&mut self, id: RtuId, now: Instant) {
        self.plane.ready_rtu(id, now);
    }

    /// Sets the handler's timer: it becomes ready at `at`, or at once if that is past. This replaces the time of the
    /// previous call; `None` clears the timer. Timers are in the executor's queue like all work (RTU 5.2).
    pub fn make_ready_at(&mut self, id: RtuId, at: Option<Instant>) {
        self.plane.schedule_rtu(id, at);
    }

    /// Removes a handler and releases its reservations. No effect if there is no such handler.
    pub fn remove_handler(&mut self, id: RtuId, now: Instant) {
        self.plane.remove_rtu(id, now);
    }

    /// True if a handler has queued packets that have not left yet.
    pub fn is_sending(&self, id: RtuId) -> bool {
        let sending = self.plane.rtus.handlers.get(&id).and_then(|rtu| rtu.sending.as_ref());
        sending.is_some_and(Sending::is_busy)
    }

    /// The handler whose body the driver must call for a unit that [`Node::begin_work`] has picked. The body may
    /// process `packets` PDUs. `None` for all other units: the node itself wakes programs of other processes.
    pub fn upcall(&self, work: &Work) -> Option<RtuId> {
        match self.plane.context.processor.owner(work.handler)? {
            Owner::Rtu(id) | Owner::RtuRest(id) => {
                self.plane.rtus.handlers.get(&id).filter(|rtu| rtu.remote.is_none()).map(|_| id)
            }
            _ => None,
        }
    }

    /// Ends a unit whose body was called, with what the body did. [`Node::finish_work`] instead assumes that the body
    /// did all its work in the declared time.
    pub fn finish_upcall(&mut self, work: &Work, done: UpcallDone, now: Instant) {
        self.plane.finish_rtu(work, &done, now);
    }

    /// Notes that a handler has woken a program that runs on this CPU below the processor. Unless the handler is best
    /// effort, the program precedes best effort: best-effort work pauses for [`BEST_EFFORT_PAUSE`](crate::limits::BEST_EFFORT_PAUSE), at
    /// most half of the time.
    pub fn gave_program(&mut self, id: RtuId, now: Instant) {
        if self.plane.rtus.handlers.get(&id).is_some_and(|rtu| rtu.own.is_some()) {
            self.plane.context.processor.executor.pause_best_effort(now);
        }
    }

    /// The next event of programs' handlers.
    pub fn poll_rtu(&mut self) -> Option<RtuEvent> {
        self.plane.rtus.news.own.pop_front()
    }

    /// Status of all programs' handlers, in the order of their ids.
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

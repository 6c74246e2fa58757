//! Calls of programs' handlers: when each may run, what one call may do, and what becomes of what it did.

use punctual_analysis::Instant;

use super::conduct::{Disturbance, Verdict};
use super::sending::Sending;
use super::{Own, Rtu};
use crate::api::{Misconduct, RtuEvent, RtuId, UpcallDone, Work, WorkKind};
use crate::config::NodeConfig;
use crate::memory::Memory;
use crate::node::plane::work::Unit;
use crate::node::plane::{Context, Owner, Plane, Processor};
use crate::sched::{Activation, Class};

impl<M: Memory> Rtu<M> {
    /// Tells the executor when the handler may run, within its budget and beyond.
    pub(super) fn arm(&mut self, context: &mut Context<M>, now: Instant) {
        let (executor, links) = (&mut context.processor.executor, &mut context.links);
        if let Some(Own { handler, bound }) = self.own {
            let may_run = self.since.is_some() && self.may_run(links, true);
            match self.release(now).filter(|_| may_run) {
                Some(eligible) => {
                    executor.ready(handler, Activation { eligible, deadline: eligible + bound }, now);
                }
                None => executor.idle(handler),
            }
        }
        if let Some(rest) = self.rest {
            let may_run = self.since.is_some() && self.may_run(links, false);
            match self.since.filter(|_| may_run) {
                Some(eligible) => executor.ready(rest, Activation { eligible, deadline: eligible }, now),
                None => executor.idle(rest),
            }
        }
    }

    /// Demotes the handler: from now on it runs in the background. Returns false if it was demoted before. Its
    /// reservation stays, because its calls still block other work.
    pub(super) fn demote(
        &mut self,
        id: RtuId,
        why: Misconduct,
        config: &NodeConfig,
        processor: &mut Processor,
    ) -> bool {
        if self.demoted.replace(why).is_some() {
            return false;
        }
        for handler in self.own.take().map(|own| own.handler).into_iter().chain(self.rest.take()) {
            processor.remove_handler(handler);
        }
        self.run_beyond(id, Class::Background, config, processor);
        true
    }
}

impl<M: Memory> Plane<M> {
    /// Tells the executor when a handler may run.
    pub(in crate::node::plane) fn arm_rtu(&mut self, id: RtuId, now: Instant) {
        if let Some(rtu) = self.rtus.handlers.get_mut(&id) {
            rtu.arm(&mut self.context, now);
        }
    }

    /// The next call of a handler; `None` if the handler has no work.
    pub(in crate::node::plane) fn rtu_unit(&self, id: RtuId, within: bool, now: Instant) -> Option<Unit> {
        let rtu = self.rtus.handlers.get(&id)?;
        let mut packets = rtu.given(within, now);
        if let Some(sending) = rtu.sending.as_ref().filter(|_| within) {
            packets = packets.min(sending.units_free(self.link_state(sending.link())));
        }
        Some(Unit {
            kind: WorkKind::Upcall,
            packets,
            bytes: 0,
            message_edge: false,
            application: rtu.cost.of(packets),
        })
    }

    /// Reports that a body has done all its work in the declared time, for drivers that have no bodies.
    pub(in crate::node::plane) fn run_rtu(&mut self, work: &Work, now: Instant) {
        let id = match self.context.processor.owner(work.handler) {
            Some(Owner::Rtu(id) | Owner::RtuRest(id)) => id,
            _ => return,
        };
        let took = match self.rtus.handlers.get_mut(&id).map(|rtu| &mut **rtu) {
            Some(Rtu { remote: Some(remote), since, .. }) => {
                // The ring is full only if the program takes no calls out of it. Then this call is lost.
                let _ = remote.call(work.packets, since.unwrap_or(now), now);
                work.application
            }
            // The node's own work to send does not count as time of the body.
            Some(rtu) => rtu.terms.cost.of(work.packets),
            None => return,
        };
        let done = UpcallDone { units: work.packets, more: false, took };
        self.finish_rtu(work, &done, now);
    }

    pub(super) fn finish_rtu(&mut self, work: &Work, done: &UpcallDone, now: Instant) {
        self.rtus.last_call[1] = now;
        let handler = work.handler;
        let is_running = self.context.processor.executor.is_running(handler);
        let owner = self.context.processor.owner(handler).filter(|_| is_running);
        let (id, within) = match owner {
            Some(Owner::Rtu(id)) => (id, true),
            Some(Owner::RtuRest(id)) => (id, false),
            // The handler was removed while its body ran.
            _ => return,
        };
        let cost = work.declared_cost(&self.config.cpu.costs);
        self.context.processor.executor.charge(handler, cost, now);
        if !within {
            self.context.processor.executor.charge_flow(handler, cost, now);
        }
        let (burst, rho) = (self.config.cpu.burst(), self.config.cpu.interference.rho);
        let disturbance = Disturbance { burst, rho, idle: self.rtus.idle };
        let Some(rtu) = self.rtus.handlers.get_mut(&id) else { return };
        let (released, late) = rtu.charge(within, work.packets, done, now);
        let was_held = rtu.sending.as_mut().is_some_and(Sending::take_held);
        let declared = rtu.terms.cost.of(done.units.clamp(1, work.packets.max(1)));
        // The time of a program in another process is measured when its report comes.
        let verdict = match rtu.remote {
            Some(_) => Verdict::default(),
            None => rtu.conduct.judge(done, (work.packets, declared), disturbance, (rtu.called, now)),
        };
        rtu.count(verdict);
        // A delay that the handler itself caused is not counted as the processor's.
        let own_fault = rtu.conduct.is_in_excess() || verdict.ignored_yield;
        rtu.since = if done.more { rtu.since } else { rtu.again.take() };
        rtu.send(id, released, done.units.min(work.packets), &mut self.context, now);
        if let Some(why) = verdict.demote
            && rtu.demote(id, why, &self.config, &mut self.context.processor)
        {
            self.rtus.news.own.push_back(RtuEvent::Demoted(id, why));
        }
        rtu.arm(&mut self.context, now);
        if !own_fault && !was_held {
            self.note_processor(late, now);
        }
        self.context.processor.executor.finished(handler, work.packets, now);
    }
}

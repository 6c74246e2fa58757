//! The processor's units of work: picked at `begin`, their effects at `finish`.
//!
//! Between the two the engine does nothing else, and the simulator lets the unit's cost pass. If the clip is
//! removed in between, the unit has no effect, even if another clip's handler has got the id of its handler.

use punctual_analysis::{Instant, Nanos};

use super::{Owner, Plane, RoleState};
use crate::api::{Notice, Work, WorkKind};
use crate::memory::Memory;
use crate::sched::HandlerId;

/// A unit of work that a handler could do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub kind: WorkKind,
    pub packets: u32,
    pub bytes: u32,
    pub message_edge: bool,
    /// Declared time of the application's handler that runs within it.
    pub application: Nanos,
}

impl Unit {
    fn of(self, handler: HandlerId) -> Work {
        let Self { kind, packets, bytes, message_edge, application } = self;
        Work { handler, kind, packets, bytes, message_edge, application }
    }
}

/// Limit of empty picks in one call, after which the caller must call again: bounds the work of a call.
const EMPTY_PICKS_MAX: usize = 16;

impl<M: Memory> Plane<M> {
    /// Picks one unit.
    pub fn begin(&mut self, now: Instant) -> Option<Work> {
        for _ in 0..EMPTY_PICKS_MAX {
            let handler = self.context.processor.executor.pick(now)?;
            let owner = self.context.processor.owner(handler);
            let unit = owner.and_then(|owner| self.unit(owner, now));
            if let Some(unit) = unit.filter(|unit| unit.packets > 0 || unit.kind == WorkKind::Receive) {
                if let Some(Owner::Rtu(id) | Owner::RtuRest(id)) = owner {
                    self.call_rtu(id, now);
                }
                return Some(unit.of(handler));
            }
            // No work after all (slots were taken, a packet was dropped): update the executor.
            self.context.processor.executor.finished(handler, 0, now);
            match owner {
                Some(owner) => self.rearm(owner, now),
                None => self.context.processor.executor.idle(handler),
            }
        }
        None
    }

    /// Records the duration of a unit of `handler`. If overruns are more than accidents (a hole, an
    /// interrupt), the application of the handler's channel is notified that its guarantee is at risk.
    pub fn record_unit(&mut self, handler: HandlerId, kind: WorkKind, took: Nanos, declared: Nanos) {
        let allowed = self.config.cpu.burst();
        if !self.context.processor.record.add(kind, took, declared, allowed)
            || !self.context.processor.record.is_at_risk(kind)
        {
            return;
        }
        if let Some(Owner::Clip(channel)) = self.context.processor.owner(handler) {
            self.notice(channel, Notice::ProfileAtRisk);
        }
    }

    /// Applies the effects of a unit and returns its owner; the node handles signalling. Returns `None` and
    /// does nothing if the handler is removed.
    pub fn finish(&mut self, work: &Work, now: Instant) -> Option<Owner> {
        let handler = work.handler;
        if !self.context.processor.executor.is_running(handler) {
            return None;
        }
        let owner = self.context.processor.owner(handler)?;
        if let Owner::Rtu(_) | Owner::RtuRest(_) = owner {
            self.run_rtu(work, now);
            return Some(owner);
        }
        let cost = work.declared_cost(&self.config.cpu.costs);
        self.charge_flow(owner, handler, cost, now);
        match owner {
            Owner::Clip(channel) => match work.kind {
                WorkKind::Send => self.run_source(channel, work.packets, now),
                WorkKind::Forward => self.run_forward(channel, work.packets, now),
                _ => self.run_sink(channel, work.packets, now),
            },
            Owner::Demoted(channel) => self.run_demoted(channel, now),
            Owner::Delivery(channel) => self.run_delivery(channel, now),
            Owner::Flow(channel) => self.run_flow(channel, now),
            Owner::Arrivals => self.run_arrivals(now),
            Owner::Backlog => self.run_backlog(now),
            Owner::Filler(link) => self.run_filler(link, now),
            Owner::Signals(_) | Owner::Rtu(_) | Owner::RtuRest(_) => {}
        }
        // Signalling has a rate of its own and counts as interference.
        if work.kind != WorkKind::Signalling {
            self.context.processor.executor.charge(handler, cost, now);
        }
        // Place the handler by its new head first, so that it is placed only once.
        self.rearm(owner, now);
        self.context.processor.executor.finished(handler, work.packets, now);
        Some(owner)
    }

    /// Charges the flow that a best-effort unit was for.
    fn charge_flow(&mut self, owner: Owner, handler: HandlerId, cost: Nanos, now: Instant) {
        match owner {
            Owner::Clip(_) | Owner::Demoted(_) | Owner::Flow(_) | Owner::Filler(_) => {
                self.context.processor.executor.charge_flow(handler, cost, now);
            }
            Owner::Arrivals => self.best_effort.arrivals.charge_head(cost, now),
            Owner::Delivery(_) | Owner::Backlog | Owner::Signals(_) | Owner::Rtu(_) | Owner::RtuRest(_) => {}
        }
    }

    fn unit(&self, owner: Owner, now: Instant) -> Option<Unit> {
        match owner {
            Owner::Clip(channel) => {
                let clip = self.channels.clips.get(channel)?;
                match &clip.role {
                    RoleState::Source(source) => self.source_unit(source, clip.handler),
                    RoleState::Forwarder(forwarder) => Some(self.forward_unit(clip, forwarder, now)),
                    RoleState::Sink(sink) => self.sink_unit(clip, sink, now),
                }
            }
            Owner::Demoted(channel) => self.demoted_unit(channel),
            Owner::Delivery(channel) => self.delivery_unit(channel, now),
            Owner::Flow(channel) => self.flow_unit(channel),
            Owner::Arrivals => self.arrivals_unit(),
            Owner::Backlog => self.backlog_unit(),
            Owner::Filler(link) => self.filler_unit(link),
            Owner::Rtu(id) => self.rtu_unit(id, true, now),
            Owner::RtuRest(id) => self.rtu_unit(id, false, now),
            Owner::Signals(link) => {
                let waiting = self.link_state(link).signals.waiting.front()?;
                let bytes = waiting.frame.as_ref().len() as u32;
                Some(Unit {
                    kind: WorkKind::Signalling,
                    packets: 1,
                    bytes,
                    message_edge: true,
                    application: Nanos::ZERO,
                })
            }
        }
    }

    fn rearm(&mut self, owner: Owner, now: Instant) {
        match owner {
            Owner::Clip(channel) | Owner::Demoted(channel) | Owner::Delivery(channel) => {
                self.arm_clip(channel, now)
            }
            Owner::Flow(channel) => self.arm_flow(channel, now),
            Owner::Arrivals => self.arm_arrivals(now),
            Owner::Backlog => self.backlog.arm(&mut self.context.processor.executor, now),
            Owner::Filler(link) => self.arm_filler(link, now),
            Owner::Rtu(id) | Owner::RtuRest(id) => self.arm_rtu(id, now),
            Owner::Signals(link) => self.arm_signals(link, now),
        }
    }

    /// Updates the next activations of a clip's handlers in the executor.
    pub fn arm_clip(&mut self, channel: crate::ids::ChannelId, now: Instant) {
        let Some(clip) = self.channels.clips.get_mut(channel) else {
            self.arm_sender(channel, now);
            return;
        };
        match clip.as_source() {
            Some(mut end) => end.arm(&mut self.context, now),
            None => clip.arm_input(&mut self.context, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::api::{RtuClass, RtuCost, RtuTerms};
    use crate::node::tests::{NOW, Nothing, node};
    use crate::sched::Activation;

    /// A call passes over so many handlers that have nothing to do after all. The next call goes on behind
    /// them: each is passed over once, and the work behind them all is done.
    #[test]
    fn a_call_passes_over_a_bounded_number_of_handlers_without_work() {
        for (without, calls) in [
            (0, 1),
            (1, 1),
            (EMPTY_PICKS_MAX - 1, 1),
            (EMPTY_PICKS_MAX, 2),
            (2 * EMPTY_PICKS_MAX - 1, 2),
            (2 * EMPTY_PICKS_MAX, 3),
        ] {
            let mut node = node();
            let flows: Vec<_> = (0..without)
                .map(|_| {
                    let to = "bulk@h2".parse().expect("an address");
                    node.open_best_effort(to, 100, Nothing, NOW).expect("a neighbour")
                })
                .collect();
            let cost = RtuCost { run: Nanos(1_000), unit: Nanos(1_000) };
            let terms = RtuTerms { class: RtuClass::BestEffort, deadline: None, quantum: 1, cost };
            let last = node.register_handler(terms, NOW).expect("best effort");
            // Their messages are gone since.
            for flow in flows {
                let Plane { best_effort, context, .. } = &mut node.plane;
                let handler = best_effort.flows[&flow].handler;
                let activation = Activation { eligible: NOW, deadline: NOW };
                context.processor.executor.ready(handler, activation, NOW);
            }
            node.make_ready(last, NOW);
            let mut made = 1;
            let work = loop {
                match node.plane.begin(NOW) {
                    Some(work) => break work,
                    None => assert!(node.plane.has_ready() && made < 9, "{without}: call again"),
                }
                made += 1;
            };
            assert_eq!(
                (node.plane.finish(&work, NOW), made),
                (Some(Owner::RtuRest(last)), calls),
                "{without}"
            );
        }
    }
}

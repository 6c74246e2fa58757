//! The processor: the owner of each handler, and a record of late service.

use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos};

use super::standstill::Promises;
use super::{Owner, Plane, Processor, RoleState};
use crate::breach::Watch;
use crate::config::NodeConfig;
use crate::ids::ChannelId;
use crate::memory::Memory;
use crate::node::record::WorkRecord;
use crate::sched::{Class, Executor, HandlerId, HandlerParameters, Trigger};
use crate::slab::reserve;

/// Parameters of a handler of best effort.
pub(super) fn best_effort_parameters(config: &NodeConfig) -> HandlerParameters {
    HandlerParameters {
        class: Class::BestEffort,
        level: 0,
        period: Nanos::ZERO,
        place: 0,
        quantum_packets: config.cpu.quantum_packets,
        budget: None,
        trigger: Trigger::Reactive,
    }
}

impl Processor {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let cpu = &config.cpu;
        let executor = Executor::new(cpu.run)
            .with_caps(cpu.utilisation_max, cpu.best_effort_cpu_cap)
            .with_flow_cap(cpu.best_effort_flow_cpu_cap);
        Self {
            executor,
            owners: Vec::new(),
            record: WorkRecord::new(),
            watch: Watch::default(),
            promises: Promises::default(),
        }
    }

    /// Adds a handler for `owner`.
    pub fn add_handler(&mut self, owner: Owner, parameters: HandlerParameters) -> HandlerId {
        let handler = self.executor.add(parameters);
        let index = handler.0 as usize;
        if self.owners.len() <= index {
            reserve(&mut self.owners, index + 1);
            self.owners.resize(index + 1, None);
        }
        self.owners[index] = Some(owner);
        handler
    }

    /// Removes a handler.
    pub fn remove_handler(&mut self, handler: HandlerId) {
        self.executor.remove(handler);
        self.owners[handler.0 as usize] = None;
    }

    /// The owner of a handler.
    pub fn owner(&self, handler: HandlerId) -> Option<Owner> {
        self.owners.get(handler.0 as usize).copied().flatten()
    }

    /// Owners of all handlers.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.owners.iter().copied().flatten()
    }
}

impl<M: Memory> Plane<M> {
    /// Records that the processor served a channel `late`; does nothing if `late` is zero, or shows nothing.
    pub fn note_service(&mut self, channel: ChannelId, late: Nanos, now: Instant) {
        if late > Nanos::ZERO && !self.may_be_late(channel) {
            self.note_processor(late, now);
        }
    }

    /// Whether a channel may be served after its bounds here although everything is as admission assumes: it is soft on
    /// this processor, or on the link. Either delays the other: a link gets what is served late, and a source waits for
    /// the link's slots.
    pub fn may_be_late(&self, channel: ChannelId) -> bool {
        let Some(clip) = self.channels.clips.get(channel) else { return false };
        let reservation = match &clip.role {
            RoleState::Source(source) => Some(&source.reservation),
            RoleState::Forwarder(forwarder) => Some(&forwarder.reservation),
            RoleState::Sink(_) => None,
        };
        let on_link = reservation.is_some_and(|on| self.link_state(on.link).scheduler.is_soft(on.flow));
        on_link || self.context.processor.executor.is_soft(clip.handler)
    }

    /// Records that the processor served something `late`; does nothing if `late` is zero.
    pub fn note_processor(&mut self, late: Nanos, now: Instant) {
        if late > Nanos::ZERO {
            self.context.processor.watch.late(late, now);
            self.context.news.stirred = true;
        }
    }
}

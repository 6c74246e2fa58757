//! Rings into which an application puts more than its contract. The source takes at once what a conforming
//! sender can have put in. The rest is taken at background priority, so that other channels do not pay for it
//! (CLIPS 5.2).

use alloc::collections::VecDeque;

use punctual_analysis::{Instant, Nanos};

use super::source::Portion;
use super::work::Unit;
use super::{Plane, Processor, SourceEnd};
use crate::api::WorkKind;
use crate::ids::ChannelId;
use crate::memory::Memory;
use crate::sched::{Activation, Executor, HandlerId};

/// Sources whose ring holds more than was taken at once, each once.
pub(super) struct Backlog {
    channels: VecDeque<ChannelId>,
    handler: HandlerId,
}

impl Backlog {
    pub const fn new(handler: HandlerId) -> Self {
        Self { channels: VecDeque::new(), handler }
    }
}

impl Backlog {
    /// Lists a source whose ring was not emptied.
    pub fn list<M: Memory>(&mut self, end: &mut SourceEnd<'_, M>, processor: &mut Processor, now: Instant) {
        let SourceEnd { source, local, .. } = end;
        if source.has_backlog() && !core::mem::replace(&mut source.in_backlog, true) {
            self.channels.push_back(local.channel);
            self.arm(&mut processor.executor, now);
        }
    }

    /// Updates the backlog's handler in the executor: ready if there is a backlog, idle otherwise.
    pub fn arm(&self, executor: &mut Executor, now: Instant) {
        if self.channels.is_empty() {
            executor.idle(self.handler);
        } else {
            let activation = Activation { eligible: now, deadline: now };
            executor.ready(self.handler, activation, now);
        }
    }
}

impl<M: Memory> Plane<M> {
    /// The next unit of the backlog; `None` if there is none.
    pub(super) fn backlog_unit(&self) -> Option<Unit> {
        self.backlog.channels.front()?;
        Some(Unit {
            kind: WorkKind::BestEffort,
            packets: 1,
            bytes: 0,
            message_edge: false,
            application: Nanos::ZERO,
        })
    }

    /// Takes the next part of the ring that has waited longest.
    pub fn run_backlog(&mut self, now: Instant) {
        let Some(channel) = self.backlog.channels.pop_front() else { return };
        // The channel may have ended since it was listed.
        if let Some(SourceEnd { source, .. }) = self.channels.source(channel) {
            source.in_backlog = false;
            self.serve_ring(channel, Portion::Unit, now);
        }
    }
}

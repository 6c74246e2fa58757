//! Scheduling of the threads that ring the bells of programs: right below the processor.

use std::io;

use punctual_engine::SchedulingClass;
use punctual_ipc::wake::Rank;
use punctual_os::attributes::{Attributes, SELF, set_attributes};
use punctual_os::calls::{self, Forbidden, ThreadKind};
use punctual_os::realtime::RealTime;

/// Priority of a ringer beside a processor that is scheduled by deadline: above all co-scheduled programs.
const BESIDE_DEADLINE: u8 = 97;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingerRank {
    /// `None`: an ordinary thread.
    priority: Option<u8>,
    follows: bool,
    forbidden: Forbidden,
}

impl RingerRank {
    /// `sleeps`: the processor sleeps whenever it has no work. `forbidden`: what happens at system calls that
    /// are not in a ringer's list.
    pub(crate) const fn of(processor: RealTime, sleeps: bool, forbidden: Forbidden) -> Self {
        let priority = match processor.class {
            // At 1 there is no lower priority: it takes turns with the processor, which never waits for it.
            SchedulingClass::Fifo { priority: 0 | 1 } => Some(1),
            SchedulingClass::Fifo { priority } => Some(priority - 1),
            SchedulingClass::Deadline { .. } => Some(BESIDE_DEADLINE),
            SchedulingClass::BestEffortHost => None,
        };
        Self { priority, follows: sleeps && priority.is_some(), forbidden }
    }
}

impl Rank for RingerRank {
    fn begin(&mut self) -> io::Result<()> {
        calls::confine(ThreadKind::Ringer, self.forbidden)
    }

    fn raise(&mut self) {
        let Some(priority) = self.priority else { return };
        if let Err(error) = set_attributes(SELF, Attributes::Fifo { priority }) {
            // The processor has this class, so the right is there: it was taken away meanwhile.
            tracing::warn!(%error, "a thread that rings bells of programs is an ordinary one: wake-ups may be late");
        }
    }

    fn follows(&self) -> bool {
        self.follows
    }

    fn lower(&mut self) {
        if self.priority.is_some() {
            // Becoming less needs no right.
            let _ = set_attributes(SELF, Attributes::ORDINARY);
        }
    }
}

//! Bounded work: the limit of each call of a node. The measure is the number of operations on buffers
//! (taking, copying, reserving, publishing, dropping), which every driver of a node pays for.

use punctual_proto::limits::{BEST_EFFORT_MESSAGES_MAX, RING_MESSAGES_MAX};

use super::World;
use crate::memory::effort;

/// A call and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// `handle_frame`: constant.
    Frame,
    /// `handle_sent`: constant.
    Sent,
    /// `poll_transmit`: at most 64 packets of closed channels are skipped; a source that has sent its message
    /// takes the next ones from its ring, as `handle_ring` does.
    Transmit,
    /// `begin_work`: constant, 16 picks.
    Begin,
    /// `finish_work` of anything but signalling: a quantum of packets, and the messages that it takes from a
    /// ring.
    Finish,
    /// `handle_ring`: a burst and a few messages, and never more than [`RING_MESSAGES_MAX`].
    Outbox,
}

/// Most operations for each packet or message: taken or reserved, copied, published, dropped.
const EACH: u64 = 4;
/// Packets that one call may skip.
const SKIPS: u64 = 64;
/// Messages that one call takes beyond a burst.
const EXTRA: u64 = 16;

impl World {
    pub(super) fn effort_max(&self, effort: Effort) -> u64 {
        let burst = (self.burst_max + EXTRA).min(u64::from(RING_MESSAGES_MAX));
        match effort {
            Effort::Frame | Effort::Sent => EACH,
            Effort::Begin => EACH * 16,
            Effort::Transmit => EACH * (SKIPS + burst),
            Effort::Finish => EACH * (self.quantum_max + u64::from(BEST_EFFORT_MESSAGES_MAX) + burst),
            Effort::Outbox => EACH * burst,
        }
    }

    /// Judges the operations of a call since `before`.
    pub(super) fn check_effort(&mut self, host: usize, call: Effort, before: u64) {
        let done = effort() - before;
        let most = self.effort_max(call) * u64::from(self.options.sabotage.effort_percent) / 100;
        if done > most {
            self.violate(&format!(
                "host {host}: {call:?} did {done} operations on buffers, {most} are its most"
            ));
        }
    }
}

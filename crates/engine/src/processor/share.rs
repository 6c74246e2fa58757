//! The share of a CPU that a processor of class `SCHED_DEADLINE` holds. The kernel reserves the utilisation
//! that admission has granted. The reservation is requested before any packet leaves that would promise more.
//!
//! It fails closed: if the kernel refuses more, the channel that was admitted last is refused, or closed if
//! it is established already. The share of closed channels is given back to the kernel.

use punctual_os::realtime::{RealTimeError, SchedulingClass, runtime, set_runtime};
use punctual_proto::api::CloseReason;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::node::Node;
use punctual_proto::{Instant, Nanos, Ppm};

use crate::memory::HostMemory;
use crate::statistics::Counters;

/// Share of the CPU that the kernel has granted.
pub(super) struct Share {
    period: Nanos,
    runtime: Nanos,
    /// The utilisation that admission had granted at the last request.
    utilisation: Ppm,
    /// The utilisation that it had granted when the kernel refused more. Set until admission has released the
    /// refused channel.
    refused: Option<Ppm>,
}

impl Share {
    /// Requests the utilisation granted at the start; `None` if the class has no runtime. On the processor's
    /// thread.
    pub fn of(
        class: SchedulingClass,
        utilisation: Ppm,
        counters: &Counters,
    ) -> Result<Option<Self>, RealTimeError> {
        let SchedulingClass::Deadline { period } = class else { return Ok(None) };
        let runtime = runtime(utilisation, period);
        set_runtime(runtime, period)?;
        counters.runtime_ns.set(runtime.0);
        Ok(Some(Self { period, runtime, utilisation, refused: None }))
    }

    /// Requests the utilisation that admission has granted now, if it has changed.
    pub fn follow<O: Outbox, I: Inbox>(
        &mut self,
        node: &mut Node<HostMemory<O, I>>,
        at: Instant,
        counters: &Counters,
    ) {
        if self.refused == Some(node.cpu_utilisation()) && node.is_deciding() {
            return;
        }
        self.refused = None;
        if node.cpu_utilisation() != self.utilisation {
            let utilisation = node.cpu_utilisation();
            let wanted = runtime(utilisation, self.period);
            if wanted != self.runtime
                && let Err(error) = set_runtime(wanted, self.period)
            {
                counters.runtimes_refused.add(1);
                tracing::error!(%error, "the channel that was admitted last is refused");
                if utilisation > self.utilisation && node.abort_newest(CloseReason::RuntimeRefused, at) {
                    // If that was not enough, the next one follows.
                    self.refused = Some(utilisation);
                    return;
                }
                // A smaller runtime was refused, or there is no channel left to close: the larger runtime
                // stays.
                self.utilisation = utilisation;
                return;
            }
            (self.runtime, self.utilisation) = (wanted, utilisation);
            counters.runtime_ns.set(wanted.0);
        }
    }
}

//! Standstills of this host's processor, by its own clock: a source sees its messages only when the processor looks, so what
//! they waited until then shows in no packet. When the application says that it sent them proves nothing: anybody can say so.
//! A timer that is due at T and is seen at T + L does: whatever had come at T was served L late at least (ADR 0026).

use punctual_analysis::{Instant, Nanos};

use super::Plane;
use crate::memory::Memory;

/// What the processor has promised to the channels that it serves, as far as a standstill is compared with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promises {
    /// Channels that start here.
    sources: u32,
    /// The smallest bound of all; `None`: to be looked for.
    bound_min: Option<Nanos>,
}

impl Promises {
    /// Whether channels start here.
    pub const fn has_sources(&self) -> bool {
        self.sources > 0
    }

    /// A channel of this bound is served from now on.
    pub fn add(&mut self, bound: Nanos, is_source: bool) {
        self.sources += u32::from(is_source);
        self.bound_min = self.bound_min.map(|least| least.min(bound));
    }

    /// A channel is served no more.
    pub fn remove(&mut self, is_source: bool) {
        self.sources -= u32::from(is_source);
        self.bound_min = None;
    }
}

impl<M: Memory> Plane<M> {
    /// Whether channels start here, whose messages show no standstill of the processor.
    pub const fn has_sources(&self) -> bool {
        self.context.processor.promises.has_sources()
    }

    /// The processor looked `late` after it should have. Beyond the tightest bound that it has given that breaks a promise,
    /// whether or not a message came just then. Looks at all channels, where some have come or gone since the last time.
    pub fn note_standstill(&mut self, late: Nanos, now: Instant) {
        // Every bound holds the release latency.
        if late > self.config.cpu.release_latency
            && let Some(bound) = self.bound_min()
        {
            self.note_processor(late - bound, now);
        }
    }

    fn bound_min(&mut self) -> Option<Nanos> {
        if self.context.processor.promises.bound_min.is_none() {
            self.context.processor.promises.bound_min =
                self.channels.clips.iter().map(|clip| clip.cpu_bound).min();
        }
        self.context.processor.promises.bound_min
    }
}

//! Standstills of this host's processor, by its own clock. A source sees its messages only when the processor
//! runs, so the time that they waited until then is in no packet. The application's send times are no
//! evidence, because an application can report any time. A timer that is due at T and runs at T + L is
//! evidence: a message that came at T was served at least L late (ADR 0026).

use punctual_analysis::{Instant, Nanos};

use super::Plane;
use crate::memory::Memory;

/// The processor's promises to the channels that it serves, for comparison with a standstill.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Promises {
    /// Channels that start here.
    sources: u32,
    /// The smallest bound of all; `None` if it must be computed again.
    bound_min: Option<Nanos>,
}

impl Promises {
    /// Whether channels start here.
    pub const fn has_sources(&self) -> bool {
        self.sources > 0
    }

    /// Adds a channel with this bound.
    pub fn add(&mut self, bound: Nanos, is_source: bool) {
        self.sources += u32::from(is_source);
        self.bound_min = self.bound_min.map(|least| least.min(bound));
    }

    /// Removes a channel.
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

    /// Notes that the processor ran `late` after it should have. Lateness beyond its tightest bound breaks a
    /// promise, whether or not a message came at that time. Visits all channels if some were added or removed
    /// since the last call.
    pub fn note_standstill(&mut self, late: Nanos, now: Instant) {
        // Every bound includes the release latency.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel that comes can only make the tightest bound tighter; after one has gone the bound is not known.
    #[test]
    fn the_tightest_bound_follows_what_comes() {
        let mut promises = Promises::default();
        promises.add(Nanos(7), true);
        assert_eq!((promises.bound_min, promises.has_sources()), (None, true), "it was not known");
        promises.bound_min = Some(Nanos(5));
        for (bound, tightest) in [(9, 5), (5, 5), (3, 3), (4, 3)] {
            promises.add(Nanos(bound), false);
            assert_eq!(promises.bound_min, Some(Nanos(tightest)), "{bound}");
        }
        promises.remove(false);
        assert_eq!((promises.bound_min, promises.has_sources()), (None, true));
        promises.remove(true);
        assert!(!promises.has_sources());
    }
}

//! Counters of the processor about itself.
//!
//! Only the processor writes them, any thread may read them: plain relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use punctual_link::{LinkStatistics, StreamDrops};

/// The driver of a link, and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// The driver and its mode, for people.
    pub mode: String,
    /// More about it, for people: names and values.
    pub facts: Vec<(&'static str, String)>,
    /// Packets and errors.
    pub statistics: LinkStatistics,
    /// Packets that it dropped before it took a buffer.
    pub drops: StreamDrops,
    /// Traffic of other senders on its device in the last second, in bits a second; `None`: not watched, or
    /// not known yet.
    pub foreign_bps: Option<u64>,
    /// True if the link has failed permanently.
    pub failed: bool,
}

/// Counts since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Times at which the processor slept and woke.
    pub wakes: u64,
    /// Passes of the loop.
    pub loops: u64,
    /// Longest pass, in ns, from waking to the next sleep, events handed out and descriptors that were ready noted: how long an
    /// arrival may go unseen beside the class's wake-up latency.
    pub loop_ns_max: u64,
    /// Units of protocol work.
    pub work_units: u64,
    /// Wake-ups more than a millisecond after the requested time.
    pub late_wakes: u64,
    /// The largest delay of a timed wake-up, in ns after the requested time.
    pub wake_late_ns_max: u64,
    /// Times at which a link could not be read since its pool of frames was in use.
    pub receive_pool_dry: u64,
    /// Times at which a packet had to wait for room in a driver.
    pub driver_full: u64,
    /// Times at which the node wanted to run at once and then did no work; the processor slept a little
    /// instead.
    pub stalls: u64,
    /// Links that failed permanently.
    pub links_failed: u64,
    /// Channels that a driver's filter could not be set or cleared for.
    pub filters_failed: u64,
    /// Runtime of the processor in each of its periods, in ns, if it is scheduled by deadline; else 0.
    pub runtime_ns: u64,
    /// Times at which the kernel gave it no larger one: channels were refused or closed for it.
    pub runtimes_refused: u64,
}

/// The counters behind [`EngineStatistics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub wakes: Counter,
    pub loops: Counter,
    pub loop_ns_max: Counter,
    pub work_units: Counter,
    pub late_wakes: Counter,
    pub wake_late_ns_max: Counter,
    pub receive_pool_dry: Counter,
    pub driver_full: Counter,
    pub stalls: Counter,
    pub links_failed: Counter,
    pub filters_failed: Counter,
    pub runtime_ns: Counter,
    pub runtimes_refused: Counter,
}

impl Counters {
    pub fn snapshot(&self) -> EngineStatistics {
        EngineStatistics {
            wakes: self.wakes.get(),
            loops: self.loops.get(),
            loop_ns_max: self.loop_ns_max.get(),
            work_units: self.work_units.get(),
            late_wakes: self.late_wakes.get(),
            wake_late_ns_max: self.wake_late_ns_max.get(),
            receive_pool_dry: self.receive_pool_dry.get(),
            driver_full: self.driver_full.get(),
            stalls: self.stalls.get(),
            links_failed: self.links_failed.get(),
            filters_failed: self.filters_failed.get(),
            runtime_ns: self.runtime_ns.get(),
            runtimes_refused: self.runtimes_refused.get(),
        }
    }
}

/// A number that only one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
    pub fn max(&self, n: u64) {
        if n > self.get() {
            self.0.store(n, Ordering::Relaxed);
        }
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

//! Busy polling: waking a sleeping thread takes microseconds to tens of microseconds, checking a ring takes
//! nanoseconds.
//!
//! After its last piece of work the processor polls the drivers' rings for the configured time, and after
//! packets for the time that their link sets for their class (outgoing packets count as guaranteed or best
//! effort). It checks the descriptors (doorbells of applications, commands) only every [`POLL_PAUSE`], since
//! that is a system call. While it polls, no thread of a lower class gets the CPU: use it on a CPU core of
//! its own, or for the length of a round trip. There is no pause instruction between two checks: no other
//! thread uses the core, and a packet that arrives during a pause is seen later.

use punctual_link::{Spins, Stream};
use punctual_os::now;
use punctual_proto::api::WorkKind;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};

use super::Processor;
use super::port::DrivenLink;

/// Interval between two checks of the descriptors of a processor that does not sleep: some percent of its
/// time.
const POLL_PAUSE: Nanos = Nanos::from_micros(10);

/// Times for which the processor stays awake.
pub(super) struct Spin {
    /// Time to stay awake after anything was done.
    span: Nanos,
    /// Time to stay awake after a packet: the longest of all links.
    after: Spins,
    awake_until: Instant,
    /// Time of the last check of the descriptors.
    checked_at: Instant,
}

impl Spin {
    pub fn new(span: Nanos, links: impl Iterator<Item = Spins> + Clone) -> Self {
        let after = Spins::new(|stream| links.clone().map(|spins| spins.after(stream)).max().unwrap_or(0));
        Self { span, after, awake_until: Instant::ZERO, checked_at: Instant::ZERO }
    }

    /// The longest that it may stay awake at a time.
    pub fn longest(&self) -> Nanos {
        self.span.max(Nanos(self.after.longest()))
    }

    /// A packet of this stream came or went.
    pub fn stay(&mut self, stream: Stream, at: Instant) {
        self.awake_until = self.awake_until.max(at + Nanos(self.after.after(stream)));
    }

    /// A unit was done.
    pub fn stay_for(&mut self, kind: WorkKind, at: Instant) {
        if let Some(stream) = stream_of(kind) {
            self.stay(stream, at);
        }
    }

    fn is_over(&self, at: Instant) -> bool {
        at >= self.awake_until
    }
}

/// The stream that a unit's packets count as; `None` if that is known since they came in.
const fn stream_of(kind: WorkKind) -> Option<Stream> {
    match kind {
        WorkKind::Send => Some(Stream::Guaranteed),
        WorkKind::Forward | WorkKind::Receive | WorkKind::Upcall => None,
        WorkKind::BestEffort => Some(Stream::BestEffort),
        WorkKind::Signalling => Some(Stream::Signalling),
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waited {
    /// End of the idle time. Time after it was work.
    pub idle_until: Instant,
    /// The time.
    pub at: Instant,
}

impl Waited {
    /// A wait without input.
    const fn until(at: Instant) -> Self {
        Self { idle_until: at, at }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Waits until an input is there or `until`, awake for the configured time.
    pub(super) fn wait(&mut self, until: Option<Instant>, progress: bool, mut at: Instant) -> Waited {
        if progress {
            self.timing.spin.awake_until = self.timing.spin.awake_until.max(at + self.timing.spin.span);
        }
        loop {
            let is_due = until.is_some_and(|until| until <= at);
            if !is_due && self.timing.spin.is_over(at) {
                let waited = self.sleep(until, at);
                self.timing.spin.checked_at = waited.at;
                return waited;
            }
            if at.since(self.timing.spin.checked_at) >= POLL_PAUSE {
                self.timing.spin.checked_at = at;
                if self.look(at) {
                    return Waited { idle_until: at, at: now() };
                }
            }
            if is_due {
                return Waited::until(at);
            }
            self.ports.iter_mut().for_each(DrivenLink::readable);
            if let Some(received) = self.receive(at) {
                return Waited { idle_until: at, at: received };
            }
            at = now();
            if self.complete(at) {
                return Waited::until(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_keeps_the_processor_awake_for_its_own_time() {
        let of = |low_latency, best_effort| {
            Spins::new(|stream| match stream {
                Stream::LowLatency => low_latency,
                Stream::BestEffort => best_effort,
                _ => 10,
            })
        };
        let mut spin = Spin::new(Nanos(5), [of(100, 0), of(50, 20)].into_iter());
        assert_eq!(spin.longest(), Nanos(100), "the longest of both links");
        spin.stay(Stream::BestEffort, Instant(1_000));
        assert!(!spin.is_over(Instant(1_019)) && spin.is_over(Instant(1_020)));
        spin.stay(Stream::LowLatency, Instant(1_000));
        spin.stay_for(WorkKind::Send, Instant(1_010));
        spin.stay_for(WorkKind::Receive, Instant(2_000));
        assert!(!spin.is_over(Instant(1_099)) && spin.is_over(Instant(1_100)), "no class shortens another's");
        assert_eq!(Spin::new(Nanos(5), [].into_iter()).longest(), Nanos(5));
    }
}

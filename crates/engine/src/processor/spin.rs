//! Waiting awake: a sleeping thread is woken in microseconds to tens of them, a ring is looked at in nanoseconds.
//!
//! After its last piece of work the processor looks at the drivers' rings for the configured time; the descriptors
//! (doorbells of applications, commands) it looks at every [`LOOK`], since that is a system call. While it does so
//! nobody of a lower class gets the CPU: worth it on a core of its own, or for the length of a round trip. There is no
//! pause instruction between two looks: the core is nobody else's, and a packet that comes during one is seen later.

use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::{Instant, Nanos};

use super::Processor;
use super::port::LinkPort;
use crate::os::now;

/// Between two looks at the descriptors of a processor that does not sleep: some percent of its time.
const LOOK: Nanos = Nanos::from_micros(10);

/// How long to stay awake, and since when.
pub(super) struct Spin {
    span: Nanos,
    /// When something was done last.
    busy_at: Instant,
    /// When the descriptors were looked at last.
    looked_at: Instant,
}

impl Spin {
    pub const fn new(span: Nanos) -> Self {
        Self { span, busy_at: Instant::ZERO, looked_at: Instant::ZERO }
    }

    fn is_over(&self, at: Instant) -> bool {
        at.since(self.busy_at) >= self.span
    }
}

/// How a wait ended.
pub(super) struct Waited {
    /// What was taken in since then is work.
    pub idle_until: Instant,
    /// The time.
    pub at: Instant,
}

impl Waited {
    /// Nothing was taken in.
    const fn until(at: Instant) -> Self {
        Self { idle_until: at, at }
    }
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// Waits until something comes in or `until`, awake for as long as it was told to.
    pub(super) fn wait(&mut self, until: Option<Instant>, progress: bool, mut at: Instant) -> Waited {
        if progress {
            self.spin.busy_at = at;
        }
        loop {
            let is_due = until.is_some_and(|until| until <= at);
            if !is_due && self.spin.is_over(at) {
                let woken = self.sleep(until, at);
                self.spin.looked_at = woken;
                return Waited::until(woken);
            }
            if at.since(self.spin.looked_at) >= LOOK {
                self.spin.looked_at = at;
                if self.look(at) {
                    return Waited::until(now());
                }
            }
            if is_due {
                return Waited::until(at);
            }
            self.ports.iter_mut().for_each(LinkPort::readable);
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

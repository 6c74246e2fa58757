//! Bulk traffic that is let through a gate: on in one block, off in the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use punctual::Nanos;
use punctual_os::clock::{now, sleep_until};
use punctual_os::interrupt;

use super::{Class, Content, Offered, Outlet, Stamp};
use crate::testbed::Place;

/// How often a closed gate is looked at, and a full queue tried again.
const LOOK: Nanos = Nanos::from_micros(500);
/// Most messages that a late sender makes up for at once.
const CATCH_UP: u64 = 8;

/// A running sender; it ends when dropped.
pub struct Bulk {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    open: AtomicBool,
    /// Between two messages; zero: as fast as they are taken.
    interval_ns: AtomicU64,
    sent: AtomicU64,
}

impl Bulk {
    /// Sends messages of `bytes` through `outlet` from `place` in `class` while the gate is open; closed at first.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(
        mut outlet: Box<dyn Outlet>,
        bytes: usize,
        place: &Place,
        class: Class,
    ) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = place.spawn("bulk", class, move || send(outlet.as_mut(), bytes, &of_thread))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Opens the gate for a message every `interval` (zero: as fast as they are taken), or closes it.
    pub fn set(&self, interval: Option<Nanos>) {
        self.shared.interval_ns.store(interval.unwrap_or_default().as_u64(), Ordering::Relaxed);
        self.shared.open.store(interval.is_some(), Ordering::Relaxed);
    }

    /// Messages that were taken until now.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Ends it.
    ///
    /// # Errors
    /// What broke it.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => anyhow::bail!("a bulk sender panicked"),
        }
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever wants to know its error stops it.
            let _ = thread.join();
        }
    }
}

fn send(outlet: &mut dyn Outlet, bytes: usize, shared: &Shared) -> anyhow::Result<()> {
    let content = Content::of_size(bytes);
    let mut message = Vec::with_capacity(bytes);
    content.fill(0, &mut message);
    let mut sequence = 0;
    let mut due = now();
    while !shared.stop.load(Ordering::Relaxed) && interrupt::check().is_ok() {
        if !shared.open.load(Ordering::Relaxed) {
            due = now() + LOOK;
            sleep_until(due);
            continue;
        }
        let interval = Nanos(shared.interval_ns.load(Ordering::Relaxed));
        sleep_until(due);
        let sent = now();
        due = (due + interval).max(sent - interval * CATCH_UP);
        Stamp { stream: 0, sequence, sent, logical: sent }.write(&mut message);
        if outlet.offer(&message)? == Offered::Taken {
            sequence += 1;
            shared.sent.store(sequence, Ordering::Relaxed);
        } else {
            due = due.max(now() + LOOK);
        }
    }
    Ok(())
}

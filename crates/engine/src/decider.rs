//! Makes the decisions of admission on a thread of its own, beside the processor: with thousands of channels
//! one may take milliseconds, and no packet may wait for it (docs/adr/0035).
//!
//! The processor hands a [`Decision`] over and gets it back as a command. It never waits for the thread: it
//! only tries the lock of the desk, and wakes the thread without checking whether it sleeps. At most one
//! decision is in progress.
//!
//! If the thread panics, the policies are lost: no channel could be opened, relaxed or released any more, and
//! no program would get an error. Therefore the processor is notified, and ends as it does when any other
//! part of it has failed.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};

use punctual_proto::node::Decision;

use punctual_os::calls::{self, Forbidden, ThreadKind};
use punctual_os::realtime::{self, SchedulingClass};

/// Slot in which one decision waits for the thread.
#[derive(Debug)]
struct DecisionSlot<D> {
    decision: Option<D>,
    is_closed: bool,
}

/// The processor's side. Dropped, it ends the thread.
#[derive(Debug)]
pub(crate) struct Decider<D = Decision> {
    slot: Arc<Mutex<DecisionSlot<D>>>,
    thread: Thread,
    /// What could not be laid into the slot yet.
    waiting: Option<D>,
}

impl<D: Send + 'static> Decider<D> {
    /// Starts the thread. It calls `decide` with each decision and ends when that returns `false`; it calls
    /// `failed` if it panics. If the processor has a real-time class, the thread precedes other ordinary
    /// threads.
    ///
    /// # Errors
    /// If the thread cannot be created, or if its nice value or its filter of system calls is refused.
    pub fn start(
        class: SchedulingClass,
        forbidden: Forbidden,
        decide: impl Fn(D) -> bool + Send + 'static,
        failed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let slot = Arc::new(Mutex::new(DecisionSlot { decision: None, is_closed: false }));
        let theirs = Arc::clone(&slot);
        let (started, starting) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("punctual-admit".into()).spawn(move || {
            let prepared = realtime::go_before_ordinary_threads(class)
                .and_then(|()| calls::confine(ThreadKind::Admission, forbidden));
            let is_ready = prepared.is_ok();
            // The other side waits for it.
            let _ = started.send(prepared);
            if is_ready {
                let _guard = Guard(failed);
                decide_until_closed(&theirs, &decide);
            }
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(Self { slot, thread: thread.thread().clone(), waiting: None })
    }

    /// Passes a decision to the thread, or the one for which the slot was not free before.
    pub fn put(&mut self, decision: Option<D>) {
        let Some(decision) = decision.or_else(|| self.waiting.take()) else { return };
        let mut slot = match self.slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting = Some(decision);
                return;
            }
        };
        slot.decision = Some(decision);
        drop(slot);
        self.thread.unpark();
    }

    /// Whether something must be laid into the slot again: the thread was just looking at that.
    pub const fn must_retry(&self) -> bool {
        self.waiting.is_some()
    }
}

impl<D> Drop for Decider<D> {
    fn drop(&mut self) {
        lock(&self.slot).is_closed = true;
        self.thread.unpark();
    }
}

fn lock<D>(slot: &Mutex<DecisionSlot<D>>) -> MutexGuard<'_, DecisionSlot<D>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports that the thread unwinds.
struct Guard<F: Fn()>(F);

impl<F: Fn()> Drop for Guard<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.0)();
        }
    }
}

fn decide_until_closed<D>(slot: &Mutex<DecisionSlot<D>>, decide: &impl Fn(D) -> bool) {
    loop {
        let DecisionSlot { decision, is_closed } = {
            let mut slot = lock(slot);
            DecisionSlot { decision: slot.decision.take(), is_closed: slot.is_closed }
        };
        match decision {
            Some(decision) => {
                if !decide(decision) {
                    return;
                }
            }
            None if is_closed => return,
            None => thread::park(),
        }
    }
}

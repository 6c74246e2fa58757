//! Decisions of admission, made beside the processor by a thread of their own: one may take milliseconds beside thousands of
//! channels, and no packet may wait for it (docs/adr/0035).
//!
//! The processor gives a [`Decision`] away and gets it back as a command. It never waits for the thread: it only tries the
//! lock of the desk, and wakes the thread without a look at whether it sleeps. At most one decision is on the way.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};

use punctual_proto::node::{Decided, Decision};

use crate::os::calls::{self, Forbidden, ThreadKind};
use crate::os::now;
use crate::os::realtime::{self, SchedulingClass};

/// Where a decision waits for the thread.
#[derive(Debug, Default)]
struct Desk {
    decision: Option<Decision>,
    is_closed: bool,
}

/// The processor's side. Dropped, it ends the thread.
#[derive(Debug)]
pub(crate) struct Decider {
    desk: Arc<Mutex<Desk>>,
    thread: Thread,
    /// What could not be laid on the desk yet.
    waiting: Option<Decision>,
}

impl Decider {
    /// Starts the thread; `give_back` is called on it with each decision, and ends it where that says so by `false`. Where
    /// the processor has a real-time class, it goes before other ordinary threads.
    ///
    /// # Errors
    /// No thread is to be had, or its nice value or its filter of system calls is refused.
    pub fn start(
        class: SchedulingClass,
        forbidden: Forbidden,
        give_back: impl Fn(Decided) -> bool + Send + 'static,
    ) -> io::Result<Self> {
        let desk = Arc::new(Mutex::new(Desk::default()));
        let theirs = Arc::clone(&desk);
        let (started, starting) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("punctual-admit".into()).spawn(move || {
            let prepared = realtime::go_before_ordinary_threads(class)
                .and_then(|()| calls::confine(ThreadKind::Admission, forbidden));
            let is_ready = prepared.is_ok();
            // The other side waits for it.
            let _ = started.send(prepared);
            if is_ready {
                decide_until_closed(&theirs, &give_back);
            }
        })?;
        starting.recv().map_err(io::Error::other)??;
        Ok(Self { desk, thread: thread.thread().clone(), waiting: None })
    }

    /// Has a decision made, or the one that could not be laid on the desk before.
    pub fn put(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision.or_else(|| self.waiting.take()) else { return };
        let mut desk = match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waiting = Some(decision);
                return;
            }
        };
        desk.decision = Some(decision);
        drop(desk);
        self.thread.unpark();
    }

    /// Whether something must be laid on the desk again: the thread was just looking at that.
    pub const fn must_retry(&self) -> bool {
        self.waiting.is_some()
    }
}

impl Drop for Decider {
    fn drop(&mut self) {
        lock(&self.desk).is_closed = true;
        self.thread.unpark();
    }
}

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn decide_until_closed(desk: &Mutex<Desk>, give_back: &impl Fn(Decided) -> bool) {
    loop {
        let Desk { decision, is_closed } = {
            let mut desk = lock(desk);
            Desk { decision: desk.decision.take(), is_closed: desk.is_closed }
        };
        match decision {
            Some(decision) => {
                if !give_back(decision.decide(now)) {
                    return;
                }
            }
            None if is_closed => return,
            None => thread::park(),
        }
    }
}

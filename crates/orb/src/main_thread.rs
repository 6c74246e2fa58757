//! Requests for adapters whose servants run in the application's main thread (CORBA 11.3.8.1: `MAIN_THREAD_MODEL`).
//!
//! The main thread is the one that calls [`Orb::run`](crate::Orb::run) or [`Orb::perform_work`](crate::Orb::perform_work)
//! first. Threads that read requests hand over those for such adapters, whole. The main thread calls the servants, one
//! by one, and gives the replies to whoever sends them. What has waited too long is refused with `TRANSIENT`.
//!
//! While the main thread waits for the reply of a call, it serves requests, too: so an object that was called can call back.
//! Requests in requests are at most [`NESTED_MAX`] deep. Beyond that the main thread only waits, and requests wait for it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::{Arc, Condvar, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::counted::Mutex;
use crate::duty::{Meanwhile, add_meanwhile};
use crate::limits::{MAIN_THREAD_REQUESTS_MAX, NESTED_MAX};
use crate::wakeup::Wakeup;

/// A request for it.
pub(crate) trait Work: Send {
    /// Calls the servant, and answers.
    fn serve(self: Box<Self>);
    /// It has waited too long, or there are too many.
    fn refuse(self: Box<Self>);
}

/// A request for it.
pub(crate) type Job = Box<dyn Work>;

#[derive(Default)]
struct Queue {
    /// Each with the moment when it has waited too long.
    waiting: VecDeque<(Instant, Job)>,
    is_ended: bool,
}

/// The main thread, and what waits for it.
pub(crate) struct MainThread {
    thread: OnceLock<ThreadId>,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Wakes the main thread where it waits for a reply.
    wakeup: OnceLock<Arc<Wakeup>>,
    wait_max: Duration,
}

impl fmt::Debug for MainThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MainThread({:?})", self.thread)
    }
}

impl MainThread {
    /// Requests wait at most so long.
    pub fn new(wait_max: Duration) -> Self {
        Self {
            thread: OnceLock::new(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            wakeup: OnceLock::new(),
            wait_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the main thread.
    pub fn is_here(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// This is the main thread, if there was none. Whether it is.
    fn enter(self: &Arc<Self>) -> bool {
        let begin = || {
            // Without a descriptor for it, the main thread only waits for replies.
            if let Ok(wakeup) = Wakeup::new().map(Arc::new) {
                let _ = self.wakeup.set(Arc::clone(&wakeup));
                add_meanwhile(Rc::new(InCalls { main: Arc::clone(self), wakeup, depth: Cell::new(0) }));
            }
            thread::current().id()
        };
        *self.thread.get_or_init(begin) == thread::current().id()
    }

    /// How long requests wait at most.
    pub fn wait_max(&self) -> Duration {
        self.wait_max
    }

    /// Lets the main thread serve a request. Too many are refused.
    pub fn submit(&self, job: Job) {
        let mut queue = self.lock();
        if queue.is_ended || queue.waiting.len() >= MAIN_THREAD_REQUESTS_MAX {
            drop(queue);
            return job.refuse();
        }
        queue.waiting.push_back((Instant::now() + self.wait_max, job));
        drop(queue);
        self.changed.notify_one();
        self.wakeup.get().into_iter().for_each(|wakeup| wakeup.wake());
    }

    /// Refuses requests that have waited too long.
    pub fn refuse_late(&self, now: Instant) {
        let mut queue = self.lock();
        let count = queue.waiting.iter().take_while(|(until, _)| *until <= now).count();
        let late: Vec<Job> = queue.waiting.drain(..count).map(|(_, job)| job).collect();
        drop(queue);
        late.into_iter().for_each(|job| job.refuse());
    }

    /// When the next one will have waited too long.
    pub fn next_late(&self) -> Option<Instant> {
        self.lock().waiting.front().map(|(until, _)| *until)
    }

    /// Whether a request waits.
    pub fn has_work(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Serves a request, if one waits and this is the main thread.
    pub fn perform(self: &Arc<Self>) {
        if self.enter() {
            self.refuse_late(Instant::now());
            let next = self.lock().waiting.pop_front();
            next.into_iter().for_each(|(_, job)| job.serve());
        }
    }

    /// Serves requests until the ORB ends, if this is the main thread.
    pub fn run(self: &Arc<Self>) {
        if !self.enter() {
            return;
        }
        loop {
            let queue = self.lock();
            let is_idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.is_ended;
            let queue = self.changed.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
            if queue.is_ended {
                return;
            }
            drop(queue);
            self.perform();
        }
    }

    /// No request is served any more.
    pub fn end(&self) {
        let mut queue = self.lock();
        queue.is_ended = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        self.changed.notify_all();
        waiting.into_iter().for_each(|(_, job)| job.refuse());
    }
}

/// What the main thread does while it waits for a reply.
struct InCalls {
    main: Arc<MainThread>,
    wakeup: Arc<Wakeup>,
    /// How many requests it serves, each within the one before.
    depth: Cell<usize>,
}

impl Meanwhile for InCalls {
    fn may_work(&self) -> bool {
        self.depth.get() < NESTED_MAX && !self.main.lock().is_ended
    }

    fn begin(&self) {}

    fn when_readable(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }

    fn next_event(&self, _: Instant) -> Option<Duration> {
        self.main.has_work().then_some(Duration::ZERO)
    }

    fn work(&self) {
        self.wakeup.clear();
        self.depth.set(self.depth.get() + 1);
        self.main.perform();
        self.depth.set(self.depth.get() - 1);
    }
}

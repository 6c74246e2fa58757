//! Requests for adapters whose servants run in the application's main thread (CORBA 11.3.8.1: `MAIN_THREAD_MODEL`).
//!
//! The main thread is the one that calls [`Orb::run`](crate::Orb::run) or [`Orb::perform_work`](crate::Orb::perform_work)
//! first. Threads that read requests hand over those for such adapters, whole. The main thread calls the servants, one
//! by one, and gives the replies to whoever sends them. What has waited too long is refused with `TRANSIENT`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::counted::Mutex;
use crate::limits::MAIN_THREAD_REQUESTS_MAX;

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
        Self { thread: OnceLock::new(), queue: Mutex::default(), changed: Condvar::new(), wait_max }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the main thread.
    pub fn is_here(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    /// This is the main thread, if there was none. Whether it is.
    fn enter(&self) -> bool {
        *self.thread.get_or_init(|| thread::current().id()) == thread::current().id()
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
    pub fn perform(&self) {
        if self.enter() {
            self.refuse_late(Instant::now());
            let next = self.lock().waiting.pop_front();
            next.into_iter().for_each(|(_, job)| job.serve());
        }
    }

    /// Serves requests until the ORB ends, if this is the main thread.
    pub fn run(&self) {
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

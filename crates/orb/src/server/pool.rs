//! Threads that call servants, as many as configured, and the requests that wait for them.
//!
//! The reactor reads requests and queues them; a thread of the pool serves each and sends its reply. Whoever
//! finds the pool full, or has waited too long, is answered `TRANSIENT` by the reactor, which never waits. So
//! servants that wait for each other through clients get an answer, too.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use punctual_giop::characters::CharacterSet;
use punctual_giop::message::RequestId;
use punctual_giop::{ByteOrder, Encoder, Version};

use super::STACK_BYTES;
use super::bell::Bell;
use super::connection::Connection;
use super::held::Held;
use crate::answer::{Answer, answer, give_back_memory, refuse_request};
use crate::budget::HeldMessage;
use crate::core::Core;
use crate::counted::Mutex;
use crate::exception::no_thread;
use crate::main_thread_request;
use crate::options::Pool as Configured;

/// A request.
#[derive(Debug)]
pub(super) struct Job {
    pub connection: Arc<Connection>,
    pub message: HeldMessage,
    pub id: RequestId,
    /// The code set of its strings.
    pub characters: CharacterSet,
}

#[derive(Debug, Default)]
struct Queue {
    /// Each with the moment when it has waited too long: the first waits longest.
    waiting: VecDeque<(Instant, Job)>,
    held: Vec<(Held, Job)>,
    /// Those that are being served: of which connection, and whether nobody awaits the reply any more.
    running: Vec<Running>,
    is_closed: bool,
}

/// A request that is being served.
#[derive(Debug)]
struct Running {
    connection: u64,
    id: RequestId,
    is_cancelled: bool,
}

impl Running {
    fn is(&self, connection: u64, id: RequestId) -> bool {
        self.connection == connection && self.id == id
    }
}

/// The threads, and what waits for them.
#[derive(Debug)]
pub(super) struct Pool {
    core: Arc<Core>,
    bell: Arc<Bell>,
    threads: usize,
    waiting_max: usize,
    wait_max: Duration,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Lets the main thread serve a request. The reactor looks for how long it waits.
pub(super) fn hand_over(core: &Core, bell: &Arc<Bell>, job: Job) {
    let Job { connection, message, characters, .. } = job;
    let of_answers = Arc::clone(bell);
    let answers = Box::new(move |bytes: &[u8]| connection.reply(bytes, &of_answers));
    main_thread_request::hand_over(&core.registry, message.into(), characters, answers);
    bell.ring();
}

impl Pool {
    /// Starts the threads.
    pub fn start(
        core: &Arc<Core>,
        bell: &Arc<Bell>,
        configured: &Configured,
    ) -> std::io::Result<(Arc<Self>, Vec<JoinHandle<()>>)> {
        let pool = Arc::new(Self {
            core: Arc::clone(core),
            bell: Arc::clone(bell),
            threads: configured.threads.get(),
            waiting_max: configured.waiting_max,
            wait_max: configured.wait_max,
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        let start = |_| {
            let of_thread = Arc::clone(&pool);
            let builder = thread::Builder::new().name("punctual-pool".to_owned()).stack_size(STACK_BYTES);
            builder.spawn(move || of_thread.run())
        };
        let threads = (0..pool.threads).map(start).collect::<std::io::Result<Vec<_>>>();
        match threads {
            Ok(threads) => Ok((pool, threads)),
            Err(error) => {
                pool.close();
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a thread serve a request. The job comes back if there is no place for it.
    pub fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.lock();
        let is_full =
            queue.running.len() + queue.waiting.len() >= self.threads.saturating_add(self.waiting_max);
        if queue.is_closed || is_full {
            return Err(job);
        }
        queue.waiting.push_back((Instant::now() + self.wait_max, job));
        drop(queue);
        self.changed.notify_one();
        Ok(())
    }

    /// The client does not wait for this request any more. If it was not begun, it is not served; else its reply is not
    /// sent.
    pub fn cancel(&self, connection: u64, id: RequestId) {
        let is_other = |job: &Job| job.connection.number != connection || job.id != id;
        let mut queue = self.lock();
        queue.waiting.retain(|(_, job)| is_other(job));
        queue.held.retain(|(_, job)| is_other(job));
        let running = queue.running.iter_mut().filter(|one| one.is(connection, id));
        running.for_each(|one| one.is_cancelled = true);
    }

    /// Whether the client of this request, which is being served, does not wait any more.
    fn is_cancelled(&self, job: &Job) -> bool {
        let queue = self.lock();
        queue.running.iter().any(|one| one.is(job.connection.number, job.id) && one.is_cancelled)
    }

    /// Requests that have waited too long. Those whose adapter does not hold them any more go to a thread.
    pub fn expire(&self, now: Instant) -> Vec<Job> {
        let mut queue = self.lock();
        let count = queue.waiting.iter().take_while(|(until, _)| *until <= now).count();
        let mut late: Vec<Job> = queue.waiting.drain(..count).map(|(_, job)| job).collect();
        let is_over = |(held, _): &mut (Held, Job)| held.is_over(now);
        for (held, job) in queue.held.extract_if(.., is_over).collect::<Vec<_>>() {
            if held.is_late(now) {
                late.push(job);
            } else {
                queue.waiting.push_back((now + self.wait_max, job));
                self.changed.notify_one();
            }
        }
        late
    }

    /// When the next one will have waited too long.
    pub fn next_late(&self) -> Option<Instant> {
        let queue = self.lock();
        let next_waiting = queue.waiting.front().map(|(until, _)| *until);
        let next_held = queue.held.iter().map(|(held, _)| held.until).min();
        next_waiting.into_iter().chain(next_held).min()
    }

    /// No request is served any more, except those that were begun.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.waiting.clear();
        queue.held.clear();
        drop(queue);
        self.changed.notify_all();
    }

    /// Waits until none is being served: at most so long.
    pub fn wait_until_idle(&self, timeout: Duration) {
        let queue = self.lock();
        let waited = self.changed.wait_timeout_while(queue, timeout, |queue| !queue.running.is_empty());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some((_, job)) = queue.waiting.pop_front() {
                let (connection, id) = (job.connection.number, job.id);
                queue.running.push(Running { connection, id, is_cancelled: false });
                return Some(job);
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self) {
        crate::duty::never_wait_for_adapters();
        let mut outbox = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        while let Some(job) = self.next() {
            let (connection, id) = (job.connection.number, job.id);
            self.serve(job, &mut outbox);
            let mut queue = self.lock();
            if let Some(at) = queue.running.iter().position(|one| one.is(connection, id)) {
                queue.running.swap_remove(at);
            }
            let is_last = queue.is_closed && queue.running.is_empty();
            drop(queue);
            if is_last {
                self.changed.notify_all();
            }
        }
    }

    fn serve(&self, job: Job, outbox: &mut Encoder) {
        if self.core.registry.wants_main_thread(job.message.whole()) {
            return hand_over(&self.core, &self.bell, job);
        }
        outbox.set_characters(job.characters);
        let send = |bytes: &[u8]| job.connection.reply(bytes, &self.bell);
        match answer(&self.core.registry, job.message.whole(), outbox, &mut |bytes| send(bytes)) {
            Answer::Done(_) if self.is_cancelled(&job) => {}
            Answer::Done(_) => send(outbox.as_bytes()),
            Answer::End => {
                send(outbox.as_bytes());
                job.connection.stream.shutdown();
            }
            Answer::Held(manager) => self.hold(Held::by(manager), job, outbox),
        }
        give_back_memory(outbox);
    }

    /// Keeps a request until its adapter lets it pass, if there is a place.
    fn hold(&self, held: Held, job: Job, outbox: &mut Encoder) {
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        if queue.held.len() < self.waiting_max {
            queue.held.push((held, job));
            drop(queue);
            // The reactor looks for how long; the adapter's state may have changed before this.
            return self.bell.ring();
        }
        drop(queue);
        refuse_request(job.message.whole(), outbox, &no_thread());
        job.connection.reply(outbox.as_bytes(), &self.bell);
    }
}

//! Commands of other threads to the processor, and their answers.
//!
//! The processor runs at a real-time priority and must never wait for a thread that does not. It only tries
//! the queue's lock (a thread that holds the lock rings the doorbell after releasing it), and answers through
//! a cell that is written once. `std::sync::mpsc` would spin on a sender that was pre-empted half-way.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};

use punctual_os::wait::Doorbell;
use punctual_proto::Instant;

use crate::error::EngineGone;

/// Work that `P`, the processor, does on its thread.
pub(crate) type Command<P> = Box<dyn FnOnce(&mut P, Instant) + Send>;

/// Commands on their way to one processor.
pub(crate) struct CommandQueue<P> {
    /// `None` once the processor is gone.
    waiting: Mutex<Option<VecDeque<Command<P>>>>,
    doorbell: Doorbell,
}

impl<P> CommandQueue<P> {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { waiting: Mutex::new(Some(VecDeque::new())), doorbell: Doorbell::new()? })
    }

    /// Doorbell that rings when a command waits.
    pub const fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    pub fn push(&self, command: Command<P>) -> Result<(), EngineGone> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.as_mut().ok_or(EngineGone)?.push_back(command);
        drop(waiting);
        self.doorbell.ring();
        Ok(())
    }

    /// The next command; `None` if there is none, or where another thread is just adding one and will ring.
    pub fn try_pop(&self) -> Option<Command<P>> {
        match self.waiting.try_lock() {
            Ok(mut waiting) => waiting.as_mut()?.pop_front(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().as_mut()?.pop_front(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Closes the queue: there will be no more answers, and every waiting thread gets an error.
    pub fn close(&self) {
        let dropped = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(dropped);
    }
}

/// Place where an answer will be.
struct Slot<R> {
    /// `None` inside: the command was dropped without an answer.
    answer: OnceLock<Mutex<Option<R>>>,
    asker: Thread,
}

/// The asking side.
pub(crate) struct Reply<R>(Arc<Slot<R>>);

/// The answering side. Dropping it without an answer gives the asking side an error.
pub(crate) struct Answer<R>(Arc<Slot<R>>);

/// The two sides of one question of the calling thread.
pub(crate) fn question<R>() -> (Answer<R>, Reply<R>) {
    let slot = Arc::new(Slot { answer: OnceLock::new(), asker: thread::current() });
    (Answer(Arc::clone(&slot)), Reply(slot))
}

impl<R> Answer<R> {
    pub fn send(self, answer: R) {
        self.put(Some(answer));
    }
    fn put(&self, answer: Option<R>) {
        // An error means that it was answered: what `drop` finds after `send`.
        let _ = self.0.answer.set(Mutex::new(answer));
        self.0.asker.unpark();
    }
}

impl<R> Drop for Answer<R> {
    fn drop(&mut self) {
        if self.0.answer.get().is_none() {
            self.put(None);
        }
    }
}

impl<R> Reply<R> {
    /// Waits for the answer, on the thread that sent the command.
    pub fn wait(self) -> Result<R, EngineGone> {
        loop {
            if let Some(answer) = self.0.answer.get() {
                return answer.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(EngineGone);
            }
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_and_a_dropped_one_is_an_error() {
        let (answer, reply) = question();
        let answering = thread::spawn(move || answer.send(42));
        assert_eq!(reply.wait(), Ok(42));
        answering.join().expect("no panic");
        let (answer, reply) = question::<u32>();
        let dropping = thread::spawn(move || drop(answer));
        assert_eq!(reply.wait(), Err(EngineGone));
        dropping.join().expect("no panic");
    }
}

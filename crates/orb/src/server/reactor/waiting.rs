//! What waits for a time: requests for their adapter or for a thread, and messages for their rest.

use std::time::Instant;

use super::clients::await_clients;
use super::{Entry, Next, Reactor};
use crate::answer::{give_back_memory, refuse_request};
use crate::exception::{held_too_long, no_thread};

impl Reactor {
    /// A part of a message may be there, or of a reply taken: the rest has a deadline.
    pub(super) fn owes(&self, entry: &Entry) {
        let Some(owed) = entry.owed else { return };
        self.owing.borrow_mut().insert(entry.connection.number);
        let first = self.owed_first.get().map_or(owed, |first| first.min(owed));
        self.owed_first.set(Some(first));
    }

    /// Ends connections that have owed the rest of a message for too long, or have not taken a reply.
    fn look_at_owing(&self, now: Instant) {
        if self.owed_first.get().is_none_or(|first| first > now) {
            return;
        }
        self.owed_first.set(None);
        let owing = std::mem::take(&mut *self.owing.borrow_mut());
        for number in owing {
            let owed = self.entries.borrow().get(&number).and_then(|entry| entry.owed);
            match owed {
                None => {}
                Some(owed) if owed <= now => self.serve(number),
                Some(_) => {
                    if let Some(entry) = self.entries.borrow().get(&number) {
                        self.owes(entry);
                    }
                }
            }
        }
    }

    /// Requests that wait for their adapter, or for a thread.
    pub(super) fn look_at_waiting(&self) {
        let now = Instant::now();
        self.look_at_owing(now);
        self.core.registry.main.refuse_late(now);
        if self.accepts_again.get().is_some_and(|again| again <= now) {
            self.accepts_again.set(None);
            if await_clients(&self.epoll, &self.listeners).is_err() {
                self.pause();
            }
        }
        let is_over = |number: &mut u64| {
            let entries = self.entries.borrow();
            entries.get(number).and_then(|entry| entry.held.as_ref()).is_none_or(|held| held.is_over(now))
        };
        let over: Vec<u64> = self.held.borrow_mut().extract_if(.., is_over).collect();
        over.into_iter().for_each(|number| self.resume(number, now));
        let Some(pool) = &self.pool else { return };
        let late = pool.expire(now);
        let mut outbox = self.take_outbox();
        for job in late {
            refuse_request(job.message.whole(), &mut outbox, &no_thread());
            job.connection.reply(outbox.as_bytes(), &self.bell);
        }
        self.outbox.set(Some(outbox));
    }

    /// A request need not wait for its adapter any more.
    fn resume(&self, number: u64, now: Instant) {
        let Some(mut entry) = self.entries.borrow_mut().remove(&number) else { return };
        let is_late = entry.held.take().is_some_and(|held| held.is_late(now));
        let mut outbox = self.take_outbox();
        let next = if is_late {
            let message = entry.inbox.take_message();
            self.refuse(message.whole(), &entry, &mut outbox, &held_too_long())
        } else {
            self.answer(&mut entry, &mut outbox)
        };
        give_back_memory(&mut outbox);
        self.outbox.set(Some(outbox));
        if next == Next::End {
            return self.forget(&entry.connection);
        }
        self.unfinished.borrow_mut().push_back(number);
        self.put_back(entry);
    }
}

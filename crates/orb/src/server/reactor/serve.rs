//! What a connection sends is read, and answered here or by a thread of the pool.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use punctual_giop::reassembly::Whole;
use punctual_giop::{Encoder, SystemException};

use super::super::held::Held;
use super::super::pool::{Job, hand_over};
use super::{Entry, Next, Reactor};
use crate::answer::{Answer, Kind, answer, give_back_memory, kind, refuse_bytes, refuse_request};
use crate::exception::no_thread;
use crate::limits::{MESSAGES_PER_TURN, NESTED_MAX};
use crate::tick::tick;
use crate::transport::Deadline;

fn is_over(deadline: Deadline) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

impl Reactor {
    /// Something happened on a connection.
    pub(super) fn serve(&self, number: u64) {
        let Some(mut entry) = self.entries.borrow_mut().remove(&number) else { return };
        match self.serve_entry(&mut entry) {
            Next::Keep => self.put_back(entry),
            Next::Adopt => self.adopt(entry),
            Next::End => self.forget(&entry.connection),
        }
        self.free_ended();
    }

    /// Frees the memory of connections that were ended because others needed it.
    pub(super) fn free_ended(&self) {
        if !self.core.budget.take_has_ended() {
            return;
        }
        let is_ended = |_: &u64, entry: &mut Entry| entry.inbox.is_ended() || entry.connection.is_ended();
        let ended: Vec<(u64, Entry)> = self.entries.borrow_mut().extract_if(is_ended).collect();
        ended.iter().for_each(|(_, entry)| self.forget(&entry.connection));
    }

    fn serve_entry(&self, entry: &mut Entry) -> Next {
        match entry.connection.flush() {
            Ok(true) => {}
            Ok(false) if is_over(entry.connection.owed()) => return Next::End,
            Ok(false) => return Next::Keep,
            Err(_) => return Next::End,
        }
        if entry.held.is_some() {
            return Next::Keep;
        }
        for _ in 0..MESSAGES_PER_TURN {
            match entry.inbox.poll(&entry.connection.stream) {
                Ok(Some(true)) => {}
                Ok(None) => {
                    entry.inbox.rest();
                    entry.owed = entry.inbox.owed();
                    self.owes(entry);
                    return Next::Keep;
                }
                Ok(Some(false)) => return Next::End,
                Err(error) => {
                    if error.kind() == io::ErrorKind::InvalidData {
                        let mut outbox = self.take_outbox();
                        refuse_bytes(&mut outbox);
                        // The connection ends all the same; nobody waits for its client.
                        let _ = entry.connection.send(outbox.as_bytes());
                        self.outbox.set(Some(outbox));
                    }
                    return Next::End;
                }
            }
            entry.owed = None;
            if entry.offer.is_accepted(&self.core, &entry.inbox) {
                return Next::Adopt;
            }
            if self.message(entry) == Next::End {
                return Next::End;
            }
            if entry.held.is_some() || entry.connection.has_unsent() {
                return Next::Keep;
            }
        }
        self.unfinished.borrow_mut().push_back(entry.connection.number);
        Next::Keep
    }

    /// Does what the message in the inbox asks for, or lets a thread of the pool do it.
    fn message(&self, entry: &mut Entry) -> Next {
        let mut outbox = self.take_outbox();
        let is_deep = self.served.borrow().len() > NESTED_MAX;
        let wants_main = self.pool.is_none() && self.core.registry.wants_main_thread(entry.inbox.message());
        let kind = match self.pool.is_some() || is_deep || wants_main {
            true => kind(entry.inbox.message(), &mut entry.characters),
            false => Kind::Other,
        };
        let next = match (&self.pool, kind) {
            (Some(pool), Kind::Request(id)) => {
                let job = Job {
                    connection: Arc::clone(&entry.connection),
                    message: entry.inbox.take_message(),
                    id,
                    characters: entry.characters,
                };
                match pool.submit(job) {
                    Ok(()) => Next::Keep,
                    Err(job) => self.refuse(job.message.whole(), entry, &mut outbox, &no_thread()),
                }
            }
            (Some(pool), Kind::Cancel(id)) => {
                pool.cancel(entry.connection.number, id);
                Next::Keep
            }
            (None, Kind::Request(id)) if wants_main => {
                let (connection, characters) = (Arc::clone(&entry.connection), entry.characters);
                let message = entry.inbox.take_message();
                hand_over(&self.core, &self.bell, Job { connection, message, id, characters });
                Next::Keep
            }
            (None, Kind::Request(_)) => {
                let message = entry.inbox.take_message();
                self.refuse(message.whole(), entry, &mut outbox, &no_thread())
            }
            _ => self.answer(entry, &mut outbox),
        };
        give_back_memory(&mut outbox);
        self.outbox.set(Some(outbox));
        next
    }

    pub(super) fn answer(&self, entry: &mut Entry, outbox: &mut Encoder) -> Next {
        outbox.set_characters(entry.characters);
        self.served.borrow_mut().push(Arc::clone(&entry.connection));
        let mut send = |bytes: &[u8]| {
            if entry.connection.send(bytes).is_err() {
                entry.connection.stream.shutdown();
            }
        };
        let begun = tick();
        let answered = answer(&self.core.registry, entry.inbox.message(), outbox, &mut send);
        self.served.borrow_mut().pop();
        entry.characters = outbox.characters();
        if let Answer::Done(Some(id)) = answered {
            // Who asked may not wait any more. The socket is looked at only where the servant took long.
            let stream = (begun != tick()).then_some(&*entry.connection.stream);
            if entry.inbox.is_cancelled(id, stream) {
                outbox.clear();
            }
        }
        match answered {
            Answer::Held(manager) => {
                entry.held = Some(Held::by(manager));
                self.held.borrow_mut().push(entry.connection.number);
                // The manager may have changed before this.
                self.bell.ring();
            }
            Answer::Done(_) if entry.connection.send(outbox.as_bytes()).is_ok() => {}
            Answer::End => {
                // The connection ends all the same.
                let _ = entry.connection.send(outbox.as_bytes());
                return Next::End;
            }
            Answer::Done(_) => return Next::End,
        }
        Next::Keep
    }

    pub(super) fn refuse(
        &self,
        message: Whole<'_>,
        entry: &Entry,
        outbox: &mut Encoder,
        why: &SystemException,
    ) -> Next {
        refuse_request(message, outbox, why);
        if entry.connection.send(outbox.as_bytes()).is_ok() { Next::Keep } else { Next::End }
    }
}

//! A connection of asynchronous calls: requests of all threads, and one thread that reads replies.
//!
//! Locks are held for short times only, and never while an outcome is given to its caller. A request that has
//! reached its deadline gets its outcome from the reader, which wakes for it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::message::{self, Message, RequestId};
use punctual_giop::{
    ByteOrder, Completion, Encoder, Reference, SystemException, SystemExceptionKind as Kind, Version,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::OwnedFd;

use crate::call::{Call, Step, characters, step};
use crate::contexts::Contexts;
use crate::counted::Mutex;
use crate::exception::communication;
use crate::inbox::Inbox;
use crate::outcome::Outcome;
use crate::transport::{Deadline, Endpoint, Stream};

/// What is done with the outcome of a call.
pub(crate) type Done = Box<dyn FnOnce(Outcome<'_>) + Send>;

/// What is done if the object is elsewhere.
pub(crate) type Forwarded = Box<dyn FnOnce(Reference, Done) + Send>;

/// A request whose reply is awaited.
pub(crate) struct Sent {
    pub done: Done,
    pub forwarded: Forwarded,
    pub deadline: Deadline,
    /// Takes the contexts of the reply.
    pub received: Option<Contexts>,
}

#[derive(Default)]
struct Waiting {
    sent: HashMap<RequestId, Sent>,
    is_closed: bool,
}

struct Outbox {
    encoder: Encoder,
    last_id: u32,
    /// What the first request tells the server.
    chosen: Option<Chosen>,
}

/// A connection of many callers.
pub(crate) struct Shared {
    stream: Stream,
    outbox: Mutex<Outbox>,
    waiting: Mutex<Waiting>,
    /// Of strings.
    characters: CharacterSet,
    /// Wakes the reader.
    bell: OwnedFd,
}

impl Shared {
    /// Connects, and starts the reader.
    pub fn open(
        endpoint: &Endpoint,
        version: Version,
        chosen: Option<Chosen>,
        message_bytes_max: usize,
        deadline: Deadline,
    ) -> io::Result<Arc<Self>> {
        let stream = Stream::connect(endpoint, deadline)?;
        let mut encoder = Encoder::new(ByteOrder::NATIVE, version);
        encoder.set_characters(characters(chosen));
        let shared = Arc::new(Self {
            stream,
            outbox: Mutex::new(Outbox { encoder, last_id: 0, chosen }),
            waiting: Mutex::default(),
            characters: characters(chosen),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let reader = Arc::clone(&shared);
        let name = "punctual-reply".to_owned();
        thread::Builder::new().name(name).spawn(move || reader.run(Inbox::new(message_bytes_max)))?;
        Ok(shared)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request. Without success the caller gets back what it gave.
    pub fn send(&self, call: &Call<'_>, sent: Sent) -> Result<(), (SystemException, Option<Sent>)> {
        let has_deadline = sent.deadline.is_some();
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.last_id = outbox.last_id.wrapping_add(1);
        let id = RequestId(outbox.last_id);
        outbox.encoder.clear();
        let chosen = outbox.chosen.filter(|_| id.0 == 1).map(Chosen::to_context);
        if let Err(exception) = call.encode(id, chosen.as_ref(), &mut outbox.encoder) {
            return Err((exception, Some(sent)));
        }
        {
            let mut waiting = self.waiting();
            if waiting.is_closed {
                let exception = SystemException::new(Kind::Transient, 0, Completion::No);
                return Err((exception, Some(sent)));
            }
            waiting.sent.insert(id, sent);
        }
        if let Err(error) = self.stream.write(outbox.encoder.as_bytes(), &[]) {
            self.stream.shutdown();
            return Err((communication(&error, false), self.waiting().sent.remove(&id)));
        }
        drop(outbox);
        if has_deadline {
            self.ring();
        }
        Ok(())
    }

    /// Whether a request cannot be sent any more.
    pub fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    /// Ends the connection, and with it the reader.
    pub fn close(&self) {
        self.stream.shutdown();
    }

    fn ring(&self) {
        // It fails only if it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn run(&self, mut inbox: Inbox) {
        let end = self.read(&mut inbox);
        self.stream.shutdown();
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        let sent: Vec<Sent> = waiting.sent.drain().map(|(_, sent)| sent).collect();
        drop(waiting);
        sent.into_iter().for_each(|sent| (sent.done)(Outcome::System(end)));
    }

    /// Reads replies until the connection ends: what those get that still wait.
    fn read(&self, inbox: &mut Inbox) -> SystemException {
        let lost = |error: io::Error| communication(&error, true);
        loop {
            match inbox.poll(&self.stream) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return lost(io::ErrorKind::UnexpectedEof.into()),
                Ok(None) => {
                    self.expire();
                    if let Err(error) = self.sleep() {
                        return lost(error);
                    }
                    continue;
                }
                Err(error) => return lost(error),
            }
            match Message::read(inbox.message()) {
                Ok(Message::Reply(reply, mut body)) => {
                    body.set_characters(self.characters);
                    self.settle(&reply, body);
                }
                Ok(Message::CloseConnection) => {
                    return SystemException::new(Kind::Transient, 0, Completion::No);
                }
                Ok(Message::LocateReply(..) | Message::CancelRequest(_)) => {}
                Ok(_) => return SystemException::new(Kind::CommFailure, 0, Completion::Maybe),
                Err(_) => return SystemException::new(Kind::Marshal, 0, Completion::Maybe),
            }
        }
    }

    /// Gives an outcome to whom it is for. A reply that nobody awaits is dropped.
    fn settle(&self, reply: &message::Reply<'_>, body: punctual_giop::Decoder<'_>) {
        let Some(sent) = self.waiting().sent.remove(&reply.id) else { return };
        sent.received.iter().for_each(|received| received.receive(&reply.contexts));
        let mut done = Some(sent.done);
        let mut read = |outcome: Outcome<'_>| {
            if let Some(done) = done.take() {
                done(outcome);
            }
        };
        let step = step(reply.status, body, &mut read);
        let Some(done) = done else { return };
        match step {
            Ok(Step::Forward(to)) => (sent.forwarded)(to, done),
            Ok(Step::Done) => {}
            Err(failure) => done(Outcome::System(failure.exception)),
        }
    }

    /// Ends requests whose deadline has passed.
    fn expire(&self) {
        let now = Instant::now();
        let is_over = |sent: &Sent| sent.deadline.is_some_and(|deadline| deadline <= now);
        let mut waiting = self.waiting();
        let over: Vec<RequestId> =
            waiting.sent.iter().filter(|(_, sent)| is_over(sent)).map(|(id, _)| *id).collect();
        let over: Vec<(RequestId, Sent)> =
            over.into_iter().filter_map(|id| waiting.sent.remove(&id).map(|sent| (id, sent))).collect();
        drop(waiting);
        for (id, sent) in over {
            self.cancel(id);
            let exception = SystemException::new(Kind::Timeout, 0, Completion::Maybe);
            (sent.done)(Outcome::System(exception));
        }
    }

    fn cancel(&self, id: RequestId) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.encoder.clear();
        if message::write_cancel_request(id, &mut outbox.encoder).is_ok() {
            // A broken connection is found by the reader.
            let _ = self.stream.write(outbox.encoder.as_bytes(), &[]);
        }
    }

    /// Sleeps until bytes come, a request with a deadline is sent, or the first deadline.
    fn sleep(&self) -> io::Result<()> {
        let first = self.waiting().sent.values().filter_map(|sent| sent.deadline).min();
        let left = first.map(|first| first.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN), PollFd::new(&self.bell, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Nothing to read is no failure: the stream woke it, or the time.
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8][..]);
        Ok(())
    }
}

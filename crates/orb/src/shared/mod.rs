//! A connection of many callers: requests of all threads, and one thread that reads.
//!
//! Asynchronous calls have one. Where both ends of a connection call (`duplex`), blocking calls have it too, and
//! the requests of the other end are served on threads of their own: a servant may call back meanwhile.
//!
//! Locks are held for short times only, and never while an outcome is given to its caller. A request that has
//! reached its deadline gets its outcome from the reader, which wakes for it.

mod awaits;

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use punctual_giop::characters::CharacterSet;
use punctual_giop::connection::{Action, Event, RequestIds, Role};
use punctual_giop::message::{self, Message, RequestId};
use punctual_giop::reassembly::Whole;
use punctual_giop::{
    ByteOrder, Completion, Encoder, SystemException, SystemExceptionKind as Kind, Tagged, Version,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::budget::HeldMessage;
use crate::call::{Call, Failure, Step, reply_step};
use crate::counted::Mutex;
use crate::duty::{wakeup_for_work, work_until_readable};
use crate::exception::communication;
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::limits::LAST_MESSAGE_WITHIN;
use crate::outcome::Outcome;
use crate::served::Served;
use crate::session::{Session, unanswered};
use crate::transport::{Deadline, Stream};
use crate::turns::{Turn, Turns};
use crate::wakeup::Wakeup;

use awaits::Waiter;
pub(crate) use awaits::{Again, Awaits, Done, Redirect, Sent};

#[derive(Default)]
struct Waiting {
    sent: HashMap<RequestId, Sent>,
    is_closed: bool,
}

/// What the first request of a connection tells the other end.
pub(crate) type First = Vec<(u32, Vec<u8>)>;

/// Where messages are written, one at a time.
struct Outbox {
    encoder: Encoder,
    ids: RequestIds,
    first: First,
    /// How long one write may wait, as the socket has it.
    write_timeout: Option<Duration>,
}

/// How a connection is begun.
pub(crate) struct Opening {
    pub version: Version,
    pub ids: RequestIds,
    pub first: First,
    /// Of strings in the requests of this end.
    pub characters: CharacterSet,
    pub framing: Framing,
    /// What serves the requests of the other end, if it may send some.
    pub served: Option<Arc<Served>>,
}

/// A connection of many callers.
pub(crate) struct Shared {
    stream: Arc<Stream>,
    outbox: Turns<Box<Outbox>>,
    waiting: Mutex<Waiting>,
    characters: CharacterSet,
    framing: Framing,
    served: Option<Arc<Served>>,
    reader: OnceLock<ThreadId>,
    /// Wakes the reader.
    wakeup: Wakeup,
}

impl Shared {
    /// Has this stream. Somebody must [`Shared::run`] it.
    pub fn new(stream: Arc<Stream>, opening: Opening) -> io::Result<Arc<Self>> {
        let Opening { version, ids, first, characters, framing, served } = opening;
        let mut encoder = Encoder::new(ByteOrder::NATIVE, version);
        encoder.set_characters(characters);
        Ok(Arc::new(Self {
            stream,
            outbox: Turns::new(Box::new(Outbox { encoder, ids, first, write_timeout: None })),
            waiting: Mutex::default(),
            characters,
            framing,
            served,
            reader: OnceLock::new(),
            wakeup: Wakeup::new()?,
        }))
    }

    /// Starts a reader.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let reader = Arc::clone(self);
        let inbox = Inbox::new(self.framing);
        let name = "punctual-reply".to_owned();
        thread::Builder::new().name(name).spawn(move || reader.run(inbox)).map(drop)
    }

    /// Whether this thread reads its replies, and must not wait for one.
    pub fn is_read_here(&self) -> bool {
        self.reader.get() == Some(&thread::current().id())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, whose reply is awaited or not. Without success the caller gets back what it gave.
    pub fn send(
        &self,
        call: &Call<'_>,
        deadline: Deadline,
        sent: Option<Sent>,
    ) -> Result<RequestId, (SystemException, Option<Sent>)> {
        let has_deadline = sent.as_ref().is_some_and(|sent| sent.deadline.is_some());
        let mut outbox = match self.outbox.take(deadline) {
            Ok(outbox) => outbox,
            Err(error) => return Err((communication(&error, false), sent)),
        };
        let id = self.next_id(&mut outbox);
        let Outbox { encoder, first, write_timeout, .. } = &mut **outbox;
        encoder.clear();
        let contexts: Vec<Tagged<'_>> = first.iter().map(|(id, data)| Tagged { id: *id, data }).collect();
        if let Err(exception) = call.encode(id, &contexts, encoder) {
            return Err((exception, sent));
        }
        {
            let mut waiting = self.waiting();
            if waiting.is_closed {
                return Err((SystemException::new(Kind::Transient, 0, Completion::No), sent));
            }
            if let Some(sent) = sent {
                waiting.sent.insert(id, sent);
            }
        }
        let deadline = self.limited(encoder.as_bytes().len(), deadline);
        let written = self.framing.send_until(&self.stream, encoder.as_bytes(), deadline, write_timeout);
        if let Err(error) = written {
            // Before the reader finds the connection closed: it knows another reason.
            let back = self.waiting().sent.remove(&id);
            // A part of the message may be sent.
            self.stream.shutdown();
            return Err((communication(&error, false), back));
        }
        first.clear();
        drop(outbox);
        if has_deadline {
            self.wakeup.wake();
        }
        Ok(id)
    }

    /// A number that no request has whose reply is awaited.
    fn next_id(&self, outbox: &mut Outbox) -> RequestId {
        let waiting = self.waiting();
        loop {
            let id = outbox.ids.take();
            if !waiting.sent.contains_key(&id) {
                return id;
            }
        }
    }

    /// Calls, and waits for the reply: not in the thread that reads.
    pub fn call(
        &self,
        call: &Call<'_>,
        deadline: Deadline,
        read: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Step, Failure> {
        let unsent = |(exception, _): (SystemException, _)| {
            let may_repeat = exception.completed == Completion::No && self.is_closed();
            Failure { exception, may_repeat }
        };
        if !call.response.is_expected() {
            return self.send(call, deadline, None).map(|_| Step::Done).map_err(unsent);
        }
        let (sender, reply) = sync_channel(1);
        let wakeup = wakeup_for_work();
        let waiter = Waiter { reply: sender, wakeup: wakeup.clone() };
        let sent = Sent { awaits: Awaits::Thread(waiter), deadline, received: None };
        let id = self.send(call, deadline, Some(sent)).map_err(unsent)?;
        if let Some(wakeup) = wakeup {
            // The reader looks for the deadline.
            let _ = work_until_readable(&*wakeup, None);
        }
        let lost = || Failure::from(unanswered(Action::Fail));
        let whole = reply.recv().unwrap_or_else(|_| Err(lost()))?;
        let message = Message::read_whole(whole.whole()).map_err(|_| lost())?;
        call.receive_of(id, &message);
        reply_step(id, message, self.characters, read).unwrap_or_else(|| Err(lost()))
    }

    /// Sends a message that was written elsewhere.
    pub fn send_message(&self, bytes: &[u8], deadline: Deadline) -> io::Result<()> {
        let deadline = self.limited(bytes.len(), deadline);
        let mut outbox = self.outbox.take(deadline)?;
        let sent = self.framing.send_until(&self.stream, bytes, deadline, &mut outbox.write_timeout);
        if sent.is_err() {
            // A part of the message may be sent.
            self.stream.shutdown();
        }
        sent
    }

    /// Whether a request cannot be sent any more.
    pub fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    /// Ends the connection, and with it the reader. Where the other end calls too, it learns that its requests were not
    /// begun.
    pub fn close(&self) {
        if self.served.is_some() {
            self.say(message::write_close_connection);
        }
        self.stream.shutdown();
    }

    /// Reads until the connection ends.
    pub fn run(self: &Arc<Self>, mut inbox: Inbox) {
        let _ = self.reader.set(thread::current().id());
        let end = self.read(&mut inbox);
        self.waiting().is_closed = true;
        // Whoever sends may just be done with what this answers. Nobody begins to send any more.
        if end == Action::SendError
            && let Ok(outbox) = self.outbox.take(Some(Instant::now() + LAST_MESSAGE_WITHIN))
        {
            self.send_short(outbox, message::write_message_error);
        }
        self.stream.shutdown();
        let sent: Vec<Sent> = self.waiting().sent.drain().map(|(_, sent)| sent).collect();
        for sent in sent {
            let may_repeat = end == Action::Retry;
            match sent.awaits {
                Awaits::Later(done, again) if may_repeat => again(Redirect::Reconnect, done),
                Awaits::Later(done, _) => done(Outcome::System(unanswered(end))),
                Awaits::Thread(waits) => waits.give(Err(Failure { exception: unanswered(end), may_repeat })),
            }
        }
    }

    /// Reads until the connection ends: how it ends.
    fn read(self: &Arc<Self>, inbox: &mut Inbox) -> Action {
        let mut session = Session::new(if self.served.is_some() { Role::Both } else { Role::Client });
        loop {
            match inbox.poll(&self.stream) {
                Ok(Some(true)) => {}
                Ok(None) => {
                    self.expire();
                    match self.sleep(inbox.owed()) {
                        Ok(()) => continue,
                        Err(_) => return session.on(Event::Broken),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return session.on(Event::Malformed);
                }
                Ok(Some(false)) | Err(_) => return session.on(Event::Broken),
            }
            let whole = inbox.message();
            let mut is_request = false;
            match session.receive(whole) {
                (Action::Complete, Some(Message::Reply(reply, _))) => self.settle(reply.id, whole),
                (Action::Complete, Some(Message::LocateReply(reply, _))) => self.settle(reply.id, whole),
                (Action::Dispatch, Some(_)) => is_request = true,
                (Action::Cancel, Some(Message::CancelRequest(id))) => {
                    self.served.iter().for_each(|served| served.cancel(id));
                }
                (
                    Action::Ignore | Action::Drain | Action::Complete | Action::Dispatch | Action::Cancel,
                    _,
                ) => {}
                (end, _) => return end,
            }
            if is_request {
                self.dispatch(inbox.take_message());
            }
        }
    }

    /// Serves a request of the other end, if it may send some.
    pub fn dispatch(self: &Arc<Self>, request: HeldMessage) {
        let Some(served) = &self.served else { return };
        let shared = Arc::clone(self);
        // A broken connection is found by the reader.
        served.dispatch(request, move |bytes| _ = shared.send_message(bytes, None));
    }

    /// By when a message of so many bytes must be sent: a client that does not read holds no thread for ever.
    fn limited(&self, bytes: usize, deadline: Deadline) -> Deadline {
        let is_for_client = self.served.as_ref().is_some_and(|served| served.is_for_client());
        let limit = if is_for_client { self.framing.taken_by(bytes) } else { None };
        [deadline, limit].into_iter().flatten().min()
    }

    /// Gives an outcome to whom it is for. A reply that nobody awaits is dropped.
    fn settle(&self, id: RequestId, whole: Whole<'_>) {
        let Some(sent) = self.waiting().sent.remove(&id) else { return };
        let (done, again) = match sent.awaits {
            Awaits::Later(done, again) => (done, again),
            Awaits::Thread(waits) => return waits.give(Ok(whole.to_joined())),
        };
        let mut done = Some(done);
        let mut read = |outcome: Outcome<'_>| {
            if let Some(done) = done.take() {
                done(outcome);
            }
        };
        let Ok(message) = Message::read_whole(whole) else { return };
        if let (Some(received), Message::Reply(reply, _)) = (sent.received, &message) {
            received.receive(&reply.contexts);
        }
        let step = reply_step(id, message, self.characters, &mut read);
        let Some(done) = done else { return };
        match step {
            Some(Ok(Step::Forward(to))) => again(Redirect::Forward(to), done),
            Some(Ok(Step::Address(addressing))) => again(Redirect::Address(addressing), done),
            Some(Ok(Step::Done)) => {}
            Some(Err(failure)) => done(Outcome::System(failure.exception)),
            None => done(Outcome::System(unanswered(Action::Fail))),
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
            self.say(|to| message::write_cancel_request(id, to));
            let exception = SystemException::new(Kind::Timeout, 0, Completion::Maybe);
            match sent.awaits {
                Awaits::Later(done, _) => done(Outcome::System(exception)),
                Awaits::Thread(waits) => waits.give(Err(exception.into())),
            }
        }
    }

    /// Sends a short message, if nobody else sends and the socket takes it. Whoever says it does not wait: calls of others
    /// must end at their time.
    fn say(&self, write: impl FnOnce(&mut Encoder) -> Result<(), punctual_giop::Error>) {
        if let Some(outbox) = self.outbox.try_take() {
            self.send_short(outbox, write);
        }
    }

    fn send_short(
        &self,
        mut outbox: Turn<'_, Box<Outbox>>,
        write: impl FnOnce(&mut Encoder) -> Result<(), punctual_giop::Error>,
    ) {
        outbox.encoder.clear();
        if write(&mut outbox.encoder).is_ok() {
            let message = outbox.encoder.as_bytes();
            // A broken connection is found by the reader.
            let sent = self.stream.write_now(message).unwrap_or(0);
            if 0 < sent && sent < message.len() {
                // Nothing can follow a part of it.
                self.stream.shutdown();
            }
        }
    }

    /// Sleeps until bytes come, a request with a deadline is sent, or the first deadline.
    fn sleep(&self, owed: Deadline) -> io::Result<()> {
        let first = self.waiting().sent.values().filter_map(|sent| sent.deadline).chain(owed).min();
        let left = first.map(|first| first.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN), PollFd::new(&self.wakeup, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.wakeup.clear();
        Ok(())
    }
}

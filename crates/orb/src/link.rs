//! A connection that one caller has alone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use punctual_giop::codeset::Chosen;
use punctual_giop::connection::{Action, Event, RequestIds, Role};
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{self, RequestId};
use punctual_giop::{ByteOrder, Encoder, SystemException, Tagged, Version};

use crate::call::{Call, Failure, Step, characters, reply_step};
use crate::exception::communication;
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::long::LongMessage;
use crate::outcome::Outcome;
use crate::session::{Session, unanswered};
use crate::tick::{Tick, tick};
use crate::transport::{Deadline, Stream};

/// A connection that one caller has.
#[derive(Debug)]
pub(crate) struct Link {
    pub stream: Arc<Stream>,
    pub inbox: Inbox,
    pub outbox: Encoder,
    /// Writes requests with long values. There is none before the first one.
    long: Option<Arc<LongMessage>>,
    framing: Framing,
    session: Session,
    /// What the first request tells the server.
    chosen: Option<Chosen>,
    ids: RequestIds,
    /// Whether no request was sent on it yet.
    is_fresh: bool,
    /// How long one write may wait, as the socket has it.
    write_timeout: Option<Duration>,
    /// When it became idle.
    idle_since: Tick,
}

impl Link {
    pub fn new(stream: Stream, version: Version, chosen: Option<Chosen>, framing: Framing) -> Self {
        let mut outbox = Encoder::new(ByteOrder::NATIVE, version);
        outbox.set_characters(characters(chosen));
        if !framing.cuts() {
            outbox.count_long();
        }
        Self {
            stream: Arc::new(stream),
            long: None,
            inbox: Inbox::new(framing),
            outbox,
            framing,
            session: Session::new(Role::Client),
            chosen,
            ids: RequestIds::of_connecting_end(),
            is_fresh: true,
            write_timeout: None,
            idle_since: tick(),
        }
    }

    /// Whether its server has not closed it. Between calls that follow each other at once, nobody looks.
    pub fn is_usable(&self) -> bool {
        self.idle_since == tick() || !self.stream.is_spent()
    }

    /// It is idle from now on.
    pub fn rest(&mut self) {
        self.idle_since = tick();
    }
}

/// Whether sending failed for a reason that is not the connection's: another one would fail, too.
fn is_own(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::TimedOut | io::ErrorKind::InvalidData)
}

impl Link {
    /// Sends a message that was written elsewhere, to which nothing comes back.
    pub fn send_message(&mut self, message: &[u8], deadline: Deadline) -> io::Result<()> {
        self.framing.send_until(&self.stream, message, deadline, &mut self.write_timeout)
    }

    /// Sends a request.
    pub fn send(&mut self, call: &Call<'_>, deadline: Deadline) -> Result<RequestId, Failure> {
        let is_fresh = std::mem::replace(&mut self.is_fresh, false);
        let id = self.ids.take();
        self.outbox.clear();
        let chosen = self.chosen.filter(|_| is_fresh).map(Chosen::to_context);
        let first = chosen.as_ref().map(|data| Tagged { id: CODE_SETS, data });
        call.encode(id, first.as_slice(), &mut self.outbox)?;
        // A server never performs a request of which it has a part.
        let sent = if self.outbox.long_bytes() > 0 {
            self.send_long(call, id, first.as_slice(), deadline)?
        } else {
            let (message, set) = (self.outbox.as_bytes(), &mut self.write_timeout);
            self.framing.send_until(&self.stream, message, deadline, set)
        };
        sent.map_err(|error| Failure {
            exception: communication(&error, false),
            may_repeat: !is_fresh && !is_own(error.kind()),
        })?;
        Ok(id)
    }

    /// Sends a request whose long values were counted: they are written from where the caller has them.
    #[cold]
    fn send_long(
        &mut self,
        call: &Call<'_>,
        id: RequestId,
        first: &[Tagged<'_>],
        deadline: Deadline,
    ) -> Result<io::Result<()>, SystemException> {
        let stream = &self.stream;
        let long = Arc::clone(self.long.get_or_insert_with(|| Arc::new(LongMessage::new(stream))));
        let bytes = self.outbox.as_bytes().len() + self.outbox.long_bytes();
        long.begin(bytes, deadline, self.write_timeout);
        self.outbox.send_long(Arc::<LongMessage>::clone(&long));
        call.encode(id, first, &mut self.outbox)?;
        self.outbox.end_long();
        Ok(long.end().map(|timeout| self.write_timeout = timeout))
    }

    /// Waits for the reply to a request, and gives what it says to `read`.
    pub fn receive(
        &mut self,
        call: &Call<'_>,
        id: RequestId,
        deadline: Deadline,
        read: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Step, Failure> {
        loop {
            let (action, message) = match self.inbox.next(&self.stream, deadline) {
                Ok(true) => self.session.receive(self.inbox.message()),
                Ok(false) => (self.session.on(Event::Broken), None),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    (self.session.on(Event::Malformed), None)
                }
                Err(error) => {
                    if error.kind() == io::ErrorKind::TimedOut {
                        self.cancel(id);
                    }
                    return Err(communication(&error, true).into());
                }
            };
            match (action, message) {
                (Action::Complete, Some(message)) => {
                    call.receive_of(id, &message);
                    if let Some(step) = reply_step(id, message, self.outbox.characters(), read) {
                        return step;
                    }
                    // A reply that nobody awaits.
                }
                (Action::Ignore | Action::Dispatch | Action::Cancel | Action::Drain, _) => {}
                (action, _) => {
                    if action == Action::SendError {
                        self.refuse();
                    }
                    // After CloseConnection the server has not begun it (CORBA 15.5.1).
                    let may_repeat = action == Action::Retry;
                    return Err(Failure { exception: unanswered(action), may_repeat });
                }
            }
        }
    }

    /// Tells the server that nobody awaits the reply.
    fn cancel(&mut self, id: RequestId) {
        self.outbox.clear();
        if message::write_cancel_request(id, &mut self.outbox).is_ok() {
            // Without success the connection ends all the same.
            let _ = self.stream.write_now(self.outbox.as_bytes());
        }
    }

    /// Tells the server that its bytes are no message that it may send.
    fn refuse(&mut self) {
        self.outbox.clear();
        if message::write_message_error(&mut self.outbox).is_ok() {
            // The connection ends all the same.
            let _ = self.stream.write_now(self.outbox.as_bytes());
        }
    }
}

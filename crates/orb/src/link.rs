//! A connection that one caller has alone.

use std::io;
use std::time::Duration;

use punctual_giop::codeset::Chosen;
use punctual_giop::message::{self, Message, RequestId};
use punctual_giop::{ByteOrder, Completion, Encoder, SystemException, SystemExceptionKind as Kind, Version};
use rustix::time::{ClockId, clock_gettime};

use crate::call::{Call, Failure, Step, characters, step};
use crate::exception::communication;
use crate::inbox::Inbox;
use crate::outcome::Outcome;
use crate::transport::{Deadline, Stream};

/// A connection that one caller has.
#[derive(Debug)]
pub(crate) struct Link {
    pub stream: Stream,
    pub inbox: Inbox,
    pub outbox: Encoder,
    /// What the first request tells the server.
    chosen: Option<Chosen>,
    last_id: u32,
    /// How long one write may wait, as the socket has it.
    write_timeout: Option<Duration>,
    /// When it became idle, in ticks of the kernel.
    idle_since: (i64, i64),
}

/// The time of the kernel's last tick: much cheaper than the exact one.
fn tick() -> (i64, i64) {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec, now.tv_nsec)
}

impl Link {
    pub fn new(stream: Stream, version: Version, chosen: Option<Chosen>, message_bytes_max: usize) -> Self {
        let mut outbox = Encoder::new(ByteOrder::NATIVE, version);
        outbox.set_characters(characters(chosen));
        let inbox = Inbox::new(message_bytes_max);
        Self { stream, inbox, outbox, chosen, last_id: 0, write_timeout: None, idle_since: tick() }
    }

    /// A number for the next request.
    pub fn next_id(&mut self) -> RequestId {
        self.last_id = self.last_id.wrapping_add(1);
        RequestId(self.last_id)
    }

    /// Whether no request was sent on it yet.
    pub fn is_fresh(&self) -> bool {
        self.last_id == 0
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

impl Link {
    /// Writes a whole message.
    pub fn write(&mut self, message: &[u8], deadline: Deadline) -> io::Result<()> {
        self.stream.write_until(message, deadline, &mut self.write_timeout)
    }

    /// Sends a request.
    pub fn send(&mut self, call: &Call<'_>, deadline: Deadline) -> Result<RequestId, Failure> {
        let (is_fresh, id) = (self.is_fresh(), self.next_id());
        self.outbox.clear();
        let chosen = self.chosen.filter(|_| is_fresh).map(Chosen::to_context);
        call.encode(id, chosen.as_ref(), &mut self.outbox)?;
        let message = self.outbox.as_bytes();
        let written = self.stream.write_until(message, deadline, &mut self.write_timeout);
        written.map_err(|error| Failure {
            exception: communication(&error, is_fresh),
            may_repeat: !is_fresh && error.kind() != io::ErrorKind::TimedOut,
        })?;
        Ok(id)
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
            match self.inbox.next(&self.stream, deadline) {
                Ok(true) => {}
                Ok(false) => return Err(communication(&io::ErrorKind::UnexpectedEof.into(), true).into()),
                Err(error) => {
                    if error.kind() == io::ErrorKind::TimedOut {
                        self.cancel(id);
                    }
                    return Err(communication(&error, true).into());
                }
            }
            match Message::read(self.inbox.message()) {
                Ok(Message::Reply(reply, mut body)) if reply.id == id => {
                    call.receive(&reply.contexts);
                    body.set_characters(self.outbox.characters());
                    return step(reply.status, body, read);
                }
                Ok(Message::CloseConnection) => {
                    let exception = SystemException::new(Kind::CommFailure, 0, Completion::No);
                    return Err(Failure { exception, may_repeat: true });
                }
                // A reply that nobody awaits, or what only a server may send on its own.
                Ok(Message::Reply(..) | Message::LocateReply(..) | Message::CancelRequest(_)) => {}
                Ok(_) => return Err(SystemException::new(Kind::CommFailure, 0, Completion::Maybe).into()),
                Err(_) => return Err(SystemException::new(Kind::Marshal, 0, Completion::Maybe).into()),
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
}

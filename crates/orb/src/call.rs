//! A request, and what its reply says.

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::message::{
    Addressing, LocateRequest, LocateStatus, Message, ReplyStatus, Request, RequestId, Response, Target,
};
use punctual_giop::{self as giop, Completion, Decode, Encoder, Reference, SystemException, Tagged};
use punctual_giop::{TaggedList, Version};

use crate::contexts::Contexts;
use crate::exception::{marshal, not_active};
use crate::outcome::Outcome;

/// Writes the arguments.
pub(crate) type Write<'w> = &'w dyn Fn(&mut Encoder) -> Result<(), giop::Error>;

/// What is asked of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To perform the operation.
    Perform,
    /// Whether it is there.
    Locate,
}

/// What is called.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c> {
    pub ask: Ask,
    pub target: &'c Target<'c>,
    pub operation: &'c str,
    pub response: Response,
    pub contexts: &'c [Tagged<'c>],
    /// Takes the contexts of the reply.
    pub received: Option<&'c Contexts>,
    pub write: Write<'c>,
}

impl<'c> Call<'c> {
    /// Where is this object?
    pub fn locate(target: &'c Target<'c>) -> Self {
        let (operation, contexts) = ("", &[]);
        let (response, received) = (Response::Target, None);
        Self { ask: Ask::Locate, target, operation, response, contexts, received, write: &|_| Ok(()) }
    }

    /// The contexts of the reply are there.
    pub fn receive(&self, contexts: &TaggedList<'_>) {
        if let Some(received) = self.received {
            received.receive(contexts);
        }
    }

    /// This may be the reply.
    pub fn receive_of(&self, id: RequestId, message: &Message<'_>) {
        match message {
            Message::Reply(reply, _) if reply.id == id => self.receive(&reply.contexts),
            _ => {}
        }
    }

    /// Writes the whole message into an empty encoder. `first` is what the first one of a connection tells the server.
    pub fn encode(
        &self,
        id: RequestId,
        first: &[Tagged<'_>],
        to: &mut Encoder,
    ) -> Result<(), SystemException> {
        let unsent = |error| marshal(error, Completion::No);
        if self.ask == Ask::Locate {
            return LocateRequest { id, target: self.target.clone() }.write(to).map_err(unsent);
        }
        let all;
        let contexts = if first.is_empty() || to.version() == Version::V1_0 {
            self.contexts
        } else {
            all = [first, self.contexts].concat();
            &all
        };
        let head = Request {
            id,
            response: self.response,
            target: self.target.clone(),
            operation: self.operation,
            contexts: TaggedList::from(contexts),
        };
        let open = head.begin(to).map_err(unsent)?;
        (self.write)(to).map_err(unsent)?;
        open.finish(to).map_err(unsent)
    }
}

/// Why a call did not come to its end on this connection.
#[derive(Debug)]
pub(crate) struct Failure {
    pub exception: SystemException,
    /// The server did not process the request: another connection may bring it there.
    pub may_repeat: bool,
}

impl From<SystemException> for Failure {
    fn from(exception: SystemException) -> Self {
        Self { exception, may_repeat: false }
    }
}

/// What a reply says.
#[derive(Debug)]
pub(crate) enum Step {
    /// The caller has its outcome.
    Done,
    /// The object is there.
    Forward(Reference),
    /// The server wants the object named so.
    Address(Addressing),
}

/// What the reply to this request says; its outcome goes to `read`. `None` if it is another message.
pub(crate) fn reply_step(
    id: RequestId,
    message: Message<'_>,
    characters: CharacterSet,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Option<Result<Step, Failure>> {
    match message {
        Message::Reply(reply, mut body) if reply.id == id => {
            body.set_characters(characters);
            Some(step(reply.status, body, read))
        }
        Message::LocateReply(reply, body) if reply.id == id => Some(locate_step(reply.status, body, read)),
        _ => None,
    }
}

/// What a reply says; its outcome goes to `read`.
pub(crate) fn step(
    status: ReplyStatus,
    mut body: giop::Decoder<'_>,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Result<Step, Failure> {
    match status {
        ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => forward(&mut body),
        ReplyStatus::NeedsAddressingMode => address(&mut body),
        ReplyStatus::NoException | ReplyStatus::UserException | ReplyStatus::SystemException => {
            read(Outcome::of_reply(status, body));
            Ok(Step::Done)
        }
    }
}

/// What the answer to a [`Ask::Locate`] says: nothing comes back, or an exception.
fn locate_step(
    status: LocateStatus,
    mut body: giop::Decoder<'_>,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Result<Step, Failure> {
    match status {
        LocateStatus::ObjectForward | LocateStatus::ObjectForwardPerm => return forward(&mut body),
        LocateStatus::NeedsAddressingMode => return address(&mut body),
        LocateStatus::ObjectHere => read(Outcome::Result(body)),
        LocateStatus::UnknownObject => read(Outcome::System(not_active())),
        LocateStatus::SystemException => read(Outcome::of_reply(ReplyStatus::SystemException, body)),
    }
    Ok(Step::Done)
}

fn forward(body: &mut giop::Decoder<'_>) -> Result<Step, Failure> {
    Ok(Step::Forward(Reference::decode(body).map_err(unread)?))
}

fn address(body: &mut giop::Decoder<'_>) -> Result<Step, Failure> {
    Ok(Step::Address(Addressing::decode(body).map_err(unread)?))
}

/// The server did not begin the operation, but what it says instead cannot be read.
fn unread(error: giop::Error) -> SystemException {
    marshal(error, Completion::No)
}

/// The code set of a connection's strings: Latin-1 where none was chosen (CORBA 13.10.2.5).
pub(crate) fn characters(chosen: Option<Chosen>) -> CharacterSet {
    chosen.unwrap_or(Chosen::DEFAULT).characters
}

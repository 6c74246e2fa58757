//! A request, and what its reply says.

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{ReplyStatus, Request, RequestId, Response, Target};
use punctual_giop::{self as giop, Completion, Decode, Encoder, Reference, SystemException, Tagged};
use punctual_giop::{SystemExceptionKind as Kind, TaggedList, Version};

use crate::contexts::Contexts;
use crate::exception::marshal;
use crate::outcome::Outcome;

/// Writes the arguments.
pub(crate) type Write<'w> = &'w dyn Fn(&mut Encoder) -> Result<(), giop::Error>;

/// What is called.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c> {
    pub key: &'c [u8],
    pub operation: &'c str,
    pub response: Response,
    pub contexts: &'c [Tagged<'c>],
    /// Takes the contexts of the reply.
    pub received: Option<&'c Contexts>,
    pub write: Write<'c>,
}

impl Call<'_> {
    /// The contexts of the reply are there.
    pub fn receive(&self, contexts: &TaggedList<'_>) {
        if let Some(received) = self.received {
            received.receive(contexts);
        }
    }

    /// Writes the whole message into an empty encoder. The first one of a connection chooses code sets.
    pub fn encode(
        &self,
        id: RequestId,
        chosen: Option<&[u8; 12]>,
        to: &mut Encoder,
    ) -> Result<(), SystemException> {
        let first;
        let contexts = match chosen {
            Some(chosen) if to.version() > Version::V1_0 => {
                first = [&[Tagged { id: CODE_SETS, data: chosen }], self.contexts].concat();
                &first[..]
            }
            _ => self.contexts,
        };
        let head = Request {
            id,
            response: self.response,
            target: Target::Key(self.key),
            operation: self.operation,
            contexts: TaggedList::from(contexts),
        };
        let unsent = |error| marshal(error, Completion::No);
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
}

/// What a reply says; its outcome goes to `read`.
pub(crate) fn step(
    status: ReplyStatus,
    mut body: giop::Decoder<'_>,
    read: &mut dyn FnMut(Outcome<'_>),
) -> Result<Step, Failure> {
    match status {
        ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
            let to = Reference::decode(&mut body).map_err(|error| marshal(error, Completion::No))?;
            Ok(Step::Forward(to))
        }
        ReplyStatus::NeedsAddressingMode => {
            Err(SystemException::new(Kind::NoImplement, 0, Completion::No).into())
        }
        ReplyStatus::NoException | ReplyStatus::UserException | ReplyStatus::SystemException => {
            read(Outcome::of_reply(status, body));
            Ok(Step::Done)
        }
    }
}

/// The code set of a connection's strings: Latin-1 where none was chosen (CORBA 13.10.2.5).
pub(crate) fn characters(chosen: Option<Chosen>) -> CharacterSet {
    chosen.unwrap_or(Chosen::DEFAULT).characters
}

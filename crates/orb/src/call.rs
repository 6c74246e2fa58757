//! A request, and what its reply says.

use punctual_giop::message::{ReplyStatus, Request, RequestId, Response, Target};
use punctual_giop::{self as giop, Completion, Decode, Encoder, Reference, SystemException, Tagged};
use punctual_giop::{SystemExceptionKind as Kind, TaggedList, Version};

use crate::exception::marshal;
use crate::outcome::Outcome;
use crate::publish::{UTF_8, UTF_16};

/// Writes the arguments.
pub(crate) type Write<'w> = &'w dyn Fn(&mut Encoder) -> Result<(), giop::Error>;

/// What is called.
#[derive(Clone, Copy)]
pub(crate) struct Call<'c> {
    pub key: &'c [u8],
    pub operation: &'c str,
    pub response: Response,
    pub contexts: &'c [Tagged<'c>],
    pub write: Write<'c>,
}

/// The service context in which code sets are chosen (CORBA 13.10.2.5).
const CODE_SETS: u32 = 1;

/// UTF-8 and UTF-16, as an encapsulation with the least significant byte first.
const CHOSEN: [u8; 12] = {
    let ([a, b, c, d], [e, f, g, h]) = (UTF_8.to_le_bytes(), UTF_16.to_le_bytes());
    [1, 0, 0, 0, a, b, c, d, e, f, g, h]
};

impl Call<'_> {
    /// Writes the whole message into an empty encoder. The first one of a connection chooses code sets.
    pub fn encode(&self, id: RequestId, is_first: bool, to: &mut Encoder) -> Result<(), SystemException> {
        let chosen = Tagged { id: CODE_SETS, data: &CHOSEN };
        let first;
        let contexts = if is_first && to.version() > Version::V1_0 {
            first = [&[chosen], self.contexts].concat();
            &first[..]
        } else {
            self.contexts
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

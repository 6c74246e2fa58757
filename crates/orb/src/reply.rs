//! Servants, and the replies to what they are called for.

use std::fmt;

use punctual_giop::message::{self, Open, ReplyStatus, RequestId, Response};
use punctual_giop::{
    self as giop, Completion, Decoder, Encode, Encoder, Reference, SystemException, TaggedList,
};

use crate::exception::marshal;
use crate::frames;
use crate::operations::Operations;

/// What implements objects. Skeletons that `punctual-idl` generates do.
pub trait Servant: Send + Sync {
    /// The repository identifiers of its interfaces, the most derived first.
    fn interfaces(&self) -> &'static [&'static str];

    /// Its operations.
    fn operations(&self) -> &'static Operations;

    /// Performs the operation with this number.
    ///
    /// # Errors
    /// They go to the client.
    fn dispatch(
        &self,
        operation: usize,
        arguments: &mut Decoder<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SystemException>;
}

/// Sends what is written before the servant is called.
pub(crate) type Sender<'s> = &'s mut dyn FnMut(&[u8]);

/// The reply to one request, which is written into the connection's buffer.
pub struct Reply<'a> {
    to: &'a mut Encoder,
    id: RequestId,
    response: Response,
    send: Sender<'a>,
}

impl fmt::Debug for Reply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({:?}, {:?})", self.id, self.response)
    }
}

impl<'a> Reply<'a> {
    pub(crate) fn new(to: &'a mut Encoder, id: RequestId, response: Response, send: Sender<'a>) -> Self {
        Self { to, id, response, send }
    }

    /// The servant is going to be called. A client that wants to know no more is told so (CORBA 22.2.2.2).
    pub(crate) fn acknowledge(&mut self) {
        if self.response != Response::Server {
            return;
        }
        if self.write(ReplyStatus::NoException, |_| Ok(())).is_ok() {
            (self.send)(self.to.as_bytes());
        }
        self.to.clear();
        self.response = Response::None;
    }

    /// The operation was performed: what it returns, and its `inout` and `out` values.
    ///
    /// # Errors
    /// If the values have no bytes.
    pub fn result(
        &mut self,
        write: impl FnOnce(&mut Encoder) -> Result<(), giop::Error>,
    ) -> Result<(), SystemException> {
        self.write(ReplyStatus::NoException, write)
    }

    /// The operation raised this exception of its interface.
    ///
    /// # Errors
    /// If its members have no bytes.
    pub fn raise(&mut self, id: &str, exception: &dyn Encode) -> Result<(), SystemException> {
        self.write(ReplyStatus::UserException, |to| {
            id.encode(to)?;
            exception.encode(to)
        })
    }

    pub(crate) fn system(&mut self, exception: &SystemException) {
        // Its bytes are known to exist.
        let _ = self.write(ReplyStatus::SystemException, |to| exception.encode(to));
    }

    pub(crate) fn forward(&mut self, to: &Reference) -> Result<(), SystemException> {
        self.write(ReplyStatus::LocationForward, |encoder| to.encode(encoder))
    }

    fn write(
        &mut self,
        status: ReplyStatus,
        write: impl FnOnce(&mut Encoder) -> Result<(), giop::Error>,
    ) -> Result<(), SystemException> {
        if self.response == Response::None {
            return Ok(());
        }
        let begin =
            |contexts: TaggedList<'_>| message::Reply { id: self.id, status, contexts }.begin(self.to);
        let open = frames::with_reply_contexts(begin).map_err(unwritten)?;
        match write(self.to) {
            Ok(()) => open.finish(self.to).map_err(unwritten),
            Err(error) => {
                Open::abandon(open, self.to);
                Err(unwritten(error))
            }
        }
    }
}

fn unwritten(error: giop::Error) -> SystemException {
    marshal(error, Completion::Yes)
}

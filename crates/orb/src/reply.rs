//! Servants, and the replies to what they are called for.

use punctual_giop::message::{self, Open, ReplyStatus, RequestId};
use punctual_giop::{
    self as giop, Completion, Decoder, Encode, Encoder, Reference, SystemException, TaggedList,
};

use crate::exception::marshal;
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

/// The reply to one request, which is written into the connection's buffer.
#[derive(Debug)]
pub struct Reply<'a> {
    to: &'a mut Encoder,
    id: RequestId,
    is_expected: bool,
    contexts: TaggedList<'a>,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(to: &'a mut Encoder, id: RequestId, is_expected: bool) -> Self {
        Self { to, id, is_expected, contexts: TaggedList::default() }
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
        if !self.is_expected {
            return Ok(());
        }
        let head = message::Reply { id: self.id, status, contexts: self.contexts.clone() };
        let open = head.begin(self.to).map_err(unwritten)?;
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

//! What a call gave, and how generated code reads values out of messages.

use std::borrow::Cow;

use punctual_giop::message::ReplyStatus;
use punctual_giop::{self as giop, ByteOrder, Completion, Decode, Decoder, SystemException};
use zerocopy::{FromBytes, Immutable};

use crate::exception::{marshal, unlisted_exception};

/// What the object answered, within the bytes of its message.
#[derive(Clone, Debug)]
pub enum Outcome<'a> {
    /// What the operation returned, and its `inout` and `out` values.
    Result(Decoder<'a>),
    /// An exception of the interface.
    Raised {
        /// Its repository identifier.
        id: &'a str,
        /// Its members.
        members: Decoder<'a>,
    },
    /// An exception of the ORB, here or there.
    System(SystemException),
}

impl<'a> Outcome<'a> {
    /// What a reply says that does not send the caller elsewhere.
    pub(crate) fn of_reply(status: ReplyStatus, mut body: Decoder<'a>) -> Self {
        let read = |error| Self::System(marshal(error, Completion::Maybe));
        match status {
            ReplyStatus::NoException => Self::Result(body),
            ReplyStatus::UserException => match body.text() {
                Ok(id) => Self::Raised { id, members: body },
                Err(error) => read(error),
            },
            _ => SystemException::decode(&mut body).map_or_else(read, Self::System),
        }
    }

    /// The values that came back.
    ///
    /// # Errors
    /// The system exception; `UNKNOWN` for one that the operation does not declare.
    pub fn result(self) -> Result<Decoder<'a>, SystemException> {
        match self {
            Self::Result(from) => Ok(from),
            Self::Raised { .. } => Err(unlisted_exception()),
            Self::System(exception) => Err(exception),
        }
    }

    /// Nothing came back.
    ///
    /// # Errors
    /// Those of [`Outcome::result`].
    pub fn end(self) -> Result<(), SystemException> {
        self.result().map(drop)
    }
}

/// A value of a reply.
///
/// # Errors
/// `MARSHAL`: the operation was performed.
pub fn result<T: Decode>(from: &mut Decoder<'_>) -> Result<T, SystemException> {
    T::decode(from).map_err(|error| marshal(error, Completion::Yes))
}

/// A value of a request.
///
/// # Errors
/// `MARSHAL`: the operation was not begun.
pub fn argument<T: Decode>(from: &mut Decoder<'_>) -> Result<T, SystemException> {
    T::decode(from).map_err(refused)
}

/// A string of a request, within its bytes if they are UTF-8.
///
/// # Errors
/// `MARSHAL`.
pub fn text<'a>(from: &mut Decoder<'a>) -> Result<Cow<'a, str>, SystemException> {
    let mut ahead = from.clone();
    if let Ok(text) = ahead.text() {
        *from = ahead;
        return Ok(Cow::Borrowed(text));
    }
    // Another code set than that of Rust's strings.
    argument(from).map(Cow::Owned)
}

/// Numbers of a request, within its bytes if they have this machine's order.
///
/// # Errors
/// `MARSHAL`.
pub fn numbers<'a, T>(from: &mut Decoder<'a>) -> Result<Cow<'a, [T]>, SystemException>
where
    T: Decode + Clone + FromBytes + Immutable,
{
    if size_of::<T>() > 1 && from.order() != ByteOrder::NATIVE {
        return argument(from).map(Cow::Owned);
    }
    let mut ahead = from.clone();
    let bytes = number_bytes::<T>(&mut ahead).map_err(refused)?;
    // The buffer of a message is aligned. A part of a longer one may not be.
    match <[T]>::ref_from_bytes(bytes) {
        Ok(numbers) => {
            *from = ahead;
            Ok(Cow::Borrowed(numbers))
        }
        Err(_) => argument(from).map(Cow::Owned),
    }
}

fn number_bytes<'a, T>(from: &mut Decoder<'a>) -> Result<&'a [u8], giop::Error> {
    let count = from.length(size_of::<T>())?;
    if count > 0 {
        from.align(size_of::<T>())?;
    }
    from.read(count * size_of::<T>())
}

fn refused(error: giop::Error) -> SystemException {
    marshal(error, Completion::No)
}

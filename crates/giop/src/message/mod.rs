//! Messages of GIOP 1.0, 1.1 and 1.2 (CORBA 15.4).
//!
//! | module | owns |
//! |---|---|
//! | [`header`] | the header of each message, and messages that are being written |
//! | [`target`] | which object a request is for |
//! | [`request`] | requests and replies |
//! | [`locate`] | where objects are |
//!
//! A message is written into an [`Encoder`], which keeps its memory. It is read as a view of its bytes: nothing is copied.

pub mod header;
pub mod locate;
pub mod request;
pub mod target;

pub use header::{Error, Header, MessageType, Open, RequestId};
pub use locate::{LocateReply, LocateRequest, LocateStatus};
pub use request::{Reply, ReplyStatus, Request, Response};
pub use target::{Addressing, Target};

use crate::whole::Whole;
use crate::{Decode, Decoder, Encode, Encoder, Error as CdrError, Version};

/// A message. The decoder of its body is behind the fields.
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// With its arguments.
    Request(Request<'a>, Decoder<'a>),
    /// With its result, or what else the status says.
    Reply(Reply<'a>, Decoder<'a>),
    /// The number of the request.
    CancelRequest(RequestId),
    /// A question for an object.
    LocateRequest(LocateRequest<'a>),
    /// With a reference, or what else the status says.
    LocateReply(LocateReply, Decoder<'a>),
    /// The connection ends.
    CloseConnection,
    /// A message was not understood.
    MessageError,
    /// The number of the request, which 1.1 does not say, and bytes that belong behind the earlier ones.
    Fragment(Option<RequestId>, &'a [u8]),
}

impl<'a> Message<'a> {
    /// Reads a message with its header. If fragments follow, it must be whole before ([`Header::has_more`]).
    ///
    /// # Errors
    /// [`Error`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::read_whole(bytes.into())
    }

    /// Reads a message with its header, which may have been joined of fragments.
    ///
    /// # Errors
    /// [`Error`].
    pub fn read_whole(Whole { bytes, breaks }: Whole<'a>) -> Result<Self, Error> {
        let (header, _) = bytes.split_first_chunk().ok_or(CdrError::Truncated)?;
        let header = Header::parse(header)?;
        let there = bytes.len() - Header::BYTES;
        if header.size as usize != there {
            return Err(Error::Size { size: header.size.into(), expected: there as u64 });
        }
        let from = Decoder::new(bytes, header.order, header.version).with_breaks(breaks);
        Self::read_behind(&header, from).map_err(Error::from)
    }

    /// Reads what is behind the header, which `from` begins with.
    fn read_behind(header: &Header, mut from: Decoder<'a>) -> Result<Self, CdrError> {
        from.read(Header::BYTES)?;
        Ok(match header.kind {
            MessageType::Request => Self::Request(Request::read(&mut from)?, from),
            MessageType::Reply => Self::Reply(Reply::read(&mut from)?, from),
            MessageType::CancelRequest => Self::CancelRequest(RequestId::decode(&mut from)?),
            MessageType::LocateRequest => Self::LocateRequest(LocateRequest::read(&mut from)?),
            MessageType::LocateReply => Self::LocateReply(LocateReply::read(&mut from)?, from),
            MessageType::CloseConnection => Self::CloseConnection,
            MessageType::MessageError => Self::MessageError,
            MessageType::Fragment => {
                let has_id = header.version >= Version::V1_2;
                let id = if has_id { Some(RequestId::decode(&mut from)?) } else { None };
                Self::Fragment(id, from.read(from.remaining())?)
            }
        })
    }
}

/// Writes `CancelRequest` (CORBA 15.4.4).
///
/// # Errors
/// None in practice: it is short.
pub fn write_cancel_request(id: RequestId, to: &mut Encoder) -> Result<(), CdrError> {
    Open::begin(MessageType::CancelRequest, to).fields(to, |to| id.encode(to))?.finish(to)
}

/// Writes `CloseConnection` (CORBA 15.4.7).
///
/// # Errors
/// None in practice: it is short.
pub fn write_close_connection(to: &mut Encoder) -> Result<(), CdrError> {
    Open::begin(MessageType::CloseConnection, to).finish(to)
}

/// Writes `MessageError` (CORBA 15.4.8).
///
/// # Errors
/// None in practice: it is short.
pub fn write_message_error(to: &mut Encoder) -> Result<(), CdrError> {
    Open::begin(MessageType::MessageError, to).finish(to)
}

//! `Request` (CORBA 15.4.2) and `Reply` (CORBA 15.4.3).

use super::header::{MessageType, Open, RequestId};
use super::target::Target;
use crate::tagged::TaggedList;
use crate::{Decode, Decoder, Encode, Encoder, Error, Version};

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Nobody.
    None,
    /// The server, before it calls the object: only with 1.2. Earlier versions send [`Response::Target`].
    Server,
    /// The object.
    Target,
}

impl Response {
    /// Whether a reply follows.
    pub fn is_expected(self) -> bool {
        self != Self::None
    }

    fn write(self, to: &mut Encoder) {
        let flags = match self {
            Self::None => 0,
            Self::Server if to.version() >= Version::V1_2 => 1,
            Self::Target if to.version() >= Version::V1_2 => 3,
            Self::Server | Self::Target => 1,
        };
        to.write(&[flags]);
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self, Error> {
        if from.version() < Version::V1_2 {
            return Ok(if bool::decode(from)? { Self::Target } else { Self::None });
        }
        // Other bits are reserved. Some ORBs send 2, which asks for the object too.
        Ok(match u8::decode(from)? & 3 {
            0 => Self::None,
            1 => Self::Server,
            _ => Self::Target,
        })
    }
}

/// The fields of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its number.
    pub id: RequestId,
    /// Who answers it.
    pub response: Response,
    /// The object.
    pub target: Target<'a>,
    /// The operation.
    pub operation: &'a str,
    /// What applications and ORBs add.
    pub contexts: TaggedList<'a>,
}

impl<'a> Request<'a> {
    /// Begins the message. The arguments are its body.
    ///
    /// # Errors
    /// If the fields have no bytes in this version.
    pub fn begin(&self, to: &mut Encoder) -> Result<Open, Error> {
        let open = Open::begin(MessageType::Request, to).fields(to, |to| self.write(to))?;
        Ok(open.align_body(to))
    }

    fn write(&self, to: &mut Encoder) -> Result<(), Error> {
        if to.version() < Version::V1_2 {
            self.contexts.encode(to)?;
        }
        self.id.encode(to)?;
        self.response.write(to);
        if to.version() > Version::V1_0 {
            to.write(&[0; 3]);
        }
        self.target.encode(to)?;
        self.operation.encode(to)?;
        if to.version() < Version::V1_2 {
            // Who asks: nobody uses it.
            return to.length(0);
        }
        self.contexts.encode(to)
    }

    /// Reads the fields. What is left in `from` are the arguments.
    pub(super) fn read(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let before = contexts_in_front(from)?;
        let id = RequestId::decode(from)?;
        let response = Response::read(from)?;
        if from.version() > Version::V1_0 {
            from.read(3)?;
        }
        let target = Target::read(from)?;
        let operation = from.text()?;
        let contexts = match before {
            Some(contexts) => {
                from.octets()?;
                contexts
            }
            None => TaggedList::read(from)?,
        };
        align_body(from)?;
        Ok(Self { id, response, target, operation, contexts })
    }
}

/// Service contexts are in front before 1.2.
fn contexts_in_front<'a>(from: &mut Decoder<'a>) -> Result<Option<TaggedList<'a>>, Error> {
    if from.version() < Version::V1_2 { TaggedList::read(from).map(Some) } else { Ok(None) }
}

fn align_body(from: &mut Decoder<'_>) -> Result<(), Error> {
    let is_aligned = from.version() >= Version::V1_2 && from.remaining() > 0;
    if is_aligned { from.align(8) } else { Ok(()) }
}

/// What became of a request: says what the body is. Its number is its place in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ReplyStatus {
    /// The result, and the values of `out` arguments.
    NoException,
    /// An exception of the interface: its repository identifier and its members.
    UserException,
    /// A [`crate::SystemException`].
    SystemException,
    /// A [`crate::Reference`]: the object is there for now.
    LocationForward,
    /// A [`crate::Reference`]: the object is there from now on. Since 1.2.
    LocationForwardPerm,
    /// An [`super::Addressing`]: the server needs the object named so. Since 1.2.
    NeedsAddressingMode,
}

impl ReplyStatus {
    /// All, by their numbers.
    pub const ALL: [Self; 6] = [
        Self::NoException,
        Self::UserException,
        Self::SystemException,
        Self::LocationForward,
        Self::LocationForwardPerm,
        Self::NeedsAddressingMode,
    ];

    fn is_in(self, version: Version) -> bool {
        version >= Version::V1_2 || !matches!(self, Self::LocationForwardPerm | Self::NeedsAddressingMode)
    }
}

/// The fields of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The number of the request.
    pub id: RequestId,
    /// What the body is.
    pub status: ReplyStatus,
    /// What applications and ORBs add.
    pub contexts: TaggedList<'a>,
}

impl<'a> Reply<'a> {
    /// Begins the message. Its body is what the status says.
    ///
    /// # Errors
    /// [`Error::Version`] if this version does not have the status.
    pub fn begin(&self, to: &mut Encoder) -> Result<Open, Error> {
        let open = Open::begin(MessageType::Reply, to).fields(to, |to| self.write(to))?;
        Ok(open.align_body(to))
    }

    fn write(&self, to: &mut Encoder) -> Result<(), Error> {
        if !self.status.is_in(to.version()) {
            return Err(Error::Version);
        }
        if to.version() < Version::V1_2 {
            self.contexts.encode(to)?;
        }
        self.id.encode(to)?;
        (self.status as u32).encode(to)?;
        if to.version() < Version::V1_2 { Ok(()) } else { self.contexts.encode(to) }
    }

    /// Reads the fields. What is left in `from` is the body.
    pub(super) fn read(from: &mut Decoder<'a>) -> Result<Self, Error> {
        let before = contexts_in_front(from)?;
        let id = RequestId::decode(from)?;
        let status = u32::decode(from)?;
        let known = ReplyStatus::ALL.get(status as usize).filter(|known| known.is_in(from.version()));
        let status = *known.ok_or(Error::Enumerator(status))?;
        let contexts = before.map_or_else(|| TaggedList::read(from), Ok)?;
        align_body(from)?;
        Ok(Self { id, status, contexts })
    }
}

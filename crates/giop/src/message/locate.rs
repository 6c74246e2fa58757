//! `LocateRequest` (CORBA 15.4.5) and `LocateReply` (CORBA 15.4.6).

use super::header::{MessageType, Open, RequestId};
use super::target::Target;
use crate::{Decode, Decoder, Encode, Encoder, Error, Version};

/// Where is this object?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocateRequest<'a> {
    /// Its number.
    pub id: RequestId,
    /// The object.
    pub target: Target<'a>,
}

impl<'a> LocateRequest<'a> {
    /// Writes the message.
    ///
    /// # Errors
    /// [`Error::Version`] if this version cannot name the object so.
    pub fn write(&self, to: &mut Encoder) -> Result<(), Error> {
        let open = Open::begin(MessageType::LocateRequest, to).fields(to, |to| {
            self.id.encode(to)?;
            self.target.encode(to)
        })?;
        open.finish(to)
    }

    pub(super) fn read(from: &mut Decoder<'a>) -> Result<Self, Error> {
        Ok(Self { id: RequestId::decode(from)?, target: Target::read(from)? })
    }
}

/// Where an object is: says what the body is. Its number is its place in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LocateStatus {
    /// The server does not know it. No body.
    UnknownObject,
    /// Here. No body.
    ObjectHere,
    /// A [`crate::Reference`]: there for now.
    ObjectForward,
    /// A [`crate::Reference`]: there from now on. Since 1.2.
    ObjectForwardPerm,
    /// A [`crate::SystemException`]. Since 1.2.
    SystemException,
    /// An [`super::Addressing`]: the server needs the object named so. Since 1.2.
    NeedsAddressingMode,
}

impl LocateStatus {
    /// All, by their numbers.
    pub const ALL: [Self; 6] = [
        Self::UnknownObject,
        Self::ObjectHere,
        Self::ObjectForward,
        Self::ObjectForwardPerm,
        Self::SystemException,
        Self::NeedsAddressingMode,
    ];

    fn is_in(self, version: Version) -> bool {
        version >= Version::V1_2
            || matches!(self, Self::UnknownObject | Self::ObjectHere | Self::ObjectForward)
    }
}

/// The fields of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocateReply {
    /// The number of the request.
    pub id: RequestId,
    /// What the body is.
    pub status: LocateStatus,
}

impl LocateReply {
    /// Begins the message. Its body is what the status says; it is not aligned to 8 bytes.
    ///
    /// # Errors
    /// [`Error::Version`] if this version does not have the status.
    pub fn begin(&self, to: &mut Encoder) -> Result<Open, Error> {
        Open::begin(MessageType::LocateReply, to).fields(to, |to| {
            if !self.status.is_in(to.version()) {
                return Err(Error::Version);
            }
            self.id.encode(to)?;
            (self.status as u32).encode(to)
        })
    }

    pub(super) fn read(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let id = RequestId::decode(from)?;
        let status = u32::decode(from)?;
        let known = LocateStatus::ALL.get(status as usize).filter(|known| known.is_in(from.version()));
        Ok(Self { id, status: *known.ok_or(Error::Enumerator(status))? })
    }
}

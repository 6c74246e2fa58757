//! System exceptions (CORBA 4.12.3).
//!
//! | module | owns |
//! |---|---|
//! | this one | exceptions, and whose their minor codes are |
//! | `kind` | what the standard has |
//! | `minor` | minor codes of the standard |
//! | `cause` | minor codes of this ORB |

mod cause;
mod kind;
pub mod minor;

use core::fmt;

use crate::{Decode, Decoder, Encode, Encoder, Error};

pub use cause::Cause;
pub use kind::SystemExceptionKind;

/// Whether the operation was performed before the exception. Its number is its place in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Completion {
    /// The object has completed it.
    Yes,
    /// The object has not begun it: it may be repeated.
    No,
    /// Nobody knows.
    Maybe,
}

impl Completion {
    /// The name in the standard.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "COMPLETED_YES",
            Self::No => "COMPLETED_NO",
            Self::Maybe => "COMPLETED_MAYBE",
        }
    }
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "completed",
            Self::No => "not begun",
            Self::Maybe => "perhaps completed",
        })
    }
}

/// A system exception, which each call may raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{}: {}{} (minor code {minor:#x}; the operation was {completed})", kind.name(), kind.meaning(), self.detail())]
pub struct SystemException {
    /// What happened.
    pub kind: SystemExceptionKind,
    /// Details: a number of the ORB's maker ([`minor`]).
    pub minor: u32,
    /// Whether the operation was performed.
    pub completed: Completion,
}

/// Bits of a minor code that say whose it is: the others are the code.
const MAKER: u32 = 0xFFFF_F000;
/// Minor codes of the standard (CORBA 4.12.3: OMGVMCID).
const MAKER_OMG: u32 = 0x4F4D_0000;
/// Minor codes of this ORB. The number is registered with nobody.
const MAKER_OWN: u32 = 0x5055_4000;

impl SystemException {
    /// An exception with a minor code of the standard, or with none if that is 0.
    pub fn new(kind: SystemExceptionKind, standard_minor: u16, completed: Completion) -> Self {
        let minor = if standard_minor == 0 { 0 } else { MAKER_OMG | u32::from(standard_minor) };
        Self { kind, minor, completed }
    }

    /// The number of a minor code of the standard.
    pub fn standard_minor(&self) -> Option<u32> {
        (self.minor & MAKER == MAKER_OMG).then_some(self.minor & !MAKER)
    }

    /// The same with a minor code of this ORB.
    pub fn with_cause(self, cause: Cause) -> Self {
        Self { minor: MAKER_OWN | cause as u32, ..self }
    }

    /// What the minor code says about the cause, if it is known.
    pub fn cause(&self) -> Option<&'static str> {
        if self.minor & MAKER == MAKER_OWN {
            return Cause::ALL
                .iter()
                .find(|cause| **cause as u32 == self.minor & !MAKER)
                .map(|cause| cause.text());
        }
        let minor = self.standard_minor()?;
        let is_it = |(kind, number, _): &&(SystemExceptionKind, u16, _)| {
            *kind == self.kind && u32::from(*number) == minor
        };
        minor::MEANINGS.iter().find(is_it).map(|(_, _, meaning)| *meaning)
    }

    /// The meaning of the minor code, behind a comma; nothing if it is not known.
    fn detail(&self) -> Detail {
        Detail(self.cause())
    }
}

struct Detail(Option<&'static str>);

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |meaning| write!(f, ", {meaning}"))
    }
}

impl Encode for SystemException {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.kind.id().encode(to)?;
        self.minor.encode(to)?;
        (self.completed as u32).encode(to)
    }
}

impl Decode for SystemException {
    const BYTES_MIN: usize = 12;

    /// One that the standard does not have is `UNKNOWN` (CORBA 15.4.3.2).
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let kind = SystemExceptionKind::from_id(from.string()?);
        let minor = u32::decode(from)?;
        let completed = match u32::decode(from)? {
            0 => Completion::Yes,
            1 => Completion::No,
            2 => Completion::Maybe,
            other => return Err(Error::Enumerator(other)),
        };
        Ok(kind.map_or_else(
            || Self::new(SystemExceptionKind::Unknown, minor::UNKNOWN_SYSTEM_EXCEPTION, completed),
            |kind| Self { kind, minor, completed },
        ))
    }
}

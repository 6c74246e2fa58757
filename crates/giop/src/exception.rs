//! System exceptions (CORBA 4.12.3).

use core::fmt;

use crate::{Decode, Decoder, Encode, Encoder, Error};

macro_rules! kinds {
    ($($kind:ident $name:literal $meaning:literal),* $(,)?) => {
        /// Why a call failed, by the names of the standard.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SystemExceptionKind {
            $(#[doc = $meaning] $kind,)*
        }

        impl SystemExceptionKind {
            /// All that the standard has.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The name in the standard.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// The repository identifier.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$kind => concat!("IDL:omg.org/CORBA/", $name, ":1.0"),)*
                }
            }

            /// What it means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$kind => $meaning,)*
                }
            }
        }
    };
}

kinds! {
    Unknown "UNKNOWN" "the server raised an exception that has no name here",
    BadParam "BAD_PARAM" "an argument is not allowed",
    NoMemory "NO_MEMORY" "memory is exhausted",
    ImpLimit "IMP_LIMIT" "a limit of the implementation is exceeded",
    CommFailure "COMM_FAILURE" "the connection failed during the call",
    InvObjref "INV_OBJREF" "the reference is malformed",
    NoPermission "NO_PERMISSION" "the caller may not do this",
    Internal "INTERNAL" "an internal error of the ORB",
    Marshal "MARSHAL" "a message has bytes that are no value of the type",
    Initialize "INITIALIZE" "the ORB could not start",
    NoImplement "NO_IMPLEMENT" "the operation has no implementation",
    BadTypecode "BAD_TYPECODE" "a description of a type is wrong",
    BadOperation "BAD_OPERATION" "the object has no such operation",
    NoResources "NO_RESOURCES" "a resource is exhausted",
    NoResponse "NO_RESPONSE" "the response is not there yet",
    PersistStore "PERSIST_STORE" "the persistent storage failed",
    BadInvOrder "BAD_INV_ORDER" "calls came in a wrong order",
    Transient "TRANSIENT" "the object cannot be reached now; a later call may succeed",
    FreeMem "FREE_MEM" "memory could not be freed",
    InvIdent "INV_IDENT" "an identifier has a wrong syntax",
    InvFlag "INV_FLAG" "a flag is wrong",
    IntfRepos "INTF_REPOS" "the interface repository failed",
    BadContext "BAD_CONTEXT" "a context object is wrong",
    ObjAdapter "OBJ_ADAPTER" "the object adapter failed",
    DataConversion "DATA_CONVERSION" "a value cannot be converted",
    ObjectNotExist "OBJECT_NOT_EXIST" "the object does not exist and never will",
    TransactionRequired "TRANSACTION_REQUIRED" "a transaction is necessary",
    TransactionRolledback "TRANSACTION_ROLLEDBACK" "the transaction was rolled back",
    InvalidTransaction "INVALID_TRANSACTION" "the transaction is not valid",
    InvPolicy "INV_POLICY" "policies do not fit together",
    CodesetIncompatible "CODESET_INCOMPATIBLE" "client and server have no code set in common",
    Rebind "REBIND" "the object is elsewhere, and a policy forbids to follow",
    Timeout "TIMEOUT" "the time of the call has passed",
    TransactionUnavailable "TRANSACTION_UNAVAILABLE" "the transaction service cannot be reached",
    TransactionMode "TRANSACTION_MODE" "the object does not allow this kind of transaction",
    BadQos "BAD_QOS" "the quality of service is not supported",
    InvalidActivity "INVALID_ACTIVITY" "the activity is not valid here",
    ActivityCompleted "ACTIVITY_COMPLETED" "the activity has ended",
    ActivityRequired "ACTIVITY_REQUIRED" "an activity is necessary",
    ThreadCancelled "THREAD_CANCELLED" "the thread was cancelled",
}

impl SystemExceptionKind {
    /// The kind with this repository identifier.
    pub fn from_id(id: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.id().as_bytes() == id)
    }
}

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

macro_rules! causes {
    ($($cause:ident $number:literal $text:literal),* $(,)?) => {
        /// Why a call failed: minor codes of this ORB.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $(#[doc = $text] $cause = $number,)*
        }

        impl Cause {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$cause),*];

            /// What it means.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$cause => $text,)*
                }
            }
        }
    };
}

causes! {
    Refused 1 "nothing listens at the address: the connection was refused",
    UnknownHost 2 "the host is not known: its name has no address",
    Unreachable 3 "there is no way to the host",
    NoSocket 4 "there is no Unix socket with this path",
    Denied 5 "the system does not allow the connection",
    Unconnected 6 "no connection could be made",
    Closed 7 "the other end has closed the connection",
    Crowded 8 "all connections to the server are in use",
    NoThread 9 "the server has no thread for the request",
}

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
        let is_it = |(kind, number, _): &&(Kind, u16, _)| *kind == self.kind && u32::from(*number) == minor;
        MINORS.iter().find(is_it).map(|(_, _, meaning)| *meaning)
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

/// Minor codes of the standard, with the exception that has them, that this ORB raises (CORBA A.5).
pub mod minor {
    /// `UNKNOWN`: an exception of the interface that the client does not know.
    pub const UNKNOWN_USER_EXCEPTION: u16 = 1;
    /// `UNKNOWN`: a system exception that the client does not know.
    pub const UNKNOWN_SYSTEM_EXCEPTION: u16 = 2;
    /// `BAD_PARAM`: a stringified reference does not begin with a known scheme.
    pub const BAD_SCHEME: u16 = 7;
    /// `BAD_PARAM`: the address in a stringified reference is wrong.
    pub const BAD_ADDRESS: u16 = 8;
    /// `BAD_PARAM`: the part behind the address is wrong.
    pub const BAD_SCHEME_SPECIFIC: u16 = 9;
    /// `BAD_PARAM`: a stringified reference leads to no object.
    pub const BAD_REFERENCE: u16 = 10;
    /// `INV_OBJREF`: `wchar` without a code set in the reference.
    pub const NO_WIDE_CODE_SET: u16 = 1;
    /// `OBJECT_NOT_EXIST`: an object that is not active.
    pub const NOT_ACTIVE: u16 = 1;
    /// `OBJECT_NOT_EXIST`: an object adapter that does not exist and cannot be made.
    pub const NO_ADAPTER: u16 = 2;
    /// `TRANSIENT`: the request was discarded by its manager's state.
    pub const DISCARDED: u16 = 1;
    /// `TRANSIENT`: no profile can be used.
    pub const NO_USABLE_PROFILE: u16 = 2;
    /// `TRANSIENT`: the request was cancelled.
    pub const CANCELLED: u16 = 3;
    /// `OBJ_ADAPTER`: the adapter's manager is inactive.
    pub const INACTIVE: u16 = 1;
    /// `OBJ_ADAPTER`: no servant, and no default servant.
    pub const NO_SERVANT: u16 = 3;
    /// `BAD_INV_ORDER`: the ORB has been shut down.
    pub const SHUT_DOWN: u16 = 4;
    /// `MARSHAL`: a character that is not in the transmission code set.
    pub const NOT_IN_CODE_SET: u16 = 5;
}

use SystemExceptionKind as Kind;

/// What minor codes of the standard mean.
const MINORS: &[(Kind, u16, &str)] = &[
    (Kind::Unknown, minor::UNKNOWN_USER_EXCEPTION, "an exception that the interface does not declare"),
    (Kind::Unknown, minor::UNKNOWN_SYSTEM_EXCEPTION, "a system exception that the standard does not have"),
    (Kind::BadParam, minor::BAD_SCHEME, "the scheme of the reference is not known"),
    (Kind::BadParam, minor::BAD_ADDRESS, "the address in the reference is wrong"),
    (Kind::BadParam, minor::BAD_SCHEME_SPECIFIC, "the part of the reference behind its address is wrong"),
    (
        Kind::BadParam,
        minor::BAD_REFERENCE,
        "the reference names what its ORB or naming service does not know",
    ),
    (Kind::InvObjref, minor::NO_WIDE_CODE_SET, "the reference names no code set for wide characters"),
    (Kind::ObjectNotExist, minor::NOT_ACTIVE, "the object is not active"),
    (Kind::ObjectNotExist, minor::NO_ADAPTER, "the object adapter does not exist"),
    (Kind::Transient, minor::DISCARDED, "the object adapter discards requests"),
    (Kind::Transient, minor::NO_USABLE_PROFILE, "no address of the reference can be used"),
    (Kind::Transient, minor::CANCELLED, "the request was cancelled"),
    (Kind::ObjAdapter, minor::INACTIVE, "the object adapter is inactive"),
    (Kind::ObjAdapter, minor::NO_SERVANT, "the object has no servant"),
    (Kind::BadInvOrder, minor::SHUT_DOWN, "the ORB has been shut down"),
    (Kind::Marshal, minor::NOT_IN_CODE_SET, "a character is not in the code set of the connection"),
];

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

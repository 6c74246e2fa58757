//! Minor codes of the standard, with the exception that has them, that this ORB raises (CORBA A.5).

use super::SystemExceptionKind as Kind;

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

/// What minor codes of the standard mean.
pub(super) const MEANINGS: &[(Kind, u16, &str)] = &[
    (Kind::Unknown, UNKNOWN_USER_EXCEPTION, "an exception that the interface does not declare"),
    (Kind::Unknown, UNKNOWN_SYSTEM_EXCEPTION, "a system exception that the standard does not have"),
    (Kind::BadParam, BAD_SCHEME, "the scheme of the reference is not known"),
    (Kind::BadParam, BAD_ADDRESS, "the address in the reference is wrong"),
    (Kind::BadParam, BAD_SCHEME_SPECIFIC, "the part of the reference behind its address is wrong"),
    (Kind::BadParam, BAD_REFERENCE, "the reference names what its ORB or naming service does not know"),
    (Kind::InvObjref, NO_WIDE_CODE_SET, "the reference names no code set for wide characters"),
    (Kind::ObjectNotExist, NOT_ACTIVE, "the object is not active"),
    (Kind::ObjectNotExist, NO_ADAPTER, "the object adapter does not exist"),
    (Kind::Transient, DISCARDED, "the object adapter discards requests"),
    (Kind::Transient, NO_USABLE_PROFILE, "no address of the reference can be used"),
    (Kind::Transient, CANCELLED, "the request was cancelled"),
    (Kind::ObjAdapter, INACTIVE, "the object adapter is inactive"),
    (Kind::ObjAdapter, NO_SERVANT, "the object has no servant"),
    (Kind::BadInvOrder, SHUT_DOWN, "the ORB has been shut down"),
    (Kind::Marshal, NOT_IN_CODE_SET, "a character is not in the code set of the connection"),
];

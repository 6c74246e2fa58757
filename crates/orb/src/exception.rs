//! System exceptions that this ORB raises.

use std::io;

use punctual_giop::exception::{Cause, minor};
use punctual_giop::{self as giop, Completion, SystemException, SystemExceptionKind as Kind};

/// The operation does not exist.
pub fn bad_operation() -> SystemException {
    SystemException::new(Kind::BadOperation, 0, Completion::No)
}

/// An exception that the operation does not declare.
pub fn unlisted_exception() -> SystemException {
    SystemException::new(Kind::Unknown, minor::UNKNOWN_USER_EXCEPTION, Completion::Maybe)
}

/// A servant that panicked.
pub(crate) fn panicked() -> SystemException {
    SystemException::new(Kind::Unknown, 0, Completion::Maybe)
}

/// Bytes that are no value of their type.
pub(crate) fn marshal(error: giop::Error, completed: Completion) -> SystemException {
    let minor = if error == giop::Error::Character { minor::NOT_IN_CODE_SET } else { 0 };
    SystemException::new(Kind::Marshal, minor, completed)
}

/// What a failure of a connection is to the caller: `is_sent` if the server may have the request.
pub(crate) fn communication(error: &io::Error, is_sent: bool) -> SystemException {
    let completed = if is_sent { Completion::Maybe } else { Completion::No };
    let kind = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Kind::Timeout,
        io::ErrorKind::InvalidData => Kind::Marshal,
        _ if is_sent => Kind::CommFailure,
        _ => Kind::Transient,
    };
    let exception = SystemException::new(kind, 0, completed);
    match kind {
        Kind::Transient | Kind::CommFailure => exception.with_cause(cause(error, is_sent)),
        _ => exception,
    }
}

/// What the caller can do something about.
fn cause(error: &io::Error, is_sent: bool) -> Cause {
    let is_missing_file = error.raw_os_error().is_some();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Cause::Refused,
        io::ErrorKind::NotFound if is_missing_file => Cause::NoSocket,
        io::ErrorKind::NotFound => Cause::UnknownHost,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Cause::Unreachable,
        io::ErrorKind::PermissionDenied => Cause::Denied,
        io::ErrorKind::ResourceBusy => Cause::Crowded,
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Cause::Closed,
        _ if is_sent => Cause::Closed,
        _ => Cause::Unconnected,
    }
}

/// The object's adapter is not called over connections of this ORB's own calls.
pub(crate) fn not_both_ways() -> SystemException {
    SystemException::new(Kind::NoPermission, 0, Completion::No)
}

/// The ORB has been shut down.
pub(crate) fn shut_down() -> SystemException {
    SystemException::new(Kind::BadInvOrder, minor::SHUT_DOWN, Completion::No)
}

/// No code set that both ends understand.
pub(crate) fn no_code_set() -> SystemException {
    SystemException::new(Kind::CodesetIncompatible, 0, Completion::No)
}

/// A reference without a usable profile.
pub(crate) fn no_usable_profile() -> SystemException {
    SystemException::new(Kind::Transient, minor::NO_USABLE_PROFILE, Completion::No)
}

/// No object, or no object any more.
pub(crate) fn not_active() -> SystemException {
    SystemException::new(Kind::ObjectNotExist, minor::NOT_ACTIVE, Completion::No)
}

/// No adapter with this name.
pub(crate) fn no_adapter() -> SystemException {
    SystemException::new(Kind::ObjectNotExist, minor::NO_ADAPTER, Completion::No)
}

/// The adapter cannot keep what its servant manager made.
pub(crate) fn adapter_failed() -> SystemException {
    SystemException::new(Kind::ObjAdapter, 0, Completion::No)
}

/// All threads serve, and as many requests wait as may: a later call may succeed.
pub(crate) fn no_thread() -> SystemException {
    SystemException::new(Kind::Transient, 0, Completion::No).with_cause(Cause::NoThread)
}

/// The adapter has let the request wait as long as it may.
pub(crate) fn held_too_long() -> SystemException {
    SystemException::new(Kind::Transient, minor::DISCARDED, Completion::No)
}

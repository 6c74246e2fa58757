//! Why operations of the service fail, and which of their exceptions that is.

use punctual_giop::{Completion, SystemException, SystemExceptionKind as Kind};

use super::cos_naming::NameComponent;
use super::cos_naming::naming_context::{
    AlreadyBound, BindContextError, BindError, BindNewContextError, CannotProceed, DestroyError, InvalidName,
    NotEmpty, NotFound, NotFoundReason, RebindContextError, RebindError, ResolveError, UnbindError,
};
use super::cos_naming::naming_context_ext::{ResolveStrError, ToNameError, ToStringError, ToUrlError};
use super::tree::Refused;
use crate::poa::PoaError;

/// Why there is no new context.
pub(super) enum Uncreated {
    Full,
    Adapter(PoaError),
}

impl From<PoaError> for Uncreated {
    fn from(error: PoaError) -> Self {
        Self::Adapter(error)
    }
}

/// Why an operation fails: each of them has some of these as its exceptions.
pub(super) enum Failure {
    NotFound(NotFound),
    CannotProceed(CannotProceed),
    InvalidName,
    AlreadyBound,
    NotEmpty,
    System(SystemException),
}

pub(super) fn system(kind: Kind) -> Failure {
    Failure::System(SystemException::new(kind, 0, Completion::No))
}

impl From<PoaError> for Failure {
    fn from(_: PoaError) -> Self {
        system(Kind::ObjAdapter)
    }
}

impl From<Uncreated> for Failure {
    fn from(uncreated: Uncreated) -> Self {
        match uncreated {
            Uncreated::Full => system(Kind::ImpLimit),
            Uncreated::Adapter(error) => error.into(),
        }
    }
}

/// The exception of an operation that declares none.
pub(super) fn undeclared(failure: Failure) -> SystemException {
    match failure {
        Failure::System(exception) => exception,
        _ => SystemException::new(Kind::Internal, 0, Completion::Maybe),
    }
}

/// The exceptions that an operation declares: with a name that leads nowhere; then the others. What it does not declare does
/// not occur in it, and would be `INTERNAL`.
macro_rules! raises {
    ($($error:ident: $($pattern:pat => $exception:expr),*;)*) => { $(
        impl From<Failure> for $error {
            fn from(failure: Failure) -> Self {
                match failure {
                    $($pattern => $exception.into(),)*
                    Failure::System(exception) => exception.into(),
                    #[allow(unreachable_patterns, reason = "an operation may declare all of them")]
                    _ => SystemException::new(Kind::Internal, 0, Completion::Maybe).into(),
                }
            }
        }
    )* };
}

use Failure as F;

raises! {
    BindError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {}, F::AlreadyBound => AlreadyBound {};
    RebindError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    BindContextError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {}, F::AlreadyBound => AlreadyBound {};
    RebindContextError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    ResolveError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    UnbindError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    BindNewContextError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {}, F::AlreadyBound => AlreadyBound {};
    DestroyError: F::NotEmpty => NotEmpty {};
    ResolveStrError: F::NotFound(e) => e, F::CannotProceed(e) => e, F::InvalidName => InvalidName {};
    ToStringError: F::InvalidName => InvalidName {};
    ToNameError: F::InvalidName => InvalidName {};
    ToUrlError: F::InvalidName => InvalidName {};
}

/// What a refusal of the tree means for the last part of a name.
pub(super) fn failure(refused: Refused, last: &[NameComponent], wanted: NotFoundReason) -> Failure {
    let not_found = |why| Failure::NotFound(NotFound { why, rest_of_name: last.to_vec() });
    match refused {
        Refused::Gone => system(Kind::ObjectNotExist),
        Refused::Missing => not_found(NotFoundReason::MissingNode),
        Refused::OtherKind => not_found(wanted),
        Refused::AlreadyBound => Failure::AlreadyBound,
        Refused::NotEmpty => Failure::NotEmpty,
        Refused::LongName => Failure::InvalidName,
        Refused::Full => system(Kind::ImpLimit),
    }
}

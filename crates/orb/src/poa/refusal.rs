//! Why a request is not served now.

use punctual_giop::exception::minor;
use punctual_giop::{Completion, SystemException, SystemExceptionKind as Kind};

use super::manager::{Manager, State};
use super::serving::Diversion;
use crate::duty::may_wait_for_adapters;
use crate::exception::held_too_long;

/// Why a request is not served now.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is to wait for this manager, and its thread must not.
    Held(Manager),
    /// What its client gets.
    Diverted(Diversion),
}

impl<T: Into<Diversion>> From<T> for Refusal {
    fn from(diversion: T) -> Self {
        Self::Diverted(diversion.into())
    }
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Served {
    /// Its reply is written.
    Done,
    /// Nothing: it is to wait for this manager.
    Held(Manager),
}

impl Served {
    /// For requests that have no place to wait.
    pub fn or_refused(self) -> Result<(), SystemException> {
        match self {
            Self::Done => Ok(()),
            Self::Held(_) => Err(held_too_long()),
        }
    }
}

impl Manager {
    /// Lets a request pass, or says why not.
    pub(super) fn admit(&self) -> Result<(), Refusal> {
        match self.state() {
            State::Active => Ok(()),
            State::Holding if !may_wait_for_adapters() => Err(Refusal::Held(self.clone())),
            State::Holding if self.wait_while_holding() == State::Holding => Err(held_too_long().into()),
            State::Holding => self.admit(),
            State::Discarding => Err(discarded().into()),
            State::Inactive => {
                Err(SystemException::new(Kind::ObjAdapter, minor::INACTIVE, Completion::No).into())
            }
        }
    }
}

fn discarded() -> SystemException {
    SystemException::new(Kind::Transient, minor::DISCARDED, Completion::No)
}

/// An object is ending: a later call finds a new servant.
pub(super) fn ending() -> SystemException {
    SystemException::new(Kind::Transient, 0, Completion::No)
}

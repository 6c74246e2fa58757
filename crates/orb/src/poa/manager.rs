//! Managers of object adapters: whether their requests are served, wait, or are refused (CORBA 11.3.2).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use punctual_giop::exception::minor;
use punctual_giop::{Completion, SystemException, SystemExceptionKind as Kind};

use crate::limits::HOLD_TIME;

/// What becomes of requests. Its number is its place in this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// They wait.
    Holding,
    /// They are served.
    Active,
    /// They are refused: a later one may succeed.
    Discarding,
    /// They are refused for ever.
    Inactive,
}

const STATES: [State; 4] = [State::Holding, State::Active, State::Discarding, State::Inactive];

/// A manager whose adapters have been deactivated for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manager of the object adapter is inactive, which is for ever")]
pub struct Inactive;

/// The manager of one or more object adapters.
#[derive(Clone, Debug)]
pub struct Manager(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: AtomicU8,
    changes: Mutex<()>,
    changed: Condvar,
}

impl Manager {
    pub(super) fn new() -> Self {
        let state = AtomicU8::new(State::Holding as u8);
        Self(Arc::new(Inner { state, changes: Mutex::new(()), changed: Condvar::new() }))
    }

    /// What becomes of requests now.
    pub fn state(&self) -> State {
        STATES[usize::from(self.0.state.load(Ordering::Acquire))]
    }

    /// Serves requests.
    ///
    /// # Errors
    /// [`Inactive`].
    pub fn activate(&self) -> Result<(), Inactive> {
        self.change(State::Active)
    }

    /// Lets requests wait.
    ///
    /// # Errors
    /// [`Inactive`].
    pub fn hold_requests(&self) -> Result<(), Inactive> {
        self.change(State::Holding)
    }

    /// Refuses requests with `TRANSIENT`.
    ///
    /// # Errors
    /// [`Inactive`].
    pub fn discard_requests(&self) -> Result<(), Inactive> {
        self.change(State::Discarding)
    }

    /// Refuses requests with `OBJ_ADAPTER` for ever.
    ///
    /// # Errors
    /// [`Inactive`] if it was done before.
    pub fn deactivate(&self) -> Result<(), Inactive> {
        self.change(State::Inactive)
    }

    fn change(&self, to: State) -> Result<(), Inactive> {
        let changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state() == State::Inactive {
            return Err(Inactive);
        }
        self.0.state.store(to as u8, Ordering::Release);
        self.0.changed.notify_all();
        drop(changes);
        Ok(())
    }

    /// Lets a request pass, or says why not.
    pub(super) fn admit(&self) -> Result<(), SystemException> {
        match self.state() {
            State::Active => Ok(()),
            State::Holding => self.wait(),
            State::Discarding => Err(discarded()),
            State::Inactive => Err(SystemException::new(Kind::ObjAdapter, minor::INACTIVE, Completion::No)),
        }
    }

    fn wait(&self) -> Result<(), SystemException> {
        let changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |_: &mut ()| self.state() == State::Holding;
        let waited = self.0.changed.wait_timeout_while(changes, HOLD_TIME, holds);
        drop(waited);
        if self.state() == State::Holding { Err(discarded()) } else { self.admit() }
    }
}

fn discarded() -> SystemException {
    SystemException::new(Kind::Transient, minor::DISCARDED, Completion::No)
}

//! Managers of object adapters: whether their requests are served, wait, or are refused (CORBA 11.3.2).

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::counted::Mutex;

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

/// What all managers of an ORB have in common.
pub(crate) struct Common {
    /// How long a request waits at most while its manager holds.
    pub hold_time: Duration,
    /// Tells the server that requests which wait without a thread may go on.
    pub when_changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Common({:?})", self.hold_time)
    }
}

/// An adapter, as its manager has it.
pub(super) trait Managed: Send + Sync {
    /// Its objects are not active any more, where an activator makes their servants.
    fn etherealize_all(&self);
    /// Waits until no request is being served.
    fn wait_until_idle(&self);
}

/// The manager of one or more object adapters.
#[derive(Clone, Debug)]
pub struct Manager(Arc<Inner>);

struct Inner {
    state: AtomicU8,
    changes: Mutex<()>,
    changed: Condvar,
    common: Arc<Common>,
    adapters: Mutex<Vec<Weak<dyn Managed>>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Manager({:?})", self.state)
    }
}

impl Manager {
    pub(super) fn new(common: &Arc<Common>) -> Self {
        Self(Arc::new(Inner {
            state: AtomicU8::new(State::Holding as u8),
            changes: Mutex::new(()),
            changed: Condvar::new(),
            common: Arc::clone(common),
            adapters: Mutex::default(),
        }))
    }

    fn adapters(&self) -> MutexGuard<'_, Vec<Weak<dyn Managed>>> {
        self.0.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It manages this adapter, too.
    pub(super) fn add(&self, adapter: Weak<dyn Managed>) {
        let mut adapters = self.adapters();
        adapters.retain(|one| one.strong_count() > 0);
        adapters.push(adapter);
    }

    /// How long a request waits at most while its manager holds.
    pub(crate) fn hold_max(&self) -> Duration {
        self.0.common.hold_time
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

    /// Refuses requests with `OBJ_ADAPTER` for ever. With `etherealize`, objects of adapters with a servant
    /// activator are not active any more: their activator is told.
    ///
    /// # Errors
    /// [`Inactive`] if it was done before.
    pub fn deactivate(&self, etherealize: bool) -> Result<(), Inactive> {
        self.change(State::Inactive)?;
        if etherealize {
            let adapters: Vec<Arc<dyn Managed>> = self.adapters().iter().filter_map(Weak::upgrade).collect();
            adapters.iter().for_each(|adapter| adapter.etherealize_all());
        }
        Ok(())
    }

    /// Waits until no request is being served by its adapters: after [`Manager::hold_requests`] and the others,
    /// what the standard's `wait_for_completion` does. A servant must not wait for itself.
    pub fn wait_until_idle(&self) {
        let adapters: Vec<Arc<dyn Managed>> = self.adapters().iter().filter_map(Weak::upgrade).collect();
        adapters.iter().for_each(|adapter| adapter.wait_until_idle());
    }

    fn change(&self, to: State) -> Result<(), Inactive> {
        let changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state() == State::Inactive {
            return Err(Inactive);
        }
        self.0.state.store(to as u8, Ordering::Release);
        self.0.changed.notify_all();
        drop(changes);
        if let Some(tell) = self.0.common.when_changed.get() {
            tell();
        }
        Ok(())
    }

    /// Waits until it does not hold requests any more, at most as long as they may wait: what becomes of them then.
    pub(super) fn wait_while_holding(&self) -> State {
        let changes = self.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |_: &mut ()| self.state() == State::Holding;
        drop(self.0.changed.wait_timeout_while(changes, self.hold_max(), holds));
        self.state()
    }
}

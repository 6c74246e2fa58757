//! Where an object is found: it is followed from server to server, and of the ways to one the first that works is taken.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use punctual_giop::message::Target;
use punctual_giop::{Completion, Reference, SystemException, SystemExceptionKind as Kind};

use super::Object;
use crate::call::{Failure, Step};
use crate::exception::{no_usable_profile, shut_down};
use crate::limits::FORWARDS_MAX;
use crate::route::{Named, Route, Way};

impl Object {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Route>>> {
        self.0.forward.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the object was found to be.
    pub(super) fn forward(&self) -> Option<Arc<Route>> {
        if self.0.is_forwarded.load(Ordering::Acquire) { self.lock().clone() } else { None }
    }

    fn set_forward(&self, route: Option<Arc<Route>>) {
        let mut forward = self.lock();
        self.0.is_forwarded.store(route.is_some(), Ordering::Release);
        *forward = route;
    }

    /// From now on it is called there.
    pub(super) fn follow(&self, to: &Reference) -> Result<(), SystemException> {
        let route = Route::new(&self.0.core, to)?;
        self.set_forward(Some(Arc::new(route)));
        Ok(())
    }

    /// Has `attempt` call the object, and follows it to where it is.
    pub(super) fn wherever_it_is(
        &self,
        mut attempt: impl FnMut(&Route) -> Result<Step, Failure>,
    ) -> Result<(), SystemException> {
        if self.0.core.is_shut_down() {
            return Err(shut_down());
        }
        for _ in 0..=FORWARDS_MAX {
            let forward = self.forward();
            match attempt(forward.as_deref().unwrap_or(&self.0.route)) {
                Ok(Step::Forward(to)) => self.follow(&to)?,
                Ok(_) => return Ok(()),
                // What forwarded may know better now.
                Err(failure) if forward.is_some() && failure.may_repeat => self.set_forward(None),
                Err(failure) => return Err(failure.exception),
            }
        }
        Err(SystemException::new(Kind::Transient, 0, Completion::No))
    }
}

/// Tries the ways of a route one after the other, while calls on them may be repeated.
pub(super) fn on_first_way(
    route: &Route,
    mut call: impl FnMut(&Way) -> Result<Step, Failure>,
) -> Result<Step, Failure> {
    let mut last = Failure::from(no_usable_profile());
    for (number, way) in route.ways() {
        match call(way) {
            Ok(step) => {
                route.prefer(number);
                return Ok(step);
            }
            Err(failure) if failure.may_repeat => last = failure,
            Err(failure) => return Err(failure),
        }
    }
    Err(last)
}

/// Calls a server, once more if it wants the object named otherwise.
pub(super) fn call_named(
    route: &Route,
    named: &Named,
    mut call: impl FnMut(&Target<'_>) -> Result<Step, Failure>,
) -> Result<Step, Failure> {
    match call(&route.target(named))? {
        Step::Address(addressing) => named.set_addressing(addressing),
        step => return Ok(step),
    }
    match call(&route.target(named))? {
        // It wants one way and then another.
        Step::Address(_) => Err(SystemException::new(Kind::Transient, 0, Completion::No).into()),
        step => Ok(step),
    }
}

//! Objects as clients have them.
//!
//! | module | owns |
//! |---|---|
//! | `ways` | where an object is found, and which way to it works |
//! | `blocking` | calls that wait, and oneway requests |
//! | `asynchronous` | calls whose reply another thread reads |

mod asynchronous;
mod blocking;
mod ways;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use punctual_giop::message::{Response, Target};
use punctual_giop::{
    self as giop, Completion, Encode, Encoder, Reference, SystemException, SystemExceptionKind as Kind,
    Tagged,
};

use crate::call::{Ask, Call, Write};
use crate::contexts::Contexts;
use crate::core::Core;
use crate::counted::Mutex;
use crate::outcome::{Outcome, result};
use crate::pending::Pending;
use crate::route::Route;
use crate::scope::SyncScope;
use crate::transport::Deadline;

/// What clients of an interface are made from. Generated code implements it.
pub trait Stub: Sized {
    /// The interface.
    const REPOSITORY_ID: &'static str;

    /// For this object, whose interface is not checked.
    fn new(object: Object) -> Self;

    /// The object.
    fn object(&self) -> &Object;
}

/// An object that can be called. Copies share its connections.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    reference: Reference,
    route: Route,
    settings: Settings,
    /// Whether the object was found to be elsewhere.
    is_forwarded: AtomicBool,
    forward: Mutex<Option<Arc<Route>>>,
}

/// How an object is called.
#[derive(Clone, Debug, Default)]
struct Settings {
    timeout: Option<Duration>,
    scope: SyncScope,
    contexts: Option<Contexts>,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({})", self.0.reference.type_id)
    }
}

impl Object {
    pub(crate) fn new(core: &Arc<Core>, reference: &Reference) -> Result<Self, SystemException> {
        if reference.is_nil() {
            return Err(SystemException::new(Kind::InvObjref, 0, Completion::No));
        }
        let route = Route::new(core, reference)?;
        let settings = Settings { timeout: core.options.timeout, ..Settings::default() };
        Ok(Self::with(Arc::clone(core), reference.clone(), route, settings))
    }

    fn with(core: Arc<Core>, reference: Reference, route: Route, settings: Settings) -> Self {
        Self(Arc::new(Inner {
            core,
            reference,
            route,
            settings,
            is_forwarded: AtomicBool::new(false),
            forward: Mutex::new(None),
        }))
    }

    fn with_settings(&self, settings: Settings) -> Result<Self, SystemException> {
        let (core, reference) = (Arc::clone(&self.0.core), self.0.reference.clone());
        let route = Route::new(&core, &reference)?;
        Ok(Self::with(core, reference, route, settings))
    }

    /// Its reference.
    pub fn reference(&self) -> &Reference {
        &self.0.reference
    }

    /// The same object, whose calls may take so long; `None`: for ever.
    ///
    /// # Errors
    /// None, unless the reference has become unusable.
    pub fn with_timeout(&self, timeout: Option<Duration>) -> Result<Self, SystemException> {
        self.with_settings(Settings { timeout, ..self.0.settings.clone() })
    }

    /// The same object, whose oneway operations are waited for so far.
    ///
    /// # Errors
    /// As [`Object::with_timeout`].
    pub fn with_sync_scope(&self, scope: SyncScope) -> Result<Self, SystemException> {
        self.with_settings(Settings { scope, ..self.0.settings.clone() })
    }

    /// The same object, whose requests have these service contexts. They take those of the replies.
    ///
    /// # Errors
    /// As [`Object::with_timeout`].
    pub fn with_contexts(&self, contexts: &Contexts) -> Result<Self, SystemException> {
        self.with_settings(Settings { contexts: Some(contexts.clone()), ..self.0.settings.clone() })
    }

    /// Whether the object has this interface.
    ///
    /// # Errors
    /// System exceptions.
    pub fn is_a(&self, interface: &str) -> Result<bool, SystemException> {
        if self.0.reference.type_id == interface {
            return Ok(true);
        }
        let read = |outcome: Outcome<'_>| result(&mut outcome.result()?);
        self.call("_is_a", |to| interface.encode(to), read)
    }

    /// Whether the object is known to exist no more.
    ///
    /// # Errors
    /// System exceptions other than `OBJECT_NOT_EXIST`.
    pub fn is_non_existent(&self) -> Result<bool, SystemException> {
        let read = |outcome: Outcome<'_>| result(&mut outcome.result()?);
        match self.call("_non_existent", |_| Ok(()), read) {
            Err(exception) if exception.kind == Kind::ObjectNotExist => Ok(true),
            answer => answer,
        }
    }

    /// Calls an operation and waits for what comes back. Generated code uses it.
    ///
    /// # Errors
    /// System exceptions, and those that `read` finds.
    pub fn call<T, E: From<SystemException>>(
        &self,
        operation: &str,
        write: impl Fn(&mut Encoder) -> Result<(), giop::Error>,
        read: fn(Outcome<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut outcome = None;
        self.invoke(operation, Response::Target, &write, &mut |found| outcome = Some(read(found)))?;
        outcome.unwrap_or_else(|| Err(SystemException::new(Kind::Internal, 0, Completion::Maybe).into()))
    }

    /// Sends a request of a oneway operation, and waits as far as its [`SyncScope`] says. Generated code uses it.
    ///
    /// # Errors
    /// System exceptions of this ORB.
    pub fn send<E: From<SystemException>>(
        &self,
        operation: &str,
        write: impl Fn(&mut Encoder) -> Result<(), giop::Error>,
    ) -> Result<(), E> {
        let scope = self.0.settings.scope;
        if scope == SyncScope::None && self.send_later(operation, &write)? {
            return Ok(());
        }
        let mut ended = Ok(());
        self.invoke(operation, scope.response(), &write, &mut |outcome| ended = outcome.end())?;
        Ok(ended?)
    }

    /// Calls an operation without waiting. Generated code uses it.
    pub fn call_async<T: Send + 'static, E: From<SystemException> + Send + 'static>(
        &self,
        operation: &str,
        write: impl Fn(&mut Encoder) -> Result<(), giop::Error>,
        read: fn(Outcome<'_>) -> Result<T, E>,
    ) -> Pending<T, E> {
        let (pending, promise) = Pending::new(read);
        self.send_async(operation, &write, Box::new(move |outcome| promise.fulfil(outcome)));
        pending
    }

    /// Asks the server whether the object is there, without calling it: the question is a `LocateRequest`. Calls go to
    /// where it is found.
    ///
    /// # Errors
    /// System exceptions other than `OBJECT_NOT_EXIST`.
    pub fn locate(&self) -> Result<bool, SystemException> {
        match self.ask_where() {
            Ok(()) => Ok(true),
            Err(exception) if exception.kind == Kind::ObjectNotExist => Ok(false),
            Err(exception) => Err(exception),
        }
    }

    fn deadline(&self) -> Deadline {
        self.0.settings.timeout.map(|timeout| Instant::now() + timeout)
    }

    /// The service contexts of requests. Without any, this takes no memory.
    fn contexts(&self) -> Vec<Tagged<'_>> {
        self.0.settings.contexts.as_ref().map_or_else(Vec::new, Contexts::sent)
    }

    fn to_call<'c>(
        &'c self,
        target: &'c Target<'c>,
        operation: &'c str,
        response: Response,
        contexts: &'c [Tagged<'c>],
        write: Write<'c>,
    ) -> Call<'c> {
        let (ask, received) = (Ask::Perform, self.0.settings.contexts.as_ref());
        Call { ask, target, operation, response, contexts, received, write }
    }
}

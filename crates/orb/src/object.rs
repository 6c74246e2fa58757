//! Objects as clients have them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use punctual_giop::message::{RequestId, Response};
use punctual_giop::{
    self as giop, ByteOrder, Completion, Encode, Encoder, Reference, SystemException,
    SystemExceptionKind as Kind, Tagged, Version,
};

use crate::call::{Call, Failure, Step, Write};
use crate::contexts::Contexts;
use crate::core::Core;
use crate::counted::Mutex;
use crate::exception::{marshal, no_usable_profile, shut_down};
use crate::limits::FORWARDS_MAX;
use crate::outcome::{Outcome, result};
use crate::pending::Pending;
use crate::route::{Route, Way, call_local, call_remote, send_message};
use crate::scope::SyncScope;
use crate::shared::{Done, Forwarded, Sent};
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

    fn deadline(&self) -> Deadline {
        self.0.settings.timeout.map(|timeout| Instant::now() + timeout)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Route>>> {
        self.0.forward.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the object was found to be.
    fn forward(&self) -> Option<Arc<Route>> {
        if self.0.is_forwarded.load(Ordering::Acquire) { self.lock().clone() } else { None }
    }

    fn set_forward(&self, route: Option<Arc<Route>>) {
        let mut forward = self.lock();
        self.0.is_forwarded.store(route.is_some(), Ordering::Release);
        *forward = route;
    }

    /// Calls, and follows the object to where it is.
    fn invoke(
        &self,
        operation: &str,
        response: Response,
        write: Write<'_>,
        read: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<(), SystemException> {
        if self.0.core.is_shut_down() {
            return Err(shut_down());
        }
        let deadline = self.deadline();
        for _ in 0..=FORWARDS_MAX {
            let forward = self.forward();
            let route = forward.as_deref().unwrap_or(&self.0.route);
            match self.try_ways(route, operation, response, write, deadline, read) {
                Ok(Step::Done) => return Ok(()),
                Ok(Step::Forward(to)) => self.follow(&to)?,
                // What forwarded may know better now.
                Err(failure) if forward.is_some() && failure.may_repeat => self.set_forward(None),
                Err(failure) => return Err(failure.exception),
            }
        }
        Err(SystemException::new(Kind::Transient, 0, Completion::No))
    }

    pub(crate) fn follow(&self, to: &Reference) -> Result<(), SystemException> {
        let route = Route::new(&self.0.core, to)?;
        self.set_forward(Some(Arc::new(route)));
        Ok(())
    }

    /// The service contexts of requests. Without any, this takes no memory.
    fn contexts(&self) -> Vec<Tagged<'_>> {
        self.0.settings.contexts.as_ref().map_or_else(Vec::new, Contexts::sent)
    }

    fn to_call<'c>(
        &'c self,
        key: &'c [u8],
        operation: &'c str,
        response: Response,
        contexts: &'c [Tagged<'c>],
        write: Write<'c>,
    ) -> Call<'c> {
        Call { key, operation, response, contexts, received: self.0.settings.contexts.as_ref(), write }
    }

    /// Lets another thread send a request. `false` if the object is in this process, so that none is sent.
    fn send_later(&self, operation: &str, write: Write<'_>) -> Result<bool, SystemException> {
        if self.0.core.is_shut_down() {
            return Err(shut_down());
        }
        let forward = self.forward();
        let route = forward.as_deref().unwrap_or(&self.0.route);
        let Some((_, Way::Remote(peer, key))) = route.ways().next() else { return Ok(false) };
        let mut to = Encoder::new(ByteOrder::NATIVE, peer.version);
        to.set_characters(peer.characters());
        let contexts = self.contexts();
        let call = self.to_call(key, operation, Response::None, &contexts, write);
        call.encode(RequestId(0), peer.chosen_context().as_ref(), &mut to)?;
        let (of_thread, timeout) = (Arc::clone(peer), self.0.settings.timeout);
        peer.later.send(Box::new(move || {
            // Whether it arrives is not known.
            let _ = send_message(&of_thread, to.as_bytes(), timeout.map(|timeout| Instant::now() + timeout));
        }))?;
        Ok(true)
    }

    fn try_ways(
        &self,
        route: &Route,
        operation: &str,
        response: Response,
        write: Write<'_>,
        deadline: Deadline,
        read: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Step, Failure> {
        let mut last = Failure::from(no_usable_profile());
        let contexts = self.contexts();
        for (number, way) in route.ways() {
            let call = |key| self.to_call(key, operation, response, &contexts, write);
            let called = match way {
                Way::Local(key) => call_local(&self.0.core, &call(key), read),
                Way::Remote(peer, key) => call_remote(peer, &call(key), deadline, read),
            };
            match called {
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

    /// Sends a request whose reply another thread reads.
    fn send_async(&self, operation: &str, write: Write<'_>, done: Done) {
        if self.0.core.is_shut_down() {
            return done(Outcome::System(shut_down()));
        }
        let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        match write(&mut to) {
            Ok(()) => {
                let arguments = Arc::from(to.into_bytes());
                self.send_arguments(operation, &arguments, Some(write), self.deadline(), 0, done);
            }
            Err(error) => done(Outcome::System(marshal(error, Completion::No))),
        }
    }

    /// Sends a request with these arguments, encoded as GIOP 1.2 has them. `write` is for other versions, whose
    /// arguments are aligned by what is before them.
    fn send_arguments(
        &self,
        operation: &str,
        arguments: &Arc<[u8]>,
        write: Option<Write<'_>>,
        deadline: Deadline,
        forwards: usize,
        done: Done,
    ) {
        let write_again = |to: &mut Encoder| {
            to.write(arguments);
            Ok(())
        };
        let forward = self.forward();
        let route = forward.as_deref().unwrap_or(&self.0.route);
        let (mut done, mut last) = (done, no_usable_profile());
        let contexts = self.contexts();
        for (number, way) in route.ways() {
            let (peer, key) = match way {
                Way::Local(key) => {
                    let call = self.to_call(key, operation, Response::Target, &contexts, &write_again);
                    return self.call_local_later(&call, done);
                }
                Way::Remote(peer, key) => (peer, key),
            };
            let write: Write<'_> = match write {
                _ if peer.version == Version::V1_2 => &write_again,
                Some(write) => write,
                // The object was found elsewhere: the next call goes there.
                None => continue,
            };
            let call = self.to_call(key, operation, Response::Target, &contexts, write);
            let forwarded = self.forwarded(operation, arguments, deadline, forwards);
            match peer.send_shared(
                &call,
                Sent { done, forwarded, deadline, received: self.0.settings.contexts.clone() },
            ) {
                Ok(()) => return route.prefer(number),
                Err((exception, Some(back))) => (last, done) = (exception, back.done),
                // The reader was quicker: it has told the caller.
                Err((_, None)) => return,
            }
        }
        done(Outcome::System(last));
    }

    /// What follows the object of an asynchronous call.
    fn forwarded(
        &self,
        operation: &str,
        arguments: &Arc<[u8]>,
        deadline: Deadline,
        forwards: usize,
    ) -> Forwarded {
        let (object, operation, arguments) = (self.clone(), operation.to_owned(), Arc::clone(arguments));
        Box::new(move |to, done| {
            if forwards == FORWARDS_MAX {
                let endless = SystemException::new(Kind::Transient, 0, Completion::No);
                return done(Outcome::System(endless));
            }
            match object.follow(&to) {
                Ok(()) => {
                    object.send_arguments(&operation, &arguments, None, deadline, forwards + 1, done);
                }
                Err(exception) => done(Outcome::System(exception)),
            }
        })
    }

    fn call_local_later(&self, call: &Call<'_>, done: Done) {
        let mut done = Some(done);
        let mut read = |outcome: Outcome<'_>| {
            if let Some(done) = done.take() {
                done(outcome);
            }
        };
        let called = call_local(&self.0.core, call, &mut read);
        let Some(done) = done else { return };
        match called {
            Ok(Step::Forward(to)) => match self.follow(&to) {
                // A servant that sends its callers elsewhere: the next call goes there.
                Ok(()) => done(Outcome::System(SystemException::new(Kind::Transient, 0, Completion::No))),
                Err(exception) => done(Outcome::System(exception)),
            },
            Ok(Step::Done) => {}
            Err(failure) => done(Outcome::System(failure.exception)),
        }
    }
}

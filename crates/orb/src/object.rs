//! Objects as clients have them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use punctual_giop::characters::CharacterSet;
use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{RequestId, Response, Target};
use punctual_giop::{
    self as giop, ByteOrder, Completion, Encode, Encoder, Reference, SystemException,
    SystemExceptionKind as Kind, Tagged, Version,
};

use crate::call::{Ask, Call, Failure, Step, Write};
use crate::contexts::Contexts;
use crate::core::Core;
use crate::counted::Mutex;
use crate::exception::{marshal, no_usable_profile, shut_down};
use crate::limits::FORWARDS_MAX;
use crate::outcome::{Outcome, result};
use crate::pending::Pending;
use crate::route::{Named, Route, Way, call_local, call_remote, locate_local, send_message};
use crate::scope::SyncScope;
use crate::shared::{Again, Awaits, Done, Redirect, Sent};
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
                Ok(Step::Forward(to)) => self.follow(&to)?,
                Ok(_) => return Ok(()),
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
        target: &'c Target<'c>,
        operation: &'c str,
        response: Response,
        contexts: &'c [Tagged<'c>],
        write: Write<'c>,
    ) -> Call<'c> {
        let (ask, received) = (Ask::Perform, self.0.settings.contexts.as_ref());
        Call { ask, target, operation, response, contexts, received, write }
    }

    /// Lets another thread send a request. `false` if the object is in this process, so that none is sent.
    fn send_later(&self, operation: &str, write: Write<'_>) -> Result<bool, SystemException> {
        if self.0.core.is_shut_down() {
            return Err(shut_down());
        }
        let forward = self.forward();
        let route = forward.as_deref().unwrap_or(&self.0.route);
        let Some((_, Way::Remote(peer, named))) = route.ways().next() else { return Ok(false) };
        let mut to = Encoder::new(ByteOrder::NATIVE, peer.version);
        to.set_characters(peer.characters());
        let (target, contexts) = (route.target(named), self.contexts());
        let call = self.to_call(&target, operation, Response::None, &contexts, write);
        let chosen = peer.chosen_context();
        let first = chosen.as_ref().map(|data| Tagged { id: CODE_SETS, data });
        call.encode(RequestId(0), first.as_slice(), &mut to)?;
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
            let called = match way {
                Way::Local(key) => {
                    let target = Target::Key(key);
                    call_local(
                        &self.0.core,
                        &self.to_call(&target, operation, response, &contexts, write),
                        read,
                    )
                }
                Way::Remote(peer, named) => call_named(route, named, |target| {
                    let call = self.to_call(target, operation, response, &contexts, write);
                    call_remote(peer, &call, deadline, read)
                }),
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

    /// Asks the server whether the object is there, without calling it: the question is a `LocateRequest`. Calls go to
    /// where it is found.
    ///
    /// # Errors
    /// System exceptions other than `OBJECT_NOT_EXIST`.
    pub fn locate(&self) -> Result<bool, SystemException> {
        if self.0.core.is_shut_down() {
            return Err(shut_down());
        }
        let deadline = self.deadline();
        for _ in 0..=FORWARDS_MAX {
            let forward = self.forward();
            let route = forward.as_deref().unwrap_or(&self.0.route);
            let mut answer = Ok(());
            match self.locate_by(route, deadline, &mut |outcome| answer = outcome.end()) {
                Ok(Step::Forward(to)) => self.follow(&to)?,
                Ok(_) => {
                    return match answer {
                        Ok(()) => Ok(true),
                        Err(exception) if exception.kind == Kind::ObjectNotExist => Ok(false),
                        Err(exception) => Err(exception),
                    };
                }
                Err(failure) if forward.is_some() && failure.may_repeat => self.set_forward(None),
                Err(failure) => return Err(failure.exception),
            }
        }
        Err(SystemException::new(Kind::Transient, 0, Completion::No))
    }

    fn locate_by(
        &self,
        route: &Route,
        deadline: Deadline,
        read: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Step, Failure> {
        let mut last = Failure::from(no_usable_profile());
        for (number, way) in route.ways() {
            let located = match way {
                Way::Local(key) => Ok(locate_local(&self.0.core, key, read)),
                Way::Remote(peer, named) => call_named(route, named, |target| {
                    call_remote(peer, &Call::locate(target), deadline, read)
                }),
            };
            match located {
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
        let forward = self.forward();
        let characters = forward.as_deref().unwrap_or(&self.0.route).characters();
        let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        to.set_characters(characters);
        match write(&mut to) {
            Ok(()) => {
                let later = Later {
                    object: self.clone(),
                    operation: operation.into(),
                    arguments: to.into_bytes().into(),
                    characters,
                    deadline: self.deadline(),
                    attempts: 0,
                };
                later.send(Some(write), done);
            }
            Err(error) => done(Outcome::System(marshal(error, Completion::No))),
        }
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
            Ok(_) => {}
            Err(failure) => done(Outcome::System(failure.exception)),
        }
    }
}

/// Calls a server, once more if it wants the object named otherwise.
fn call_named(
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

/// A call that does not wait. It can be sent again while it has no outcome.
#[derive(Clone)]
struct Later {
    object: Object,
    operation: Arc<str>,
    /// As GIOP 1.2 has them.
    arguments: Arc<[u8]>,
    /// Of their strings.
    characters: CharacterSet,
    deadline: Deadline,
    /// How often it was sent again.
    attempts: usize,
}

impl Later {
    /// Sends it. `write` is for other versions, whose arguments are aligned by what is before them, and for other code
    /// sets. Without it, servers that need it are not called.
    fn send(&self, write: Option<Write<'_>>, done: Done) {
        let write_again = |to: &mut Encoder| {
            to.write(&self.arguments);
            Ok(())
        };
        let forward = self.object.forward();
        let route = forward.as_deref().unwrap_or(&self.object.0.route);
        let (mut done, mut last) = (done, no_usable_profile());
        let contexts = self.object.contexts();
        for (number, way) in route.ways() {
            let (peer, named) = match way {
                Way::Local(key) => {
                    let write: Write<'_> = match write {
                        _ if self.characters == CharacterSet::Utf8 => &write_again,
                        Some(write) => write,
                        None => continue,
                    };
                    let (target, operation) = (Target::Key(key), &*self.operation);
                    let call = self.object.to_call(&target, operation, Response::Target, &contexts, write);
                    return self.object.call_local_later(&call, done);
                }
                Way::Remote(peer, named) => (peer, named),
            };
            let write: Write<'_> = match write {
                _ if peer.version == Version::V1_2 && peer.characters() == self.characters => &write_again,
                Some(write) => write,
                None => continue,
            };
            let (target, operation) = (&route.target(named), &*self.operation);
            let call = self.object.to_call(target, operation, Response::Target, &contexts, write);
            let awaits = Awaits::Later(done, self.again(number));
            let received = self.object.0.settings.contexts.clone();
            match peer.send_shared(&call, Sent { awaits, deadline: self.deadline, received }) {
                Ok(()) => return route.prefer(number),
                Err((exception, Some(Sent { awaits: Awaits::Later(back, _), .. }))) => {
                    (last, done) = (exception, back);
                }
                // The reader was quicker: it has told the caller.
                Err(_) => return,
            }
        }
        done(Outcome::System(last));
    }

    /// What is done if it must be sent again.
    fn again(&self, way: usize) -> Again {
        let mut later = self.clone();
        Box::new(move |redirect, done| {
            if later.attempts == FORWARDS_MAX {
                let endless = SystemException::new(Kind::Transient, 0, Completion::No);
                return done(Outcome::System(endless));
            }
            later.attempts += 1;
            match later.object.redirect(redirect, way) {
                Ok(()) => later.send(None, done),
                Err(exception) => done(Outcome::System(exception)),
            }
        })
    }
}

impl Object {
    /// Calls go where a server wants them.
    fn redirect(&self, redirect: Redirect, way: usize) -> Result<(), SystemException> {
        match redirect {
            Redirect::Forward(to) => self.follow(&to)?,
            Redirect::Address(addressing) => {
                let forward = self.forward();
                forward.as_deref().unwrap_or(&self.0.route).set_addressing(way, addressing);
            }
            Redirect::Reconnect => {}
        }
        Ok(())
    }
}

//! Calls whose reply another thread reads.

use std::sync::Arc;

use punctual_giop::characters::CharacterSet;
use punctual_giop::message::{Response, Target};
use punctual_giop::{ByteOrder, Completion, Encoder, SystemException, SystemExceptionKind as Kind, Version};

use super::Object;
use crate::call::{Call, Step, Write};
use crate::exception::{marshal, no_usable_profile, shut_down};
use crate::limits::FORWARDS_MAX;
use crate::outcome::Outcome;
use crate::route::{Way, call_local};
use crate::shared::{Again, Awaits, Done, Redirect, Sent};
use crate::transport::Deadline;

impl Object {
    /// Sends a request whose reply another thread reads.
    pub(super) fn send_async(&self, operation: &str, write: Write<'_>, done: Done) {
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

//! Requests that nobody waits for, not even until they are written ([`crate::SyncScope::None`]).
//!
//! Each server has a thread for them, from the first on. It ends with the server's last reference.

use std::fmt;
use std::io;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use punctual_giop::{Completion, SystemException, SystemExceptionKind as Kind};

use crate::counted::Mutex;
use crate::limits::LATER_MAX;

/// What sends one of them.
pub(crate) type Send = Box<dyn FnOnce() + std::marker::Send>;

/// The requests for one server.
#[derive(Default)]
pub(crate) struct Later(Mutex<Option<SyncSender<Send>>>);

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}

impl Later {
    /// Sends a request soon.
    ///
    /// # Errors
    /// `TRANSIENT` if too many wait; `NO_RESOURCES` if there is no thread.
    pub fn send(&self, request: Send) -> Result<(), SystemException> {
        let refused = |kind| SystemException::new(kind, 0, Completion::No);
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match queue.as_ref() {
            Some(sender) => sender,
            None => queue.insert(start().map_err(|_| refused(Kind::NoResources))?),
        };
        match sender.try_send(request) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(refused(Kind::Transient)),
        }
    }
}

fn start() -> io::Result<SyncSender<Send>> {
    let (sender, receiver): (_, Receiver<Send>) = sync_channel(LATER_MAX);
    let builder = thread::Builder::new().name("punctual-later".to_owned());
    builder.spawn(move || receiver.into_iter().for_each(|request| request()))?;
    Ok(sender)
}

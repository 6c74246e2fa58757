//! Clients that come, and those that are read elsewhere.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use punctual_giop::codeset::Chosen;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::super::STACK_BYTES;
use super::super::adopted::{Offer, adopt};
use super::super::connection::Connection;
use super::super::listener::Listener;
use super::{Entry, LISTENERS, Reactor};
use crate::budget::Account;
use crate::inbox::Inbox;
use crate::limits::{ACCEPT_PAUSE, ACCEPTS_PER_TURN};
use crate::serving_permit::ServingPermit;
use crate::transport::Stream;

pub(super) fn await_clients(epoll: &OwnedFd, listeners: &[Arc<Listener>]) -> io::Result<()> {
    for (number, listener) in listeners.iter().enumerate() {
        epoll::add(epoll, listener, EventData::new_u64(LISTENERS - number as u64), EventFlags::IN)?;
    }
    Ok(())
}

impl Reactor {
    /// Takes new clients.
    pub(super) fn accept(&self, listener: &Listener) {
        for _ in 0..ACCEPTS_PER_TURN {
            match listener.accept() {
                Ok(stream) => self.begin(stream),
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::MFILE | Errno::NFILE) => return self.pause(),
                    // Nobody, or a client that is gone already.
                    _ => return,
                },
            }
        }
    }

    /// No descriptor is left: clients wait until others have ended.
    pub(super) fn pause(&self) {
        for listener in &self.listeners {
            let _ = epoll::delete(&self.epoll, listener);
        }
        self.accepts_again.set(Some(Instant::now() + ACCEPT_PAUSE));
    }

    fn begin(&self, stream: Stream) {
        let number = self.last.get() + 1;
        self.last.set(number);
        let connection = Arc::new(Connection::new(number, stream, self.framing, &self.core.budget));
        let adopted = self.adopted.borrow().iter().filter(|one| one.strong_count() > 0).count();
        let open = self.entries.borrow().len() + self.served.borrow().len() + adopted;
        if open >= self.core.options.connections_max {
            let mut outbox = self.take_outbox();
            connection.close(&mut outbox);
            return self.outbox.set(Some(outbox));
        }
        let inbox = Inbox::of_client(self.framing, Account::new(&self.core.budget, &connection.stream));
        let entry = Entry {
            connection,
            inbox,
            characters: Chosen::DEFAULT.characters,
            offer: Offer::default(),
            held: None,
            owed: None,
        };
        self.put_back(entry);
    }

    /// Both ends call on this connection from now on: it has a thread of its own, which reads it.
    pub(super) fn adopt(&self, entry: Entry) {
        let Entry { connection, inbox, offer, characters, .. } = entry;
        // It fails if the connection was not awaited.
        let _ = self.wait_for(&connection, EventFlags::empty());
        let (core, stream) = (Arc::clone(&self.core), Arc::clone(&connection.stream));
        let mut adopted = self.adopted.borrow_mut();
        adopted.retain(|other| other.strong_count() > 0);
        adopted.push(Arc::downgrade(&stream));
        let builder = thread::Builder::new().name("punctual-serve".to_owned()).stack_size(STACK_BYTES);
        let Some(permit) = ServingPermit::take() else { return connection.stream.shutdown() };
        let serve = move || {
            let _permit = permit;
            adopt(&core, &stream, inbox, offer, characters);
            stream.shutdown();
        };
        if builder.spawn(serve).is_err() {
            connection.stream.shutdown();
        }
    }
}

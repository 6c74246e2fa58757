//! A thread for each connection: it reads requests, calls servants and sends replies.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use punctual_giop::{Encoder, message};

use super::STACK_BYTES;
use super::adopted::{Offer, adopt};
use super::listener::Listener;
use super::replies::Replies;
use crate::answer::{Answer, answer, kind, new_outbox, refuse_bytes, renew};
use crate::budget::Account;
use crate::core::Core;
use crate::counted::Mutex;
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::limits::{ACCEPT_PAUSE, GOODBYE, LARGE_BUFFER_BYTES, LARGE_BUFFER_TIME};
use crate::main_thread_request::hand_over_and_wait;
use crate::serving_permit::ServingPermit;
use crate::tick::tick;
use crate::transport::Stream;

/// Connections that are open, by number.
#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Stream>>,
    last: u64,
    is_closed: bool,
}

/// What the threads of all connections share.
#[derive(Debug, Default)]
struct Table {
    open: Mutex<Open>,
    /// A connection has ended.
    ended: Condvar,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, number: u64) {
        self.lock().streams.remove(&number);
        self.ended.notify_all();
    }
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(super) struct Threads(Arc<Table>);

impl Threads {
    /// Starts a thread that accepts clients.
    pub fn accept(&self, core: &Arc<Core>, listener: &Arc<Listener>) -> io::Result<JoinHandle<()>> {
        let (core, listener, table) = (Arc::clone(core), Arc::clone(listener), Arc::clone(&self.0));
        let builder = thread::Builder::new().name("punctual-accept".to_owned());
        builder.spawn(move || accept_all(&core, &listener, &table))
    }

    /// Ends all connections.
    pub fn close(&self) {
        let mut open = self.0.lock();
        open.is_closed = true;
        // Each thread sends the reply that it owes, then says goodbye. Nobody waits long for a client that does not
        // read, or for a servant that does not end.
        for stream in open.streams.values() {
            let _ = stream.set_write_timeout(Some(GOODBYE));
            stream.shutdown_read();
        }
        let waited = self.0.ended.wait_timeout_while(open, GOODBYE, |open| !open.streams.is_empty());
        let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        open.streams.values().for_each(|stream| stream.shutdown());
    }
}

/// Ends a connection on which no thread writes.
fn close(stream: &Stream) {
    let _ = stream.set_write_timeout(Some(GOODBYE));
    say_goodbye(stream, &mut new_outbox());
    stream.shutdown();
}

/// Says goodbye, so that the client knows that its requests were not processed.
fn say_goodbye(stream: &Stream, outbox: &mut Encoder) {
    outbox.clear();
    if message::write_close_connection(outbox).is_ok() {
        // A client that is gone needs no goodbye.
        let _ = stream.write(outbox.as_bytes(), &[]);
    }
}

fn accept_all(core: &Arc<Core>, listener: &Listener, table: &Arc<Table>) {
    while !core.is_shut_down() {
        match listener.accept() {
            Ok(stream) => start(core, stream, table),
            Err(_) if core.is_shut_down() => return,
            // A client that is gone already: others may come.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // No descriptor or memory left: it cannot be said when there is one again.
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Starts the thread of a connection, if there may be one more.
fn start(core: &Arc<Core>, stream: Stream, table: &Arc<Table>) {
    let stream = Arc::new(stream);
    let Some(permit) = ServingPermit::take() else { return close(&stream) };
    let number = {
        let mut open = table.lock();
        if open.is_closed || open.streams.len() >= core.options.connections_max {
            return close(&stream);
        }
        open.last += 1;
        let number = open.last;
        open.streams.insert(number, Arc::clone(&stream));
        number
    };
    let (core, of_thread) = (Arc::clone(core), Arc::clone(table));
    let serve = move || {
        let _permit = permit;
        serve(&core, &stream);
        stream.shutdown();
        of_thread.remove(number);
    };
    let name = "punctual-serve".to_owned();
    if thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(serve).is_err() {
        table.remove(number);
    }
}

/// Gives the memory of a long reply back if its client says nothing for a while.
fn rest(inbox: &Inbox, stream: &Stream, outbox: &mut Encoder) {
    if outbox.capacity() <= LARGE_BUFFER_BYTES || inbox.has_more() {
        return;
    }
    // Failures are found when the stream is read.
    let waited = stream.wait_until_readable(Some(Instant::now() + LARGE_BUFFER_TIME));
    if waited.is_err() {
        renew(outbox);
    }
}

/// Serves the requests of a connection until it ends.
fn serve(core: &Arc<Core>, stream: &Arc<Stream>) {
    let framing = Framing::of(&core.options);
    let mut inbox = Inbox::of_client(framing, Account::new(&core.budget, stream));
    let mut replies = Replies::new(framing, &core.budget, stream);
    let (mut outbox, mut offer) = (new_outbox(), Offer::default());
    loop {
        rest(&inbox, stream, &mut outbox);
        match inbox.next(stream, None) {
            // Requests that were not begun are not begun any more: the client learns that.
            Ok(_) if core.is_shut_down() => return say_goodbye(stream, &mut outbox),
            Ok(true) => {}
            Ok(false) => return,
            Err(_) if core.is_shut_down() => return say_goodbye(stream, &mut outbox),
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    refuse_bytes(&mut outbox);
                    // The connection ends all the same.
                    let _ = replies.send(outbox.as_bytes());
                }
                return;
            }
        }
        if offer.is_accepted(core, &inbox) {
            return adopt(core, stream, inbox, offer, outbox.characters());
        }
        let begun = tick();
        let mut send = |bytes: &[u8]| {
            if replies.send(bytes).is_err() {
                stream.shutdown();
            }
        };
        if core.registry.wants_main_thread(inbox.message()) {
            let mut characters = outbox.characters();
            kind(inbox.message(), &mut characters);
            outbox.set_characters(characters);
            hand_over_and_wait(&core.registry, inbox.take_message().into(), characters, &mut send);
            continue;
        }
        let answered = answer(&core.registry, inbox.message(), &mut outbox, &mut send);
        if let Answer::Done(Some(id)) = answered {
            // Who asked may not wait any more. The socket is looked at only where the servant took long.
            let took_long = begun != tick();
            if inbox.is_cancelled(id, took_long.then_some(stream)) {
                outbox.clear();
            }
        }
        if !outbox.as_bytes().is_empty() && replies.send(outbox.as_bytes()).is_err() {
            return;
        }
        if !matches!(answered, Answer::Done(_)) {
            return;
        }
    }
}

//! A thread for each connection: it reads requests, calls servants and sends replies.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;

use super::answer::{answer, new_outbox, refuse};
use super::listener::Listener;
use super::{Open, close, lock, say_goodbye};
use crate::core::Core;
use crate::duplex::{adopt, is_offered};
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::limits::ACCEPT_PAUSE;
use crate::link::tick;
use crate::transport::Stream;

pub(super) fn accept_all(core: &Arc<Core>, listener: &Listener, open: &Arc<Mutex<Open>>) {
    while !core.is_shut_down() {
        match listener.accept() {
            Ok(stream) => start(core, stream, open),
            Err(_) if core.is_shut_down() => return,
            // A client that is gone already: others may come.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // No descriptor or memory left: it cannot be said when there is one again.
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Starts the thread of a connection, if there may be one more.
fn start(core: &Arc<Core>, stream: Stream, open: &Arc<Mutex<Open>>) {
    let stream = Arc::new(stream);
    let number = {
        let mut open = lock(open);
        if open.is_closed || open.streams.len() >= core.options.connections_max {
            return close(&stream);
        }
        open.last += 1;
        let number = open.last;
        open.streams.insert(number, Arc::clone(&stream));
        number
    };
    let (core, of_thread) = (Arc::clone(core), Arc::clone(open));
    let serve = move || {
        serve(&core, &stream);
        stream.shutdown();
        lock(&of_thread).streams.remove(&number);
    };
    let name = "punctual-serve".to_owned();
    if thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(serve).is_err() {
        lock(open).streams.remove(&number);
    }
}

/// Servants run on it.
const STACK_BYTES: usize = 1 << 20;

/// Serves the requests of a connection until it ends.
fn serve(core: &Arc<Core>, stream: &Arc<Stream>) {
    let framing = Framing::of(&core.options);
    let mut inbox = Inbox::new(framing);
    let mut outbox = new_outbox();
    loop {
        match inbox.next(stream, None) {
            // Requests that were not begun are not begun any more: the client learns that.
            Ok(_) if core.is_shut_down() => return say_goodbye(stream, &mut outbox),
            Ok(true) => {}
            Ok(false) => return,
            Err(_) if core.is_shut_down() => return say_goodbye(stream, &mut outbox),
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    refuse(stream, &mut outbox);
                }
                return;
            }
        }
        if is_offered(core, &inbox) {
            return adopt(core, stream, inbox, outbox.characters());
        }
        let begun = tick();
        let answered = answer(core, inbox.message(), &mut outbox);
        if let Some(id) = answered.id {
            // Who asked may not wait any more. The socket is looked at only where the servant took long.
            let took_long = begun != tick();
            if inbox.is_cancelled(id, took_long.then_some(stream)) {
                outbox.clear();
            }
        }
        if !outbox.as_bytes().is_empty() && framing.send(stream, outbox.as_bytes()).is_err() {
            return;
        }
        if !answered.goes_on {
            return;
        }
    }
}

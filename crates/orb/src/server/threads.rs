//! A thread for each connection: it reads requests, calls servants and sends replies.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use punctual_giop::codeset::Chosen;
use punctual_giop::message;
use punctual_giop::{ByteOrder, Encoder, Version};

use super::STACK_BYTES;
use super::answer::{Answer, answer, refuse};
use super::listener::Listener;
use crate::core::Core;
use crate::counted::Mutex;
use crate::inbox::Inbox;
use crate::limits::ACCEPT_PAUSE;
use crate::transport::Stream;

/// Connections that are open, by number.
#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Stream>>,
    last: u64,
    is_closed: bool,
}

/// All connections of a server.
#[derive(Debug, Default)]
pub(super) struct Threads(Arc<Mutex<Open>>);

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// Starts a thread that accepts clients.
    pub fn accept(&self, core: &Arc<Core>, listener: &Arc<Listener>) -> io::Result<JoinHandle<()>> {
        let (core, listener, open) = (Arc::clone(core), Arc::clone(listener), Arc::clone(&self.0));
        let builder = thread::Builder::new().name("punctual-accept".to_owned());
        builder.spawn(move || accept_all(&core, &listener, &open))
    }

    /// Ends all connections.
    pub fn close(&self) {
        let mut open = lock(&self.0);
        open.is_closed = true;
        open.streams.values().for_each(|stream| close(stream));
    }
}

/// Says goodbye, so that the client knows that its requests were not processed.
fn close(stream: &Stream) {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    let _ = stream.set_write_timeout(Some(crate::limits::GOODBYE));
    if message::write_close_connection(&mut to).is_ok() {
        // A client that is gone needs no goodbye.
        let _ = stream.write(to.as_bytes(), &[]);
    }
    stream.shutdown();
}

fn accept_all(core: &Arc<Core>, listener: &Listener, open: &Arc<Mutex<Open>>) {
    while !core.is_shut_down() {
        match listener.accept() {
            Ok(stream) => start(core, stream, open),
            Err(_) if core.is_shut_down() => return,
            // No descriptor left, or a client that is gone already: others may come.
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

/// Serves the requests of a connection until it ends.
fn serve(core: &Arc<Core>, stream: &Stream) {
    let mut inbox = Inbox::new(core.options.message_bytes_max);
    let mut outbox = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    outbox.set_characters(Chosen::DEFAULT.characters);
    loop {
        match inbox.next(stream, None) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    refuse(stream, &mut outbox);
                }
                return;
            }
        }
        let mut send = |bytes: &[u8]| {
            if stream.write(bytes, &[]).is_err() {
                stream.shutdown();
            }
        };
        let answered = answer(core, inbox.message(), &mut outbox, &mut send);
        if !outbox.as_bytes().is_empty() && stream.write(outbox.as_bytes(), &[]).is_err() {
            return;
        }
        if !matches!(answered, Answer::Done) {
            return;
        }
    }
}

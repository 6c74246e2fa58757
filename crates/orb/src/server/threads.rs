//! A thread for each connection: it reads requests, calls servants and sends replies.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;

use punctual_giop::codeset::Chosen;
use punctual_giop::{ByteOrder, Encoder, Version};

use super::answer::{answer, refuse};
use super::listener::Listener;
use super::{Open, close, lock};
use crate::core::Core;
use crate::inbox::Inbox;
use crate::transport::Stream;

pub(super) fn accept_all(core: &Arc<Core>, listener: &Listener, open: &Arc<Mutex<Open>>) {
    while !core.is_shut_down() {
        match listener.accept() {
            Ok(stream) => start(core, stream, open),
            Err(_) if core.is_shut_down() => return,
            // No descriptor left, or a client that is gone already: others may come.
            Err(_) => thread::yield_now(),
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
        if !answer(core, inbox.message(), &mut outbox) {
            return;
        }
        if !outbox.as_bytes().is_empty() && stream.write(outbox.as_bytes(), &[]).is_err() {
            return;
        }
    }
}

//! The listening part of an ORB.
//!
//! | module | owns |
//! |---|---|
//! | `listener` | sockets at which clients connect |
//! | `addresses` | the addresses of references |
//! | `threads` | a thread for each connection |
//! | `answer` | from a message to what it is answered |

mod addresses;
mod answer;
mod listener;
mod threads;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use punctual_giop::{Encoder, message};

use crate::core::Core;
use crate::limits::GOODBYE;
use crate::transport::Stream;
use addresses::published;
use listener::Listener;
use threads::accept_all;

pub(crate) use answer::{answer_message, new_outbox};

/// Connections that are open, by number, and the threads that serve them.
#[derive(Debug, Default)]
struct Open {
    streams: HashMap<u64, Arc<Stream>>,
    last: u64,
    is_closed: bool,
}

/// The listening part of an ORB.
#[derive(Debug)]
pub(crate) struct Server {
    listeners: Vec<Arc<Listener>>,
    acceptors: Mutex<Vec<JoinHandle<()>>>,
    open: Arc<Mutex<Open>>,
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Listens at all configured endpoints, and accepts clients.
    pub fn start(core: &Arc<Core>) -> io::Result<Self> {
        let listeners: Vec<Arc<Listener>> = core
            .options
            .listen
            .iter()
            .map(|at| Listener::bind(at).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let at = listeners.iter().map(|listener| listener.endpoint()).collect::<io::Result<Vec<_>>>()?;
        core.published.set(published(&at, &core.options.published)?);
        let server = Self { listeners, acceptors: Mutex::default(), open: Arc::default() };
        for listener in &server.listeners {
            let (core, listener, open) = (Arc::clone(core), Arc::clone(listener), Arc::clone(&server.open));
            let name = "punctual-accept".to_owned();
            let acceptor =
                thread::Builder::new().name(name).spawn(move || accept_all(&core, &listener, &open))?;
            server.acceptors.lock().unwrap_or_else(PoisonError::into_inner).push(acceptor);
        }
        Ok(server)
    }

    /// Accepts nobody any more, and ends all connections.
    pub fn stop(&self) {
        self.listeners.iter().for_each(|listener| listener.shutdown());
        let acceptors = std::mem::take(&mut *self.acceptors.lock().unwrap_or_else(PoisonError::into_inner));
        for acceptor in acceptors {
            // It does not panic.
            let _ = acceptor.join();
        }
        let mut open = lock(&self.open);
        open.is_closed = true;
        // Each thread sends the reply that it owes, then says goodbye. Nobody waits long for a client that does not
        // read, or for a servant that does not end.
        for stream in open.streams.values() {
            let _ = stream.set_write_timeout(Some(GOODBYE));
            stream.shutdown_read();
        }
        drop(open);
        let end = Instant::now() + GOODBYE;
        while !lock(&self.open).streams.is_empty() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        lock(&self.open).streams.values().for_each(|stream| stream.shutdown());
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

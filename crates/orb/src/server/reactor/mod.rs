//! One thread that waits for all connections, and reads the requests of each.
//!
//! | module | owns |
//! |---|---|
//! | `clients` | clients that come |
//! | `serve` | what they send |
//! | `waiting` | what waits for a time |
//! | `nested` | requests within requests |
//!
//! Without a pool it calls the servants, too. While a servant waits for a reply of its own call, the thread
//! serves other requests: so an object that was called can call back. Requests in requests are at most
//! [`NESTED_MAX`](crate::limits::NESTED_MAX) deep; a deeper one is answered `TRANSIENT`.
//!
//! Ownership: a connection that is being served is not in the table, so that inner turns leave it alone.

mod clients;
mod nested;
mod serve;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_giop::characters::CharacterSet;
use punctual_giop::{ByteOrder, Encoder, Version};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::adopted::Offer;
use super::bell::Bell;
use super::connection::Connection;
use super::held::Held;
use super::listener::Listener;
use super::pool::Pool;
use crate::core::Core;
use crate::duty::{add_meanwhile, forget_meanwhile, never_wait_for_adapters};
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::limits::{EVENTS_PER_TURN, GOODBYE};
use crate::transport::{Deadline, Stream, left};
use clients::await_clients;

/// What rings: no connection has this number.
const BELL: u64 = u64::MAX;
/// Listeners have the numbers below it.
const LISTENERS: u64 = BELL - 1;

/// A connection as the reactor has it.
struct Entry {
    connection: Arc<Connection>,
    inbox: Inbox,
    /// The code set of its strings.
    characters: CharacterSet,
    offer: Offer,
    /// Why the message in the inbox waits.
    held: Option<Held>,
    /// By when more of a message must be there, or more of a reply taken.
    owed: Deadline,
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Keep,
    /// Both ends call on it: it gets a thread.
    Adopt,
    End,
}

/// The reactor of one thread.
pub(super) struct Reactor {
    core: Arc<Core>,
    framing: Framing,
    listeners: Vec<Arc<Listener>>,
    epoll: OwnedFd,
    bell: Arc<Bell>,
    pool: Option<Arc<Pool>>,
    entries: RefCell<HashMap<u64, Entry>>,
    /// Connections of which more messages may be read already.
    unfinished: RefCell<VecDeque<u64>>,
    /// Those whose request is being served, the innermost last.
    served: RefCell<Vec<Arc<Connection>>>,
    /// Those whose request waits for its adapter.
    held: RefCell<Vec<u64>>,
    /// Those that have sent a part of a message, or taken a part of a reply.
    owing: RefCell<HashSet<u64>>,
    /// When the first of them may owe it for too long.
    owed_first: Cell<Deadline>,
    /// Connections on which both ends call have threads of their own.
    adopted: RefCell<Vec<Weak<Stream>>>,
    last: Cell<u64>,
    /// Since no descriptor was left.
    accepts_again: Cell<Option<Instant>>,
    outbox: Cell<Option<Encoder>>,
}

/// What a reactor waits for at first: clients, and its bell.
pub(super) fn watch(listeners: &[Arc<Listener>], bell: &Arc<Bell>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
    await_clients(&epoll, listeners)?;
    Ok(epoll)
}

/// Serves until the bell says that it is to stop. Then all connections end.
pub(super) fn run(
    core: &Arc<Core>,
    listeners: Vec<Arc<Listener>>,
    epoll: OwnedFd,
    bell: Arc<Bell>,
    pool: Option<(Arc<Pool>, Vec<JoinHandle<()>>)>,
) {
    never_wait_for_adapters();
    let (pool, threads) = pool.map_or((None, Vec::new()), |(pool, threads)| (Some(pool), threads));
    let reactor = Rc::new(Reactor {
        core: Arc::clone(core),
        framing: Framing::of(&core.options),
        listeners,
        epoll,
        bell,
        pool,
        entries: RefCell::default(),
        unfinished: RefCell::default(),
        held: RefCell::default(),
        owing: RefCell::default(),
        owed_first: Cell::new(None),
        adopted: RefCell::default(),
        served: RefCell::default(),
        last: Cell::new(0),
        accepts_again: Cell::new(None),
        outbox: Cell::new(None),
    });
    if reactor.pool.is_none() {
        let work: Rc<Reactor> = Rc::clone(&reactor);
        add_meanwhile(work);
    }
    while !reactor.bell.is_stopped() {
        reactor.turn(None);
    }
    forget_meanwhile();
    reactor.end();
    // Threads in servants that never return are not waited for.
    drop(threads);
}

fn timespec(duration: Duration) -> Option<Timespec> {
    Timespec::try_from(duration).ok()
}

impl Reactor {
    /// Waits for events, at most so long, and does what they ask for.
    fn turn(&self, timeout: Option<Duration>) {
        let until = timeout.or_else(|| self.next_look(Instant::now()));
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        // Interrupted, or nothing happened: it looks again.
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.epoll, buffer, until.and_then(timespec).as_ref());
        let unfinished = self.unfinished.borrow().len();
        for event in &events {
            match event.data.u64() {
                BELL => self.bell.clear(),
                number => match self.listeners.get((LISTENERS - number) as usize) {
                    Some(listener) => self.accept(listener),
                    None => self.serve(number),
                },
            }
        }
        for _ in 0..unfinished {
            let next = self.unfinished.borrow_mut().pop_front();
            next.into_iter().for_each(|number| self.serve(number));
        }
        self.bell.take_unsent().into_iter().for_each(|number| self.serve(number));
        self.free_ended();
        self.look_at_waiting();
    }

    /// In how long it must look without an event.
    fn next_look(&self, now: Instant) -> Option<Duration> {
        if !self.unfinished.borrow().is_empty() {
            return Some(Duration::ZERO);
        }
        let entries = self.entries.borrow();
        let until = |number: &u64| Some(entries.get(number)?.held.as_ref()?.until);
        let held = self.held.borrow().iter().filter_map(until).min();
        let waiting = self.pool.as_ref().and_then(|pool| pool.next_late());
        let for_main = self.core.registry.main.next_late();
        let all = [held, waiting, for_main, self.owed_first.get(), self.accepts_again.get()];
        all.into_iter().flatten().min().map(|first| first.saturating_duration_since(now))
    }

    fn take_outbox(&self) -> Encoder {
        self.outbox.take().unwrap_or_else(|| Encoder::new(ByteOrder::NATIVE, Version::V1_2))
    }

    fn put_back(&self, mut entry: Entry) {
        let has_unsent = entry.connection.has_unsent();
        if has_unsent {
            // Its requests are not read meanwhile.
            entry.owed = entry.connection.owed();
            self.owes(&entry);
        }
        let awaited = match () {
            () if has_unsent => EventFlags::OUT,
            () if entry.held.is_some() => EventFlags::empty(),
            () => EventFlags::IN,
        };
        if self.wait_for(&entry.connection, awaited).is_err() {
            return entry.connection.stream.shutdown();
        }
        self.entries.borrow_mut().insert(entry.connection.number, entry);
    }

    /// Says what is awaited of a connection. Without anything, not even its end is told.
    fn wait_for(&self, connection: &Connection, awaited: EventFlags) -> io::Result<()> {
        let before = connection.awaited();
        let data = EventData::new_u64(connection.number);
        match (before.is_empty(), awaited.is_empty()) {
            _ if before == awaited => {}
            (true, _) => epoll::add(&self.epoll, &connection.stream, data, awaited)?,
            (_, true) => epoll::delete(&self.epoll, &connection.stream)?,
            _ => epoll::modify(&self.epoll, &connection.stream, data, awaited)?,
        }
        connection.set_awaited(awaited);
        Ok(())
    }

    /// A pool's thread may still have it, so its descriptor may stay open for a while.
    fn forget(&self, connection: &Connection) {
        // It fails if the connection was not awaited.
        let _ = self.wait_for(connection, EventFlags::empty());
        connection.stream.shutdown();
    }

    /// Requests that were begun get their replies; then all connections end.
    fn end(&self) {
        let end = Instant::now() + GOODBYE;
        if let Some(pool) = &self.pool {
            pool.close();
            pool.wait_until_idle(GOODBYE);
        }
        let mut outbox = self.take_outbox();
        for entry in self.entries.borrow().values() {
            while let (Ok(false), Ok(left)) = (entry.connection.flush(), left(Some(end))) {
                let mut fds = [PollFd::new(&entry.connection.stream, PollFlags::OUT)];
                // At the end of the time the rest is lost.
                let _ = poll(&mut fds, left.and_then(timespec).as_ref());
            }
            entry.connection.close(&mut outbox);
        }
        let adopted: Vec<_> = self.adopted.borrow().iter().filter_map(Weak::upgrade).collect();
        adopted.iter().for_each(|stream| stream.shutdown());
    }
}

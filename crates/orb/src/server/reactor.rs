//! One thread that waits for all connections, and reads the requests of each.
//!
//! Without a pool it calls the servants, too. While a servant waits for a reply of its own call, the thread
//! serves other requests ([`serve_until_readable`]): so an object that was called can call back. Requests in
//! requests are at most [`NESTED_MAX`] deep; a deeper one is answered `TRANSIENT`.
//!
//! Ownership: a connection that is being served is not in the table, so that inner turns leave it alone.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::reassembly::Whole;
use punctual_giop::{ByteOrder, Encoder, Version};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;

use super::STACK_BYTES;
use super::answer::{Answer, Kind, answer, give_back_memory, kind, refuse, refuse_request};
use super::bell::Bell;
use super::connection::Connection;
use super::held::Held;
use super::listener::Listener;
use super::pool::{Job, Pool};
use crate::core::Core;
use crate::duplex::{adopt, is_offered};
use crate::exception::{held_too_long, no_thread};
use crate::framing::Framing;
use crate::inbox::Inbox;
use crate::limits::{
    ACCEPT_PAUSE, ACCEPTS_PER_TURN, EVENTS_PER_TURN, GOODBYE, MESSAGES_PER_TURN, NESTED_MAX,
};
use crate::transport::{Deadline, Stream, left};

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
    /// Why the message in the inbox waits.
    held: Option<Held>,
    /// By when more of a message must be there.
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
    /// Those that have sent a part of a message.
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

thread_local! {
    static OF_THREAD: RefCell<Option<Rc<Reactor>>> = const { RefCell::new(None) };
}

/// What a reactor waits for at first: clients, and its bell.
pub(super) fn watch(listeners: &[Arc<Listener>], bell: &Arc<Bell>) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, bell, EventData::new_u64(BELL), EventFlags::IN)?;
    await_clients(&epoll, listeners)?;
    Ok(epoll)
}

fn await_clients(epoll: &OwnedFd, listeners: &[Arc<Listener>]) -> io::Result<()> {
    for (number, listener) in listeners.iter().enumerate() {
        epoll::add(epoll, listener, EventData::new_u64(LISTENERS - number as u64), EventFlags::IN)?;
    }
    Ok(())
}

/// Serves until the bell says that it is to stop. Then all connections end.
pub(super) fn run(
    core: &Arc<Core>,
    listeners: Vec<Arc<Listener>>,
    epoll: OwnedFd,
    bell: Arc<Bell>,
    pool: Option<(Arc<Pool>, Vec<JoinHandle<()>>)>,
) {
    crate::duty::never_wait_for_adapters();
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
        OF_THREAD.set(Some(Rc::clone(&reactor)));
    }
    while !reactor.bell.is_stopped() {
        reactor.turn(None);
    }
    OF_THREAD.set(None);
    reactor.end();
    // Threads in servants that never return are not waited for.
    drop(threads);
}

/// Serves requests until there is something to read, if this is the thread of a reactor that calls servants.
pub(crate) fn serve_until_readable(stream: &Stream, deadline: Deadline) -> io::Result<()> {
    let Some(reactor) = OF_THREAD.with_borrow(Clone::clone) else { return Ok(()) };
    reactor.leave_served_alone();
    loop {
        let now = Instant::now();
        let until = [left(deadline)?, reactor.next_event(now)].into_iter().flatten().min();
        let mut fds = [PollFd::new(stream, PollFlags::IN), PollFd::new(&reactor.epoll, PollFlags::IN)];
        match poll(&mut fds, until.and_then(timespec).as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        if !fds[0].revents().is_empty() {
            return Ok(());
        }
        reactor.turn(Some(Duration::ZERO));
    }
}

fn timespec(duration: Duration) -> Option<Timespec> {
    Timespec::try_from(duration).ok()
}

impl Reactor {
    /// Waits for events, at most so long, and does what they ask for.
    fn turn(&self, timeout: Option<Duration>) {
        let until = timeout.or_else(|| self.next_event(Instant::now()));
        let mut events = Vec::with_capacity(EVENTS_PER_TURN);
        // Interrupted, or nothing happened: it looks again.
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.epoll, buffer, until.and_then(timespec).as_ref());
        let unfinished = self.unfinished.borrow().len();
        for event in &events {
            match event.data.u64() {
                BELL => self.bell.hush(),
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
        self.look_at_waiting();
    }

    /// In how long it must look without an event.
    fn next_event(&self, now: Instant) -> Option<Duration> {
        if !self.unfinished.borrow().is_empty() {
            return Some(Duration::ZERO);
        }
        let entries = self.entries.borrow();
        let until = |number: &u64| Some(entries.get(number)?.held.as_ref()?.until);
        let held = self.held.borrow().iter().filter_map(until).min();
        let waiting = self.pool.as_ref().and_then(|pool| pool.next_late());
        let all = [held, waiting, self.owed_first.get(), self.accepts_again.get()];
        all.into_iter().flatten().min().map(|first| first.saturating_duration_since(now))
    }

    /// Takes new clients.
    fn accept(&self, listener: &Listener) {
        for _ in 0..ACCEPTS_PER_TURN {
            match listener.accept() {
                Ok(stream) => self.begin(stream),
                Err(error) => match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                    Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => return self.pause(),
                    // Nobody, or a client that is gone already.
                    _ => return,
                },
            }
        }
    }

    /// No descriptor is left: clients wait until others have ended.
    fn pause(&self) {
        for listener in &self.listeners {
            let _ = epoll::delete(&self.epoll, listener);
        }
        self.accepts_again.set(Some(Instant::now() + ACCEPT_PAUSE));
    }

    fn begin(&self, stream: Stream) {
        let number = self.last.get() + 1;
        self.last.set(number);
        let connection = Arc::new(Connection::new(number, stream, self.framing));
        let adopted = self.adopted.borrow().iter().filter(|one| one.strong_count() > 0).count();
        let open = self.entries.borrow().len() + self.served.borrow().len() + adopted;
        if open >= self.core.options.connections_max {
            let mut outbox = self.take_outbox();
            connection.close(&mut outbox);
            return self.outbox.set(Some(outbox));
        }
        let entry = Entry {
            connection,
            inbox: Inbox::new(self.framing),
            characters: Chosen::DEFAULT.characters,
            held: None,
            owed: None,
        };
        self.put_back(entry);
    }

    fn take_outbox(&self) -> Encoder {
        self.outbox.take().unwrap_or_else(|| Encoder::new(ByteOrder::NATIVE, Version::V1_2))
    }

    /// Something happened on a connection.
    fn serve(&self, number: u64) {
        let Some(mut entry) = self.entries.borrow_mut().remove(&number) else { return };
        match self.serve_entry(&mut entry) {
            Next::Keep => self.put_back(entry),
            Next::Adopt => self.adopt(entry),
            Next::End => self.forget(&entry.connection),
        }
    }

    fn put_back(&self, entry: Entry) {
        let awaited = match () {
            () if entry.connection.has_unsent() => EventFlags::OUT,
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

    fn serve_entry(&self, entry: &mut Entry) -> Next {
        match entry.connection.flush() {
            Ok(true) => {}
            Ok(false) => return Next::Keep,
            Err(_) => return Next::End,
        }
        if entry.held.is_some() {
            return Next::Keep;
        }
        for _ in 0..MESSAGES_PER_TURN {
            match entry.inbox.poll(&entry.connection.stream) {
                Ok(Some(true)) => {}
                Ok(None) => {
                    entry.inbox.rest();
                    entry.owed = entry.inbox.owed();
                    self.owes(entry);
                    return Next::Keep;
                }
                Ok(Some(false)) => return Next::End,
                Err(error) => {
                    if error.kind() == io::ErrorKind::InvalidData {
                        let mut outbox = self.take_outbox();
                        refuse(&entry.connection.stream, &mut outbox);
                        self.outbox.set(Some(outbox));
                    }
                    return Next::End;
                }
            }
            entry.owed = None;
            if is_offered(&self.core, &entry.inbox) {
                return Next::Adopt;
            }
            if self.message(entry) == Next::End {
                return Next::End;
            }
            if entry.held.is_some() || entry.connection.has_unsent() {
                return Next::Keep;
            }
        }
        self.unfinished.borrow_mut().push_back(entry.connection.number);
        Next::Keep
    }

    /// A part of a message may be there: the rest has a deadline.
    fn owes(&self, entry: &Entry) {
        let Some(owed) = entry.owed else { return };
        self.owing.borrow_mut().insert(entry.connection.number);
        let first = self.owed_first.get().map_or(owed, |first| first.min(owed));
        self.owed_first.set(Some(first));
    }

    /// Ends connections that have owed the rest of a message for too long.
    fn look_at_owing(&self, now: Instant) {
        if self.owed_first.get().is_none_or(|first| first > now) {
            return;
        }
        self.owed_first.set(None);
        for number in std::mem::take(&mut *self.owing.borrow_mut()) {
            let owed = self.entries.borrow().get(&number).and_then(|entry| entry.owed);
            match owed {
                None => {}
                Some(owed) if owed <= now => self.serve(number),
                Some(_) => {
                    if let Some(entry) = self.entries.borrow().get(&number) {
                        self.owes(entry);
                    }
                }
            }
        }
    }

    /// Both ends call on this connection from now on: it has a thread of its own, which reads it.
    fn adopt(&self, entry: Entry) {
        let Entry { connection, inbox, characters, .. } = entry;
        // It fails if the connection was not awaited.
        let _ = self.wait_for(&connection, EventFlags::empty());
        let (core, stream) = (Arc::clone(&self.core), Arc::clone(&connection.stream));
        let mut adopted = self.adopted.borrow_mut();
        adopted.retain(|other| other.strong_count() > 0);
        adopted.push(Arc::downgrade(&stream));
        let builder = thread::Builder::new().name("punctual-serve".to_owned()).stack_size(STACK_BYTES);
        let serve = move || {
            adopt(&core, &stream, inbox, characters);
            stream.shutdown();
        };
        if builder.spawn(serve).is_err() {
            connection.stream.shutdown();
        }
    }

    /// Does what the message in the inbox asks for, or lets a thread of the pool do it.
    fn message(&self, entry: &mut Entry) -> Next {
        let mut outbox = self.take_outbox();
        let is_deep = self.served.borrow().len() > NESTED_MAX;
        let kind = match self.pool.is_some() || is_deep {
            true => kind(entry.inbox.message(), &mut entry.characters),
            false => Kind::Other,
        };
        let next = match (&self.pool, kind) {
            (Some(pool), Kind::Request(id)) => {
                let job = Job {
                    connection: Arc::clone(&entry.connection),
                    message: entry.inbox.take_message(),
                    id,
                    characters: entry.characters,
                };
                match pool.submit(job) {
                    Ok(()) => Next::Keep,
                    Err(job) => self.refuse(job.message.whole(), entry, &mut outbox, &no_thread()),
                }
            }
            (Some(pool), Kind::Cancel(id)) => {
                pool.cancel(entry.connection.number, id);
                Next::Keep
            }
            (None, Kind::Request(_)) => {
                let message = entry.inbox.take_message();
                self.refuse(message.whole(), entry, &mut outbox, &no_thread())
            }
            _ => self.answer(entry, &mut outbox),
        };
        give_back_memory(&mut outbox);
        self.outbox.set(Some(outbox));
        next
    }

    fn answer(&self, entry: &mut Entry, outbox: &mut Encoder) -> Next {
        outbox.set_characters(entry.characters);
        self.served.borrow_mut().push(Arc::clone(&entry.connection));
        let mut send = |bytes: &[u8]| {
            if entry.connection.send(bytes).is_err() {
                entry.connection.stream.shutdown();
            }
        };
        let answered = answer(&self.core, entry.inbox.message(), outbox, &mut send);
        self.served.borrow_mut().pop();
        entry.characters = outbox.characters();
        match answered {
            Answer::Held(manager) => {
                entry.held = Some(Held::by(manager));
                self.held.borrow_mut().push(entry.connection.number);
                // The manager may have changed before this.
                self.bell.ring();
            }
            Answer::Done(_) if entry.connection.send(outbox.as_bytes()).is_ok() => {}
            Answer::End => {
                // The connection ends all the same.
                let _ = entry.connection.send(outbox.as_bytes());
                return Next::End;
            }
            Answer::Done(_) => return Next::End,
        }
        Next::Keep
    }

    fn refuse(
        &self,
        message: Whole<'_>,
        entry: &Entry,
        outbox: &mut Encoder,
        why: &punctual_giop::SystemException,
    ) -> Next {
        refuse_request(message, outbox, why);
        if entry.connection.send(outbox.as_bytes()).is_ok() { Next::Keep } else { Next::End }
    }

    /// The connection whose request waits for another call is read again when that request is served.
    fn leave_served_alone(&self) {
        if let Some(connection) = self.served.borrow().last() {
            // It fails if the connection was not awaited.
            let _ = self.wait_for(connection, EventFlags::empty());
        }
    }

    /// Requests that wait for their adapter, or for a thread.
    fn look_at_waiting(&self) {
        let now = Instant::now();
        self.look_at_owing(now);
        if self.accepts_again.get().is_some_and(|again| again <= now) {
            self.accepts_again.set(None);
            if await_clients(&self.epoll, &self.listeners).is_err() {
                self.pause();
            }
        }
        let is_over = |number: &mut u64| {
            let entries = self.entries.borrow();
            entries.get(number).and_then(|entry| entry.held.as_ref()).is_none_or(|held| held.is_over(now))
        };
        let over: Vec<u64> = self.held.borrow_mut().extract_if(.., is_over).collect();
        over.into_iter().for_each(|number| self.resume(number, now));
        let Some(pool) = &self.pool else { return };
        let late = pool.expire(now);
        let mut outbox = self.take_outbox();
        for job in late {
            refuse_request(job.message.whole(), &mut outbox, &no_thread());
            match job.connection.send(outbox.as_bytes()) {
                Ok(true) => {}
                Ok(false) => self.bell.has_unsent(job.connection.number),
                Err(_) => job.connection.stream.shutdown(),
            }
        }
        self.outbox.set(Some(outbox));
    }

    /// A request need not wait for its adapter any more.
    fn resume(&self, number: u64, now: Instant) {
        let Some(mut entry) = self.entries.borrow_mut().remove(&number) else { return };
        let is_late = entry.held.take().is_some_and(|held| held.is_late(now));
        let mut outbox = self.take_outbox();
        let next = if is_late {
            let message = entry.inbox.take_message();
            self.refuse(message.whole(), &entry, &mut outbox, &held_too_long())
        } else {
            self.answer(&mut entry, &mut outbox)
        };
        self.outbox.set(Some(outbox));
        if next == Next::End {
            return self.forget(&entry.connection);
        }
        self.unfinished.borrow_mut().push_back(number);
        self.put_back(entry);
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

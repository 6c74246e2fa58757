//! Servers that this ORB calls, and its connections to them.
//!
//! A blocking call has a connection alone from its request to its reply: the caller itself reads. Idle
//! connections are in slots that one atomic exchange empties or fills, so that a call takes no lock. A lock is
//! taken only where callers wait because all connections are in use.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError, Weak};

use crossbeam_utils::atomic::AtomicCell;
use punctual_giop::characters::CharacterSet;
use punctual_giop::codeset::Chosen;
use punctual_giop::connection::RequestIds;
use punctual_giop::context::CODE_SETS;
use punctual_giop::{SystemException, Version};

use crate::call::{Call, characters};
use crate::counted::Mutex;
use crate::duplex::{Duplexes, offer};
use crate::exception::communication;
use crate::frames::is_serving;
use crate::framing::Framing;
use crate::later::Later;
use crate::limits::{CONNECTIONS_PER_SERVER, CONNECTIONS_PER_SERVER_NESTED};
use crate::link::Link;
use crate::options::Options;
use crate::publish::Published;
use crate::served::{Host, Served};
use crate::shared::{Opening, Sent, Shared};
use crate::transport::{Deadline, Endpoint, Stream, left};
use crate::turns::Turns;

/// What servers have of the ORB that calls them.
pub(crate) struct Home<'a> {
    pub options: &'a Options,
    pub published: &'a Arc<Published>,
    pub duplexes: &'a Arc<Duplexes>,
    pub host: Weak<dyn Host>,
}

/// A server, by where it listens and which version of GIOP it is called with.
pub(crate) struct Peer {
    pub endpoint: Endpoint,
    pub version: Version,
    /// The code sets of its connections.
    chosen: Option<Chosen>,
    framing: Framing,
    host: Weak<dyn Host>,
    published: Arc<Published>,
    duplexes: Arc<Duplexes>,
    /// Whether it may call this ORB over the connections to it.
    offers: bool,
    idle: [AtomicCell<Option<Box<Link>>>; CONNECTIONS_PER_SERVER],
    open: AtomicUsize,
    waiting: AtomicUsize,
    queue: Mutex<()>,
    returned: Condvar,
    /// Oneway requests whose callers do not wait.
    pub later: Later,
    /// The connection of asynchronous calls.
    shared: Turns<Option<Arc<Shared>>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.endpoint)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.close();
    }
}

impl Peer {
    pub fn new(of: Home<'_>, endpoint: Endpoint, version: Version, chosen: Option<Chosen>) -> Self {
        let Home { options, published, duplexes, host } = of;
        Self {
            endpoint,
            version,
            chosen,
            framing: Framing::of(options),
            host,
            published: Arc::clone(published),
            duplexes: Arc::clone(duplexes),
            offers: options.offer_bidirectional && version >= Version::V1_2 && offer(published).is_some(),
            idle: Default::default(),
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(()),
            returned: Condvar::new(),
            later: Later::default(),
            shared: Turns::new(None),
        }
    }

    /// The code set of its strings.
    pub fn characters(&self) -> CharacterSet {
        characters(self.chosen)
    }

    /// What the first request of a connection tells it.
    pub fn chosen_context(&self) -> Option<[u8; 12]> {
        self.chosen.map(Chosen::to_context)
    }

    /// A connection for one call: an idle one, a new one, or the next that becomes idle.
    pub fn take(&self, deadline: Deadline) -> io::Result<Box<Link>> {
        if let Some(link) = self.idle() {
            return Ok(link);
        }
        if self.may_open(CONNECTIONS_PER_SERVER) {
            return self.connect(deadline);
        }
        if is_serving() {
            // Whoever has a connection may wait for what this thread serves.
            let may_open = self.may_open(CONNECTIONS_PER_SERVER_NESTED);
            return if may_open { self.connect(deadline) } else { Err(io::ErrorKind::ResourceBusy.into()) };
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Whoever gives a connection back after this sees that somebody waits.
        fence(Ordering::SeqCst);
        let taken = self.wait(deadline);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    /// An idle connection that its server has not closed.
    fn idle(&self) -> Option<Box<Link>> {
        for slot in &self.idle {
            let Some(link) = slot.take() else { continue };
            // Between calls that follow each other at once, nobody looks.
            if link.is_usable() {
                return Some(link);
            }
            self.discard(link);
        }
        None
    }

    fn may_open(&self, connections_max: usize) -> bool {
        let more = |open| (open < connections_max).then_some(open + 1);
        self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn connect(&self, deadline: Deadline) -> io::Result<Box<Link>> {
        match Stream::connect(&self.endpoint, deadline) {
            Ok(stream) => Ok(Box::new(Link::new(stream, self.version, self.chosen, self.framing))),
            Err(error) => {
                self.open.fetch_sub(1, Ordering::SeqCst);
                self.wake();
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, deadline: Deadline) -> io::Result<Box<Link>> {
        let mut queue = self.lock();
        loop {
            if let Some(link) = self.idle() {
                return Ok(link);
            }
            if self.may_open(CONNECTIONS_PER_SERVER) {
                drop(queue);
                return self.connect(deadline);
            }
            queue = match left(deadline)? {
                None => self.returned.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.returned.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The call is over; the connection is idle.
    pub fn give_back(&self, mut link: Box<Link>) {
        link.rest();
        let mut link = Some(link);
        for slot in &self.idle {
            link = slot.swap(link);
            if link.is_none() {
                return self.wake();
            }
        }
        // One more than others may use: a servant opened it.
        link.into_iter().for_each(|link| self.discard(link));
    }

    /// The connection is of no use any more.
    pub fn discard(&self, link: Box<Link>) {
        drop(link);
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes a caller that waits, if there is one.
    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock());
            self.returned.notify_one();
        }
    }

    /// Sends a request whose reply another thread reads. Without success the caller gets back what it gave.
    pub fn send_shared(
        &self,
        call: &Call<'_>,
        mut sent: Sent,
    ) -> Result<(), (SystemException, Option<Sent>)> {
        loop {
            let (shared, is_new) = match self.shared(sent.deadline) {
                Ok(shared) => shared,
                Err(error) => return Err((communication(&error, false), Some(sent))),
            };
            let deadline = sent.deadline;
            match shared.send(call, deadline, Some(sent)) {
                // The server closed an old connection: a new one may work.
                Err((_, Some(back))) if !is_new && shared.is_closed() => sent = back,
                done => return done.map(drop),
            }
        }
    }

    /// The connection on which both ends call, and whether it is new. None if calls have connections of their own.
    pub fn duplex(&self, deadline: Deadline) -> io::Result<Option<(Arc<Shared>, bool)>> {
        let found = if self.offers {
            Some(self.shared(deadline)?)
        } else {
            self.duplexes.find(&self.endpoint).map(|found| (found, false))
        };
        Ok(found.filter(|(shared, _)| !shared.is_read_here()))
    }

    /// The connection of many callers, and whether it is new.
    fn shared(&self, deadline: Deadline) -> io::Result<(Arc<Shared>, bool)> {
        if let Some(found) = self.duplexes.find(&self.endpoint) {
            return Ok((found, false));
        }
        let mut shared = self.shared.take(deadline)?;
        if let Some(open) = shared.as_ref().filter(|shared| !shared.is_closed()) {
            return Ok((Arc::clone(open), false));
        }
        let stream = Arc::new(Stream::connect(&self.endpoint, deadline)?);
        let new = Shared::new(stream, self.opening())?;
        new.start()?;
        *shared = Some(Arc::clone(&new));
        Ok((new, true))
    }

    fn opening(&self) -> Opening {
        let chosen = self.chosen.map(|chosen| (CODE_SETS, chosen.to_context().to_vec()));
        let offers = self.offers && self.host.strong_count() > 0;
        let offered = offers.then(|| offer(&self.published)).flatten();
        Opening {
            version: self.version,
            ids: RequestIds::of_connecting_end(),
            served: (offered.as_ref())
                .map(|_| Served::of_connecting_end(Weak::clone(&self.host), Chosen::DEFAULT.characters)),
            first: chosen.into_iter().chain(offered).collect(),
            characters: self.characters(),
            framing: self.framing,
        }
    }

    /// Closes all idle connections, and that of asynchronous calls.
    pub fn close(&self) {
        // Without a deadline there is no failure.
        let shared = self.shared.take(None).ok().and_then(|mut shared| shared.take());
        shared.iter().for_each(|shared| shared.close());
        for slot in &self.idle {
            if let Some(link) = slot.take() {
                self.discard(link);
            }
        }
    }
}

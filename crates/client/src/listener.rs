//! Listening: a name, an agent that consents or refuses, and the channels that were opened to the name.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::InboxReader;
use punctual_proto::Nanos;
use punctual_proto::ids::{ChannelId, ListenerId, Name};

use crate::agents::{Agent, ChannelRequest, Consent, IncomingRequest, SourceAgent};
use crate::channel::{Channel, Opened};
use crate::connection::{Connection, lock, may_wait};
use crate::error::{Error, OpenError};
use crate::receiver::Receiver;

/// An established channel that waits for `accept`.
pub(crate) struct Accepted {
    pub(crate) channel: ChannelId,
    pub(crate) listener: ListenerId,
    pub(crate) ring: InboxReader,
    pub(crate) request: IncomingRequest,
    /// Time that the handler may take for a message.
    pub(crate) handler_time: Nanos,
}

#[derive(Default)]
struct Waiting {
    accepted: VecDeque<Accepted>,
    sources: VecDeque<(Result<Opened, OpenError>, ChannelRequest)>,
    closed: bool,
}

/// What a listener has next.
pub(crate) enum Next {
    /// A channel that was opened to it.
    Accepted(Accepted),
    /// A channel that was opened from here for a receiver, or why it was not.
    Source(Result<Opened, OpenError>, ChannelRequest),
}

/// The state that a listener, its agents and the threads share.
pub(crate) struct ListenerQueue {
    pub(crate) agent: Mutex<Agent>,
    /// Declared for each message's handler on the processor.
    pub(crate) handler_time: Nanos,
    pub(crate) source_agent: Mutex<Option<SourceAgent>>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl ListenerQueue {
    pub(crate) fn new(agent: Agent, handler_time: Nanos) -> Self {
        Self {
            agent: Mutex::new(agent),
            handler_time,
            source_agent: Mutex::default(),
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn add(&self, accepted: Accepted) {
        lock(&self.waiting).accepted.push_back(accepted);
        self.changed.notify_all();
    }

    pub(crate) fn add_source(&self, opened: Result<Opened, OpenError>, request: ChannelRequest) {
        lock(&self.waiting).sources.push_back((opened, request));
        self.changed.notify_all();
    }

    /// Closes the queue: the daemon is gone, so there will be no more channels.
    pub(crate) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.changed.notify_all();
    }

    /// Wakes the waiting threads, which then check again.
    pub(crate) fn poke(&self) {
        drop(lock(&self.waiting));
        self.changed.notify_all();
    }

    /// Waits for an established channel, or until `failed` returns why there will be none.
    pub(crate) fn accept_or<E>(&self, failed: impl Fn() -> Option<E>) -> Result<Result<Accepted, E>, Error> {
        loop {
            let next =
                |waiting: &mut Waiting| waiting.accepted.pop_front().map(Ok).or_else(|| failed().map(Err));
            if let Some(outcome) = self.wait(None, next)? {
                return Ok(outcome);
            }
        }
    }

    /// Waits for an established channel, or for one that a receiver requested, at most until `until`.
    pub(crate) fn next(&self, until: Option<Instant>) -> Result<Option<Next>, Error> {
        self.wait(until, |waiting| {
            let accepted = waiting.accepted.pop_front().map(Next::Accepted);
            accepted.or_else(|| waiting.sources.pop_front().map(|(opened, of)| Next::Source(opened, of)))
        })
    }

    /// Waits until `take` finds something, the queue is closed, or `until`.
    fn wait<T>(
        &self,
        until: Option<Instant>,
        take: impl Fn(&mut Waiting) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(found) = take(&mut waiting) {
                return Ok(Some(found));
            }
            if waiting.closed {
                return Err(Error::Disconnected);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            may_wait()?;
            waiting = match left {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// A name at this host that channels can be opened to. Dropping it closes it; open channels stay.
pub struct Listener {
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: ListenerId,
    pub(crate) name: Name,
    pub(crate) queue: Arc<ListenerQueue>,
}

impl Listener {
    /// Name of the listener.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The next channel that was opened to it (rtcAcceptConnection); waits for one.
    ///
    /// # Errors
    /// [`Error::Disconnected`] if the daemon is gone.
    pub fn accept(&self) -> Result<Receiver, Error> {
        loop {
            if let Some(accepted) = self.queue.wait(None, |waiting| waiting.accepted.pop_front())? {
                return Receiver::new(&self.connection, accepted);
            }
        }
    }

    /// The next channel that was opened to it, if there is one.
    ///
    /// # Errors
    /// See [`Listener::accept`].
    pub fn try_accept(&self) -> Result<Option<Receiver>, Error> {
        self.accept_timeout(Duration::ZERO)
    }

    /// The next channel that was opened to it; `None` if none came in time.
    ///
    /// # Errors
    /// See [`Listener::accept`].
    pub fn accept_timeout(&self, timeout: Duration) -> Result<Option<Receiver>, Error> {
        let until = Instant::now().checked_add(timeout);
        let accepted = self.queue.wait(until, |waiting| waiting.accepted.pop_front())?;
        accepted.map(|accepted| Receiver::new(&self.connection, accepted)).transpose()
    }

    /// Sets the agent for receivers that request a channel from this program. Without an agent they are
    /// refused.
    pub fn on_request(&self, agent: impl FnMut(&ChannelRequest) -> Consent + Send + 'static) {
        *lock(&self.queue.source_agent) = Some(Box::new(agent));
    }

    /// Waits for the next channel that a receiver requested and the agent of [`Listener::on_request`]
    /// accepted.
    ///
    /// # Errors
    /// Why a channel that the agent accepted could not be opened.
    pub fn accept_source(&self) -> Result<(Channel, ChannelRequest), OpenError> {
        loop {
            if let Some((opened, request)) = self.queue.wait(None, |waiting| waiting.sources.pop_front())? {
                return Ok((Channel::new(&self.connection, opened?)?, request));
            }
        }
    }

    /// Gives the name back; open channels stay.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn close(self) -> Result<(), Error> {
        lock(&self.connection.shared.listeners).remove(&self.id);
        match self.connection.shared.call(Request::Unlisten { listener: self.id })?.0 {
            Answer::Done => Ok(()),
            _ => Err(Error::Unexpected),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if lock(&self.connection.shared.listeners).remove(&self.id).is_some() {
            self.connection.shared.send_unanswered(Request::Unlisten { listener: self.id });
        }
    }
}

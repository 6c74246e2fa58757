//! The sending end of a channel.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use punctual_analysis::Contract;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::outgoing::PushError;
use punctual_ipc::ring::{OutboxWriter, RingHandles};
use punctual_proto::api::{CloseReason, Grant};
use punctual_proto::ids::{Address, ChannelId};

use crate::connection::{Connection, Reply, SharedConnection, may_wait};
use crate::error::{Error, OpenError, SendError};
use crate::events::{ChannelEvent, ChannelEvents, ChannelWatch, Ending};
use crate::state::{ChannelState, Evidence};

/// The parts of a granted channel.
pub(crate) struct Opened {
    channel: ChannelId,
    /// `None` for a best-effort flow.
    grant: Option<Grant>,
    ring: OutboxWriter,
}

impl Opened {
    /// Converts the daemon's reply to a request for the contract `wanted`.
    pub(crate) fn from_reply(
        shared: &SharedConnection,
        (result, descriptors): Reply,
        wanted: &Contract,
    ) -> Result<Self, OpenError> {
        let answer = result.map_err(|error| OpenError::answered(error, wanted))?;
        Self::from_answer(shared, answer, descriptors)
    }

    /// Attaches to the ring; closes the channel if that fails.
    pub(crate) fn from_answer(
        shared: &SharedConnection,
        answer: Answer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, OpenError> {
        let (channel, grant, shape) = match answer {
            Answer::Opened { channel, grant, ring } => (channel, Some(grant), ring),
            Answer::Ring { channel, ring } => (channel, None, ring),
            _ => return Err(Error::Unexpected.into()),
        };
        let attached = OutboxWriter::attach(RingHandles { shape, descriptors })
            .map_err(Error::from)
            .and_then(|ring| shared.attached(channel, || ring.is_closed()).map(|()| ring));
        match attached {
            Ok(ring) => Ok(Self { channel, grant, ring }),
            Err(error) => {
                shared.send_unanswered(Request::Close { channel });
                Err(error.into())
            }
        }
    }
}

/// The sending end of a guaranteed channel or of a best-effort flow. Dropping it closes it.
///
/// The channel's descriptor ([`AsFd`]) is for `poll`/`epoll`: it is *readable* (`POLLIN`) while the queue has
/// room or the channel has ended, level-triggered. It only signals this and carries no data: never read from
/// it.
pub struct Channel {
    connection: Arc<Connection>,
    events: Arc<ChannelEvents>,
    id: ChannelId,
    grant: Option<Grant>,
    ring: OutboxWriter,
    evidence: Evidence,
    timeout: Option<Duration>,
}

impl Channel {
    pub(crate) fn new(connection: &Arc<Connection>, opened: Opened) -> Result<Self, OpenError> {
        let events = connection.shared.events_of(opened.channel);
        events.add_closer(opened.ring.closer());
        let Opened { channel: id, grant, ring } = opened;
        let evidence = Evidence::new(ring.counters());
        Ok(Self { connection: Arc::clone(connection), events, id, grant, ring, evidence, timeout: None })
    }

    /// The channel's handle at this host, as `punctual channels` shows it.
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// The grant: the deadline, and the bound of each stage. `None` for best effort.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// Longest message that it takes, in bytes.
    pub fn message_bytes_max(&self) -> u32 {
        self.ring.shape().message_bytes_max
    }

    /// Limits how long `send`, `send_vectored`, `send_in_place` and `send_sync` wait; `None`: without limit
    /// (default).
    pub fn set_send_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Queues a message (rtcSendMessage); waits while the queue is full.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.send_vectored(&[IoSlice::new(message)])
    }

    /// Queues one message put together from parts; waits while the queue is full.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<(), SendError> {
        self.push(parts).map(|_| ())
    }

    /// Queues a message and waits until the link has sent it (rtc_send).
    ///
    /// # Errors
    /// See [`SendError`]; after `TimedOut` the message may still be sent.
    pub fn send_sync(&mut self, message: &[u8]) -> Result<(), SendError> {
        let until = self.until();
        let position = self.push(&[IoSlice::new(message)])?;
        self.wait_sent(position, until)
    }

    /// Queues a message if there is room.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there is none; the descriptor becomes readable when there is.
    pub fn try_send(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.ring.push(&[IoSlice::new(message)]).map(|_| ()).map_err(|error| self.explain(error))
    }

    /// Queues a message on the engine's own thread, with `at` as its send time. `true` if the engine must
    /// check the queue.
    pub(crate) fn send_beside(
        &mut self,
        message: &[u8],
        at: punctual_proto::Instant,
    ) -> Result<bool, SendError> {
        self.ring.push_beside(message, at).map_err(|error| self.explain(error))
    }

    /// Whether the queue takes another message.
    pub(crate) fn has_room(&self) -> bool {
        !self.ring.is_full()
    }

    pub(crate) fn is_of(&self, shared: &Arc<SharedConnection>) -> bool {
        Arc::ptr_eq(&self.connection.shared, shared)
    }

    /// Lets `fill` write a message straight into the queue, from which the link takes it (no copy), and
    /// queues as many bytes as it returns; waits while the queue is full. The buffer is as long as the
    /// longest message and may hold bytes of an earlier one.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_in_place(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<(), SendError> {
        self.wait_room(self.until())?;
        self.ring.fill(fill).map(|_| ()).map_err(|error| self.explain(error))
    }

    /// Waits until the link has sent everything that is queued; `false` if `timeout` came first.
    ///
    /// # Errors
    /// [`SendError::Closed`] if the channel ended before.
    pub fn flush(&mut self, timeout: Duration) -> Result<bool, SendError> {
        let Some(last) = self.ring.last_position() else { return Ok(true) };
        match self.wait_sent(last, Instant::now().checked_add(timeout)) {
            Ok(()) => Ok(true),
            Err(SendError::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Messages that are queued or on their way through this host.
    pub fn outstanding(&self) -> u64 {
        self.ring.outstanding()
    }

    /// Returns the promised bound, the observed latencies, the misses and the policed messages
    /// (rtcGetParameter). The counters are read from memory that the processor writes, at no cost to the
    /// processor. The daemon gets a request only at the first call, and after a change of what degrades the
    /// channel.
    ///
    /// # Errors
    /// If the channel has ended or the daemon is gone.
    pub fn state(&self) -> Result<ChannelState, Error> {
        self.evidence.state(&self.connection.shared, self.id)
    }

    /// What happened since the last call; each kind at most once.
    pub fn events(&self) -> Vec<ChannelEvent> {
        self.events.drain()
    }

    /// Returns a handle that waits for events of this channel on another thread than the sending one.
    pub fn watch(&self) -> ChannelWatch {
        ChannelWatch::of(Arc::clone(&self.events))
    }

    /// Whether the channel has ended.
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Ends the channel and waits until it has ended: the queued messages are sent, the receiver's host takes
    /// what is in transit and reports how many messages its application received. The time is bounded
    /// whatever happens on the way: the time that a full ring takes at the contract's rate, plus D, plus some
    /// seconds. Returns `None` if `timeout` expired first. A best-effort flow ends at once, and it is unknown
    /// what arrived.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn finish(self, timeout: Duration) -> Result<Option<Ending>, Error> {
        self.connection.shared.call(Request::Close { channel: self.id })?;
        if self.grant.is_none() {
            return Ok(Some(Ending { reason: Some(CloseReason::Local), receipt: None }));
        }
        Ok(self.events.ending(timeout))
    }

    /// Ends the channel (rtcDestroyConnection) and waits for the daemon's confirmation, not for messages in
    /// transit ([`Channel::finish`] does that).
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn close(self) -> Result<(), Error> {
        self.connection.shared.call(Request::Close { channel: self.id }).map(|_| ())
    }

    #[cfg(feature = "embedded")]
    pub(crate) const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn until(&self) -> Option<Instant> {
        self.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Reads the clock for the timeout only if it has to wait.
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<u64, SendError> {
        let mut until = None;
        loop {
            match self.ring.push(parts) {
                Ok(position) => return Ok(position),
                Err(PushError::Full) => {
                    let until = *until.get_or_insert_with(|| self.until());
                    self.wait_room(until)?;
                }
                Err(error) => return Err(self.explain(error)),
            }
        }
    }

    fn wait_room(&self, until: Option<Instant>) -> Result<(), SendError> {
        if !self.has_room() && !self.is_closed() {
            may_wait()?;
        }
        if self.ring.wait_room(until)? { Ok(()) } else { Err(self.not_in_time()) }
    }

    fn wait_sent(&self, position: u64, until: Option<Instant>) -> Result<(), SendError> {
        if !self.ring.is_sent(position) && !self.is_closed() {
            may_wait()?;
        }
        if self.ring.wait_sent(position, until)? { Ok(()) } else { Err(self.not_in_time()) }
    }

    pub(crate) fn not_in_time(&self) -> SendError {
        if self.ring.is_closed() { SendError::Closed(self.events.reason()) } else { SendError::TimedOut }
    }

    fn explain(&self, error: PushError) -> SendError {
        match error {
            PushError::Full => SendError::WouldBlock,
            PushError::TooLong { bytes, bytes_max } => SendError::TooLong { bytes, bytes_max },
            PushError::Closed => SendError::Closed(self.events.reason()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.shared.forget(self.id);
        self.events.leave();
        self.connection.shared.send_unanswered(Request::Close { channel: self.id });
    }
}

/// A channel that is being opened, see [`crate::Endsystem::open_nonblocking`]. Dropping it takes it back.
pub struct Opening {
    connection: Arc<Connection>,
    call: u64,
    reply: mpsc::Receiver<Reply>,
    wanted: Contract,
    done: bool,
}

impl Opening {
    pub(crate) fn start(connection: &Arc<Connection>, to: Address, wanted: Contract) -> Result<Self, Error> {
        let request = Request::Open { to, contract: wanted, token: None };
        let (call, reply) = connection.shared.start_call(request)?;
        Ok(Self { connection: Arc::clone(connection), call, reply, wanted, done: false })
    }

    /// The outcome, if it is known; `None` until then and after it was given.
    pub fn try_finish(&mut self) -> Option<Result<Channel, OpenError>> {
        match self.reply.try_recv() {
            Ok(reply) => Some(self.complete(reply)),
            Err(mpsc::TryRecvError::Disconnected) if !self.done => {
                self.done = true;
                Some(Err(Error::Disconnected.into()))
            }
            Err(_) => None,
        }
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn finish(mut self) -> Result<Channel, OpenError> {
        let reply = self.connection.shared.wait(&self.reply)?;
        self.complete(reply)
    }

    fn complete(&mut self, reply: Reply) -> Result<Channel, OpenError> {
        self.done = true;
        Channel::new(&self.connection, Opened::from_reply(&self.connection.shared, reply, &self.wanted)?)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.done || self.connection.shared.abandon(self.call) {
            return;
        }
        // The answer was there already; dropping the channel that it opened closes it.
        if let Ok(reply) = self.reply.try_recv() {
            drop(self.complete(reply));
        }
    }
}

//! The receiving end of a channel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::InboxReader;
use punctual_ipc::wake::Doorbell;
use punctual_proto::Nanos;
use punctual_proto::ids::ChannelId;
use punctual_proto::memory::MessageInfo;

use crate::agents::IncomingRequest;
use crate::connection::{Connection, may_wait};
use crate::error::{Error, RecvError};
use crate::events::{ChannelEvent, ChannelEvents, ChannelWatch};
use crate::listener::Accepted;
use crate::state::{ChannelState, Evidence};

/// The receiving end of a guaranteed channel or of best-effort flows. Dropping it closes it.
///
/// The receiver's descriptor ([`AsFd`]) is for `poll`/`epoll`: it is readable (`POLLIN`) while a message
/// waits or the channel has ended, level-triggered. It only signals this and carries no data: never read from
/// it.
pub struct Receiver {
    end: End,
    request: Option<IncomingRequest>,
    ring: InboxReader,
    timeout: Option<Duration>,
    /// Declared time of a handler on the processor for one message.
    handler_time: Nanos,
}

impl Receiver {
    pub(crate) fn new(connection: &Arc<Connection>, accepted: Accepted) -> Result<Self, Error> {
        let Accepted { channel, ring, request, handler_time, .. } = accepted;
        let mut receiver = Self::attach(connection, channel, ring, Some(request))?;
        receiver.handler_time = handler_time;
        Ok(receiver)
    }

    pub(crate) fn attach(
        connection: &Arc<Connection>,
        id: ChannelId,
        ring: InboxReader,
        request: Option<IncomingRequest>,
    ) -> Result<Self, Error> {
        let events = connection.shared.events_of(id);
        events.add_closer(ring.closer());
        let evidence = Evidence::new(ring.counters());
        let end = End { connection: Arc::clone(connection), events, id, evidence };
        Ok(Self { end, request, ring, timeout: None, handler_time: Nanos::ZERO })
    }

    /// The channel's handle at this host, as `punctual channels` shows it.
    pub fn id(&self) -> ChannelId {
        self.end.id
    }

    /// The sender and its contract; `None` for best effort.
    pub fn request(&self) -> Option<&IncomingRequest> {
        self.request.as_ref()
    }

    /// Longest message that can come, in bytes.
    pub fn message_bytes_max(&self) -> u32 {
        self.ring.shape().message_bytes_max
    }

    /// Messages that the ring holds. If more come before this program takes one, the next is lost.
    pub fn messages_held_max(&self) -> u32 {
        self.ring.shape().slots
    }

    /// Limits how long `recv` and `recv_in_place` wait; `None`: without limit (default).
    pub fn set_recv_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Copies the next message into `buffer` (rtcRecvMessage); waits for one.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<MessageInfo, RecvError> {
        self.wait_as_set()?;
        self.try_recv(buffer)
    }

    /// Copies the next message into `buffer`, as [`Receiver::recv`] does. It waits at most `timeout`,
    /// whatever the receive timeout.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv_timeout(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<MessageInfo, RecvError> {
        self.wait(Instant::now().checked_add(timeout))?;
        self.try_recv(buffer)
    }

    /// Copies the next message into `buffer` if one waits.
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if none does; the descriptor becomes readable when one comes.
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<MessageInfo, RecvError> {
        let buffer_bytes = buffer.len();
        let mut too_long = None;
        let info = self.ring.take_if(
            |info| {
                too_long = Some(info.len).filter(|len| *len as usize > buffer_bytes);
                too_long.is_none()
            },
            |bytes, info| {
                buffer[..bytes.len()].copy_from_slice(bytes);
                *info
            },
        );
        match (info, too_long) {
            (Some(info), _) => Ok(info),
            (None, Some(bytes)) => Err(RecvError::BufferTooSmall { bytes, buffer_bytes }),
            (None, None) => Err(self.nothing()),
        }
    }

    /// Passes `read` the next message in place, in the registered buffer into which the network's fragments
    /// were put (no copy); waits for one. The slot is free again afterwards.
    ///
    /// # Errors
    /// See [`RecvError`].
    pub fn recv_in_place<R>(&mut self, read: impl FnOnce(&[u8], &MessageInfo) -> R) -> Result<R, RecvError> {
        self.wait_as_set()?;
        self.try_recv_in_place(read)
    }

    /// Hands `read` the next message in place, as [`Receiver::recv_in_place`] does, if a message waits.
    ///
    /// # Errors
    /// [`RecvError::WouldBlock`] if none does.
    pub fn try_recv_in_place<R>(
        &mut self,
        read: impl FnOnce(&[u8], &MessageInfo) -> R,
    ) -> Result<R, RecvError> {
        match self.ring.take(read) {
            Some(value) => Ok(value),
            None => Err(self.nothing()),
        }
    }

    /// Takes the receiver apart for a handler: the end of the channel, the ring, and the declared time for one message.
    pub(crate) fn into_parts(self) -> (End, InboxReader, Nanos) {
        (self.end, self.ring, self.handler_time)
    }

    /// Co-schedules the calling thread, the one that takes this channel's messages: it runs in `SCHED_FIFO` at the
    /// priority that this host maps the channel's class and period to ([processor.priorities] of its configuration,
    /// below the engine's own), until the channel ends at this end. Returns the priority: the highest of the thread's
    /// channels if it serves several. Threads that it starts are ordinary ones.
    ///
    /// # Errors
    /// If the host does not allow it, is a best-effort host, or has no right to ([`ApiError::CoSchedule`], with the
    /// fix); for best effort, which has no priority; if the channel has ended or the daemon is gone.
    ///
    /// [`ApiError::CoSchedule`]: crate::ApiError::CoSchedule
    pub fn co_schedule(&self) -> Result<u8, Error> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        match self.end.connection.shared.call(Request::CoSchedule { channel: self.end.id, thread })?.0 {
            Answer::CoScheduled { priority } => Ok(priority),
            _ => Err(Error::Unexpected),
        }
    }

    /// Makes the protocol's handler and this receiver alternate one to one (RTU 3): from now on a message
    /// becomes visible only when the one before is taken. Complete messages wait in the buffers reserved for
    /// them, at no cost to others; messages beyond those are overruns as usual. Bounds apply up to the begin
    /// of that wait. This is for a guaranteed channel only.
    ///
    /// # Errors
    /// If the channel has ended, is best effort, or the daemon is gone.
    pub fn alternate(&mut self) -> Result<(), Error> {
        match self.end.connection.shared.call(Request::Alternate { channel: self.end.id })? {
            (Answer::Alternates, mut descriptors) => {
                let doorbell = descriptors.pop().ok_or(Error::Unexpected)?;
                self.ring.alternate(Doorbell::new(doorbell));
                Ok(())
            }
            _ => Err(Error::Unexpected),
        }
    }

    /// Returns the promised bound, the observed latencies and the misses (rtcGetParameter). Sends a request
    /// as rarely as [`Channel::state`](crate::Channel::state).
    ///
    /// # Errors
    /// If the channel has ended or the daemon is gone.
    pub fn state(&self) -> Result<ChannelState, Error> {
        self.end.state()
    }

    /// What happened since the last call; each kind at most once.
    pub fn events(&self) -> Vec<ChannelEvent> {
        self.end.events.drain()
    }

    /// Returns a handle that waits for events of this channel on another thread than the receiving one.
    pub fn watch(&self) -> ChannelWatch {
        ChannelWatch::of(Arc::clone(&self.end.events))
    }

    /// Whether the channel has ended. Messages may still wait.
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Ends the channel (rtcDestroyConnection) and waits for the daemon's confirmation.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn close(self) -> Result<(), Error> {
        self.end.connection.shared.call(Request::Close { channel: self.end.id }).map(|_| ())
    }

    /// Waits as long as the receive timeout allows. Does not read the clock if a message waits already: that
    /// would be a tenth of the cost of taking the message.
    fn wait_as_set(&self) -> Result<(), RecvError> {
        if self.ring.has_message() {
            return Ok(());
        }
        self.wait(self.timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    fn wait(&self, until: Option<Instant>) -> Result<(), RecvError> {
        if !self.ring.has_message() && !self.ring.is_closed() {
            may_wait()?;
        }
        if self.ring.wait(until)? {
            Ok(())
        } else if self.ring.is_closed() {
            Err(RecvError::Closed(self.end.events.reason()))
        } else {
            Err(RecvError::TimedOut)
        }
    }

    pub(crate) fn nothing(&self) -> RecvError {
        if self.ring.is_closed() {
            RecvError::Closed(self.end.events.reason())
        } else {
            RecvError::WouldBlock
        }
    }
}

/// What a thread that leads its engine needs.
#[cfg(feature = "embedded")]
impl Receiver {
    /// The ring, for the caller that takes messages out of it on the engine's thread.
    pub(crate) const fn ring_mut(&mut self) -> &mut InboxReader {
        &mut self.ring
    }

    pub(crate) const fn handler_time(&self) -> Nanos {
        self.handler_time
    }

    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.end.connection
    }

    pub(crate) const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// This host's end of a channel, as its daemon or engine registered it. Dropping it closes the channel.
pub(crate) struct End {
    pub(crate) connection: Arc<Connection>,
    pub(crate) events: Arc<ChannelEvents>,
    pub(crate) id: ChannelId,
    evidence: Evidence,
}

impl End {
    pub(crate) fn state(&self) -> Result<ChannelState, Error> {
        self.evidence.state(&self.connection.shared, self.id)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.connection.shared.forget(self.id);
        self.events.leave();
        self.connection.shared.send_unanswered(Request::Close { channel: self.id });
    }
}

//! A TCP connection as a program reads and writes it.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_ipc::ring::{InboxReader, OutboxWriter};

use super::rings::Rings;
use super::side::{Known, LocalEnd, Opened, left};
use super::{Ended, State, Status, TcpError};
use crate::connection::Connection;
use crate::listener::Listener;

/// How often to ask whether the peer has acknowledged everything.
const SENT_PAUSE: Duration = Duration::from_millis(1);

/// A TCP connection of this host's own. Dropping it closes it: bytes that were written still leave, as long as the endsystem
/// lives. A process that ends takes its engine along, and what has not left is lost: wait before that
/// ([`TcpStream::wait_sent`]). If bytes that came were not read, the peer is reset (RFC 2525 2.17).
///
/// Reading waits until bytes come or the peer closes, writing until there is room, unless a timeout is set or the stream is
/// non-blocking. Its descriptor ([`AsRawFd`]) is readable while bytes wait or the peer has closed, for `poll` and `epoll`; never
/// read from it. Watch it level-triggered: an edge may come a moment before the reason of an end is known, and a read that does not
/// wait says `WouldBlock` then.
///
/// Bytes can be read where they came, without a copy: [`BufRead::fill_buf`](io::BufRead::fill_buf) shows them, and
/// [`BufRead::consume`](io::BufRead::consume) frees their place. [`TcpStream::write_with`] writes in place.
///
/// A stream belongs to its process: a child that was forked must not use its copy. Dropping that changes nothing.
pub struct TcpStream {
    /// Released first: the rings may go then.
    pub(super) end: LocalEnd,
    /// This host's address and the peer's.
    ends: [SocketAddr; 2],
    pub(super) outbox: OutboxWriter,
    pub(super) inbox: InboxReader,
    /// How many bytes of the message at the front of the ring were read.
    pub(super) read: usize,
    pub(super) read_timeout: Option<Duration>,
    pub(super) write_timeout: Option<Duration>,
    pub(super) is_nonblocking: bool,
    /// This side closes its direction.
    pub(super) is_closing: bool,
    /// The program reads what is in the ring, and then no more.
    pub(super) reads_rest: bool,
    /// The peer has closed its direction, and everything was read.
    pub(super) saw_end: bool,
    /// The end of the stream is known, without the reason: how many answers have said since then that the connection is over.
    pub(super) end_seen: Option<u32>,
    /// The program was told why the connection ended.
    pub(super) saw_error: bool,
    /// What was declared for a handler on the processor.
    #[cfg(feature = "embedded")]
    pub(super) declared: Option<(super::Qos, punctual_proto::Nanos)>,
    /// Holds the port of a connection with a reserved path.
    port: Option<Listener>,
}

impl TcpStream {
    pub(super) fn new(connection: &Arc<Connection>, (side, rings, ends): Opened) -> Self {
        let Rings { outbox, mut inbox } = rings;
        // A program that falls behind reads half of the ring, and then the engine fills it: the window would open by a segment or
        // two at a time otherwise.
        inbox.set_room(inbox.shape().slots / 2);
        Self {
            end: LocalEnd::new(connection, side),
            ends,
            outbox,
            inbox,
            read: 0,
            read_timeout: None,
            write_timeout: None,
            is_nonblocking: false,
            is_closing: false,
            reads_rest: false,
            saw_end: false,
            end_seen: None,
            saw_error: false,
            #[cfg(feature = "embedded")]
            declared: None,
            port: None,
        }
    }

    /// A handler on the processor, or a leading thread, may take so long for a segment.
    #[cfg(feature = "embedded")]
    pub(super) const fn declaring(mut self, qos: super::Qos, handler_time: punctual_proto::Nanos) -> Self {
        self.declared = Some((qos, handler_time));
        self
    }

    /// The stream holds its port as long as it is there.
    pub(super) fn holding(mut self, port: Listener) -> Self {
        self.port = Some(port);
        self
    }

    /// This host's address and port.
    pub const fn local_addr(&self) -> SocketAddr {
        self.ends[0]
    }

    /// The peer's address and port.
    pub const fn peer_addr(&self) -> SocketAddr {
        self.ends[1]
    }

    /// State, segments and buffers of the connection; `None` once it is over.
    ///
    /// # Errors
    /// If the engine has ended, or this is its own thread.
    pub fn status(&self) -> io::Result<Option<Status>> {
        self.end.status().map_err(gone)
    }

    /// Closes a direction. `Write`: the peer sees the end behind the bytes that were written. `Read`: reads return what waits in the
    /// program's ring, and then the end; the peer is not notified, as with other systems.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.reads_rest = true;
        }
        if how == Shutdown::Read {
            return Ok(());
        }
        self.is_closing = true;
        self.end.shutdown().map_err(gone)
    }

    /// Waits until the peer has acknowledged all bytes that were written, and the end if this side has closed; `false` when
    /// `timeout` came first.
    ///
    /// # Errors
    /// If the engine has ended, or the connection before its bytes were acknowledged.
    pub fn wait_sent(&mut self, timeout: Duration) -> io::Result<bool> {
        let until = Instant::now().checked_add(timeout);
        if self.is_closing {
            // The end has just been sent: to ask at once costs the daemon a round trip, for nothing.
            std::thread::sleep(SENT_PAUSE.min(timeout));
        }
        loop {
            let known = self.end.known_within(left(until)).map_err(gone)?;
            if let Some(why) = self.end.ended().filter(|why| *why != Ended::Closed) {
                return Err(error_of(why));
            }
            let is_sent = match known {
                Known::Nothing => false,
                Known::Over => true,
                Known::Is(status) => {
                    let end_is_sent =
                        matches!(status.state, State::FinWait2 | State::TimeWait | State::Closed);
                    let is_empty = status.unacknowledged_bytes == 0 && self.outbox.outstanding() == 0;
                    is_empty && (end_is_sent || !self.is_closing)
                }
            };
            if is_sent || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(is_sent);
            }
            // The peer's acknowledgement does not wake this thread.
            std::thread::sleep(SENT_PAUSE);
        }
    }

    /// Ends the connection at once: the peer is reset.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn abort(&self) -> io::Result<()> {
        self.end.abort().map_err(gone)
    }
}

pub(super) fn gone(error: TcpError) -> io::Error {
    io::Error::other(error)
}

pub(super) fn error_of(why: Ended) -> io::Error {
    let kind = match why {
        Ended::Closed => io::ErrorKind::NotConnected,
        Ended::Reset => io::ErrorKind::ConnectionReset,
        Ended::Refused => io::ErrorKind::ConnectionRefused,
        Ended::TimedOut => io::ErrorKind::TimedOut,
        Ended::Unreachable => io::ErrorKind::HostUnreachable,
        Ended::Aborted => io::ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, why)
}

impl TcpStream {
    /// A descriptor for `poll` and `epoll` that is readable while the stream has room, once a write without waiting has found
    /// none; never read from it. It is level-triggered.
    pub fn room_fd(&self) -> BorrowedFd<'_> {
        self.outbox.as_fd()
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

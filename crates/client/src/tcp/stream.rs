//! A TCP connection as a program reads and writes it.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_ipc::ring::outgoing::PushError;
use punctual_ipc::ring::{InboxReader, OutboxWriter};

use super::rings::Rings;
use super::side::{Opened, REASON_WITHIN, Side};
use super::{Ended, State, Status, TcpError};
use crate::connection::Connection;
use crate::listener::Listener;

/// A TCP connection of this host's own. Dropping it closes it: bytes that were written still leave, as long as the endsystem
/// lives. A process that ends takes its engine along, and what has not left is lost: wait before that
/// ([`TcpStream::wait_sent`]). If bytes that came were not read, the peer is reset (RFC 2525 2.17).
///
/// Reading waits until bytes come or the peer closes, writing until there is room, unless a timeout is set or the stream is
/// non-blocking. Its descriptor ([`AsRawFd`]) is readable while bytes wait or the peer has closed, for `poll` and `epoll`; never
/// read from it. It is level-triggered.
pub struct TcpStream {
    connection: Arc<Connection>,
    side: Side,
    /// This host's address and the peer's.
    ends: [SocketAddr; 2],
    outbox: OutboxWriter,
    inbox: InboxReader,
    /// Bytes of the message that was taken last, and how many of them were read.
    rest: (Vec<u8>, usize),
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    is_nonblocking: bool,
    /// This side closes its direction.
    is_closing: bool,
    /// The peer has closed its direction, and everything was read.
    saw_end: bool,
    /// Holds the port of a connection with a reserved path.
    port: Option<Listener>,
}

impl TcpStream {
    pub(super) fn new(connection: &Arc<Connection>, (side, Rings { outbox, inbox }, ends): Opened) -> Self {
        Self {
            connection: Arc::clone(connection),
            side,
            ends,
            outbox,
            inbox,
            rest: (Vec::new(), 0),
            read_timeout: None,
            write_timeout: None,
            is_nonblocking: false,
            is_closing: false,
            saw_end: false,
            port: None,
        }
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

    /// Limits how long a read waits; `None`: without limit (default).
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// Limits how long a write waits; `None`: without limit (default).
    pub const fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    /// Whether reads and writes that would wait return [`io::ErrorKind::WouldBlock`] instead.
    pub const fn set_nonblocking(&mut self, is_nonblocking: bool) {
        self.is_nonblocking = is_nonblocking;
    }

    /// State, segments and buffers of the connection; `None` once it is over.
    ///
    /// # Errors
    /// If the engine has ended, or this is its own thread.
    pub fn status(&self) -> io::Result<Option<Status>> {
        self.side.status(&self.connection).map_err(gone)
    }

    /// Closes a direction. `Write`: the peer sees the end behind the bytes that were written. `Read`: what comes from now on is
    /// not read; the peer is not notified, as with other systems.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.saw_end = true;
        }
        if how == Shutdown::Read {
            return Ok(());
        }
        self.is_closing = true;
        self.side.shutdown(&self.connection).map_err(gone)
    }

    /// Waits until the peer has acknowledged all bytes that were written, and the end if this side has closed; `false` when
    /// `timeout` came first.
    ///
    /// # Errors
    /// If the engine has ended, or the connection before its bytes were acknowledged.
    pub fn wait_sent(&mut self, timeout: Duration) -> io::Result<bool> {
        let until = Instant::now().checked_add(timeout);
        loop {
            let status = self.status()?;
            if let Some(why) = self.side.ended().filter(|why| *why != Ended::Closed) {
                return Err(error_of(why));
            }
            let is_sent = status.is_none_or(|status| {
                let end_is_sent = matches!(status.state, State::FinWait2 | State::TimeWait | State::Closed);
                let is_empty = status.unacknowledged_bytes == 0 && self.outbox.outstanding() == 0;
                is_empty && (end_is_sent || !self.is_closing)
            });
            if is_sent || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(is_sent);
            }
            // The peer's acknowledgement does not wake this thread.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the connection at once: the peer is reset.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn abort(&self) -> io::Result<()> {
        self.side.abort(&self.connection).map_err(gone)
    }

    /// Has the handlers called: bytes to send are there, or room for bytes that came.
    fn ready(&self) -> io::Result<()> {
        self.side.ready(&self.connection).map_err(gone)
    }

    /// The end of the stream: without error if the peer has closed it.
    fn end(&mut self) -> io::Result<usize> {
        self.saw_end = true;
        // The end of the stream is visible a moment before the news of a reset: a reset must not look like an end.
        let until = Instant::now() + REASON_WITHIN;
        let why = loop {
            if let Some(why) = self.side.ended() {
                break Some(why);
            }
            match self.status()? {
                Some(status) => break status.ended,
                // It is over: the news is on its way.
                None if Instant::now() >= until => break None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        match why {
            Some(why) if why != Ended::Closed => Err(error_of(why)),
            _ => Ok(0),
        }
    }

    fn deadline(timeout: Option<Duration>) -> Option<Instant> {
        timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Puts bytes into the ring. The engine is notified if it has seen the ring empty: a daemon by the ring's doorbell.
    fn push(&mut self, bytes: &[u8]) -> io::Result<Result<(), PushError>> {
        if matches!(self.side, Side::Remote(_)) {
            return Ok(self.outbox.push(&[IoSlice::new(bytes)]).map(drop));
        }
        let pushed = self.outbox.push_beside(bytes, punctual_ipc::ring::now());
        if pushed == Ok(true) {
            self.ready()?;
        }
        Ok(pushed.map(drop))
    }

    /// Takes the next message; `false` if none waits.
    fn take(&mut self) -> io::Result<bool> {
        let (rest, at) = &mut self.rest;
        let taken = self.inbox.take(|bytes, _| {
            rest.clear();
            rest.extend_from_slice(bytes);
        });
        if taken.is_some() {
            *at = 0;
            // A daemon is rung by the ring.
            if !matches!(self.side, Side::Remote(_)) && self.inbox.writer_waits() {
                self.ready()?;
            }
        }
        Ok(taken.is_some())
    }
}

fn gone(error: TcpError) -> io::Error {
    io::Error::other(error)
}

fn error_of(why: Ended) -> io::Error {
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

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = Self::deadline(self.read_timeout);
        loop {
            let (rest, at) = &mut self.rest;
            if *at < rest.len() {
                let bytes = buffer.len().min(rest.len() - *at);
                buffer[..bytes].copy_from_slice(&rest[*at..*at + bytes]);
                *at += bytes;
                return Ok(bytes);
            }
            if self.saw_end || buffer.is_empty() {
                return Ok(0);
            }
            // Read before the ring: a ring may be filled and closed between two reads.
            let is_closed = self.inbox.is_closed();
            if self.take()? {
                // An empty message is the end.
                if self.rest.0.is_empty() {
                    return self.end();
                }
                continue;
            }
            if is_closed {
                return self.end();
            }
            if self.is_nonblocking || !self.inbox.wait(until)? && !self.inbox.is_closed() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = self.outbox.shape().message_bytes_max as usize;
        let bytes = &bytes[..bytes.len().min(most)];
        if bytes.is_empty() {
            return Ok(0);
        }
        let until = Self::deadline(self.write_timeout);
        loop {
            if let Some(why) = self.side.ended() {
                let closed = why == Ended::Closed;
                return Err(if closed { io::ErrorKind::BrokenPipe.into() } else { error_of(why) });
            }
            match self.push(bytes)? {
                Ok(()) => return Ok(bytes.len()),
                Err(PushError::Full) if self.is_nonblocking => return Err(io::ErrorKind::WouldBlock.into()),
                Err(PushError::Full) => {
                    if !self.outbox.wait_room(until)? && self.outbox.is_full() {
                        return Err(match self.side.ended() {
                            Some(why) => error_of(why),
                            None => io::ErrorKind::WouldBlock.into(),
                        });
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::BrokenPipe, error)),
            }
        }
    }

    /// Does nothing: what is written leaves as soon as the connection may send it.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

impl Drop for TcpStream {
    fn drop(&mut self) {
        let has_rest = self.rest.1 < self.rest.0.len();
        let next = if self.saw_end { None } else { self.inbox.take(|bytes, _| bytes.len()) };
        let has_unread = has_rest || next.is_some_and(|bytes| bytes > 0);
        if has_unread {
            // An error means that the engine, and the connection with it, are gone.
            let _ = self.side.abort(&self.connection);
        }
        self.side.release(&self.connection);
    }
}

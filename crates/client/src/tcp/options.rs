//! Options of a stream, as programs know them from sockets.

use std::io;
use std::time::Duration;

use punctual_ipc::api::TcpSetting;
use punctual_proto::Nanos;

use super::stream::{TcpStream, error_of, gone};
use super::{CurrentSettings, Ended};

fn span(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl TcpStream {
    /// Limits how long a read waits; `None`: without limit (default).
    pub const fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    /// The limit of a read.
    pub const fn read_timeout(&self) -> Option<Duration> {
        self.read_timeout
    }

    /// Limits how long a write waits; `None`: without limit (default).
    pub const fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    /// The limit of a write.
    pub const fn write_timeout(&self) -> Option<Duration> {
        self.write_timeout
    }

    /// Whether reads and writes that would wait return [`io::ErrorKind::WouldBlock`] instead.
    pub const fn set_nonblocking(&mut self, is_nonblocking: bool) {
        self.is_nonblocking = is_nonblocking;
    }

    /// What a drop does with bytes that the peer has not acknowledged. `None` (default): they leave afterwards. Zero: the peer
    /// is reset, and they are lost. Else the drop waits for their acknowledgement for so long; after that they leave as without
    /// this option. Never on the processor's own thread, which would wait for itself.
    pub const fn set_linger(&mut self, linger: Option<Duration>) {
        self.end.linger = linger;
    }

    /// How long a drop waits.
    pub const fn linger(&self) -> Option<Duration> {
        self.end.linger
    }

    /// Whether small segments leave at once, without waiting for acknowledgements (TCP_NODELAY, RFC 9293 3.7.4). A low-delay
    /// connection begins so.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_nodelay(&self, is_nodelay: bool) -> io::Result<()> {
        self.set(TcpSetting::NoDelay(is_nodelay))
    }

    /// See [`TcpStream::set_nodelay`].
    ///
    /// # Errors
    /// If the engine or the connection has ended.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.settings()?.nodelay)
    }

    /// Idle time after which a segment asks whether the peer is there (SO_KEEPALIVE with TCP_KEEPIDLE, RFC 9293 3.8.4), at
    /// least 100 ms; `None`: none does (default). A peer that does not answer ends the connection after the user timeout.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_keep_alive(&self, idle: Option<Duration>) -> io::Result<()> {
        self.set(TcpSetting::KeepAlive(idle.map(span)))
    }

    /// See [`TcpStream::set_keep_alive`].
    ///
    /// # Errors
    /// If the engine or the connection has ended.
    pub fn keep_alive(&self) -> io::Result<Option<Duration>> {
        Ok(self.settings()?.keep_alive.map(|idle| Duration::from_nanos(idle.0)))
    }

    /// Longest time that the peer may leave bytes unacknowledged before the connection ends (TCP_USER_TIMEOUT, RFC 9293 3.8.3);
    /// 15 minutes unless set, or with zero. A peer that keeps its window closed and answers is not silent.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.set(TcpSetting::UserTimeout(span(timeout)))
    }

    /// Time to live or hop limit of what leaves from now on (IP_TTL); 0 counts as 64.
    ///
    /// # Errors
    /// If the engine has ended.
    pub fn set_ttl(&self, hops: u8) -> io::Result<()> {
        self.set(TcpSetting::HopLimit(hops))
    }

    /// Asks for a receive buffer of `bytes` (SO_RCVBUF): a hint that is not followed, because buffers are admitted and counted
    /// when the connection begins. Returns the bytes that it has, as [`TcpStream::recv_buffer_size`].
    ///
    /// # Errors
    /// If the engine or the connection has ended.
    pub fn set_recv_buffer_size(&self, _bytes: usize) -> io::Result<usize> {
        self.recv_buffer_size()
    }

    /// Bytes that may have come and not be read: the connection's buffer, which is the window that the peer sees at most, and
    /// the program's ring.
    ///
    /// # Errors
    /// If the engine or the connection has ended.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        let shape = self.inbox.shape();
        Ok(self.settings()?.receive_bytes as usize + shape.slots as usize * shape.message_bytes_max as usize)
    }

    /// Asks for a send buffer of `bytes` (SO_SNDBUF), see [`TcpStream::set_recv_buffer_size`].
    ///
    /// # Errors
    /// If the engine or the connection has ended.
    pub fn set_send_buffer_size(&self, _bytes: usize) -> io::Result<usize> {
        self.send_buffer_size()
    }

    /// Bytes that may be written and not acknowledged: the connection's buffer, and the program's ring, which holds fewer if
    /// they are written in small pieces.
    ///
    /// # Errors
    /// If the engine or the connection has ended.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        let shape = self.outbox.shape();
        Ok(self.settings()?.send_bytes as usize + shape.slots as usize * shape.message_bytes_max as usize)
    }

    /// Why the connection ended, if that is an error and no read or write has returned it (SO_ERROR).
    pub fn take_error(&mut self) -> Option<io::Error> {
        let why = self.end.ended().filter(|why| *why != Ended::Closed && !self.saw_error)?;
        self.saw_error = true;
        Some(error_of(why))
    }

    fn set(&self, setting: TcpSetting) -> io::Result<()> {
        self.end.set(setting).map_err(gone)
    }

    fn settings(&self) -> io::Result<CurrentSettings> {
        let status = self.status()?.ok_or(io::ErrorKind::NotConnected)?;
        Ok(status.settings)
    }
}

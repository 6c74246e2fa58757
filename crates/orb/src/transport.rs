//! Streams of bytes between ORBs: TCP and Unix sockets, with deadlines.
//!
//! A deadline is kept by the socket's own timeout, which is set only when the time of calls changes: a call of a
//! client that always allows the same time has no system call more than one without.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_giop::reference::Address;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketType};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// TCP: IIOP.
    Tcp(Address),
    /// A Unix socket of this host.
    Unix(PathBuf),
}

impl Endpoint {
    /// TCP at this host and port.
    pub fn tcp(host: &str, port: u16) -> Self {
        Self::Tcp(Address { host: host.into(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The moment by which something must be done, if any.
pub type Deadline = Option<Instant>;

/// What is left until a deadline.
pub(crate) fn left(deadline: Deadline) -> io::Result<Option<Duration>> {
    let Some(deadline) = deadline else { return Ok(None) };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

/// A connected stream.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
}

impl Stream {
    /// Connects to a server.
    ///
    /// # Errors
    /// Those of the system; `TimedOut` at the deadline.
    pub fn connect(endpoint: &Endpoint, deadline: Deadline) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => connect_tcp(address, deadline),
            Endpoint::Unix(path) => {
                let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
                sockopt::set_socket_timeout(&socket, Timeout::Send, left(deadline)?)?;
                net::connect(&socket, &SocketAddrUnix::new(path.as_path())?)?;
                sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
                Ok(Self { socket })
            }
        }
    }

    /// A socket that is connected already.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// How long one read may wait.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Recv, timeout)?)
    }

    /// How long one write may wait.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_timeout(&self.socket, Timeout::Send, timeout)?)
    }

    /// Appends bytes that are there to what `into` has, up to its capacity; waits for the first. 0 at the end.
    pub(crate) fn read(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.socket, rustix::buffer::spare_capacity(into)) {
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    /// As [`Stream::read`], but does not wait: `WouldBlock` if there is nothing.
    pub(crate) fn read_now(&self, into: &mut Vec<u8>) -> io::Result<usize> {
        let spare = rustix::buffer::spare_capacity(into);
        let (_, read) = net::recv(&self.socket, spare, net::RecvFlags::DONTWAIT)?;
        Ok(read)
    }

    /// Writes all bytes of both parts.
    pub(crate) fn write(&self, mut head: &[u8], mut tail: &[u8]) -> io::Result<()> {
        while !head.is_empty() || !tail.is_empty() {
            let written = match self.write_some(head, tail) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                written => written?,
            };
            let of_head = written.min(head.len());
            head = &head[of_head..];
            tail = &tail[written - of_head..];
        }
        Ok(())
    }

    fn write_some(&self, head: &[u8], tail: &[u8]) -> rustix::io::Result<usize> {
        if tail.is_empty() {
            return net::send(&self.socket, head, SendFlags::NOSIGNAL);
        }
        let parts = [io::IoSlice::new(head), io::IoSlice::new(tail)];
        net::sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
    }

    /// Whether the other side has closed, or has sent what nobody awaits.
    pub(crate) fn is_spent(&self) -> bool {
        let mut byte = [0u8; 1];
        let flags = net::RecvFlags::DONTWAIT | net::RecvFlags::PEEK;
        !matches!(net::recv(&self.socket, &mut byte[..], flags), Err(Errno::AGAIN))
    }

    /// Nothing is read any more: a thread that waits on it wakes up. Replies can still be written.
    pub(crate) fn shutdown_read(&self) {
        // Fails if the other side was quicker.
        let _ = net::shutdown(&self.socket, net::Shutdown::Read);
    }

    /// Ends both directions: a thread that waits on it wakes up.
    pub(crate) fn shutdown(&self) {
        // Fails if the other side was quicker.
        let _ = net::shutdown(&self.socket, net::Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn connect_tcp(address: &Address, deadline: Deadline) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for one in (&*address.host, address.port).to_socket_addrs()? {
        let connected = match left(deadline)? {
            Some(left) => TcpStream::connect_timeout(&one, left),
            None => TcpStream::connect(one),
        };
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(Stream::new(stream.into()));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

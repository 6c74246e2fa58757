//! Streams of bytes between ORBs: TCP and Unix sockets, with deadlines.
//!
//! A deadline is kept by the socket's own timeout, which is set only when the time of calls changes: a call of a
//! client that always allows the same time has no system call more than one without.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use punctual_giop::reference::Address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Whether a socket that has one timeout need not get another one. Calls that allow the same time differ by
/// what has passed since they began.
pub(crate) fn is_close(set: Option<Duration>, wanted: Option<Duration>) -> bool {
    match (set, wanted) {
        (None, None) => true,
        (Some(set), Some(wanted)) => set.abs_diff(wanted) * 16 < set,
        _ => false,
    }
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

    /// As [`Stream::write`], until the deadline. The socket's timeout, which is `set`, becomes what is left.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) fn write_until(
        &self,
        mut head: &[u8],
        mut tail: &[u8],
        deadline: Deadline,
        set: &mut Option<Duration>,
    ) -> io::Result<()> {
        while !head.is_empty() || !tail.is_empty() {
            let left = left(deadline)?;
            if !is_close(*set, left) {
                self.set_write_timeout(left)?;
                *set = left;
            }
            let written = match self.write_some(head, tail, SendFlags::empty()) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                written => written?,
            };
            let of_head = written.min(head.len());
            (head, tail) = (&head[of_head..], &tail[written - of_head..]);
        }
        Ok(())
    }

    /// Writes all bytes of both parts.
    pub(crate) fn write(&self, mut head: &[u8], mut tail: &[u8]) -> io::Result<()> {
        while !head.is_empty() || !tail.is_empty() {
            let written = match self.write_some(head, tail, SendFlags::empty()) {
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

    /// Writes what the socket takes of both parts now: how many bytes, possibly none.
    pub(crate) fn write_parts_now(&self, head: &[u8], tail: &[u8]) -> io::Result<usize> {
        loop {
            match self.write_some(head, tail, SendFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                written => return Ok(written?),
            }
        }
    }

    /// Waits until the socket takes more bytes, or the connection has ended.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) fn wait_until_writable(&self, deadline: Deadline) -> io::Result<()> {
        self.wait_until(PollFlags::OUT, deadline)
    }

    /// Waits until there is something to read, or the connection has ended.
    ///
    /// # Errors
    /// `TimedOut`.
    pub(crate) fn wait_until_readable(&self, deadline: Deadline) -> io::Result<()> {
        self.wait_until(PollFlags::IN, deadline)
    }

    fn wait_until(&self, event: PollFlags, deadline: Deadline) -> io::Result<()> {
        loop {
            let left = left(deadline)?.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(self, event)], left.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                polled => return Ok(polled.map(drop)?),
            }
        }
    }

    /// Writes what the socket takes now: how many bytes.
    pub(crate) fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match net::send(&self.socket, &bytes[written..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(written)
    }

    fn write_some(&self, head: &[u8], tail: &[u8], flags: SendFlags) -> rustix::io::Result<usize> {
        let flags = flags | SendFlags::NOSIGNAL;
        if tail.is_empty() {
            return net::send(&self.socket, head, flags);
        }
        let parts = [io::IoSlice::new(head), io::IoSlice::new(tail)];
        net::sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags)
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

/// The addresses of a host. The system's search has no deadline of its own: a thread waits for it.
fn find(address: &Address, deadline: Deadline) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = address.host.parse::<IpAddr>() {
        return Ok(vec![(ip, address.port).into()]);
    }
    let (host, port) = (address.host.clone(), address.port);
    let search = move || {
        let found = (&*host, port).to_socket_addrs().map(Iterator::collect);
        // The system's searcher has errors of its own.
        found.map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))
    };
    let Some(left) = left(deadline)? else { return search() };
    let (sender, receiver) = sync_channel(1);
    let name = "punctual-find".to_owned();
    // Nobody listens if it takes too long.
    thread::Builder::new().name(name).spawn(move || drop(sender.send(search())))?;
    receiver.recv_timeout(left).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn connect_tcp(address: &Address, deadline: Deadline) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{address} has no address"));
    for one in find(address, deadline)? {
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

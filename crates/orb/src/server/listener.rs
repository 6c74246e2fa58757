//! Sockets at which clients connect.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use punctual_giop::reference::Address;

use crate::limits::LISTEN_BACKLOG;
use crate::transport::{Endpoint, Stream};

/// A socket at which clients connect.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        let listener = match endpoint {
            Endpoint::Tcp(address) => TcpListener::bind((&*address.host, address.port)).map(Self::Tcp)?,
            Endpoint::Unix(path) => bind_unix(path).map(|listener| Self::Unix(listener, path.clone()))?,
        };
        // Many clients may come at once: those beyond the default of 128 would try again a second later.
        rustix::net::listen(listener.as_fd(), LISTEN_BACKLOG)?;
        Ok(listener)
    }

    /// Where it really is: port 0 has become another one.
    pub(super) fn endpoint(&self) -> io::Result<Endpoint> {
        Ok(match self {
            Self::Tcp(listener) => {
                let at = listener.local_addr()?;
                Endpoint::Tcp(Address { host: host(at), port: at.port() })
            }
            Self::Unix(_, path) => Endpoint::Unix(path.clone()),
        })
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        let socket: OwnedFd = match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                TcpStream::into(stream)
            }
            Self::Unix(listener, _) => listener.accept()?.0.into(),
        };
        Ok(Stream::new(socket))
    }

    /// Wakes the thread that accepts.
    pub(super) fn shutdown(&self) {
        if let Self::Unix(_, path) = self {
            // Another program may have replaced it already.
            if is_socket(path) {
                let _ = std::fs::remove_file(path);
            }
        }
        // Fails if it does not listen any more.
        let _ = rustix::net::shutdown(self, rustix::net::Shutdown::Both);
    }

    /// Accepting does not wait from now on: it fails with `WouldBlock`.
    pub(super) fn never_waits(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => listener.set_nonblocking(true),
            Self::Unix(listener, _) => listener.set_nonblocking(true),
        }
    }
}

/// Whether a socket has this name: not a file of another kind, or a link to one.
fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

/// A socket whose server has ended without removing it is replaced. A file of another kind is not: connecting to it is refused, too.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_left = |error: &io::Error| {
        let connected = || UnixStream::connect(path).map_err(|error| error.kind());
        error.kind() == io::ErrorKind::AddrInUse
            && is_socket(path)
            && connected().err() == Some(io::ErrorKind::ConnectionRefused)
    };
    match UnixListener::bind(path) {
        Err(error) if is_left(&error) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// The host in an address. One of IPv6 that only a link knows has its zone, without which it cannot be reached.
fn host(at: SocketAddr) -> String {
    match at {
        SocketAddr::V6(at) if at.scope_id() != 0 => format!("{}%{}", at.ip(), at.scope_id()),
        at => at.ip().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddrV6};

    use super::*;

    #[test]
    fn an_address_of_a_link_has_its_zone() {
        let at = |scope| host(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 5, 0, scope).into());
        assert_eq!((&*at(0), &*at(3)), ("::1", "::1%3"));
    }
}

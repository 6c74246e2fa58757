//! Sockets at which clients connect.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use punctual_giop::reference::Address;

use crate::transport::{Endpoint, Stream};

/// A socket at which clients connect.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => TcpListener::bind((&*address.host, address.port)).map(Self::Tcp),
            Endpoint::Unix(path) => {
                UnixListener::bind(path).map(|listener| Self::Unix(listener, path.clone()))
            }
        }
    }

    /// Where it really is: port 0 has become another one.
    pub(super) fn endpoint(&self) -> io::Result<Endpoint> {
        Ok(match self {
            Self::Tcp(listener) => {
                let at = listener.local_addr()?;
                Endpoint::Tcp(Address { host: at.ip().to_string(), port: at.port() })
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
        let socket: &dyn std::os::fd::AsFd = match self {
            Self::Tcp(listener) => listener,
            Self::Unix(listener, path) => {
                // Another program may have replaced it already.
                let _ = std::fs::remove_file(path);
                listener
            }
        };
        let _ = rustix::net::shutdown(socket.as_fd(), rustix::net::Shutdown::Both);
    }
}

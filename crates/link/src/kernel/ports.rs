//! Local ports that the kernel must give to no other.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, socket_with};

use super::error::KernelError;

/// A kernel socket that is bound to a local address and port of TCP, and does nothing else, until it is dropped: the kernel
/// refuses the port to any other program, and chooses it for no connection of its own.
///
/// It does not answer for the port: to the kernel the port is closed, so what a link does not take of its traffic is
/// reset. One hold serves all flows and the listener of a port.
#[derive(Debug)]
pub struct PortHold {
    _socket: OwnedFd,
    local: SocketAddr,
}

impl PortHold {
    /// Takes the port in the network namespace of this thread; port 0: one that the kernel chooses.
    ///
    /// # Errors
    /// If another program has it, the address is not this host's, or it takes a right; the fix is in the text.
    pub fn take(local: SocketAddr) -> Result<Self, KernelError> {
        let failed = |error: rustix::io::Errno| match error {
            rustix::io::Errno::ADDRINUSE => KernelError::PortTaken(local),
            rustix::io::Errno::ADDRNOTAVAIL => KernelError::NotOurs(local.ip()),
            error => {
                let what = format!("taking TCP port {local}");
                KernelError::of(what, "CAP_NET_BIND_SERVICE")(error.into())
            }
        };
        let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let kind = SocketType::STREAM;
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(ipproto::TCP)).map_err(failed)?;
        bind(&socket, &local).map_err(failed)?;
        let bound = getsockname(&socket).map_err(failed)?;
        let local = SocketAddr::try_from(bound).map_err(|_| KernelError::Os {
            what: format!("the address of TCP port {local}"),
            error: io::Error::from(io::ErrorKind::InvalidData),
        })?;
        Ok(Self { _socket: socket, local })
    }

    /// Address and port that it holds.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_port_is_held_until_it_is_dropped() {
        let hold = PortHold::take((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
        let local = hold.local();
        assert_ne!(local.port(), 0);
        for other in [local, (Ipv4Addr::UNSPECIFIED, local.port()).into()] {
            assert_eq!(TcpListener::bind(other).expect_err("held").kind(), io::ErrorKind::AddrInUse);
        }
        let refused = PortHold::take(local).expect_err("held").to_string();
        for part in
            [&*local.to_string(), "ss -tanp", "punctual connections", "punctual connections --listeners"]
        {
            assert!(refused.contains(part), "{refused}");
        }
        // Nothing listens there: the kernel resets.
        assert_eq!(TcpStream::connect(local).expect_err("closed").kind(), io::ErrorKind::ConnectionRefused);
        drop(hold);
        PortHold::take(local).expect("free again");
    }

    #[test]
    fn a_foreign_address_is_refused_with_the_fix() {
        let refused = PortHold::take(([192, 0, 2, 1], 80).into()).expect_err("TEST-NET-1").to_string();
        assert!(refused.contains("192.0.2.1") && refused.contains("ip address"), "{refused}");
    }
}

//! The relay's end on the network: an address, or a port on a reserved path.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use punctual::tcp::{Qos, TcpError, TcpStream};
use punctual::{Endsystem, Error, Nanos};

use crate::output::Usage;

/// The relay's end on the network: where it listens, or the peer that it connects to.
#[derive(Clone, Debug)]
pub(super) enum WireEnd {
    /// An address of any host.
    Address(SocketAddr),
    /// `PORT`, or `PORT@HOST` with a host that the configuration names; and the bound of packets on the reserved path.
    Reserved(String, Option<Nanos>),
}

/// Accepts connections from the network.
pub(super) enum WireListener {
    Address(punctual::tcp::TcpListener),
    Reserved(punctual::tcp::PathListener),
}

impl WireListener {
    pub(super) fn bind(endsystem: &Endsystem, at: &WireEnd, qos: Qos, backlog: u32) -> anyhow::Result<Self> {
        Ok(match at {
            WireEnd::Address(at) => Self::Address(endsystem.bind_tcp(*at, qos, backlog)?),
            WireEnd::Reserved(port, deadline) => {
                Self::Reserved(endsystem.bind_tcp_reserved(port.parse()?, qos, *deadline, backlog)?)
            }
        })
    }

    pub(super) fn accept_timeout(&self, timeout: Duration) -> Result<Option<TcpStream>, TcpError> {
        match self {
            Self::Address(listener) => listener.accept_timeout(timeout),
            Self::Reserved(listener) => listener.accept_timeout(timeout),
        }
    }
}

impl WireEnd {
    /// Checks what does not change while the relay runs: else each connection would be refused for the same reason.
    pub(super) fn check(&self, endsystem: &Endsystem) -> Result<(), Error> {
        match self {
            Self::Reserved(peer, _) => {
                endsystem.check_host(peer.split_once('@').map_or("", |(_, host)| host))
            }
            Self::Address(_) => Ok(()),
        }
    }

    pub(super) fn connect(&self, endsystem: &Endsystem, qos: Qos) -> Result<TcpStream, TcpError> {
        match self {
            Self::Address(peer) => endsystem.connect_tcp(*peer, qos),
            Self::Reserved(peer, deadline) => endsystem.connect_tcp_reserved(peer, qos, *deadline),
        }
    }
}

impl fmt::Display for WireEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Reserved(end, _) => end.fmt(f),
        }
    }
}

/// Checks an end on a reserved path: `PORT` to listen at, `PORT@HOST` to connect to.
pub(super) fn check_reserved(option: &str, text: &str) -> Result<(), Usage> {
    let is_peer = option == "--connect";
    let (port, host) = text.split_once('@').map_or((text, None), |(port, host)| (port, Some(host)));
    let has_host = host.is_some_and(|host| !host.is_empty());
    if port.parse().is_ok_and(|port: u16| port > 0) && has_host == is_peer && host.is_some() == is_peer {
        return Ok(());
    }
    let form =
        if is_peer { "a port and the name of a host, like 6379@hostb" } else { "a port of 1 to 65535" };
    Err(Usage(format!("{option} {text}: with --reserve, give {form}")))
}

//! The relay's end on the network: an address, or a port on a reserved path.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use punctual::tcp::{Qos, TcpError, TcpStream};
use punctual::{Endsystem, Error, Nanos, OpenError};

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

    /// Connects for a program, for as long as `goes_on` returns true; a reserved path is asked for until its hosts have answered.
    pub(super) fn connect(
        &self,
        endsystem: &Endsystem,
        qos: Qos,
        goes_on: impl FnMut() -> bool,
    ) -> Result<TcpStream, TcpError> {
        match self {
            Self::Address(peer) => endsystem.connect_tcp_while(*peer, qos, goes_on),
            Self::Reserved(peer, deadline) => endsystem.connect_tcp_reserved(peer, qos, *deadline),
        }
    }
}

/// Why there is no connection. The offer of a path is in packets, and the relay's option is a rate of data.
pub(super) fn refusal_line(error: &TcpError, qos: Qos) -> String {
    if let TcpError::Late(peer) = error {
        return format!("the program closed its connection before {peer} had answered");
    }
    let line = punctual::one_line(error);
    let (Qos::Guaranteed { rate: wanted, .. }, TcpError::Path(OpenError::Refused { refusal, .. })) =
        (qos, error)
    else {
        return line;
    };
    let offered = refusal.offer.and_then(|offer| qos.rate_within(&offer));
    // The offer may be more time alone.
    match offered.filter(|offered| *offered < wanted) {
        Some(rate) => format!("{line}; with this --period, that is --rate {}kbit/s at most", rate.0 / 1_000),
        None => line,
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

#[cfg(test)]
mod tests {
    use punctual::{BitRate, ChannelRefusal, Contract, Rate, RefuseCause};
    use punctual_proto::ids::NodeId;

    use super::*;

    #[test]
    fn an_offer_of_packets_is_a_rate_of_data_too() {
        let contract = |a_second, burst| {
            let rate = Rate::per_second(a_second).expect("a rate");
            Contract::new(1_280, rate, burst, Nanos::from_millis(5)).expect("a contract")
        };
        let line = |mbits: u64, offer| {
            let (node, cause) = (NodeId(1), RefuseCause::Exhausted);
            let refusal = ChannelRefusal { node, cause, offer, stages: Vec::new(), hosts: Vec::new() };
            let wanted = Box::new(contract(11_000, 54));
            let error = TcpError::Path(OpenError::Refused { refusal, wanted });
            let rate = BitRate(mbits * 1_000_000);
            refusal_line(&error, Qos::Guaranteed { rate, period: Nanos::from_millis(5) })
        };
        let refused = line(100, Some(contract(10_173, 54)));
        assert!(refused.ends_with("; with this --period, that is --rate 92160kbit/s at most"), "{refused}");
        for (mbits, offer) in [(90, Some(contract(10_173, 54))), (100, None)] {
            let refused = line(mbits, offer);
            assert!(!refused.contains("--rate"), "{refused}");
        }
    }
}

//! TCP with endsystem quality of service: ordinary TCP to any host, whose protocol processing is admitted, budgeted and
//! scheduled on this host like a channel's (RTU; ADR 0054).
//!
//! A connection has a class. *Guaranteed*: each period has time for the rate. *Low delay*: its segments go before those of all
//! other classes, so many in each interval, and what exceeds that runs as best effort. *Best effort* uses the rest. The
//! promise is this host's: it holds from the wire to the program's ring and back, not in the network.
//!
//! Connections need an engine in this process ([`Endsystem::embedded`]) and an `xdp` link with `flows_max` above 0. The kernel
//! sees none of their packets, so neither do its firewall and tcpdump.

mod listener;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_analysis::{BitRate, Nanos};
use punctual_engine::tcp::TcpConfig;
use punctual_host::{EmbeddedHost, TcpNews, TcpWish};
use punctual_proto::api::RtuClass;
use thiserror::Error;

use crate::connection::Connection;
use crate::endsystem::Endsystem;

pub use listener::TcpListener;
pub use punctual_engine::tcp::{
    Ended, TcpConfig as Settings, TcpRefusal as Refusal, TcpState as State, TcpStatus as Status,
};
pub use punctual_host::TcpError as HostTcpError;
pub use stream::TcpStream;

/// Smallest segment that a rate is divided into, in bytes of data: IPv6 with timestamps, in the smallest packets that hold
/// them.
const SEGMENT_DATA_BYTES: u64 = 1_200;
/// How long a connection may take to open.
const OPEN_WAIT: Duration = Duration::from_secs(180);

/// Quality of service of a connection at this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Its segments are processed and sent before those of the other classes: so many in any interval and direction. Segments
    /// beyond that are best effort.
    LowDelay {
        /// Length of the interval.
        interval: Nanos,
        /// Segments in any interval, in each direction.
        units: u32,
    },
    /// Each period has time and slots for so much data, in each direction.
    Guaranteed {
        /// Data bits a second.
        rate: BitRate,
        /// Length of the period.
        period: Nanos,
    },
    /// What no other class needs.
    BestEffort,
}

impl Qos {
    /// The class of the handlers, whose data units are segments.
    fn class(self) -> RtuClass {
        match self {
            Self::LowDelay { interval, units } => RtuClass::LowDelay { interval, units, priority: None },
            Self::Guaranteed { rate, period } => {
                let bytes = u128::from(rate.0) * u128::from(period.0) / 8_000_000_000;
                let units = bytes.div_ceil(u128::from(SEGMENT_DATA_BYTES)).max(1);
                RtuClass::Guaranteed { period, units: u32::try_from(units).unwrap_or(u32::MAX) }
            }
            Self::BestEffort => RtuClass::BestEffort,
        }
    }

    fn wish(self, config: TcpConfig) -> TcpWish {
        TcpWish { class: self.class(), config }
    }
}

/// Why there is no connection or listener.
#[derive(Debug, Error)]
pub enum TcpError {
    /// This endsystem has its engine in another process.
    #[error("TCP of this host's own needs an engine in this process: use Endsystem::embedded")]
    NotEmbedded,
    /// This host refuses it: admission, configuration, a port, a route.
    #[error(transparent)]
    Host(#[from] HostTcpError),
    /// The peer refuses it, or does not answer.
    #[error("{peer}: {why}")]
    Peer {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        why: Ended,
    },
    /// The peer did not answer in time.
    #[error("{0} did not answer within {OPEN_WAIT:?}")]
    Late(SocketAddr),
    /// The engine has ended.
    #[error("the engine has ended")]
    Gone,
}

fn embedded(connection: &Arc<Connection>) -> Result<&EmbeddedHost, TcpError> {
    connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)
}

impl Endsystem {
    /// Connects to `peer` by TCP with this quality of service, and waits until the connection is open.
    ///
    /// # Errors
    /// See [`TcpError`]: a refusal names the handler that admission refuses, and why.
    pub fn connect_tcp(&self, peer: SocketAddr, qos: Qos) -> Result<TcpStream, TcpError> {
        self.connect_tcp_with(peer, qos, Settings::default())
    }

    /// Does what [`Endsystem::connect_tcp`] does, with settings of the connection; its MTU is the route's.
    ///
    /// # Errors
    /// See [`Endsystem::connect_tcp`].
    pub fn connect_tcp_with(
        &self,
        peer: SocketAddr,
        qos: Qos,
        settings: Settings,
    ) -> Result<TcpStream, TcpError> {
        let host = embedded(&self.connection)?;
        let ends = host.connect_tcp(peer, &qos.wish(settings))?;
        let stream = TcpStream::new(&self.connection, ends);
        let until = Instant::now() + OPEN_WAIT;
        match stream.next_news(until) {
            Some(TcpNews::Open) => Ok(stream),
            Some(TcpNews::Ended(why)) => Err(TcpError::Peer { peer, why }),
            None if Instant::now() < until => Err(TcpError::Gone),
            None => Err(TcpError::Late(peer)),
        }
    }

    /// Accepts TCP connections at `local`, an address of this host, with this quality of service each. At most `backlog` of
    /// them wait for [`TcpListener::accept`]. SYNs are processed in the budget of one connection.
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn bind_tcp(&self, local: SocketAddr, qos: Qos, backlog: u32) -> Result<TcpListener, TcpError> {
        let listening =
            embedded(&self.connection)?.listen_tcp(local, backlog, qos.wish(Settings::default()))?;
        Ok(TcpListener::new(&self.connection, listening))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_becomes_whole_segments_of_a_period() {
        let units = |rate, period| match (Qos::Guaranteed { rate: BitRate(rate), period }).class() {
            RtuClass::Guaranteed { units, .. } => units,
            other => panic!("{other:?}"),
        };
        assert_eq!(units(1, Nanos::from_millis(1)), 1, "no period is empty");
        assert_eq!(units(9_600_000, Nanos::from_millis(1)), 1, "1,200 B exactly");
        assert_eq!(units(9_616_000, Nanos::from_millis(1)), 2);
        assert_eq!(units(u64::MAX, Nanos::from_secs(1_000_000)), u32::MAX, "admission refuses it");
    }
}

//! TCP with endsystem quality of service: ordinary TCP to any host, whose protocol processing is admitted, budgeted and
//! scheduled on this host like a channel's (RTU; ADR 0054).
//!
//! A connection has a class. *Guaranteed*: each period has time for the rate. *Low delay*: its segments go before those of all
//! other classes, so many in each interval, and what exceeds that runs as best effort. *Best effort* uses the rest. The
//! promise is this host's: it holds from the wire to the program's ring and back, not in the network. Between two hosts of the
//! directory the path can be reserved as well, over any driver ([`Endsystem::connect_tcp_reserved`], ADR 0055).
//!
//! To other hosts, this host needs an `xdp` link with `flows_max` above 0. With an engine in this process ([`Endsystem::embedded`]) the program may
//! do everything. Through a daemon, the operator sets who may connect and listen, and to which addresses (`[[daemon.tcp]]`). The kernel sees none
//! of these packets, so neither do its firewall and tcpdump.

#[cfg(feature = "embedded")]
mod direct;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "embedded")]
mod lead;
mod listener;
mod options;
mod path;
mod patience;
mod rings;
mod side;
mod stream;
mod stream_io;
#[cfg(feature = "tokio")]
pub mod tokio;

use std::net::SocketAddr;
use std::time::Duration;

use punctual_analysis::{BitRate, Contract, Nanos};
use punctual_ipc::api::{Answer, ApiError, Request, TcpConnectionStatus, TcpListenerStatus, TcpPath};
use punctual_proto::api::RtuClass;
use thiserror::Error;

use crate::connection::all_pages;
use crate::endsystem::Endsystem;
use crate::error::{Error, OpenError};

#[cfg(feature = "embedded")]
pub use direct::{TcpHandler, TcpReply};
#[cfg(feature = "embedded")]
pub use lead::TcpLead;
pub use listener::TcpListener;
pub use path::PathListener;
#[cfg(feature = "embedded")]
pub use punctual_engine::tcp::{TcpConfig as Settings, TcpRefusal as Refusal};
#[cfg(feature = "embedded")]
pub use punctual_host::TcpError as HostTcpError;
pub use punctual_ipc::api::{
    TcpConnectionStatus as ConnectionStatus, TcpEnd as Ended, TcpListenerStatus as ListenerStatus,
    TcpPath as Path, TcpSettings as CurrentSettings, TcpState as State,
};
pub use stream::TcpStream;

use listener::Listening;
use patience::Patience;

/// Smallest segment that a rate is divided into, in bytes of data: IPv6 with timestamps, in the smallest packets that hold
/// them.
const SEGMENT_DATA_BYTES: u64 = 1_200;
/// How far the promise of a connection reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// This host's part: from the wire to the program's ring and back.
    ThisHost,
    /// The path, too. Each packet is at the peer's input handler within `sending` of its logical arrival at the channel, and
    /// each packet of the peer's at this one within `receiving` (see [`Endsystem::connect_tcp_reserved`]).
    Path {
        /// Bound of packets that leave.
        sending: Nanos,
        /// Bound of packets that come.
        receiving: Nanos,
    },
}

impl Promise {
    /// The promise to a connection that uses these channels.
    fn of(path: Option<&TcpPath>) -> Self {
        match path.and_then(|path| path.sending.zip(path.receiving)) {
            Some((sending, receiving)) => Self::Path { sending, receiving },
            None => Self::ThisHost,
        }
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// This host's address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub peer: SocketAddr,
    /// What is promised, and how far it reaches.
    pub promise: Promise,
    /// State of the connection.
    pub state: State,
    /// Why it ended, if it has.
    pub ended: Option<Ended>,
    /// Segments that came.
    pub segments_in: u64,
    /// Segments that were made.
    pub segments_out: u64,
    /// What admission has granted to the input handler, for segments within the class's budget: the longest delay from the driver
    /// until the program has what they bring. `None` for best effort, and after a demotion.
    pub bound_in: Option<Nanos>,
    /// The same of the output handler: from the release of a segment until its last bit has left.
    pub bound_out: Option<Nanos>,
    /// Segments that came and belonged to no connection, or were broken.
    pub dropped: u64,
    /// Mean delay of segments on this host so far: from the driver until the program has what they bring. `None` before the first
    /// segment. A wait for room in a full ring of the program is not counted.
    pub delay_mean: Option<Nanos>,
    /// Longest such delay.
    pub delay_max: Option<Nanos>,
    /// Bytes that were received and not given to the program.
    pub readable_bytes: u64,
    /// Bytes that the peer has not acknowledged.
    pub unacknowledged_bytes: u64,
    /// Segments of data that were sent again.
    pub resent: u64,
    /// Bytes that the peer takes now beyond those that it has acknowledged.
    pub send_window_bytes: u64,
    /// Bytes that this end takes now.
    pub receive_window_bytes: u64,
    /// The connection's settings as they are now.
    pub settings: CurrentSettings,
}

impl From<TcpConnectionStatus> for Status {
    fn from(status: TcpConnectionStatus) -> Self {
        Self {
            local: status.local,
            peer: status.peer,
            promise: Promise::of(status.path.as_ref()),
            state: status.state,
            ended: status.ended,
            segments_in: status.segments_in,
            segments_out: status.segments_out,
            bound_in: status.bound_in,
            bound_out: status.bound_out,
            dropped: status.dropped,
            delay_mean: status.delay_mean,
            delay_max: status.delay_max,
            readable_bytes: status.readable_bytes,
            unacknowledged_bytes: status.unacknowledged_bytes,
            resent: status.resent,
            send_window_bytes: status.send_window_bytes,
            receive_window_bytes: status.receive_window_bytes,
            settings: status.settings,
        }
    }
}

/// Quality of service of a connection at this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Its segments are processed and sent before those of the other classes: so many in any interval and direction. Segments
    /// beyond that are best effort. Small segments leave at once.
    LowDelay {
        /// Length of the interval.
        interval: Nanos,
        /// Segments in any interval, in each direction.
        units: u32,
        /// Place among the low-delay connections and handlers, 0 (first) to 63. A lower number goes first; one without goes behind those
        /// with one. Only the run policy `rmdp` accepts a priority.
        priority: Option<u8>,
    },
    /// Each period has time and slots for so much data, in each direction. Data that is written once a period leaves at once.
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
    /// The settings of a connection of this class unless a program gives others: one of low delay sends small segments at
    /// once ([`Settings::is_nodelay`]).
    #[cfg(feature = "embedded")]
    pub fn settings(self) -> Settings {
        punctual_host::TcpWish::of(self.class()).config
    }

    /// The largest guaranteed rate with the same period that takes no more of the path than `offer`, of a refusal of
    /// [`Endsystem::connect_tcp_reserved`]. `None`: there is none, or this is another class.
    pub fn rate_within(self, offer: &Contract) -> Option<BitRate> {
        let Self::Guaranteed { period, .. } = self else { return None };
        let units = path::units_within(period, offer)?;
        // The other way round than `class`.
        let bits = u128::from(units.checked_sub(1)?) * u128::from(SEGMENT_DATA_BYTES) * 8_000_000_000;
        let rate = u64::try_from(bits.checked_div(u128::from(period.0))?).ok()?;
        Some(BitRate(rate)).filter(|rate| rate.0 > 0)
    }

    /// The class of the handlers, whose data units are segments.
    fn class(self) -> RtuClass {
        match self {
            Self::LowDelay { interval, units, priority } => RtuClass::LowDelay { interval, units, priority },
            Self::Guaranteed { rate, period } => {
                let bytes = u128::from(rate.0) * u128::from(period.0) / 8_000_000_000;
                // One segment more: data that is written at once may be cut where the ring of bytes begins again
                // (`punctual_tcp::endsystem::segments_max`).
                let units = bytes.div_ceil(u128::from(SEGMENT_DATA_BYTES)) + 1;
                RtuClass::periodic(period, u32::try_from(units).unwrap_or(u32::MAX))
            }
            Self::BestEffort => RtuClass::BestEffort,
        }
    }
}

/// Why there is no connection or listener.
#[derive(Debug, Error)]
pub enum TcpError {
    /// This endsystem has its engine in another process.
    #[error("settings of TCP connections need an engine in this process: use Endsystem::embedded")]
    NotEmbedded,
    /// This host refuses it: admission, configuration, a port, a route.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Host(#[from] HostTcpError),
    /// The daemon refuses it, or is gone.
    #[error(transparent)]
    Daemon(Error),
    /// The peer refuses it, or does not answer.
    #[error("{peer}: {why}")]
    Peer {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        why: Ended,
    },
    /// A hop of the path refuses, or the peer does.
    #[error("the path is not reserved: {0}")]
    Path(OpenError),
    /// The time of a handler was not declared.
    #[error("a handler or a leading thread needs a declared time: use connect_tcp_direct or bind_tcp_direct")]
    HandlerTime,
    /// A best-effort connection has no budget that a leading thread could keep to.
    #[error("a thread cannot lead for a best-effort connection: take low delay or a guaranteed rate")]
    NoBudget,
    /// The thread cannot lead.
    #[cfg(feature = "embedded")]
    #[error(transparent)]
    Lead(#[from] punctual_engine::LeadError),
    /// The quality of service, or the peer's name, is out of range.
    #[error("{0}")]
    Qos(String),
    /// The peer did not answer while the caller waited.
    #[error("{0} did not answer in time")]
    Late(SocketAddr),
    /// The engine has ended.
    #[error("the engine has ended")]
    Gone,
}

impl From<Error> for TcpError {
    fn from(error: Error) -> Self {
        match error {
            Error::Daemon(ApiError::TcpPeer { peer, why }) => Self::Peer { peer, why },
            other => Self::Daemon(other),
        }
    }
}

impl Endsystem {
    /// Connects to `peer` by TCP with this quality of service, and waits until the connection is open.
    ///
    /// # Errors
    /// See [`TcpError`]: a refusal names the handler that admission refuses, and why.
    pub fn connect_tcp(&self, peer: SocketAddr, qos: Qos) -> Result<TcpStream, TcpError> {
        self.connect_patiently(peer, qos, &mut Patience::of(None))
    }

    /// Does what [`Endsystem::connect_tcp`] does, for `timeout` at most: after that the connection ends, and what this host has
    /// reserved for it is given back.
    ///
    /// # Errors
    /// See [`Endsystem::connect_tcp`]; [`TcpError::Late`] if it was not open in time.
    pub fn connect_tcp_timeout(
        &self,
        peer: SocketAddr,
        qos: Qos,
        timeout: Duration,
    ) -> Result<TcpStream, TcpError> {
        self.connect_patiently(peer, qos, &mut Patience::of(Some(timeout)))
    }

    /// Does what [`Endsystem::connect_tcp`] does, as long as `goes_on` returns true: it is asked ten times a second.
    ///
    /// # Errors
    /// See [`Endsystem::connect_tcp`]; [`TcpError::Late`] if it returned false before the connection was open.
    pub fn connect_tcp_while(
        &self,
        peer: SocketAddr,
        qos: Qos,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<TcpStream, TcpError> {
        self.connect_patiently(peer, qos, &mut Patience::asking(&mut goes_on))
    }

    fn connect_patiently(
        &self,
        peer: SocketAddr,
        qos: Qos,
        patience: &mut Patience<'_>,
    ) -> Result<TcpStream, TcpError> {
        #[cfg(feature = "embedded")]
        if let Some(host) = &self.connection.embedded {
            let opened =
                embedded::connect(host, peer, &embedded::wish(qos, qos.settings(), Nanos::ZERO), patience)?;
            return Ok(TcpStream::new(&self.connection, side::embedded(opened)));
        }
        let reply = side::ask_to_connect(&self.connection, peer, qos.class(), patience)?;
        Ok(TcpStream::new(&self.connection, side::connected(&self.connection, reply)?))
    }

    /// Does what [`Endsystem::connect_tcp`] does, with settings of the connection; its MTU is the route's, and
    /// [`Settings::ack_segments`] that of its class.
    ///
    /// # Errors
    /// See [`Endsystem::connect_tcp`]; [`TcpError::NotEmbedded`] through a daemon.
    #[cfg(feature = "embedded")]
    pub fn connect_tcp_with(
        &self,
        peer: SocketAddr,
        qos: Qos,
        settings: Settings,
    ) -> Result<TcpStream, TcpError> {
        let host = self.connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)?;
        let opened = embedded::connect(
            host,
            peer,
            &embedded::wish(qos, settings, Nanos::ZERO),
            &mut Patience::of(None),
        )?;
        Ok(TcpStream::new(&self.connection, side::embedded(opened)))
    }

    /// Does what [`Endsystem::connect_tcp`] does, for a stream whose bytes a handler takes on the processor
    /// ([`TcpStream::on_bytes`]), or whose thread leads ([`TcpStream::lead`]). The data of one segment takes the program
    /// `handler_time` at most; admission counts it in the time of each segment that comes.
    ///
    /// # Errors
    /// See [`Endsystem::connect_tcp`]; [`TcpError::NotEmbedded`] through a daemon.
    #[cfg(feature = "embedded")]
    pub fn connect_tcp_direct(
        &self,
        peer: SocketAddr,
        qos: Qos,
        handler_time: Nanos,
    ) -> Result<TcpStream, TcpError> {
        let host = self.connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)?;
        let wish = embedded::wish(qos, qos.settings(), handler_time);
        let stream = TcpStream::new(
            &self.connection,
            side::embedded(embedded::connect(host, peer, &wish, &mut Patience::of(None))?),
        );
        Ok(stream.declaring(qos, handler_time))
    }

    /// Does what [`Endsystem::bind_tcp`] does, for streams as those of [`Endsystem::connect_tcp_direct`].
    ///
    /// # Errors
    /// See [`Endsystem::bind_tcp`]; [`TcpError::NotEmbedded`] through a daemon.
    #[cfg(feature = "embedded")]
    pub fn bind_tcp_direct(
        &self,
        local: SocketAddr,
        qos: Qos,
        backlog: u32,
        handler_time: Nanos,
    ) -> Result<TcpListener, TcpError> {
        let host = self.connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)?;
        let wish = embedded::wish(qos, qos.settings(), handler_time);
        let listening = embedded::listen(host, local, backlog, wish)?;
        let listener = TcpListener::new(&self.connection, local, Listening::Embedded(Box::new(listening)));
        Ok(listener.declaring(qos, handler_time))
    }

    /// Does what [`Endsystem::bind_tcp`] does, with settings of the connections; their MTU is the link's, and
    /// [`Settings::ack_segments`] that of the class.
    ///
    /// # Errors
    /// See [`Endsystem::bind_tcp`]; [`TcpError::NotEmbedded`] through a daemon.
    #[cfg(feature = "embedded")]
    pub fn bind_tcp_with(
        &self,
        local: SocketAddr,
        qos: Qos,
        backlog: u32,
        settings: Settings,
    ) -> Result<TcpListener, TcpError> {
        let host = self.connection.embedded.as_ref().ok_or(TcpError::NotEmbedded)?;
        let listening = embedded::listen(host, local, backlog, embedded::wish(qos, settings, Nanos::ZERO))?;
        Ok(TcpListener::new(&self.connection, local, Listening::Embedded(Box::new(listening))))
    }

    /// Accepts TCP connections at `local`, an address of this host, with this quality of service each. At most `backlog` of
    /// them wait for [`TcpListener::accept`]. SYNs are processed in the budget of one connection.
    ///
    /// # Errors
    /// See [`TcpError`].
    pub fn bind_tcp(&self, local: SocketAddr, qos: Qos, backlog: u32) -> Result<TcpListener, TcpError> {
        #[cfg(feature = "embedded")]
        if self.connection.embedded.is_some() {
            return self.bind_tcp_with(local, qos, backlog, qos.settings());
        }
        let request = Request::ListenTcp { local, class: qos.class(), backlog };
        match self.connection.shared.call(request)?.0 {
            Answer::TcpListening { channel } => {
                Ok(TcpListener::new(&self.connection, local, Listening::Remote(channel, Default::default())))
            }
            _ => Err(Error::Unexpected.into()),
        }
    }

    /// All TCP listeners of programs of this host's daemon, in the order of their handles.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn tcp_listeners(&self) -> Result<Vec<TcpListenerStatus>, Error> {
        all_pages(|last: Option<&TcpListenerStatus>| {
            let after = last.map(|status| status.channel);
            match self.connection.shared.call(Request::TcpListeners { after })?.0 {
                Answer::TcpListeners { listeners, more } => Ok((listeners, more)),
                _ => Err(Error::Unexpected),
            }
        })
    }

    /// All TCP connections of programs of this host's daemon, in the order of their handles.
    ///
    /// # Errors
    /// If the daemon is gone.
    pub fn tcp_connections(&self) -> Result<Vec<TcpConnectionStatus>, Error> {
        all_pages(|last: Option<&TcpConnectionStatus>| {
            let after = last.map(|status| status.channel);
            match self.connection.shared.call(Request::TcpConnections { after })?.0 {
                Answer::TcpConnections { connections, more } => Ok((connections, more)),
                _ => Err(Error::Unexpected),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offer is met, and a rate that is a little higher exceeds it.
    #[test]
    fn a_rate_within_an_offer_is_the_largest() {
        let period = Nanos::from_millis(5);
        let of = |rate| Qos::Guaranteed { rate, period };
        let units = |rate| match of(rate).class() {
            RtuClass::Guaranteed { units, .. } => units,
            other => panic!("{other:?}"),
        };
        let offer = |a_second, burst, bytes| {
            let rate = punctual_analysis::Rate::per_second(a_second).expect("a rate");
            Contract::new(bytes, rate, burst, period).expect("a contract")
        };
        let most = |offer| of(BitRate(1_000_000_000)).rate_within(&offer);
        for (offer, expected) in [(offer(10_173, 54, 1_280), 49), (offer(10_173, 20, 1_280), 20)] {
            let rate = most(offer).expect("a rate");
            assert_eq!((units(rate), units(BitRate(rate.0 + 10_000))), (expected, expected + 1));
        }
        assert_eq!(most(offer(10_173, 54, 1_280)), Some(BitRate(92_160_000)));
        assert_eq!(most(offer(10_173, 54, 1_000)), None, "a packet does not fit");
        assert_eq!(most(offer(200, 54, 1_280)), None, "no packet in a period besides the margin");
        assert_eq!(Qos::BestEffort.rate_within(&offer(10_173, 54, 1_280)), None);
    }

    #[test]
    fn a_rate_becomes_whole_segments_of_a_period() {
        let units = |rate, period| match (Qos::Guaranteed { rate: BitRate(rate), period }).class() {
            RtuClass::Guaranteed { units, .. } => units,
            other => panic!("{other:?}"),
        };
        assert_eq!(units(1, Nanos::from_millis(1)), 1, "less than a byte in a period");
        assert_eq!(
            units(9_600_000, Nanos::from_millis(1)),
            2,
            "1,200 B exactly, and one segment that is cut"
        );
        assert_eq!(units(9_616_000, Nanos::from_millis(1)), 3);
        assert_eq!(units(u64::MAX, Nanos::from_secs(1_000_000)), u32::MAX, "admission refuses it");
    }
}

//! Entries of the event log.

use std::fmt;

use crate::cut::FrameFault;

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A frame was handed to a link.
    Transmit {
        /// Link index.
        link: u16,
        /// Bytes on the wire.
        bytes: u32,
    },
    /// A frame arrived at the driver.
    Receive {
        /// Link index.
        link: u16,
        /// Bytes from our header on.
        bytes: u32,
    },
    /// A unit of work began.
    Work {
        /// Its kind.
        kind: punctual_proto::api::WorkKind,
        /// Its packets.
        packets: u32,
        /// How long it takes, in nanoseconds.
        cost_ns: u64,
    },
    /// A fault hit a frame.
    Fault {
        /// Link index.
        link: u16,
        /// The kind of fault.
        what: FrameFault,
    },
    /// A fault of the schedule begins or ends.
    Trouble {
        /// Index of the fault.
        fault: usize,
        /// Whether it ends.
        over: bool,
    },
    /// A host loses all state.
    Crash {
        /// When it starts again, in true nanoseconds.
        until_ns: u64,
    },
    /// A host starts again.
    Restart {
        /// Number of the host's life, the first being 0.
        life: u32,
    },
    /// An application requests a channel.
    Ask {
        /// The attempt.
        channel: usize,
    },
    /// A channel is open.
    Open {
        /// The attempt.
        channel: usize,
        /// The promised bound in nanoseconds.
        deadline_ns: u64,
    },
    /// A channel is refused.
    Refuse {
        /// The attempt.
        channel: usize,
    },
    /// An end of a channel is closed.
    Close {
        /// The attempt.
        channel: usize,
        /// Whether this is the sink's end.
        at_sink: bool,
    },
    /// An application sent a message.
    Send {
        /// The attempt.
        channel: usize,
        /// Index of the message.
        index: u64,
        /// Its length.
        len: u32,
    },
    /// Something happened at an end of a TCP connection.
    Tcp {
        /// The connection.
        connection: usize,
        /// Whether this is the server's end.
        at_server: bool,
        /// What it was.
        what: TcpMoment,
    },
    /// A message was delivered.
    Deliver {
        /// The attempt.
        channel: usize,
        /// Index of the message.
        index: u64,
        /// Nanoseconds from its logical arrival.
        latency_ns: u64,
    },
}

/// What happens at an end of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpMoment {
    /// The handshake is over.
    Opened,
    /// Its program closes its direction.
    Closed,
    /// The connection ended.
    Ended,
}

impl Entry {
    pub(crate) fn words(&self) -> [u64; 4] {
        match *self {
            Self::Transmit { link, bytes } => [1, link.into(), bytes.into(), 0],
            Self::Receive { link, bytes } => [2, link.into(), bytes.into(), 0],
            Self::Work { kind, packets, cost_ns } => [3, kind as u64, packets.into(), cost_ns],
            Self::Fault { link, what } => [4, link.into(), what as u64, 0],
            Self::Ask { channel } => [5, channel as u64, 0, 0],
            Self::Open { channel, deadline_ns } => [6, channel as u64, deadline_ns, 0],
            Self::Refuse { channel } => [7, channel as u64, 0, 0],
            Self::Close { channel, at_sink } => [8, channel as u64, at_sink.into(), 0],
            Self::Send { channel, index, len } => [9, channel as u64, index, len.into()],
            Self::Deliver { channel, index, latency_ns } => [10, channel as u64, index, latency_ns],
            Self::Trouble { fault, over } => [11, fault as u64, over.into(), 0],
            Self::Crash { until_ns } => [12, until_ns, 0, 0],
            Self::Restart { life } => [13, life.into(), 0, 0],
            Self::Tcp { connection, at_server, what } => {
                [14, connection as u64, at_server.into(), what as u64]
            }
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transmit { link, bytes } => write!(f, "-> link {link}: {bytes} B"),
            Self::Receive { link, bytes } => write!(f, "<- link {link}: {bytes} B"),
            Self::Work { kind, packets, cost_ns } => {
                write!(f, "   {kind:?}, {packets} packets, {:.1} us", *cost_ns as f64 / 1e3)
            }
            Self::Fault { link, what } => write!(f, "!! link {link}: frame {}", what.word()),
            Self::Trouble { fault, over: false } => write!(f, "!! fault {fault} begins"),
            Self::Trouble { fault, over: true } => write!(f, "!! fault {fault} is over"),
            Self::Crash { until_ns } => {
                write!(f, "!! crashes, until {:.6} ms", *until_ns as f64 / 1e6)
            }
            Self::Restart { life } => write!(f, "!! starts again, life {life}"),
            Self::Ask { channel } => write!(f, "?? channel {channel} wanted"),
            Self::Open { channel, deadline_ns } => {
                write!(f, "++ channel {channel} open, bound {:.3} ms", *deadline_ns as f64 / 1e6)
            }
            Self::Refuse { channel } => write!(f, "-- channel {channel} refused"),
            Self::Tcp { connection, at_server, what } => {
                let end = if *at_server { "server" } else { "client" };
                write!(f, "~~ connection {connection}: its {end}: {what:?}")
            }
            Self::Close { channel, at_sink } => {
                write!(f, "xx channel {channel} closed at its {}", if *at_sink { "sink" } else { "source" })
            }
            Self::Send { channel, index, len } => write!(f, ">> channel {channel} sends #{index}, {len} B"),
            Self::Deliver { channel, index, latency_ns } => {
                write!(f, "<< channel {channel} gets #{index}, {:.3} ms", *latency_ns as f64 / 1e6)
            }
        }
    }
}

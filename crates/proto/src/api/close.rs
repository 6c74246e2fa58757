//! How a channel ends, and what its sink has of it.

use punctual_analysis::Nanos;
use serde::{Deserialize, Serialize};

use super::{LostAt, Passed};

/// Why a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseReason {
    /// Closed at this end.
    Local,
    /// Closed by the application at the other end.
    Peer,
    /// A link or node on the way is down.
    PathLost,
    /// The other host restarted.
    PeerRestarted,
    /// The driver of a link on the way would not let its packets in.
    FilterRefused,
    /// The kernel of a host on the way does not give the processor the time that admission has given away.
    RuntimeRefused,
    /// The application at this end is gone without having closed it.
    Vanished,
    /// The application at the other end is gone without having closed it.
    PeerVanished,
    /// This host is shutting down.
    Stopped,
    /// The other host is shutting down, or one on the way.
    PeerStopped,
    /// The reservation was not refreshed in time by the source.
    LeaseOver,
}

impl CloseReason {
    /// What the other end is told of an end for this reason here.
    pub const fn told(self) -> Self {
        match self {
            Self::Local => Self::Peer,
            Self::Vanished => Self::PeerVanished,
            Self::Stopped => Self::PeerStopped,
            other => other,
        }
    }

    /// The reason in words, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Local => "closed at this end",
            Self::Peer => "closed by the application at the other end",
            Self::PathLost => "a link or node on the way is down",
            Self::PeerRestarted => "the other host restarted",
            Self::Vanished => "this application is gone without having closed it",
            Self::PeerVanished => {
                "the application at the other end is gone without having closed it: killed or crashed"
            }
            Self::Stopped => "this host's daemon is shutting down",
            Self::PeerStopped => "the daemon of the other host, or of one on the way, was shut down",
            Self::LeaseOver => "its reservation was not refreshed in time",
            Self::FilterRefused => {
                "a link's driver would not let its packets in: see the log of the hosts on the way"
            }
            Self::RuntimeRefused => {
                "the kernel of a host on the way does not give its processor enough time: see that host's log"
            }
        }
    }
}

/// What a channel's sink has of it: its last word to the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Messages that its application was given.
    pub delivered: u64,
    /// Delivered messages that were certainly later than their deadline, by the clocks of the hosts on the
    /// way.
    pub late: u64,
    /// Delivered messages whose deadline lay within the clocks' error of the delivery, so that nobody can
    /// tell whether they were late.
    pub perhaps_late: u64,
    /// Delivered messages whose lateness is unknown, because the clocks of the hosts were not known yet.
    pub unmeasured: u64,
    /// Messages that are missing before the last one that came.
    pub lost: u64,
    /// Where most of those were lost that the source has sent, as far as the hosts on the way have said.
    pub lost_at: Option<LostAt>,
    /// Messages of which the first packet was taken in at the sink.
    pub received: u64,
    /// What came to the sink's host, and what that threw away.
    pub passed: Passed,
    /// The longest from a logical arrival to the delivery, by the clocks as they are known.
    pub latency_max: Nanos,
}

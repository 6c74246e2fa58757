//! Reasons for the end of a channel, and the sink's final report.

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
    /// A link or node on the route is down.
    PathLost,
    /// The other host restarted.
    PeerRestarted,
    /// The driver of a link on the route did not accept the channel's packets.
    FilterRefused,
    /// The kernel of a host on the route does not give the processor the time that admission has reserved.
    RuntimeRefused,
    /// The application at this end has terminated without closing the channel.
    Vanished,
    /// The application at the other end has terminated without closing the channel.
    PeerVanished,
    /// This host is shutting down.
    Stopped,
    /// The other host is shutting down, or one on the route.
    PeerStopped,
    /// The reservation was not refreshed in time by the source.
    LeaseOver,
}

impl CloseReason {
    /// The reason that is sent to the other end when the channel ends here for this reason.
    pub const fn reported(self) -> Self {
        match self {
            Self::Local => Self::Peer,
            Self::Vanished => Self::PeerVanished,
            Self::Stopped => Self::PeerStopped,
            other => other,
        }
    }

    /// The reason as text for users.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Local => "closed at this end",
            Self::Peer => "closed by the application at the other end",
            Self::PathLost => "a link or node on the route is down",
            Self::PeerRestarted => "the other host restarted",
            Self::Vanished => "this application ended without closing it",
            Self::PeerVanished => {
                "the application at the other end ended without closing it: killed or crashed"
            }
            Self::Stopped => "this host's daemon is shutting down",
            Self::PeerStopped => "the daemon of the other host, or of one on the route, was shut down",
            Self::LeaseOver => "its reservation was not refreshed in time",
            Self::FilterRefused => {
                "a link's driver did not accept the filter for its packets: see the logs of the hosts on the \
                 route"
            }
            Self::RuntimeRefused => {
                "the kernel of a host on the route does not give its processor enough time: see that host's log"
            }
        }
    }
}

/// The sink's final report to the source: its counts of the channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Messages that the sink has delivered to its application.
    pub delivered: u64,
    /// Delivered messages that were certainly later than their deadline, by the clocks of the hosts on the
    /// route.
    pub late: u64,
    /// Delivered messages whose deadline was within the clocks' error of the delivery, so that it is unknown
    /// whether they were late.
    pub perhaps_late: u64,
    /// Delivered messages whose lateness is unknown, because the clock offsets of the hosts were not known
    /// yet.
    pub unmeasured: u64,
    /// Messages that are missing before the last one that arrived.
    pub lost: u64,
    /// Where most of the lost messages were lost, as far as the hosts on the route have reported.
    pub lost_at: Option<LostAt>,
    /// Messages whose first packet arrived at the sink.
    pub received: u64,
    /// Packets that arrived at the sink's host, and packets that it dropped.
    pub passed: Passed,
    /// The longest time from a logical arrival to the delivery, by the known clock offsets.
    pub latency_max: Nanos,
}

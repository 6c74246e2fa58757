//! Why a request was not done.

use std::net::SocketAddr;

use punctual_proto::api::{ChannelRefusal, RateRefusal, RequestError, RtuRefusal};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Resource, TcpEnd};
use crate::ring::RingError;

/// What a quota is short of, and what the program can do.
fn quota_text(what: Resource, used: u64, limit: u64) -> String {
    if used > limit {
        format!("{used} {what} are requested at once, {limit} are allowed: request less")
    } else {
        format!("{used} of {limit} {what} are in use: close some")
    }
}

/// Why a request failed. One clear line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[serde(rename_all = "kebab-case")]
pub enum ApiError {
    /// The network refused.
    #[error("refused: {0}")]
    Refused(ChannelRefusal),
    /// The request cannot even be tried.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The user has used up a share of this host.
    #[error("quota: {} or {} in the configuration", quota_text(*what, *used, *limit), .what.fix())]
    Quota {
        /// The resource that the quota counts.
        what: Resource,
        /// Amount that is in use, or the amount that was requested if that alone is too much.
        used: u64,
        /// Amount that the quota allows.
        limit: u64,
    },
    /// The packet is not a request of this API, or the request names something that this host does not have.
    #[error("{0}")]
    Malformed(String),
    /// Another version.
    #[error(
        "this daemon uses version {ours} of the API, the client version {theirs}: install the same release of \
         both"
    )]
    Version {
        /// API version of the daemon.
        ours: u32,
        /// API version of the client.
        theirs: u32,
    },
    /// Memory or descriptors are short.
    #[error("{0}")]
    Ring(String),
    /// A thread does not get its channel's priority.
    #[error("not co-scheduled: {0}")]
    CoSchedule(String),
    /// A handler is not registered.
    #[error("the handler is refused: {0}")]
    Handler(RtuRefusal),
    /// A TCP connection or listener could not be opened.
    #[error("{0}")]
    Tcp(String),
    /// The peer of a TCP connection refuses it, or does not answer.
    #[error("{peer}: {why}")]
    TcpPeer {
        /// The peer's address and port.
        peer: SocketAddr,
        /// Why.
        why: TcpEnd,
    },
    /// A link was not measured.
    #[error("link {link} is not measured: {why}")]
    MeasureRate {
        /// Name of the link.
        link: String,
        /// Why it is not measured.
        why: RateRefusal,
    },
    /// A capture of packets could not be started.
    #[error("{0}")]
    Capture(String),
    /// Only other users may make this request.
    #[error("{0}")]
    Forbidden(String),
    /// The daemon is going down.
    #[error("the daemon is shutting down")]
    ShuttingDown,
}

impl From<RingError> for ApiError {
    fn from(error: RingError) -> Self {
        Self::Ring(error.to_string())
    }
}

//! What is known about a channel (CLIPS: rtcGetParameter).

use punctual_analysis::Guarantee;
use punctual_ipc::api::{Answer, Request};
use punctual_proto::Nanos;
use punctual_proto::ids::ChannelId;
use punctual_proto::node::api::ChannelStatus;

use crate::connection::Shared;
use crate::error::Error;

/// The evidence of one channel at this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelState {
    /// Every message is delivered by its logical arrival plus this.
    pub promised: Nanos,
    /// How firm that is.
    pub guarantee: Guarantee,
    /// The largest latency observed at the sink, from the logical arrival; zero at the source.
    pub observed_max: Nanos,
    /// Messages that missed their bound at this end.
    pub misses: u64,
    /// Messages that broke the contract, beyond its jitter allowance: delayed, dropped or demoted.
    pub policed: u64,
    /// Everything.
    pub status: ChannelStatus,
}

impl ChannelState {
    pub(crate) fn ask(shared: &Shared, channel: ChannelId) -> Result<Self, Error> {
        match shared.call(Request::Channel { channel })?.0 {
            Answer::Channel(status) => Ok(Self::from(*status)),
            _ => Err(Error::Unexpected),
        }
    }
}

impl From<ChannelStatus> for ChannelState {
    fn from(status: ChannelStatus) -> Self {
        let counters = &status.counters;
        Self {
            promised: status.contract.deadline,
            guarantee: status.guarantee,
            observed_max: counters.latency_max,
            misses: counters.misses,
            policed: counters.delayed + counters.dropped + counters.demoted,
            status,
        }
    }
}

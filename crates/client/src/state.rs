//! The state of a channel as its program can read it (CLIPS: rtcGetParameter).
//!
//! Counters are read without a request from memory that the processor writes ([`CountersReader`]). The rest
//! of the status (path, stages, what degrades the channel) is requested once, and again when the processor
//! has marked it as changed.

use std::sync::Mutex;

use punctual_analysis::Guarantee;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::{Counted, CountersReader};
use punctual_proto::Nanos;
use punctual_proto::api::{ChannelStatus, RequestError};
use punctual_proto::ids::ChannelId;
use punctual_proto::latencies::Latencies;

use crate::connection::{SharedConnection, lock, may_wait};
use crate::error::Error;

/// The evidence of one channel at this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelState {
    /// Every message is delivered by its logical arrival plus this.
    pub promised: Nanos,
    /// How firm the promise is.
    pub guarantee: Guarantee,
    /// The largest latency observed at the sink, from the logical arrival; zero at the source.
    pub observed_max: Nanos,
    /// Messages that missed their bound at this end.
    pub misses: u64,
    /// Messages that broke the contract, beyond its jitter allowance: delayed, dropped or demoted.
    pub policed: u64,
    /// The whole status. Counters and latencies are consistent, and no older than what this program last saw
    /// of the channel. The load of each stage (`stages`, `utilisation`) is as of the last request.
    pub status: ChannelStatus,
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

/// The last reported status, and the number of changes before it.
struct LastStatus {
    changes: u64,
    status: ChannelStatus,
}

/// Reads a channel's state: owns the last status, and a reader of the counters.
pub(crate) struct Evidence {
    counters: CountersReader,
    /// The last status that the daemon returned. `None` before the first request.
    last_status: Mutex<Option<Box<LastStatus>>>,
}

impl Evidence {
    pub(crate) const fn new(counters: CountersReader) -> Self {
        Self { counters, last_status: Mutex::new(None) }
    }

    /// The state of `channel`. Sends a request only the first time, and after the reported status has
    /// changed.
    pub(crate) fn state(&self, shared: &SharedConnection, channel: ChannelId) -> Result<ChannelState, Error> {
        let mut status = self.last_status(shared, channel)?;
        // An engine that this thread drives does not end its turn meanwhile.
        match self.counters.read(may_wait().is_ok()) {
            Some(Counted { counters, latencies }) => {
                status.counters = counters;
                status.observed = latencies.as_ref().map(Latencies::observed);
            }
            None => status = ask(shared, channel)?,
        }
        Ok(status.into())
    }

    fn last_status(&self, shared: &SharedConnection, channel: ChannelId) -> Result<ChannelStatus, Error> {
        if self.counters.is_closed() {
            return Err(shared.over().unwrap_or(Error::Request(RequestError::Unknown)));
        }
        // Read this before the request: a change during the request then leads to another request.
        let changes = self.counters.outdated();
        let known = lock(&self.last_status)
            .as_ref()
            .filter(|last_status| last_status.changes == changes)
            .map(|last_status| last_status.status.clone());
        if let Some(status) = known {
            return Ok(status);
        }
        // The lock is not held during the request: the thread that delivers the reply may need this state,
        // too.
        let status = ask(shared, channel)?;
        *lock(&self.last_status) = Some(Box::new(LastStatus { changes, status: status.clone() }));
        Ok(status)
    }
}

fn ask(shared: &SharedConnection, channel: ChannelId) -> Result<ChannelStatus, Error> {
    match shared.call(Request::Channel { channel })?.0 {
        Answer::Channel(status) => Ok(*status),
        _ => Err(Error::Unexpected),
    }
}

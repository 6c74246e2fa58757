//! What is known about a channel (CLIPS: rtcGetParameter).
//!
//! What it counts is read where the processor writes it, without asking ([`CountersReader`]). What else is reported of it (its
//! path, its stages, what degrades it) is asked for once, and again when the processor has said that it is another.

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
    /// Everything. Counters and latencies are of one moment, not before the last thing that this program has seen of the
    /// channel. How much of each stage is given away (`stages`, `utilisation`) is as it was when that was last asked for.
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

/// What was reported last, and after how many changes.
struct LastStatus {
    changes: u64,
    status: ChannelStatus,
}

/// Where a channel's state is read.
pub(crate) struct Evidence {
    counters: CountersReader,
    /// The last status that was asked for; `None` before the first question.
    said: Mutex<Option<Box<LastStatus>>>,
}

impl Evidence {
    pub(crate) const fn new(counters: CountersReader) -> Self {
        Self { counters, said: Mutex::new(None) }
    }

    /// The state of `channel`. Asks only where something was reported of it since it was asked for last, or never.
    pub(crate) fn state(&self, shared: &SharedConnection, channel: ChannelId) -> Result<ChannelState, Error> {
        let mut status = self.said(shared, channel)?;
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

    fn said(&self, shared: &SharedConnection, channel: ChannelId) -> Result<ChannelStatus, Error> {
        if self.counters.is_closed() {
            return Err(shared.over().unwrap_or(Error::Request(RequestError::Unknown)));
        }
        // Read this before asking: what changes meanwhile is then asked for once more.
        let changes = self.counters.outdated();
        let known =
            lock(&self.said).as_ref().filter(|said| said.changes == changes).map(|said| said.status.clone());
        if let Some(status) = known {
            return Ok(status);
        }
        // Nobody waits for an answer with the lock: the thread that is to give it may want this state, too.
        let status = ask(shared, channel)?;
        *lock(&self.said) = Some(Box::new(LastStatus { changes, status: status.clone() }));
        Ok(status)
    }
}

fn ask(shared: &SharedConnection, channel: ChannelId) -> Result<ChannelStatus, Error> {
    match shared.call(Request::Channel { channel })?.0 {
        Answer::Channel(status) => Ok(*status),
        _ => Err(Error::Unexpected),
    }
}

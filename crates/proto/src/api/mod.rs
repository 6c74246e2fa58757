//! The interface types between a [`Node`](super) and its driver: requests, events, refusals, status.

mod account;
mod breach;
mod capture;
mod close;
mod directory;
mod event;
mod filter;
mod grant;
mod host_name;
mod lost;
mod rate;
mod record;
mod refusal;
mod request;
mod rtu;
mod status;
mod upcall;
mod work;

pub use crate::config::WorkKind;
pub use crate::ids::Role;
pub use account::Account;
pub use breach::{Breach, BrokenStage, Cause, LateArrivals, LateStage, SeenIn, StageName};
pub use capture::{CAPTURE_HEAD_BYTES, CaptureHead, CapturedKind};
pub use close::{CloseReason, Receipt};
pub use event::{Event, LinkChange, Notice};
pub use filter::{FilterChange, PathFilter};
pub use grant::{DegradedHost, Grant, StageGrant, StageKind, degraded, hosts_of};
pub use host_name::{HostName, name_of};
pub use lost::{DroppedPackets, LostAt, LostWhy, Passed, Tally};
pub use rate::{MeasuredRate, RateRefusal, RateStatus};
pub use record::{BusyRecord, PathRecord, WakeRecord};
pub use refusal::{ChannelRefusal, RefuseCause};
pub use request::{Incoming, OpenRequest, RequestError};
pub use rtu::{
    Misconduct, RtuActivation, RtuClass, RtuCost, RtuCounters, RtuEvent, RtuGrant, RtuId, RtuNumber,
    RtuProgress, RtuRefusal, RtuSending, RtuSent, RtuStatus, RtuTarget, RtuTerms, UpcallDone,
};
pub use status::{
    ChannelCounters, ChannelPage, ChannelStatus, DegradedPlace, DropCounters, ForeignVersion, KernelShare,
    LinkStatus, NodeStatus,
};
pub use upcall::{UPCALL_BYTES, UPCALL_REPORT_BYTES, UpcallReport, UpcallRequest};
pub use work::{PacketOut, Port, Transmit, Work};

use serde::{Deserialize, Serialize};

/// User who makes a request, for quotas and for the receiver's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UserId(pub u32);

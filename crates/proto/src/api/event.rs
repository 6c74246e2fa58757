//! What a node tells: applications, and who runs the host.

use punctual_analysis::{Contract, Nanos};
use serde::{Deserialize, Serialize};

use super::{
    BrokenStage, ChannelRefusal, CloseReason, Grant, Incoming, LateStage, MeasuredRate, RateRefusal, Receipt,
    UserId,
};
use crate::ids::{Address, ChannelId, LinkId, ListenerId};

/// Something that a channel's application should know; counted, told at most once per kind until read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// Messages broke the contract, beyond its jitter allowance, and were delayed, dropped or demoted.
    Policed,
    /// A message was surely delivered later than its deadline.
    Late,
    /// The receiver did not free its ring; messages were dropped.
    Overrun,
    /// The profile's costs are exceeded: guarantees are at risk.
    ProfileAtRisk,
}

/// What became of a link, for whoever runs the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The neighbour is there.
    Up,
    /// The neighbour is silent, or what was said to it was not heard.
    Down,
    /// The neighbour was there all the time, and has forgotten what was agreed with it: it restarted, or gave us up.
    Restarted,
    /// Signalling that does not authenticate, or is not from that neighbour to this node: another key, or other ids.
    Unauthenticated {
        /// All of them so far.
        packets: u64,
    },
}

/// What the node tells its driver, for applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Yes. The source attaches its outbox with [`super`]'s `attach_outbox` and may send.
    Opened {
        /// The channel that was opened.
        channel: ChannelId,
        /// What is promised.
        grant: Grant,
    },
    /// No.
    Refused {
        /// The channel that was refused.
        channel: ChannelId,
        /// Where, why, and what instead.
        refusal: ChannelRefusal,
    },
    /// A probe's answer; nothing is held.
    Probed {
        /// The channel that was probed.
        channel: ChannelId,
        /// What would be granted or why not.
        answer: Result<Grant, ChannelRefusal>,
    },
    /// The agent must consent or refuse.
    Incoming(Incoming),
    /// The channel that the agent consented to is established: `accept` may return it.
    Established {
        /// The channel that is now established.
        channel: ChannelId,
    },
    /// A receiver asks this host's application `port` to open a channel to it.
    Requested {
        /// Who listens here.
        listener: ListenerId,
        /// Where to open it to.
        to: Address,
        /// With what contract.
        contract: Contract,
        /// On whose behalf there.
        user: UserId,
        /// To be given back with the open request.
        token: u64,
    },
    /// Nobody waits any more for the answer to [`Event::Requested`]: its time is over, or it gave way to others.
    RequestOver {
        /// Token of the request, as [`Event::Requested`] gave it.
        token: u64,
    },
    /// Our request to a source was refused or nobody heard it.
    RequestFailed {
        /// Token of the request, as the call that sent it returned it.
        token: u64,
        /// Why.
        refusal: ChannelRefusal,
    },
    /// The channel is gone; its rings may be dropped once read out.
    Closed {
        /// The channel that was closed.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
        /// At the source: what the sink has of it; `None` where that was not to be learnt.
        receipt: Option<Receipt>,
    },
    /// Admission has decided something for a channel of this host's, or for one that passes it, away from the processor.
    Decided {
        /// The channel that admission decided about.
        channel: ChannelId,
        /// How long that took.
        took: Nanos,
    },
    /// A stage on a channel's way breaks its promise, or keeps it again.
    Stage {
        /// The channel that has an end on this host. `None`: the event is told once for the host, about its
        /// own stages and those on the routes of channels that pass through it.
        channel: Option<ChannelId>,
        /// The stage, and what is known about its breach.
        stage: BrokenStage,
        /// It has kept its promise for a lease.
        healed: bool,
    },
    /// A stage was late, and is not broken for it: said at once, then once a minute, or when it is twice as late.
    Late(LateStage),
    /// What became of a link.
    Link {
        /// The link that changed.
        link: LinkId,
        /// What.
        change: LinkChange,
    },
    /// A measurement of what a link drains has ended.
    Rate {
        /// The link that was measured.
        link: LinkId,
        /// What it drains, or why that was not to be learnt.
        result: Result<MeasuredRate, RateRefusal>,
    },
    /// See [`Notice`].
    Notice {
        /// The channel that the notice is about.
        channel: ChannelId,
        /// What.
        notice: Notice,
    },
}

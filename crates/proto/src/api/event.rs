//! Events of a node, for applications and for the program that runs the host.

use punctual_analysis::{Contract, Nanos};
use serde::{Deserialize, Serialize};

use super::{
    BrokenStage, ChannelRefusal, CloseReason, Grant, Incoming, LateStage, MeasuredRate, RateRefusal, Receipt,
    RtuGrant, RtuRefusal, UserId,
};
use crate::ids::{Address, ChannelId, LinkId, ListenerId};

/// A condition that a channel's application should know of. It is counted, and reported at most once per kind
/// and channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// Messages broke the contract, beyond its jitter allowance, and were delayed, dropped or demoted.
    Policed,
    /// A message was certainly delivered later than its deadline.
    Late,
    /// The receiver did not free its ring; messages were dropped.
    Overrun,
    /// The profile's costs are exceeded: guarantees are at risk.
    ProfileAtRisk,
}

impl Notice {
    /// Number of kinds of notices: the most that one channel can give.
    pub(crate) const COUNT: usize = Self::ProfileAtRisk as usize + 1;
}

/// A change of a link, for the program that runs the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The neighbour is up.
    Up,
    /// The neighbour is silent, or it did not acknowledge what was sent to it.
    Down,
    /// The neighbour was up all the time but has lost the state that was agreed with it: it restarted, or
    /// gave this node up.
    Restarted,
    /// Signalling that does not authenticate, or is not from that neighbour to this node: another key, or other ids.
    Unauthenticated {
        /// Number of all such packets so far.
        packets: u64,
    },
}

/// An event from the node to its driver, for applications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The channel was accepted. The source attaches its outbox with [`super`]'s `attach_outbox` and may
    /// send.
    Opened {
        /// The channel that was opened.
        channel: ChannelId,
        /// The grant: what is promised to the channel.
        grant: Grant,
    },
    /// A handler of a program in another process is granted, or refused and gone.
    Registered {
        /// The handler's handle among channels.
        channel: ChannelId,
        /// What it is promised, or why not.
        answer: Result<RtuGrant, RtuRefusal>,
    },
    /// The channel was refused.
    Refused {
        /// The channel that was refused.
        channel: ChannelId,
        /// The hop that refused, its reason, and its offer.
        refusal: ChannelRefusal,
    },
    /// The result of a probe; nothing is held.
    Probed {
        /// The channel that was probed.
        channel: ChannelId,
        /// The grant that the channel would get, or the refusal.
        answer: Result<Grant, ChannelRefusal>,
    },
    /// The agent must consent or refuse.
    Incoming(Incoming),
    /// The channel that the agent consented to is established: `accept` may return it.
    Established {
        /// The channel that is now established.
        channel: ChannelId,
    },
    /// A receiver requests that this host's application `port` opens a channel to it.
    Requested {
        /// The listener here that the request is for.
        listener: ListenerId,
        /// Address that the channel must be opened to.
        to: Address,
        /// Contract of the requested channel.
        contract: Contract,
        /// User at the receiver's host on whose behalf the request is made.
        user: UserId,
        /// Token that the open request must give back.
        token: u64,
    },
    /// The request of [`Event::Requested`] is over: its time has passed, or it gave way to others.
    RequestOver {
        /// Token of the request, as [`Event::Requested`] gave it.
        token: u64,
    },
    /// Our request to a source was refused, or did not reach it.
    RequestFailed {
        /// Token of the request, as the call that sent it returned it.
        token: u64,
        /// Why the request failed.
        refusal: ChannelRefusal,
    },
    /// The channel has ended; its rings may be dropped once they are read out.
    Closed {
        /// The channel that was closed.
        channel: ChannelId,
        /// Why the channel ended.
        reason: CloseReason,
        /// At the source: the sink's final report. `None` if it was not received.
        receipt: Option<Receipt>,
    },
    /// Admission has decided a request for a channel that starts, passes or ends here, outside the
    /// processor's thread.
    Decided {
        /// The channel that admission decided about.
        channel: ChannelId,
        /// How long the decision took.
        took: Nanos,
    },
    /// A stage on a channel's route breaks its promise, or keeps it again.
    Stage {
        /// The channel that has an end on this host. `None`: the event is reported once for the host, about its
        /// own stages and those on the routes of channels that pass through it.
        channel: Option<ChannelId>,
        /// The stage, and what is known about its breach.
        stage: BrokenStage,
        /// True if the stage has kept its promise for a lease.
        healed: bool,
    },
    /// A stage was late but does not count as broken. Reported at once, then once a minute, or when it is
    /// twice as late.
    Late(LateStage),
    /// The state of a link changed.
    Link {
        /// The link that changed.
        link: LinkId,
        /// The change.
        change: LinkChange,
    },
    /// A measurement of a link's drain rate has ended.
    Rate {
        /// The link that was measured.
        link: LinkId,
        /// The measured rate, or why it was not measured.
        result: Result<MeasuredRate, RateRefusal>,
    },
    /// See [`Notice`].
    Notice {
        /// The channel that the notice is about.
        channel: ChannelId,
        /// The notice.
        notice: Notice,
    },
}

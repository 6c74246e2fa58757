//! RTCOP and HELLO of one node: a pure state machine (CLIPS 4.2, HARTS 3.2; ARCHITECTURE, The life of a
//! channel).
//!
//! Two relatively independent halves, as in CLIPS Figure 2(a): the communication module carries messages to
//! neighbours reliably, in order and exactly once (`packet`, `stream`, `outbox`, `peer`); the request and
//! reply handlers manage channels (`establish`, `transitions`, `lifetime`, `requests`, `asks`) by the table
//! in `states`. Signalling does not depend on link schedulers: the node gives its packets to the implicit
//! signalling channel of each link.
//!
//! Invariants:
//! - A channel holds resources here exactly while it is in the table (and [`State::holds`]).
//! - Away from its source, every channel has a lease, or while it closes a deadline, after which it ends.
//! - All tables are bounded (`limits`); a request beyond a bound is refused with `Exhausted`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use punctual_analysis::{Instant, Nanos, Ppm};

use crate::api::{
    ChannelRefusal, CloseReason, Event, LateArrivals, RefuseCause, StageGrant, StageName, UserId,
};
use crate::config::NodeConfig;
use crate::ids::{ChannelId, ChannelNumber, LinkId, ListenerId, Name, NodeId};

mod accounts;
mod breach_reports;
mod budget;
mod channel;
mod clock;
mod closing;
mod ends;
mod establish;
mod exchange;
mod lifetime;
mod link_events;
mod lookup;
mod losses;
mod message;
mod offer_probes;
mod offer_search;
mod outbox;
mod packet;
mod peer;
mod pending_decisions;
mod probes;
mod random;
mod rate_messages;
mod rates;
mod reliable_stream;
mod replay_window;
mod reports;
mod requests;
pub mod resources;
mod source_turns;
mod stage_decisions;
mod states;
#[cfg(test)]
mod tests;
mod transitions;
mod unsent_requests;
mod views;

pub use crate::seal::SealKey;
pub use budget::drain_max;
use channel::{ChannelRoute, Channels, Timer};
pub use clock::ClockOffset;
use link_events::LinkNews;
use losses::Losses;
use message::{Create, Witness};
use offer_search::Offering;
use packet::Key;
pub use packet::{VERSION as RTCOP_VERSION, renumbered, tag};
use peer::Peer;
use pending_decisions::{Decisions, NextStep};
pub use random::SplitMix64;
pub use rate_messages::RateWord;
use rates::Closed;
use reports::StoredReport;
use requests::{PendingRequest, Requests};
pub use resources::{Answer, CommitTerms, LocalChannel, Resources};
use states::State;
pub use views::{ChannelView, NeighbourView};

/// Counters of signalling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignallingCounters {
    /// Packets that do not parse.
    pub malformed: u64,
    /// Packets of another version of the protocol.
    pub version: u64,
    /// Packets that do not authenticate, or are not for this node from that link's neighbour.
    pub unauthenticated: u64,
    /// Packets that were received before, or belong to a former life.
    pub replayed: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Messages that a channel's state does not expect.
    pub unexpected: u64,
    /// Packets sent, acknowledgements and HELLOs included.
    pub packets_sent: u64,
    /// Requests without a reply, because too many replies wait already.
    pub unanswered: u64,
}

/// A name that channels can be opened to.
#[derive(Clone, Copy, Debug)]
struct Listener {
    id: ListenerId,
    /// The time that the application declares for handling a message on the processor.
    handler_time: Nanos,
}

/// RTCOP and HELLO of one node.
#[derive(Debug)]
pub struct Signalling {
    config: NodeConfig,
    /// rho.
    drift: Ppm,
    secrets: Secrets,
    links: Links,
    channels: Channels,
    /// Channels whose stages were asked.
    deciding: Decisions,
    requests: Requests,
    listeners: Listeners,
    announcements: Announcements,
    breaches: Breaches,
    losses: Losses,
    numbers: Numbers,
    refreshes: Refreshes,
    /// True while the host stops: it begins nothing new.
    leaving: bool,
    counters: SignallingCounters,
}

/// Secrets that only this node, or only members of the domain, know.
#[derive(Debug)]
struct Secrets {
    key: Key,
    /// Generator of nonces and cookies.
    random: SplitMix64,
}

/// The neighbours and the links to them, by link.
#[derive(Debug)]
struct Links {
    peers: Vec<Peer>,
    /// What was reported of each link.
    news: Vec<LinkNews>,
    /// Links that are being measured.
    closed: Closed,
}

/// Names that channels can be opened to.
#[derive(Debug, Default)]
struct Listeners {
    by_name: BTreeMap<Name, Listener>,
    names: BTreeMap<ListenerId, Name>,
    /// Removed listeners, whose channels that wait for consent are still being refused.
    gone: VecDeque<(ListenerId, Name)>,
    last_id: u64,
}

/// Output that has not been fetched yet.
#[derive(Debug, Default)]
struct Announcements {
    /// For applications.
    events: VecDeque<Event>,
    /// Channels that end here whose reported status has changed, and whose applications were not notified.
    outdated: Vec<ChannelId>,
    /// Keys of newly met neighbours, for the drivers.
    seals: VecDeque<(LinkId, SealKey)>,
}

/// The numbers that were assigned last.
#[derive(Debug, Default)]
struct Numbers {
    channel_id: u64,
    channel_number: ChannelNumber,
}

/// State of the refreshes of channels that start here.
#[derive(Debug, Default)]
struct Refreshes {
    /// Time of the next round; `None` while there are no channels.
    at: Option<Instant>,
    /// The present round continues behind that channel, or begins.
    rest: Option<Option<ChannelId>>,
}

/// A channel that starts, passes or ends here.
#[derive(Debug)]
struct Channel {
    local: Arc<LocalChannel>,
    route: Arc<ChannelRoute>,
    /// This node's position on the route.
    position: u8,
    state: State,
    /// rho, by the worst clock on the route as far as this node knows.
    drift: Ppm,
    /// End of the wait for a reply, for consent, or for packets under way.
    deadline: Timer,
    /// Time at which the channel is freed unless it is refreshed; never at the source.
    lease: Timer,
    /// Why it is draining or settling.
    reason: CloseReason,
    /// Until its stages are final.
    setup: Option<Box<Setup>>,
}

/// The part of a channel's state that is kept only until its stages are final.
#[derive(Debug, Default)]
struct Setup {
    /// The requesting user, at the source.
    user: UserId,
    listener: Option<ListenerId>,
    /// Local stages as last granted.
    stages: Vec<StageGrant>,
    /// The range of the local stages among all of the route's.
    own: Range<usize>,
    /// All stages of the route as far as known, until they are sent on with CREATE or back with ACCEPT.
    all_stages: Vec<StageGrant>,
    /// The part of J that does not depend on bounds.
    arrival_error_fixed: Nanos,
    /// At the source.
    attempt: Option<Attempt>,
    /// The stages of the route from ACCEPT, while the local ones are made final.
    accepted: Option<Vec<StageGrant>>,
}

/// State at the source: the application's request, and what else can be tried.
#[derive(Debug)]
struct Attempt {
    user: UserId,
    probe: bool,
    /// Routes that were not tried yet, without this node.
    candidates: VecDeque<Vec<NodeId>>,
    /// The refusal to report if every route refuses, and its route.
    best: Option<(ChannelRefusal, Vec<NodeId>)>,
    /// Every route has refused: the search for a contract to offer.
    offering: Option<Offering>,
    /// The receiver's request that this channel answers.
    asked: Option<PendingRequest>,
}

/// A channel whose stages were asked.
#[derive(Debug)]
struct PendingDecision {
    local: Arc<LocalChannel>,
    create: Create,
    /// Cause of a first refusal for lack of time, while the stages are asked how much they need.
    refused: Option<RefuseCause>,
    /// The application has closed the channel for this reason. The channel stays until the decision, because
    /// until then it takes capacity that its user is charged for.
    closed: Option<CloseReason>,
    then: NextStep,
}

/// What is known of the stages of this node and of others.
#[derive(Debug, Default)]
struct Breaches {
    /// The last report of each stage by each witness.
    reports: BTreeMap<(StageName, Witness), StoredReport>,
    /// Number of reports of this node.
    number: u64,
    /// Time at which this node repeats its reports; `None` if it has none.
    repeat_at: Option<Instant>,
    /// True if a HELLO came late since the node checked last.
    stirred: bool,
    /// Neighbours' reports about our packets that the node has not fetched.
    late_arrivals: VecDeque<(LinkId, LateArrivals)>,
}

//! RTCOP and HELLO of one node: a pure state machine (CLIPS 4.2, HARTS 3.2; ARCHITECTURE,
//! The life of a channel).
//!
//! Two relatively independent halves, as in CLIPS Figure 2(a): the communication module carries messages to
//! neighbours reliably, in order and exactly once (`packet`, `stream`, `outbox`, `peer`); the request and reply handlers
//! manage channels (`establish`, `transitions`, `lifetime`, `requests`, `asks`) by the table in `states`. It knows nothing of
//! link schedulers: the node gives its packets to the implicit signalling channel of each link.
//!
//! Invariants:
//! - A channel holds resources here exactly while it is in the table (and [`State::holds`]).
//! - Away from its source, every channel has a lease, or while it closes a time, that ends by itself.
//! - All tables are bounded (`limits`); what does not fit is refused with `Exhausted`.

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

mod asks;
mod books;
mod breaches;
mod budget;
mod channel;
mod clock;
mod deciding;
mod decisions;
mod ends;
mod establish;
mod exchange;
mod fair;
mod lifetime;
mod lookup;
mod losses;
mod message;
mod news;
mod offers;
mod outbox;
mod packet;
mod peer;
mod probes;
mod random;
mod rates;
mod reports;
mod requests;
pub mod resources;
mod states;
mod stream;
#[cfg(test)]
mod tests;
mod transitions;
mod views;
mod window;

pub use crate::seal::SealKey;
pub use budget::drain_max;
use channel::{Channels, Timer, Way};
pub use clock::ClockOffset;
use decisions::{Decisions, NextStep};
use losses::Losses;
use message::{Create, Witness};
use news::LinkNews;
use offers::Offering;
use packet::Key;
pub use packet::{VERSION as RTCOP_VERSION, renumbered, tag};
use peer::Peer;
pub use random::SplitMix64;
use rates::Closed;
pub use rates::RateWord;
use reports::HeardReport;
use requests::{PendingRequest, Requests};
pub use resources::{Answer, CommitTerms, LocalChannel, Resources};
use states::State;
pub use views::{ChannelView, NeighbourView};

/// What signalling counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignallingCounters {
    /// Packets that do not parse.
    pub malformed: u64,
    /// Packets of another version of the protocol.
    pub version: u64,
    /// Packets that do not authenticate, or are not for this node from that link's neighbour.
    pub unauthenticated: u64,
    /// Packets that were seen before, or of a former life.
    pub replayed: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Messages that a channel's state does not expect.
    pub unexpected: u64,
    /// Packets sent, acknowledgements and HELLOs included.
    pub packets_sent: u64,
    /// What was asked and not answered, since too many answers wait already.
    pub unanswered: u64,
}

/// A name that channels can be opened to.
#[derive(Clone, Copy, Debug)]
struct Listener {
    id: ListenerId,
    /// What the application declares for handling a message on the processor.
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
    /// Shut down: nothing new.
    leaving: bool,
    counters: SignallingCounters,
}

/// What nobody outside the domain knows, or can guess.
#[derive(Debug)]
struct Secrets {
    key: Key,
    /// Of nonces and cookies.
    random: SplitMix64,
}

/// The neighbours and the links to them, by link.
#[derive(Debug)]
struct Links {
    peers: Vec<Peer>,
    /// What was told of each link.
    news: Vec<LinkNews>,
    /// Links that are being measured.
    closed: Closed,
}

/// Names that channels can be opened to.
#[derive(Debug, Default)]
struct Listeners {
    by_name: BTreeMap<Name, Listener>,
    names: BTreeMap<ListenerId, Name>,
    /// Those that are gone, whose channels that wait for consent are still being refused.
    gone: VecDeque<(ListenerId, Name)>,
    last_id: u64,
}

/// What somebody else is to hear of.
#[derive(Debug, Default)]
struct Announcements {
    /// For applications.
    events: VecDeque<Event>,
    /// Ends here of which something else is said now, and whose applications were not told so.
    outdated: Vec<ChannelId>,
    /// Keys of neighbours that were met, for the drivers.
    seals: VecDeque<(LinkId, SealKey)>,
}

/// The last ones that were given away.
#[derive(Debug, Default)]
struct Numbers {
    channel_id: u64,
    channel_number: ChannelNumber,
}

/// Refreshing the channels that start here.
#[derive(Debug, Default)]
struct Refreshes {
    /// When it begins anew; `None` while there are none.
    at: Option<Instant>,
    /// It goes on behind that one, or begins.
    rest: Option<Option<ChannelId>>,
}

/// A channel that starts, passes or ends here.
#[derive(Debug)]
struct Channel {
    local: Arc<LocalChannel>,
    way: Arc<Way>,
    /// This node's place on the way.
    position: u8,
    state: State,
    /// rho, by the worst clock on the route as far as this node knows.
    drift: Ppm,
    /// When an answer, consent or the time for what is under way is over.
    deadline: Timer,
    /// When it is freed unless it is refreshed; never at the source.
    lease: Timer,
    /// Why it is draining or settling.
    reason: CloseReason,
    /// Until its stages are final.
    setup: Option<Box<Setup>>,
}

/// What is known of a channel only until its stages are final.
#[derive(Debug, Default)]
struct Setup {
    /// Who asked, at the source.
    user: UserId,
    listener: Option<ListenerId>,
    /// Local stages as last granted.
    stages: Vec<StageGrant>,
    /// Where they are among all of the route's.
    own: Range<usize>,
    /// All of the route's as far as it is known: until CREATE takes them on, or ACCEPT back.
    all_stages: Vec<StageGrant>,
    /// The part of J that does not depend on bounds.
    arrival_error_fixed: Nanos,
    /// At the source.
    attempt: Option<Attempt>,
    /// The route's as ACCEPT said them, while the local ones are made final.
    accepted: Option<Vec<StageGrant>>,
}

/// What only the source knows: how the application asked, and what else can be tried.
#[derive(Debug)]
struct Attempt {
    user: UserId,
    probe: bool,
    /// Routes that were not tried, without this node.
    candidates: VecDeque<Vec<NodeId>>,
    /// The refusal to report if no route says yes, and that route.
    best: Option<(ChannelRefusal, Vec<NodeId>)>,
    /// All have refused: what could be had instead.
    offering: Option<Offering>,
    /// The receiver's request that this answers.
    asked: Option<PendingRequest>,
}

/// A channel whose stages were asked.
#[derive(Debug)]
struct PendingDecision {
    local: Arc<LocalChannel>,
    create: Create,
    /// They have refused for lack of time, and are asked how much they would need.
    refused: Option<RefuseCause>,
    /// Its application has closed it, for this reason. It stays until it is decided on: until then it takes what its user has
    /// to pay for.
    closed: Option<CloseReason>,
    then: NextStep,
}

/// What is known of stages, this node's and others'.
#[derive(Debug, Default)]
struct Breaches {
    /// The last report of each stage by each witness.
    reports: BTreeMap<(StageName, Witness), HeardReport>,
    /// Reports of this node.
    number: u64,
    /// When this node repeats what it says; `None`: it has nothing to say.
    repeat_at: Option<Instant>,
    /// A HELLO came late since the node looked.
    stirred: bool,
    /// What neighbours say of our packets, until the node looks.
    late_arrivals: VecDeque<(LinkId, LateArrivals)>,
}

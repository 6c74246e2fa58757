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

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::{Contract, Instant, Nanos, Ppm};

use crate::api::Event;
use crate::config::NodeConfig;
use crate::ids::{ChannelId, ChannelNumber, LinkId, ListenerId, Name, PathId};
use crate::interned::Interned;

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
mod transitions;
mod views;
mod window;

pub use crate::seal::SealKey;
pub use budget::drain_max;
use channel::{Channel, Channels, Way};
pub use clock::ClockOffset;
use decisions::Decisions;
use losses::Losses;
use message::Message;
use news::LinkNews;
use packet::{Key, Rejected};
pub use packet::{VERSION as RTCOP_VERSION, renumbered, tag};
use peer::{Ignored, Peer};
pub use random::SplitMix64;
use rates::Closed;
pub use rates::RateWord;
use reports::Breaches;
use requests::{Refused, Requests};
pub use resources::{Answer, CommitTerms, LocalChannel, Resources};
use states::State;
use transitions::InputDetails;
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
    key: Key,
    random: SplitMix64,
    /// By link.
    peers: Vec<Peer>,
    /// By link: what was told of it.
    news: Vec<LinkNews>,
    channels: Channels,
    /// Channels whose stages were asked.
    deciding: Decisions,
    /// Of the channels.
    ways: Interned<Way>,
    contracts: Interned<Contract>,
    requests: Requests,
    listeners: BTreeMap<Name, Listener>,
    /// Their names.
    listener_names: BTreeMap<ListenerId, Name>,
    /// Listeners that are gone, whose channels that wait for consent are still being refused.
    unlistened: VecDeque<(ListenerId, Name)>,
    events: VecDeque<Event>,
    breaches: Breaches,
    losses: Losses,
    /// Links that are being measured.
    closed: Closed,
    channel_id: u64,
    listener_id: u64,
    /// The last that was given away.
    channel_number: ChannelNumber,
    /// When our channels are refreshed; `None` while there are none.
    refresh_at: Option<Instant>,
    /// Refreshing goes on behind that one, or begins.
    refreshing: Option<Option<ChannelId>>,
    /// Keys of neighbours that were met, for the drivers.
    seals: VecDeque<(LinkId, SealKey)>,
    /// Ends here of which something else is said now, and whose applications were not told so.
    outdated: Vec<ChannelId>,
    /// Shut down: nothing new.
    leaving: bool,
    counters: SignallingCounters,
}

impl Signalling {
    /// Signalling of a node that starts now. `seed`: 64 bits that differ from life to life (nonces, cookies).
    pub fn new(config: &NodeConfig, seed: u64, now: Instant) -> Self {
        let mut random = SplitMix64::new(seed);
        Self {
            config: config.clone(),
            drift: budget::drift(config),
            key: Key::new(&config.signalling.domain_key),
            peers: config.links.iter().map(|link| Peer::new(config, link, random.next(), now)).collect(),
            news: alloc::vec![LinkNews::NEW; config.links.len()],
            random,
            channels: Channels::default(),
            deciding: Decisions::default(),
            ways: Interned::new(),
            contracts: Interned::new(),
            requests: Requests::default(),
            listeners: BTreeMap::new(),
            listener_names: BTreeMap::new(),
            unlistened: VecDeque::new(),
            events: VecDeque::new(),
            breaches: Breaches::default(),
            losses: Losses::default(),
            closed: Closed::default(),
            channel_id: 0,
            listener_id: 0,
            channel_number: ChannelNumber::default(),
            refresh_at: None,
            refreshing: None,
            seals: VecDeque::new(),
            outdated: Vec::new(),
            leaving: false,
            counters: SignallingCounters::default(),
        }
    }

    /// A packet that came in on the signalling port. `received`: the driver's receive time.
    pub fn handle_signal(
        &mut self,
        link: LinkId,
        received: Instant,
        now: Instant,
        packet: &[u8],
        resources: &mut dyn Resources,
    ) {
        let Some(peer) = self.peers.get_mut(usize::from(link.0)) else { return };
        let packet = match self.key.open(packet) {
            Ok(packet) => packet,
            Err(Rejected::Malformed) => return self.counters.malformed += 1,
            Err(Rejected::Version) => return self.counters.version += 1,
            Err(Rejected::Foreign(version)) => {
                self.counters.version += 1;
                if let Some(change) = peer.handle_foreign(version, now) {
                    self.on_change(link, change, now, resources);
                }
                return self.tell_link(link, None);
            }
            Err(Rejected::Unauthenticated) => return self.on_unauthenticated(link, now),
        };
        let late = peer.watch.total().times;
        let handled = peer.handle(&packet, received, now);
        self.breaches.stirred |= peer.watch.total().times > late;
        let change = match handled {
            Ok(change) => change,
            Err(Ignored::Misdirected) => return self.on_unauthenticated(link, now),
            Err(Ignored::Replayed) => return self.counters.replayed += 1,
        };
        let seal = self.peers.get_mut(usize::from(link.0)).and_then(|peer| peer.poll_seal(&self.key));
        self.seals.extend(seal.map(|seal| (link, seal)));
        // Before what it costs the channels.
        self.tell_link(link, change);
        if let Some(change) = change {
            self.on_change(link, change, now, resources);
        }
        while let Some(message) = self.peers.get_mut(usize::from(link.0)).and_then(Peer::next_message) {
            self.on_message(link, message, now, resources);
        }
    }

    fn on_message(&mut self, link: LinkId, message: Message, now: Instant, resources: &mut dyn Resources) {
        match message {
            Message::Create(create) => self.on_create(link, create, now, resources),
            Message::Probed { path, route, user, answer } => {
                self.on_probed(link, path, &route, (user, answer), now, resources)
            }
            Message::Refresh { node, epoch, channels } => self.on_refresh(link, node, epoch, &channels, now),
            Message::Ended { path, route, reason, receipt } => {
                let what = InputDetails { receipt: Some(receipt), ..InputDetails::reason(reason) };
                self.on_ended(link, path, &route, what, now, resources);
            }
            Message::Passed { path, route, node, passed } => {
                self.on_passed(link, path, &route, (node, passed));
            }
            Message::LateArrivals(late) => self.breaches.late_arrivals.push_back((link, late)),
            Message::Stage(report) => self.on_stage(link, report, now),
            Message::Rate(word) => self.on_rate(link, word),
            Message::Request(request) => self.on_request(link, request, now),
            Message::RequestRefused { token, epoch, route, user, refusal } => {
                self.on_refused_request(link, Refused { token, epoch, user, refusal }, &route);
            }
            message @ (Message::Accept { .. }
            | Message::Refuse { .. }
            | Message::Confirm { .. }
            | Message::Destroy { .. }) => self.on_channel_message(link, message, now, resources),
        }
    }

    /// Writes the next packet for `link` into `out`; HELLOs are stamped with `now`, and say that they leave at
    /// `departure` at the latest. `None`: nothing to send, or `out` is shorter than that packet.
    pub fn poll_signal(
        &mut self,
        link: LinkId,
        now: Instant,
        departure: Instant,
        out: &mut [u8],
    ) -> Option<usize> {
        let peer = self.peers.get_mut(usize::from(link.0))?;
        let (len, again) = peer.poll_packet(&self.key, now, departure, out)?;
        self.counters.packets_sent += 1;
        self.counters.retransmissions += u64::from(again);
        Some(len)
    }
    /// Whether `poll_signal` has a packet.
    pub fn has_signal(&self, link: LinkId) -> bool {
        self.peers.get(usize::from(link.0)).is_some_and(Peer::has_packet)
    }
    /// Whether it has one for any link.
    pub fn has_signals(&self) -> bool {
        self.peers.iter().any(Peer::has_packet)
    }
    /// The key of the seals of a neighbour that was met, for the driver of its link.
    pub fn poll_seal(&mut self) -> Option<(LinkId, SealKey)> {
        self.seals.pop_front()
    }
    /// Whether `poll_event` has one.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }
    /// The next event for applications.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    /// A fresh handle, for ends that signalling does not know (best effort): handles are never reused.
    pub const fn next_channel_id(&mut self) -> ChannelId {
        self.channel_id += 1;
        ChannelId(self.channel_id)
    }

    /// Whether the channel of `path` is here, in whatever state.
    pub fn knows(&self, path: PathId) -> bool {
        self.channels.of_path(path).is_some()
    }

    /// Whether no channel is left and all that was said has been heard, or its hearer is gone.
    pub fn is_quiet(&self) -> bool {
        let waits_only = |channel: &Channel| self.leaving && channel.state == State::Settling;
        self.channels.iter().all(waits_only)
            && self.deciding.is_empty()
            && self.peers.iter().all(Peer::is_quiet)
    }

    /// What was counted.
    pub fn counters(&self) -> SignallingCounters {
        let dropped: u64 = self.peers.iter().map(Peer::answers_dropped).sum();
        SignallingCounters { unanswered: self.counters.unanswered + dropped, ..self.counters }
    }
}

//! RTCOP and HELLO of one node: a pure state machine (CLIPS 4.2, HARTS 3.2; ARCHITECTURE,
//! The life of a channel).
//!
//! Two relatively independent halves, as in CLIPS Figure 2(a): the communication module carries messages to
//! neighbours reliably, in order and exactly once (`packet`, `stream`, `peer`); the request and reply handlers
//! manage channels (`establish`, `transitions`, `lifetime`, `requests`) by the table in `states`. It knows nothing of
//! link schedulers: the node gives its packets to the implicit signalling channel of each link.
//!
//! Invariants:
//! - A channel holds resources here exactly while it is in the table (and [`State::holds`]).
//! - Away from its source, every channel has a lease, or while it closes a time, that ends by itself.
//! - All tables are bounded (`limits`); what does not fit is refused with `Exhausted`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use punctual_analysis::{Contract, Instant, Nanos, Ppm};

use crate::ids::{Address, ChannelId, ChannelNumber, LinkId, ListenerId, Name, NodeId, PathId};
use crate::limits::{LISTENERS_MAX, REASON_BYTES_MAX};
use crate::node::api::{CloseReason, DegradedHost, Event, RefuseCause, RequestError, Role};
use crate::node::config::{LinkConfig, NodeConfig};
use crate::shared::Shared;

mod breaches;
mod budget;
mod channel;
mod clock;
mod establish;
mod lifetime;
mod losses;
mod message;
mod news;
mod offers;
mod packet;
mod peer;
mod random;
mod rates;
mod reports;
mod requests;
pub mod resources;
mod states;
mod stream;
mod transitions;
mod window;

pub use budget::drain_max;
use channel::{Channel, Channels, Way};
pub use clock::ClockOffset;
use losses::Losses;
use message::Message;
use news::LinkNews;
use packet::{Key, Rejected};
pub use packet::{VERSION as RTCOP_VERSION, renumbered, tag};
use peer::{Ignored, Peer, Presence};
pub use random::SplitMix64;
use rates::Closed;
pub use rates::RateWord;
use reports::Breaches;
use requests::Requests;
pub use resources::{CommitTerms, LocalChannel, Resources};
use states::{Input, State, transition};
use transitions::{CLOSED, Particulars};

/// Longest time that retransmissions may take until a neighbour's silence is an answer.
const ANSWER_TIME_MAX: Nanos = Nanos::from_secs(60);

/// A neighbour as signalling knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourView {
    /// Whether HELLOs come.
    pub alive: bool,
    /// The neighbour's clock less ours; `None` before the first round trip.
    pub clock: Option<ClockOffset>,
    /// How often one of the two clocks was stepped or drifted beyond its tolerance, in this life of the neighbour.
    pub clock_breaks: u32,
    /// What of ours came in there, in bytes of the wire, and when that was, on its clock.
    pub their_received: Option<(u64, Instant)>,
    /// Its lives that were met.
    pub lives: u32,
    /// What packets of the neighbour take to our driver at most, as it says; `Nanos::MAX` before it has.
    pub travel_max: Nanos,
    /// Smallest round trip measured in this life of the neighbour.
    pub round_trip_min: Option<Nanos>,
    /// The last round trip measured.
    pub round_trip_recent: Option<Nanos>,
    /// Packets that came in over the link and do not authenticate, or are not from that neighbour to this node.
    pub unauthenticated: u64,
    /// The version that it speaks, where that is not [`RTCOP_VERSION`] and nothing can be agreed with it.
    pub foreign_version: Option<u8>,
    /// Signalling of other versions that came in over the link, by members of the domain.
    pub packets_foreign: u64,
}

/// A channel as signalling knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelView<'a> {
    /// What the node was asked to hold.
    pub local: &'a LocalChannel,
    /// Source host's name.
    pub from: &'a Name,
    /// Listener.
    pub to: &'a Address,
    /// Hosts on the way whose bounds are no guarantees.
    pub degraded: &'a [DegradedHost],
    /// State as `channels` shows it (`open`, `creating`, ...).
    pub state: &'static str,
    /// It has ended here, stages, clip and counters with it; only the sink's word is still waited for.
    pub has_ended: bool,
}

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
    /// Of the channels.
    ways: Shared<Way>,
    contracts: Shared<Contract>,
    requests: Requests,
    listeners: BTreeMap<Name, Listener>,
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
            ways: Shared::new(),
            contracts: Shared::new(),
            requests: Requests::default(),
            listeners: BTreeMap::new(),
            events: VecDeque::new(),
            breaches: Breaches::default(),
            losses: Losses::default(),
            closed: Closed::default(),
            channel_id: 0,
            listener_id: 0,
            channel_number: ChannelNumber::default(),
            refresh_at: None,
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
            Message::Probed { path, route, answer } => {
                self.on_probed(link, path, &route, answer, now, resources)
            }
            Message::Refresh { node, epoch, channels } => self.on_refresh(link, node, epoch, &channels, now),
            Message::Ended { path, route, reason, receipt } => {
                let what = Particulars { receipt: Some(receipt), ..Particulars::reason(reason) };
                self.on_ended(link, path, &route, what, now, resources);
            }
            Message::Passed { path, route, node, passed } => {
                self.on_passed(link, path, &route, (node, passed));
            }
            Message::LateArrivals(late) => self.breaches.late_arrivals.push_back((link, late)),
            Message::Stage(report) => self.on_stage(link, report, now),
            Message::Rate(word) => self.on_rate(link, word),
            Message::Request(request) => self.on_request(link, request, now),
            Message::RequestRefused { token, epoch, route, refusal } => {
                self.on_refused_request(link, token, epoch, &route, refusal);
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

    /// Registers a listener. `handler_time`: what the application declares for handling a message on the processor.
    ///
    /// # Errors
    /// The name is taken, or there are too many.
    pub fn listen(&mut self, port: Name, handler_time: Nanos) -> Result<ListenerId, RequestError> {
        if self.listeners.contains_key(&port) {
            return Err(RequestError::NameTaken(port));
        }
        if self.listeners.len() >= LISTENERS_MAX {
            return Err(RequestError::Exhausted);
        }
        self.listener_id += 1;
        let listener = ListenerId(self.listener_id);
        self.listeners.insert(port, Listener { id: listener, handler_time });
        Ok(listener)
    }
    /// Ends a listener; its open channels stay, what waits for its consent is refused, and told `Closed` here.
    ///
    /// # Errors
    /// There is none.
    pub fn unlisten(
        &mut self,
        listener: ListenerId,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let found =
            self.listeners.iter().find(|(_, found)| found.id == listener).map(|(port, _)| port.clone());
        let port = found.ok_or(RequestError::Unknown)?;
        self.listeners.remove(&port);
        let waits = |c: &Channel| c.setup.as_ref().is_some_and(|setup| setup.listener == Some(listener));
        for channel in self.channels.chosen(|c| c.state == State::Asking && waits(c)) {
            let refusal = self.refusal(RefuseCause::NoListener(port.clone()));
            // Unlike an agent's own refusal it is told: whoever keeps the channel's accounts did not ask for this.
            let what = Particulars { reason: CloseReason::Local, ..Particulars::refusal(refusal) };
            self.apply(channel, Input::Close, what, now, resources);
        }
        Ok(())
    }
    /// The receiving application says yes to `Incoming`; the data path must take packets from now on.
    ///
    /// # Errors
    /// The channel does not wait for it (any more).
    pub fn consent(
        &mut self,
        channel: ChannelId,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        self.apply_request(channel, Input::Consent, Particulars::default(), now, resources)
    }
    /// The first packet of a channel that ends here has come. Where that waits for its CONFIRM, this is as good: a source
    /// sends only once it has the ACCEPT, and CONFIRM may wait for its turn on each link.
    pub fn first_data(&mut self, channel: ChannelId, now: Instant, resources: &mut dyn Resources) {
        if self.channels.get(channel).is_some_and(|channel| channel.state == State::Accepted) {
            self.apply(channel, Input::FirstData, Particulars::default(), now, resources);
        }
    }
    /// The receiving application says no to `Incoming`.
    ///
    /// # Errors
    /// The channel does not wait for it (any more).
    pub fn refuse(
        &mut self,
        channel: ChannelId,
        why: &str,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let refusal = self.refusal(RefuseCause::Receiver(why.chars().take(REASON_BYTES_MAX / 4).collect()));
        self.apply_request(channel, Input::Deny, Particulars::refusal(refusal), now, resources)
    }
    /// Closes a channel at one of its ends for a `reason` of this end's. At the source it keeps its stages until
    /// [`Self::drained`] or the time for what is queued is over; `Closed` follows with the sink's word, or when that is
    /// not to be had.
    ///
    /// # Errors
    /// There is none, or it is closing already.
    pub fn close(
        &mut self,
        channel: ChannelId,
        reason: CloseReason,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        if self.close_waiting(channel, reason) {
            return Ok(());
        }
        let refusal = self.refusal(RefuseCause::Receiver(CLOSED.into()));
        let what = Particulars { reason, ..Particulars::refusal(refusal) };
        self.apply_request(channel, Input::Close, what, now, resources)
    }
    /// The node has nothing of a closing channel under way any more: releases it before its time is over.
    pub fn drained(&mut self, channel: ChannelId, now: Instant, resources: &mut dyn Resources) {
        if self.channels.get(channel).is_some_and(|channel| channel.state == State::Draining) {
            self.apply(channel, Input::Drained, Particulars::default(), now, resources);
        }
    }
    /// This host cannot serve the channel after all: it is refused where it is being set up, and ends at once where it
    /// stands; everybody on the way is told why. One that is closing already closes.
    pub fn abort(
        &mut self,
        channel: ChannelId,
        reason: CloseReason,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Some(known) = self.channels.get(channel) else { return };
        let input = match (known.local.role, known.state) {
            (_, State::Draining | State::Settling | State::Probing | State::Offering) => return,
            (Role::Source, State::Creating) | (Role::Sink, State::Asking) => Input::Silence,
            (Role::Forwarder, State::Creating) => Input::CommitFailed,
            _ => Input::LeaseOver,
        };
        let why = match reason {
            CloseReason::RuntimeRefused => "the kernel does not give the processor more time",
            _ => "the driver does not let its packets in",
        };
        let refusal = self.refusal(RefuseCause::Unsuitable(why.into()));
        let what = Particulars { reason, ..Particulars::refusal(refusal) };
        self.apply(channel, input, what, now, resources);
    }
    /// The channel that was admitted last, of those that are not closing.
    pub fn newest(&self) -> Option<ChannelId> {
        let held = |state: State| state.holds() && state != State::Draining;
        self.channels.iter().filter(|c| held(c.state)).map(|channel| channel.local.channel).max()
    }
    fn apply_request(
        &mut self,
        channel: ChannelId,
        input: Input,
        what: Particulars,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let known = self.channels.get(channel).ok_or(RequestError::Unknown)?;
        transition(known.local.role, known.state, input).ok_or(RequestError::Unknown)?;
        self.apply(channel, input, what, now, resources);
        Ok(())
    }
    /// Whether no channel is left and all that was said has been heard, or its hearer is gone.
    pub fn is_quiet(&self) -> bool {
        let waits_only = |channel: &Channel| self.leaving && channel.state == State::Settling;
        self.channels.iter().all(waits_only) && self.peers.iter().all(Peer::is_quiet)
    }

    /// The neighbour at the other end of a link; the error bound of its clock grows with its age at `now`.
    pub fn neighbour(&self, link: LinkId, now: Instant) -> NeighbourView {
        let index = usize::from(link.0);
        self.peers.get(index).map_or_else(NeighbourView::default, |peer| NeighbourView {
            alive: peer.presence() == Presence::Alive,
            clock: peer.clock.offset(now),
            clock_breaks: peer.clock.breaks(),
            their_received: peer.their_received,
            lives: peer.lives,
            travel_max: peer.their_travel_max,
            round_trip_min: peer.clock.round_trip_min(),
            round_trip_recent: peer.clock.round_trip_recent(),
            unauthenticated: self.news.get(index).map_or(0, |news| news.unauthenticated),
            foreign_version: peer.foreign_version(),
            packets_foreign: peer.packets_foreign,
        })
    }
    /// Channels that start, pass or end here, by handle.
    pub fn channels(&self) -> impl Iterator<Item = ChannelView<'_>> {
        let mut all: Vec<_> = self.channels.iter().map(view).collect();
        all.sort_unstable_by_key(|channel| channel.local.channel);
        all.into_iter()
    }
    /// One channel.
    pub fn channel(&self, channel: ChannelId) -> Option<ChannelView<'_>> {
        self.channels.get(channel).map(view)
    }
    /// What was counted.
    pub const fn counters(&self) -> SignallingCounters {
        self.counters
    }
}

fn view(channel: &Channel) -> ChannelView<'_> {
    ChannelView {
        local: &channel.local,
        from: &channel.way.from,
        to: &channel.way.to,
        degraded: &channel.way.degraded,
        state: channel.state.name(),
        has_ended: channel.state == State::Settling,
    }
}

/// What the handlers look up.
impl Signalling {
    fn listener(&self, port: &Name) -> Option<ListenerId> {
        self.listeners.get(port).map(|listener| listener.id)
    }
    fn handler_time(&self, port: &Name) -> Nanos {
        self.listeners.get(port).map_or(Nanos::ZERO, |listener| listener.handler_time)
    }
    /// Candidate routes without this node, the preferred first; a direct link is one, too.
    fn candidates(&self, node: NodeId) -> Vec<Vec<NodeId>> {
        let configured = self.config.routes.iter().filter(|route| route.via.last() == Some(&node));
        let mut routes: Vec<_> = configured.map(|route| route.via.clone()).collect();
        let direct = alloc::vec![node];
        if self.config.links.iter().any(|link| link.neighbour == node) && !routes.contains(&direct) {
            routes.push(direct);
        }
        routes.retain(|via| {
            let nodes = core::iter::once(self.config.id).chain(via.iter().copied()).collect();
            message::Route { nodes, position: 0 }.leads(None, self.config.id)
        });
        routes
    }
    /// The link to a neighbour that is not known to be dead.
    fn link_to(&self, node: NodeId) -> Option<LinkId> {
        let index = self.peers.iter().position(|peer| peer.node == node && peer.is_reachable())?;
        Some(LinkId(index as u16))
    }
    /// To the node that `route`, as its next receiver sees it, is at.
    fn link_along(&self, route: &message::Route) -> Option<LinkId> {
        self.link_to(route.here()?)
    }
    /// Why nothing can be said to a node.
    fn unreachable(&self, node: NodeId) -> RefuseCause {
        let peer = self.peers.iter().find(|peer| peer.node == node);
        match peer.and_then(Peer::foreign_version) {
            Some(theirs) => RefuseCause::Version { node, theirs, ours: RTCOP_VERSION },
            None => RefuseCause::Unreachable(node),
        }
    }
    fn has_room(&self, link: LinkId) -> bool {
        self.peers.get(usize::from(link.0)).is_some_and(Peer::has_room)
    }
    fn node_at(&self, link: LinkId) -> Option<NodeId> {
        self.peers.get(usize::from(link.0)).map(|peer| peer.node)
    }
    fn link_config(&self, link: LinkId) -> Option<&LinkConfig> {
        self.config.links.get(usize::from(link.0))
    }
    fn propagation_max(&self, link: Option<LinkId>) -> Nanos {
        link.and_then(|link| self.link_config(link)).map_or(Nanos::ZERO, |link| link.propagation_max)
    }
    /// How long an answer of the network may take: a peer's whole back-off.
    fn answer_time(&self) -> Nanos {
        let doublings = self.config.signalling.retransmits_max.saturating_add(1).min(20);
        (self.config.signalling.retransmit * (1 << doublings)).min(ANSWER_TIME_MAX)
    }
    fn say(&mut self, link: LinkId, message: &Message) {
        if let Some(peer) = self.peers.get_mut(usize::from(link.0)) {
            peer.say(message);
        }
    }
    fn say_to(&mut self, link: Option<LinkId>, message: &Message) {
        if let Some(link) = link {
            self.say(link, message);
        }
    }
}

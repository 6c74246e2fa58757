//! RTCOP and HELLO of one node: a pure state machine (CLIPS 4.2, HARTS 3.2, design 7).
//!
//! It knows nothing of link schedulers: the node gives its packets to the implicit signalling channel of
//! each link.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_analysis::{Contract, Instant, Nanos};

use crate::ids::{Address, ChannelId, LinkId, ListenerId, Name};
use crate::node::api::{Event, OpenRequest, RequestError, StageGrant, UserId};
use crate::node::config::NodeConfig;

pub mod resources;

pub use resources::{CommitTerms, LocalChannel, Resources};

/// A neighbour as signalling knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourView {
    /// Whether HELLOs come.
    pub alive: bool,
    /// The neighbour's clock less ours, and the error bound of that; `None` before the first round trip.
    pub clock_offset_ns: Option<(i64, u64)>,
    /// Smallest round trip measured in this life of the neighbour.
    pub round_trip_min: Option<Nanos>,
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
    /// State as `channels` shows it (`open`, `creating`, ...).
    pub state: &'static str,
    /// Local stages, as last granted.
    pub stages: &'a [StageGrant],
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

/// RTCOP and HELLO of one node.
#[derive(Debug)]
pub struct Signalling {
    events: VecDeque<Event>,
    channel_id_next: u64,
    counters: SignallingCounters,
}

impl Signalling {
    /// Signalling of a node that starts now. `seed`: 64 bits that differ from life to life (nonces, cookies).
    pub fn new(config: &NodeConfig, seed: u64, now: Instant) -> Self {
        let _ = (config, seed, now);
        Self { events: VecDeque::new(), channel_id_next: 1, counters: SignallingCounters::default() }
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
        let _ = (link, received, now, packet, resources);
    }
    /// Whatever is due by itself at `now`.
    pub fn handle_timeout(&mut self, now: Instant, resources: &mut dyn Resources) {
        let _ = (now, resources);
    }
    /// When `handle_timeout` has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Writes the next packet for `link` into `out`; HELLOs are stamped with `now`. `None`: nothing to send,
    /// or `out` is shorter than a packet of that link.
    pub fn poll_signal(&mut self, link: LinkId, now: Instant, out: &mut [u8]) -> Option<usize> {
        let _ = (link, now, out);
        None
    }
    /// Whether `poll_signal` has a packet.
    pub fn has_signal(&self, link: LinkId) -> bool {
        let _ = link;
        false
    }
    /// The next event for applications.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    /// A fresh handle, for ends that signalling does not know (best effort): handles are never reused.
    pub fn next_channel_id(&mut self) -> ChannelId {
        let id = ChannelId(self.channel_id_next);
        self.channel_id_next += 1;
        id
    }

    /// Registers a listener.
    ///
    /// # Errors
    /// The name is taken.
    pub fn listen(&mut self, port: Name) -> Result<ListenerId, RequestError> {
        Err(RequestError::NameTaken(port))
    }
    /// Ends a listener; its open channels stay, what waits for its consent is refused.
    ///
    /// # Errors
    /// There is none.
    pub fn unlisten(
        &mut self,
        listener: ListenerId,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let _ = (listener, now, resources);
        Err(RequestError::Unknown)
    }
    /// Opens (or probes) a channel; `Opened`, `Refused` or `Probed` follows.
    ///
    /// # Errors
    /// It cannot even be tried.
    pub fn open(
        &mut self,
        request: OpenRequest,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<ChannelId, RequestError> {
        let _ = (request, now, resources);
        Err(RequestError::Exhausted)
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
        let _ = (channel, now, resources);
        Err(RequestError::Unknown)
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
        let _ = (channel, why, now, resources);
        Err(RequestError::Unknown)
    }
    /// Asks the application `source` to open a channel to our listener `reply_to`; `Incoming` with the
    /// returned token or `RequestFailed` follows.
    ///
    /// # Errors
    /// It cannot even be tried.
    pub fn request(
        &mut self,
        source: &Address,
        reply_to: Name,
        contract: Contract,
        user: UserId,
        now: Instant,
    ) -> Result<u64, RequestError> {
        let _ = (source, reply_to, contract, user, now);
        Err(RequestError::Exhausted)
    }
    /// Answers `Requested` with no.
    ///
    /// # Errors
    /// Nobody waits for it (any more).
    pub fn refuse_request(&mut self, token: u64, why: &str, now: Instant) -> Result<(), RequestError> {
        let _ = (token, why, now);
        Err(RequestError::Unknown)
    }
    /// Closes a channel at one of its ends. At the source it keeps its stages until [`Self::drained`] or
    /// the grace is over; `Closed` follows when they are released.
    ///
    /// # Errors
    /// There is none, or it is closing already.
    pub fn close(
        &mut self,
        channel: ChannelId,
        now: Instant,
        resources: &mut dyn Resources,
    ) -> Result<(), RequestError> {
        let _ = (channel, now, resources);
        Err(RequestError::Unknown)
    }
    /// The node has nothing of a closing channel under way any more: releases it before its grace is over.
    pub fn drained(&mut self, channel: ChannelId, now: Instant, resources: &mut dyn Resources) {
        let _ = (channel, now, resources);
    }
    /// Closes all channels; keep driving until [`Self::is_quiet`].
    pub fn shutdown(&mut self, now: Instant, resources: &mut dyn Resources) {
        let _ = (now, resources);
    }
    /// Whether no channel is left and all that was said has been heard, or its hearer is gone.
    pub fn is_quiet(&self) -> bool {
        true
    }

    /// The neighbour at the other end of a link; the error bound of its clock grows with its age at `now`.
    pub fn neighbour(&self, link: LinkId, now: Instant) -> NeighbourView {
        let _ = (link, now);
        NeighbourView::default()
    }
    /// Channels that start, pass or end here.
    pub fn channels(&self) -> Vec<ChannelView<'_>> {
        Vec::new()
    }
    /// One channel.
    pub fn channel(&self, channel: ChannelId) -> Option<ChannelView<'_>> {
        let _ = channel;
        None
    }
    /// What was counted.
    pub const fn counters(&self) -> SignallingCounters {
        self.counters
    }
}

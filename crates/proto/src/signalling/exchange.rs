//! Messages from and to neighbours: dispatch of received packets, and composition of the next packet.

use punctual_analysis::Instant;

use super::channel::Channels;
use super::link_events::LinkNews;
use super::losses::Losses;
use super::message::Message;
use super::packet::{Key, Rejected};
use super::peer::{Ignored, Peer};
use super::pending_decisions::Decisions;
use super::random::SplitMix64;
use super::rates::Closed;
use super::requests::{Refused, Requests};
use super::resources::Resources;
use super::states::State;
use super::transitions::InputDetails;
use super::{
    Announcements, Breaches, Channel, Links, Listeners, Numbers, Refreshes, Secrets, Signalling,
    SignallingCounters, budget,
};
use crate::api::Event;
use crate::config::NodeConfig;
use crate::ids::{ChannelId, LinkId, PathId};
use crate::seal::SealKey;

impl Signalling {
    /// Signalling of a node that starts now. `seed`: 64 bits that differ at each start (nonces, cookies).
    pub fn new(config: &NodeConfig, seed: u64, now: Instant) -> Self {
        let mut random = SplitMix64::new(seed);
        let peers = config.links.iter().map(|link| Peer::new(config, link, random.next(), now)).collect();
        let news = alloc::vec![LinkNews::NEW; config.links.len()];
        Self {
            config: config.clone(),
            drift: budget::drift(config),
            secrets: Secrets { key: Key::new(&config.signalling.domain_key), random },
            links: Links { peers, news, closed: Closed::default() },
            channels: Channels::default(),
            deciding: Decisions::default(),
            requests: Requests::default(),
            listeners: Listeners::default(),
            announcements: Announcements::default(),
            breaches: Breaches::default(),
            losses: Losses::default(),
            numbers: Numbers::default(),
            refreshes: Refreshes::default(),
            leaving: false,
            counters: SignallingCounters::default(),
        }
    }

    /// Handles a packet that came in on the signalling port. `received`: the driver's receive time.
    pub fn handle_signal(
        &mut self,
        link: LinkId,
        received: Instant,
        now: Instant,
        packet: &[u8],
        resources: &mut dyn Resources,
    ) {
        let Some(peer) = self.links.peers.get_mut(usize::from(link.0)) else { return };
        let packet = match self.secrets.key.open(packet) {
            Ok(packet) => packet,
            Err(Rejected::Malformed) => return self.counters.malformed += 1,
            Err(Rejected::Version) => return self.counters.version += 1,
            Err(Rejected::Foreign(version)) => {
                self.counters.version += 1;
                if let Some(change) = peer.handle_foreign(version, now) {
                    self.on_change(link, change, now, resources);
                }
                return self.report_link(link, None);
            }
            Err(Rejected::Unauthenticated) => return self.on_unauthenticated(link, now),
        };
        let late = peer.watch().total().times;
        let handled = peer.handle(&packet, received, now);
        self.breaches.stirred |= peer.watch().total().times > late;
        let change = match handled {
            Ok(change) => change,
            Err(Ignored::Misdirected) => return self.on_unauthenticated(link, now),
            Err(Ignored::Replayed) => return self.counters.replayed += 1,
        };
        let seal =
            self.links.peers.get_mut(usize::from(link.0)).and_then(|peer| peer.poll_seal(&self.secrets.key));
        self.announcements.seals.extend(seal.map(|seal| (link, seal)));
        // This is reported before the loss of channels that it causes.
        self.report_link(link, change);
        if let Some(change) = change {
            self.on_change(link, change, now, resources);
        }
        while let Some(message) = self.links.peers.get_mut(usize::from(link.0)).and_then(Peer::next_message) {
            self.on_message(link, message, now, resources);
        }
    }

    pub(super) fn on_message(
        &mut self,
        link: LinkId,
        message: Message,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
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

    /// Writes the next packet for `link` into `out`. HELLOs are stamped with `now`, and state that they leave
    /// at `departure` at the latest. Returns `None` if there is nothing to send, or `out` is shorter than
    /// that packet.
    pub fn poll_signal(
        &mut self,
        link: LinkId,
        now: Instant,
        departure: Instant,
        out: &mut [u8],
    ) -> Option<usize> {
        let peer = self.links.peers.get_mut(usize::from(link.0))?;
        let (len, again) = peer.poll_packet(&self.secrets.key, now, departure, out)?;
        self.counters.packets_sent += 1;
        self.counters.retransmissions += u64::from(again);
        Some(len)
    }
    /// Whether `poll_signal` has a packet.
    pub fn has_signal(&self, link: LinkId) -> bool {
        self.links.peers.get(usize::from(link.0)).is_some_and(Peer::has_packet)
    }
    /// Whether any link has a packet to send.
    pub fn has_signals(&self) -> bool {
        self.links.peers.iter().any(Peer::has_packet)
    }
    /// The key of a newly met neighbour's seals, for the driver of its link.
    pub fn poll_seal(&mut self) -> Option<(LinkId, SealKey)> {
        self.announcements.seals.pop_front()
    }
    /// Whether `poll_event` has one.
    pub fn has_event(&self) -> bool {
        !self.announcements.events.is_empty()
    }
    /// The next event for applications.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.announcements.events.pop_front()
    }
    /// A new handle, for ends that signalling does not manage (best effort): handles are never reused.
    pub const fn next_channel_id(&mut self) -> ChannelId {
        self.numbers.channel_id += 1;
        ChannelId(self.numbers.channel_id)
    }
    /// Skips `count` handles.
    #[cfg(test)]
    pub(crate) const fn skip_channel_ids(&mut self, count: u64) {
        self.numbers.channel_id += count;
    }

    /// Whether the channel of `path` exists here, in any state.
    pub fn knows(&self, path: PathId) -> bool {
        self.channels.of_path(path).is_some()
    }

    /// Whether no channel is left and every message was acknowledged, or its receiver is down.
    pub fn is_quiet(&self) -> bool {
        let waits_only = |channel: &Channel| self.leaving && channel.state == State::Settling;
        self.channels.iter().all(waits_only)
            && self.deciding.is_empty()
            && self.links.peers.iter().all(Peer::is_quiet)
    }

    /// The counters of signalling.
    pub fn counters(&self) -> SignallingCounters {
        let dropped: u64 = self.links.peers.iter().map(Peer::answers_dropped).sum();
        SignallingCounters { unanswered: self.counters.unanswered + dropped, ..self.counters }
    }
}

#[cfg(test)]
mod tests;

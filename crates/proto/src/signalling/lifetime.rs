//! Soft state: refreshes, leases, deadlines, and neighbours that go down or restart.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use super::channel::Timer;
use super::message::Message;
use super::peer::Change;
use super::resources::Resources;
use super::states::{Input, State};
use super::transitions::InputDetails;
use super::{Channel, Signalling};
use crate::api::{CloseReason, RefuseCause, Role};
use crate::ids::{ChannelId, ChannelNumber, Epoch, LinkId, NodeId, PathId};
use crate::limits::{ENDS_MAX, REFRESHES_PER_LEASE, SHAPER_PATIENCE};

/// Channels that one REFRESH names; at most five bytes each.
const REFRESH_CHANNELS_MAX: usize = 1_000;

impl Signalling {
    pub(super) fn refresh_interval(&self) -> Nanos {
        self.config.signalling.lease / REFRESHES_PER_LEASE
    }

    /// Handles everything that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant, resources: &mut dyn Resources) {
        for index in 0..self.links.peers.len() {
            let link = LinkId(index as u16);
            let probes = self.channels.use_link(link);
            if let Some(change) = self.links.peers[index].handle_timeout(probes, now) {
                self.report_link(link, Some(change));
                self.on_change(link, change, now, resources);
            }
            self.refuse_late(link, now, resources);
        }
        self.refuse_unlistened(now, resources);
        self.expire_channels(now, resources);
        self.expire_requests(now);
        self.refresh_breaches(now);
        if self.refreshes.at.is_some_and(|at| at <= now) {
            self.refreshes.at = self.channels.has_sources().then(|| now + self.refresh_interval());
            self.refreshes.rest = Some(None);
        }
        if let Some(after) = self.refreshes.rest.take() {
            self.refreshes.rest = self.refresh(after).map(Some);
        }
    }

    /// Time at which `handle_timeout` has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let probes = |index: usize| self.channels.use_link(LinkId(index as u16));
        let peers =
            self.links.peers.iter().enumerate().map(|(index, peer)| peer.poll_timeout(probes(index))).min();
        let channels = self.channels.first_timer().map(|(at, _)| at);
        let breaches = self.breaches_due();
        let at_once = self.has_more().then_some(Instant::ZERO);
        let timers = [peers, channels, self.requests.poll_timeout(), self.refreshes.at, breaches, at_once];
        timers.into_iter().flatten().min()
    }

    fn expire_channels(&mut self, now: Instant, resources: &mut dyn Resources) {
        // The rest stays due, and the next call handles it.
        for _ in 0..ENDS_MAX {
            let due = self.channels.first_timer().filter(|(at, _)| *at <= now);
            // Switched off first, so that no timer can come twice.
            let expired = due.and_then(|(_, id)| {
                self.channels.change(id, |channel| {
                    let (over, leased) = (channel.deadline.expires(now), channel.lease.expires(now));
                    (id, over, leased, channel.state, channel.local.role)
                })
            });
            let Some((id, over, leased, state, role)) = expired else { return };
            let lease_over = || InputDetails::reason(CloseReason::LeaseOver);
            let (input, what) = match (over, leased, state) {
                // A draining channel may have to wait for longer than its time, but not without a lease.
                (_, true, State::Draining) => (Input::LeaseOver, lease_over()),
                (true, _, State::Draining) => (Input::Drained, InputDetails::default()),
                (true, _, State::Fitting) => (Input::Silence, self.unshaped()),
                (true, _, _) => (Input::Silence, self.silence(role)),
                (false, true, _) => (Input::LeaseOver, lease_over()),
                (false, false, _) => return,
            };
            self.apply(id, input, what, now, resources);
        }
    }
    fn unshaped(&self) -> InputDetails {
        let why = alloc::format!(
            "the shaper of kernel traffic has not shrunk within {SHAPER_PATIENCE}: see this host's log, and \
             try again"
        );
        InputDetails::refusal(self.refusal(RefuseCause::Unsuitable(why.into())))
    }
    fn silence(&self, role: Role) -> InputDetails {
        match role {
            Role::Sink => InputDetails {
                reason: CloseReason::Local,
                ..InputDetails::refusal(self.refusal(RefuseCause::ReceiverSilent))
            },
            Role::Source | Role::Forwarder => InputDetails::refusal(self.refusal(RefuseCause::Timeout)),
        }
    }

    /// Sends REFRESH for the channels that start here, in as few messages per link as possible. Handles the
    /// channels behind `after`, at most as many as one message can name. Returns the last of them if there
    /// are more.
    fn refresh(&mut self, after: Option<ChannelId>) -> Option<ChannelId> {
        let mut by_link: BTreeMap<LinkId, Vec<ChannelNumber>> = BTreeMap::new();
        let (mut checked, mut last) = (0, None);
        // Channels that drain at other hosts are refreshed too: hosts that receive no refresh for a lease
        // stop waiting.
        let lives = |state: State| state.holds() || state == State::Settling;
        for channel in self.channels.behind(after).take(REFRESH_CHANNELS_MAX) {
            (checked, last) = (checked + 1, Some(channel.local.channel));
            let link = channel.local.link_out.filter(|_| channel.local.role == Role::Source);
            if let Some(link) = link.filter(|_| lives(channel.state)) {
                by_link.entry(link).or_default().push(channel.local.path.channel);
            }
        }
        for (link, mut channels) in by_link {
            channels.sort_unstable();
            self.queue_refresh(link, self.config.id, self.config.epoch, &channels);
        }
        last.filter(|_| checked == REFRESH_CHANNELS_MAX && !active(Mutation::OneRefreshOnly))
    }
    fn queue_refresh(&mut self, link: LinkId, node: NodeId, epoch: Epoch, channels: &[ChannelNumber]) {
        for channels in channels.chunks(REFRESH_CHANNELS_MAX) {
            self.queue_message(link, &Message::Refresh { node, epoch, channels: channels.to_vec() });
        }
    }

    /// Renews leases and forwards the refresh; reports to the neighbour the channels that do not exist here.
    pub(super) fn on_refresh(
        &mut self,
        link: LinkId,
        node: NodeId,
        epoch: Epoch,
        channels: &[ChannelNumber],
        now: Instant,
    ) {
        let until = now + self.config.signalling.lease;
        let mut by_link: BTreeMap<LinkId, Vec<ChannelNumber>> = BTreeMap::new();
        for number in channels {
            let path = PathId { node, channel: *number, epoch };
            // The channel is not lost; it has not begun.
            if self.is_waiting(path) {
                continue;
            }
            let known = self.channels.of_path(path).filter(|channel| channel.local.link_in == Some(link));
            let Some((id, link_out)) = known.map(|channel| (channel.local.channel, channel.local.link_out))
            else {
                self.queue_message(
                    link,
                    &Message::Destroy { path, reason: CloseReason::PathLost, sent: None },
                );
                continue;
            };
            self.channels.renew(id, until);
            if let Some(link_out) = link_out {
                by_link.entry(link_out).or_default().push(*number);
            }
        }
        for (link, channels) in by_link {
            self.queue_refresh(link, node, epoch, &channels);
        }
    }

    /// A neighbour went down or restarted: ends the channels over that link.
    pub(super) fn on_change(
        &mut self,
        link: LinkId,
        change: Change,
        now: Instant,
        resources: &mut dyn Resources,
    ) {
        let Change::Lost { restarted } = change;
        let Some(neighbour) = self.node_at(link) else { return };
        self.forget_waiting_from(link);
        let of_link = |channel: &Channel| match &channel.local {
            local if local.link_in == Some(link) => {
                Some((Input::UpstreamLost, channel.route.nodes.first().copied()))
            }
            local if local.link_out == Some(link) => {
                Some((Input::DownstreamLost, channel.route.nodes.last().copied()))
            }
            _ => None,
        };
        for (id, (input, end)) in self.channels.chosen(of_link) {
            let peer_restarted = restarted && end == Some(neighbour);
            let reason = if peer_restarted { CloseReason::PeerRestarted } else { CloseReason::PathLost };
            let refusal = Some(self.refusal(self.unreachable(neighbour)));
            self.apply(id, input, InputDetails { refusal, ..InputDetails::reason(reason) }, now, resources);
        }
    }

    /// Closes all channels; keep driving until [`Self::is_quiet`]. Messages that are not sent within the
    /// grace are lost.
    pub fn shutdown(&mut self, now: Instant, resources: &mut dyn Resources) {
        self.leaving = true;
        self.end_waiting(now, resources);
        self.hasten(now);
        let is_up = |channel: &Channel| {
            let closes = matches!(channel.state, State::Draining | State::Settling);
            (!closes).then_some(channel.local.role)
        };
        for (id, role) in self.channels.chosen(is_up) {
            let (input, reason) = match role {
                // What passes through cannot stay without this node.
                Role::Forwarder => (Input::LeaseOver, CloseReason::Stopped),
                Role::Source | Role::Sink => (Input::Close, CloseReason::Stopped),
            };
            self.apply(id, input, InputDetails::reason(reason), now, resources);
        }
    }
    /// Limits channels that were closing before to the grace of a stopping host, too.
    fn hasten(&mut self, now: Instant) {
        let latest = Timer::due(now + self.config.signalling.grace);
        for (id, ()) in self.channels.chosen(|channel| (channel.state == State::Draining).then_some(())) {
            self.channels.change(id, |channel| channel.deadline = channel.deadline.min(latest));
        }
    }
}

//! Reports between hosts about stages that break their promise (ADR 0026).
//!
//! The host at the end of a link reports late arrivals to the host at its beginning. That host owns the
//! stage: it decides, and notifies the ends of all channels that pass the stage. Its report follows the
//! channels' routes, once over each link. A host accepts it only from the side on which the stage is: a host
//! can report its own stages, and forward other hosts' reports about theirs, only for channels that pass
//! through it. The owner repeats the report whenever it refreshes its channels. A host that has not received
//! it for a lease considers the stage healed or removed.

use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::Instant;
use punctual_analysis::mutation::{Mutation, active};

use super::message::{Message, StageReport, Witness};
use super::peer::Peer;
use super::reports::Changed;
use super::states::State;
use super::{Channel, Signalling};
use crate::api::{Breach, BrokenStage, Event, LateArrivals, Role, StageName};
use crate::breach::Watch;
use crate::ids::{ChannelId, LinkId, NodeId};

impl Signalling {
    /// A neighbour's report about packets of this node that arrived late.
    pub fn poll_late_arrivals(&mut self) -> Option<(LinkId, LateArrivals)> {
        self.breaches.stirred = false;
        self.breaches.late_arrivals.pop_front()
    }
    /// Whether a neighbour has reported late arrivals, or a packet of a neighbour arrived late: the node
    /// should check.
    pub fn has_late_arrivals(&self) -> bool {
        !self.breaches.late_arrivals.is_empty() || self.breaches.stirred
    }
    /// HELLOs of the neighbour that certainly arrived later than allowed.
    pub fn arrivals(&self, link: LinkId) -> Option<&Watch> {
        self.links.peers.get(usize::from(link.0)).map(Peer::watch)
    }
    /// The same late HELLOs as [`Self::arrivals`], for the caller that notes when the link has healed.
    pub fn arrivals_mut(&mut self, link: LinkId) -> Option<&mut Watch> {
        self.links.peers.get_mut(usize::from(link.0)).map(Peer::watch_mut)
    }
    /// Reports to the neighbour which of its packets arrived late.
    pub fn report_late(&mut self, link: LinkId, late: LateArrivals) {
        self.queue_message(link, &Message::LateArrivals(late));
    }

    /// A channel that ends here whose reported status has changed, because a stage on its route breaks its
    /// promise or keeps it again.
    pub fn poll_outdated(&mut self) -> Option<ChannelId> {
        self.announcements.outdated.pop()
    }
    /// Whether [`Self::poll_outdated`] has one.
    pub const fn has_outdated(&self) -> bool {
        !self.announcements.outdated.is_empty()
    }

    /// Notifies the hosts and ends concerned that one of this node's stages breaks its promise, or keeps it
    /// again.
    pub fn announce(&mut self, towards: Option<NodeId>, breach: Option<Breach>, now: Instant) {
        let stage = StageName { node: self.config.id, towards };
        let changed = self.report(stage, Witness::Owner, breach, now);
        self.report_stage(None, stage, changed.known(), breach.is_none());
    }

    /// Notifies the hosts beyond this node that packets arrive late over a link, or no longer do. A report of
    /// the link's owner would have to come over the same link.
    pub fn announce_arrivals(&mut self, link: LinkId, breach: Option<Breach>, now: Instant) {
        let Some(neighbour) = self.node_at(link).filter(|_| !active(Mutation::ReceiverSilent)) else {
            return;
        };
        let stage = StageName { node: neighbour, towards: Some(self.config.id) };
        self.report(stage, Witness::Receiver, breach, now);
    }

    /// Records and distributes this node's report about a stage.
    fn report(
        &mut self,
        stage: StageName,
        witness: Witness,
        breach: Option<Breach>,
        now: Instant,
    ) -> Changed {
        let before = self.breaches.of(&stage);
        if active(Mutation::BreachNotAnnounced) {
            return Changed { before, after: breach };
        }
        let report = self.breaches.next_report(stage, witness, breach, self.config.epoch, now);
        let changed = Changed { before, after: self.breaches.of(&stage) };
        self.spread(None, &report, changed);
        let again = now + self.refresh_interval();
        self.breaches.repeat_at = (!self.breaches.own(self.config.id).is_empty()).then_some(again);
        changed
    }

    /// Repeats this node's reports about stages, and drops reports of others that were not repeated for a
    /// lease.
    pub(super) fn refresh_breaches(&mut self, now: Instant) {
        if self.breaches.repeat_at.is_some_and(|at| at <= now) {
            for StageReport { stage, witness, breach, .. } in self.breaches.own(self.config.id) {
                self.report(stage, witness, breach, now);
            }
        }
        let lease = self.config.signalling.lease;
        for StageReport { stage, breach, .. } in self.breaches.expired(self.config.id, lease, now) {
            let changed = Changed { before: breach, after: self.breaches.of(&stage) };
            let across = |c: &&Channel| stage.place_on(&c.route.nodes).is_some();
            let ends: Vec<_> = self.channels.iter().filter(across).filter_map(open_end).collect();
            self.report_to_ends(ends, stage, changed);
        }
    }

    /// Time at which [`Self::refresh_breaches`] has something to do.
    pub(super) fn breaches_due(&self) -> Option<Instant> {
        self.breaches.poll_timeout(self.config.id, self.config.signalling.lease)
    }

    /// Stages that break their promise, as far as this node knows: its own and those on the routes of its
    /// channels.
    pub fn broken_stages(&self) -> impl Iterator<Item = (StageName, Breach)> {
        self.breaches.stages().into_iter()
    }
    /// Stages on the route of a channel that break their promise, as far as this node knows.
    pub fn broken_on(&self, channel: ChannelId) -> Vec<BrokenStage> {
        let Some(known) = self.channels.get(channel) else { return Vec::new() };
        let on_route = |stage: &StageName| stage.place_on(&known.route.nodes).is_some();
        let broken = self.broken_stages().filter(|(stage, _)| on_route(stage));
        broken.map(|(stage, breach)| self.stage_by_name(stage, breach)).collect()
    }
    /// The report for the user, with the number of channels concerned here.
    pub fn broken_stage(&self, stage: StageName, breach: Breach) -> BrokenStage {
        let across = self.channels.iter().filter(|channel| stage.place_on(&channel.route.nodes).is_some());
        BrokenStage { channels: u32::try_from(across.count()).ok(), ..self.stage_by_name(stage, breach) }
    }
    fn stage_by_name(&self, stage: StageName, breach: Breach) -> BrokenStage {
        BrokenStage {
            host: self.config.host_name(stage.node),
            towards: stage.towards.map(|node| self.config.host_name(node).to_string()),
            late: breach.late,
            cause: breach.cause,
            channels: None,
        }
    }

    /// Handles a report from a neighbour.
    pub(super) fn on_stage(&mut self, link: LinkId, report: StageReport, now: Instant) {
        if report.reporter() == Some(self.config.id)
            || report.stage.node == self.config.id
            || !self.channels.iter().any(|c| concerns(c, link, &report.stage))
        {
            self.counters.unexpected += 1;
            return;
        }
        let before = self.breaches.of(&report.stage);
        if self.breaches.take(report, now) {
            let changed = Changed { before, after: self.breaches.of(&report.stage) };
            self.spread(Some(link), &report, changed);
        }
    }

    /// Forwards a report along the channels that pass the stage, and notifies the ends here of what
    /// `changed`.
    fn spread(&mut self, from: Option<LinkId>, report: &StageReport, changed: Changed) {
        let mut links = BTreeSet::new();
        let mut ends = Vec::new();
        for channel in self.channels.iter() {
            let local = &channel.local;
            match from {
                None if report.stage.place_on(&channel.route.nodes).is_none() => continue,
                None => links.extend(report.witness.links(local.link_in, local.link_out)),
                Some(link) if !concerns(channel, link, &report.stage) => continue,
                // Forwarding goes away from the stage.
                Some(link) if local.link_in == Some(link) => links.extend(local.link_out),
                Some(_) => links.extend(local.link_in),
            }
            ends.extend(open_end(channel));
        }
        for link in links {
            self.queue_message(link, &Message::Stage(*report));
        }
        self.report_to_ends(ends, report.stage, changed);
    }

    /// Called when a channel has been opened here: sends this node's reports about stages on its route to its
    /// hosts, and notifies its end here of the broken stages that are known.
    pub(super) fn report_opened_across(&mut self, channel: &Channel) {
        let on_route = |stage: &StageName| stage.place_on(&channel.route.nodes).is_some();
        let own = self.breaches.own(self.config.id);
        for report in own.into_iter().filter(|report| on_route(&report.stage)) {
            for link in report.witness.links(channel.local.link_in, channel.local.link_out) {
                self.queue_message(link, &Message::Stage(report));
            }
        }
        if channel.local.role == Role::Forwarder {
            return;
        }
        for (stage, breach) in self.breaches.stages().into_iter().filter(|(stage, _)| on_route(stage)) {
            self.report_stage(Some(channel.local.channel), stage, Some(breach), false);
        }
    }

    /// Notifies the ends here, and this host if the stage is another host's, unless nothing is new to them.
    fn report_to_ends(&mut self, mut ends: Vec<ChannelId>, stage: StageName, changed: Changed) {
        if changed.before != changed.after {
            self.announcements.outdated.extend(&ends);
        }
        if !changed.is_news() || changed.only_loses_cause() {
            return;
        }
        // The host is notified of its own stages in any case.
        if stage.node != self.config.id {
            self.report_stage(None, stage, changed.known(), changed.after.is_none());
        }
        ends.sort_unstable();
        for channel in ends {
            self.report_stage(Some(channel), stage, changed.known(), changed.after.is_none());
        }
    }

    fn report_stage(
        &mut self,
        channel: Option<ChannelId>,
        stage: StageName,
        breach: Option<Breach>,
        healed: bool,
    ) {
        // The end of a breach is not reported if the breach itself never was.
        if let Some(breach) = breach {
            let stage = match channel {
                Some(_) => self.stage_by_name(stage, breach),
                None => self.broken_stage(stage, breach),
            };
            self.announcements.events.push_back(Event::Stage { channel, stage, healed });
        }
    }
}

/// Whether a channel passes another host's stage (`on_stage`), in the direction of `link`.
fn concerns(channel: &Channel, link: LinkId, stage: &StageName) -> bool {
    let Some(place) = stage.place_on(&channel.route.nodes) else { return false };
    let here = usize::from(channel.position);
    let side = if place < here { channel.local.link_in } else { channel.local.link_out };
    debug_assert_ne!(place, here, "a stage of this host's");
    side == Some(link)
}

/// The handle of a channel that ends here and is open.
fn open_end(channel: &Channel) -> Option<ChannelId> {
    let is_open = matches!(channel.state, State::Accepted | State::Open | State::Draining);
    (channel.local.role != Role::Forwarder && is_open).then_some(channel.local.channel)
}

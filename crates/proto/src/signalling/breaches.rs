//! What hosts tell one another of stages that break their promise (ADR 0026).
//!
//! The host at the end of a link tells the one at its beginning what comes late; that one, whose stage it is, decides, and
//! tells the ends of all channels that pass the stage. Its report goes along their ways, once over each link, and is taken
//! only from the side on which the stage lies: a host can speak of its own stages and pass on what others say of theirs,
//! for channels that pass through it, and for no other. The host repeats it as often as it refreshes its channels; who has not
//! heard it for a lease takes the stage for healed, or for gone.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{Instant, Nanos};

use super::Signalling;
use super::channel::Channel;
use super::message::{Message, StageReport};
use super::states::State;
use crate::ids::{ChannelId, LinkId, NodeId};
use crate::limits::STAGES_BROKEN_MAX;
use crate::node::api::{Breach, BrokenStage, Event, LateArrivals, Role, StageName};
use crate::watch::Watch;

/// What is known of stages, this node's and others'.
#[derive(Debug, Default)]
pub struct Breaches {
    /// The last report of each stage that was heard of.
    reports: BTreeMap<StageName, Known>,
    /// Reports of this node.
    number: u64,
    /// When this node repeats what it says of its own stages; `None`: they keep their promise.
    repeat_at: Option<Instant>,
    /// A HELLO came late since the node looked.
    pub stirred: bool,
    /// What neighbours say of our packets, until the node looks.
    pub late_arrivals: VecDeque<(LinkId, LateArrivals)>,
}

/// A report and when it came.
#[derive(Clone, Copy, Debug)]
struct Known {
    report: StageReport,
    heard: Instant,
}

impl Breaches {
    fn of(&self, stage: &StageName) -> Option<Breach> {
        self.reports.get(stage)?.report.breach
    }

    /// Whether a report is news; it is known from now on.
    fn take(&mut self, report: StageReport, now: Instant) -> bool {
        let known = self.reports.get(&report.stage).map(|known| known.report);
        let news = known.is_none_or(|known| known.epoch != report.epoch || known.number < report.number);
        let room = known.is_some() || self.reports.len() < STAGES_BROKEN_MAX;
        if news && room {
            self.reports.insert(report.stage, Known { report, heard: now });
        }
        news && room
    }

    /// Broken stages that `node` itself has reported.
    fn own(&self, node: NodeId) -> Vec<StageReport> {
        let reports = self.reports.values().map(|known| known.report);
        reports.filter(|report| report.stage.node == node && report.breach.is_some()).collect()
    }

    /// Takes out the reports of other nodes that were last heard a lease before `now`.
    fn expired(&mut self, node: NodeId, lease: Nanos, now: Instant) -> Vec<StageReport> {
        let over = |known: &Known| known.report.stage.node != node && known.heard + lease <= now;
        let gone: Vec<_> =
            self.reports.values().filter(|known| over(known)).map(|known| known.report).collect();
        self.reports.retain(|_, known| !over(known));
        gone
    }

    fn poll_timeout(&self, node: NodeId, lease: Nanos) -> Option<Instant> {
        let others = self.reports.values().filter(|known| known.report.stage.node != node);
        others.map(|known| known.heard + lease).chain(self.repeat_at).min()
    }
}

impl Signalling {
    /// What a neighbour said of packets of ours that came late.
    pub fn poll_late_arrivals(&mut self) -> Option<(LinkId, LateArrivals)> {
        self.breaches.stirred = false;
        self.breaches.late_arrivals.pop_front()
    }
    /// Whether a neighbour has said so, or something of its came late: the node should look.
    pub fn has_late_arrivals(&self) -> bool {
        !self.breaches.late_arrivals.is_empty() || self.breaches.stirred
    }
    /// HELLOs of the neighbour that surely came later than they may.
    pub fn arrivals(&self, link: LinkId) -> Option<&Watch> {
        self.peers.get(usize::from(link.0)).map(|peer| &peer.watch)
    }
    /// The same, for its healing.
    pub fn arrivals_mut(&mut self, link: LinkId) -> Option<&mut Watch> {
        self.peers.get_mut(usize::from(link.0)).map(|peer| &mut peer.watch)
    }
    /// Tells the neighbour what of its packets came late.
    pub fn tell_late(&mut self, link: LinkId, late: LateArrivals) {
        self.say(link, &Message::LateArrivals(late));
    }

    /// Tells all whom it concerns that one of this node's stages breaks its promise, or keeps it again.
    pub fn announce(&mut self, towards: Option<NodeId>, breach: Option<Breach>, now: Instant) {
        if active(Mutation::BreachNotAnnounced) {
            return;
        }
        let stage = StageName { node: self.config.id, towards };
        let before = self.breaches.of(&stage);
        let report = self.report(stage, breach, now);
        let known = breach.or(before);
        self.spread(None, &report, known, true);
        self.tell_stage(None, stage, known, breach.is_none());
        let again = now + self.refresh_interval();
        self.breaches.repeat_at = (!self.breaches.own(self.config.id).is_empty()).then_some(again);
    }

    /// The next report of a stage of this node.
    fn report(&mut self, stage: StageName, breach: Option<Breach>, now: Instant) -> StageReport {
        self.breaches.number += 1;
        let report = StageReport { stage, epoch: self.config.epoch, number: self.breaches.number, breach };
        self.breaches.take(report, now);
        report
    }

    /// Repeats what this node says of its stages, and forgets what others have not repeated for a lease.
    pub(super) fn refresh_breaches(&mut self, now: Instant) {
        if self.breaches.repeat_at.is_some_and(|at| at <= now) {
            self.breaches.repeat_at = Some(now + self.refresh_interval());
            for StageReport { stage, breach, .. } in self.breaches.own(self.config.id) {
                let report = self.report(stage, breach, now);
                self.spread(None, &report, breach, false);
            }
        }
        for StageReport { stage, breach, .. } in
            self.breaches.expired(self.config.id, self.config.signalling.lease, now)
        {
            let across = |c: &&Channel| is_open_end(c) && stage.place_on(&c.way.nodes).is_some();
            let mut ends: Vec<_> = self.channels.iter().filter(across).map(|c| c.local.channel).collect();
            ends.sort_unstable();
            for channel in ends {
                self.tell_stage(Some(channel), stage, breach, true);
            }
        }
    }

    /// When [`Self::refresh_breaches`] has something to do.
    pub(super) fn breaches_due(&self) -> Option<Instant> {
        self.breaches.poll_timeout(self.config.id, self.config.signalling.lease)
    }

    /// Stages that break their promise, as far as this node knows: its own and those on the ways of its channels.
    pub fn broken_stages(&self) -> impl Iterator<Item = (StageName, Breach)> {
        self.breaches.reports.iter().filter_map(|(stage, known)| Some((*stage, known.report.breach?)))
    }
    /// Those on a channel's way.
    pub fn broken_on(&self, channel: ChannelId) -> Vec<BrokenStage> {
        let Some(known) = self.channels.get(channel) else { return Vec::new() };
        let on_way = |stage: &StageName| stage.place_on(&known.way.nodes).is_some();
        let broken = self.broken_stages().filter(|(stage, _)| on_way(stage));
        broken.map(|(stage, breach)| self.broken_stage(stage, breach)).collect()
    }
    /// For people.
    pub fn broken_stage(&self, stage: StageName, breach: Breach) -> BrokenStage {
        BrokenStage {
            host: self.config.host_name(stage.node),
            towards: stage.towards.map(|node| self.config.host_name(node).to_string()),
            late: breach.late,
            cause: breach.cause,
        }
    }

    /// A report from a neighbour.
    pub(super) fn on_stage(&mut self, link: LinkId, report: StageReport, now: Instant) {
        if report.stage.node == self.config.id
            || !self.channels.iter().any(|c| concerns(c, link, &report.stage))
        {
            self.counters.unexpected += 1;
            return;
        }
        let before = self.breaches.of(&report.stage);
        if self.breaches.take(report, now) {
            let kind = |breach: Option<Breach>| breach.map(|breach| breach.cause.kind());
            self.spread(Some(link), &report, report.breach.or(before), kind(report.breach) != kind(before));
        }
    }

    /// Passes a report on along the channels that pass the stage, and tells the ends here.
    /// `known`: what the stage does, or did until now; `is_news`: it was not said before.
    fn spread(&mut self, from: Option<LinkId>, report: &StageReport, known: Option<Breach>, is_news: bool) {
        let mut links = BTreeSet::new();
        let mut ends = Vec::new();
        for channel in self.channels.iter() {
            let local = &channel.local;
            match from {
                None if report.stage.place_on(&channel.way.nodes).is_none() => continue,
                None => links.extend([local.link_in, local.link_out].into_iter().flatten()),
                Some(link) if !concerns(channel, link, &report.stage) => continue,
                // Onward: away from the stage.
                Some(link) if local.link_in == Some(link) => links.extend(local.link_out),
                Some(_) => links.extend(local.link_in),
            }
            if is_news && is_open_end(channel) {
                ends.push(local.channel);
            }
        }
        for link in links {
            self.say(link, &Message::Stage(*report));
        }
        ends.sort_unstable();
        for channel in ends {
            self.tell_stage(Some(channel), report.stage, known, report.breach.is_none());
        }
    }

    /// A channel that has just been opened here: its hosts are told of this node's broken stages on its way, and its end
    /// of those that are known already.
    pub(super) fn tell_opened_across(&mut self, channel: &Channel) {
        let broken: Vec<_> = self.broken_stages().collect();
        for (stage, breach) in broken {
            if stage.place_on(&channel.way.nodes).is_none() {
                continue;
            }
            if stage.node == self.config.id
                && let Some(Known { report, .. }) = self.breaches.reports.get(&stage).copied()
            {
                for link in [channel.local.link_in, channel.local.link_out].into_iter().flatten() {
                    self.say(link, &Message::Stage(report));
                }
            }
            if channel.local.role != Role::Forwarder {
                self.tell_stage(Some(channel.local.channel), stage, Some(breach), false);
            }
        }
    }

    fn tell_stage(
        &mut self,
        channel: Option<ChannelId>,
        stage: StageName,
        breach: Option<Breach>,
        healed: bool,
    ) {
        // Of what nobody here has heard, nobody needs to hear that it is over.
        if let Some(breach) = breach {
            let stage = self.broken_stage(stage, breach);
            self.events.push_back(Event::Stage { channel, stage, healed });
        }
    }
}

/// Whether a channel passes a stage that lies on the side of `link`.
fn concerns(channel: &Channel, link: LinkId, stage: &StageName) -> bool {
    let Some(place) = stage.place_on(&channel.way.nodes) else { return false };
    let here = usize::from(channel.position);
    let side = if place < here { channel.local.link_in } else { channel.local.link_out };
    place != here && side == Some(link)
}

fn is_open_end(channel: &Channel) -> bool {
    channel.local.role != Role::Forwarder
        && matches!(channel.state, State::Accepted | State::Open | State::Draining)
}

//! What hosts tell one another of stages that break their promise (ADR 0026).
//!
//! The host at the end of a link tells the one at its beginning what comes late; that one, whose stage it is, decides, and
//! tells the ends of all channels that pass the stage. Its report goes along their ways, once over each link, and is taken
//! only from the side on which the stage lies: a host can speak of its own stages and pass on what others say of theirs,
//! for channels that pass through it, and for no other.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::mutation::{Mutation, active};

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
    reports: BTreeMap<StageName, StageReport>,
    /// Reports of this node.
    number: u64,
    /// A HELLO came late since the node looked.
    pub stirred: bool,
    /// What neighbours say of our packets, until the node looks.
    pub late_arrivals: VecDeque<(LinkId, LateArrivals)>,
}

impl Breaches {
    fn of(&self, stage: &StageName) -> Option<Breach> {
        self.reports.get(stage)?.breach
    }

    /// Whether a report is news; it is known from now on.
    fn take(&mut self, report: StageReport) -> bool {
        let known = self.reports.get(&report.stage);
        let news = known.is_none_or(|known| known.epoch != report.epoch || known.number < report.number);
        let room = known.is_some() || self.reports.len() < STAGES_BROKEN_MAX;
        if news && room {
            self.reports.insert(report.stage, report);
        }
        news && room
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
    pub fn announce(&mut self, towards: Option<NodeId>, breach: Option<Breach>) {
        if active(Mutation::BreachNotAnnounced) {
            return;
        }
        self.breaches.number += 1;
        let stage = StageName { node: self.config.id, towards };
        let report = StageReport { stage, epoch: self.config.epoch, number: self.breaches.number, breach };
        let before = self.breaches.of(&stage);
        self.breaches.take(report);
        let known = breach.or(before);
        self.spread(None, &report, known);
        self.tell_stage(None, stage, known, breach.is_none());
    }

    /// Stages that break their promise, as far as this node knows: its own and those on the ways of its channels.
    pub fn broken_stages(&self) -> impl Iterator<Item = (StageName, Breach)> {
        self.breaches.reports.iter().filter_map(|(stage, report)| Some((*stage, report.breach?)))
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
    pub(super) fn on_stage(&mut self, link: LinkId, report: StageReport) {
        if report.stage.node == self.config.id
            || !self.channels.iter().any(|c| concerns(c, link, &report.stage))
        {
            self.counters.unexpected += 1;
            return;
        }
        let before = self.breaches.of(&report.stage);
        if self.breaches.take(report) {
            self.spread(Some(link), &report, report.breach.or(before));
        }
    }

    /// Passes a report on along the channels that pass the stage, and tells the ends here.
    /// `known`: what the stage does, or did until now.
    fn spread(&mut self, from: Option<LinkId>, report: &StageReport, known: Option<Breach>) {
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
            if is_open_end(channel) {
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
                && let Some(report) = self.breaches.reports.get(&stage).copied()
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

//! Hosts in a row whose signalling is connected without a medium, for attacks that only a member of the
//! domain can make: messages that authenticate and are wrong. (The tests of conversations, losses and times
//! are in `tests/signalling`.)

mod answers;
mod counts;
mod lies;
mod limits;
mod order;
mod times;
mod waits;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_analysis::{BitRate, Contract, Rate};

use super::*;
use crate::api::{OpenRequest, Passed, Receipt, Role, StageKind, Tally};
use crate::config::{CpuConfig, LinkConfig, RouteConfig, SignallingConfig};
use crate::ids::{Address, Epoch, PathId};

const MILLI: Nanos = Nanos::from_millis(1);

/// The bounds that stages take when they are made final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Taking {
    /// All of their share.
    #[default]
    Share,
    /// More than their share.
    More,
    /// One stage is missing in the reply.
    Fewer,
    /// None is offered.
    Nothing,
    /// They are not made final.
    Refused,
}

/// A host's stages: every request is held, at fixed bounds.
#[derive(Debug, Default)]
struct Stages {
    node: NodeId,
    taking: Taking,
    /// Its decision takes until this is cleared.
    thinks: bool,
    /// The kernel has a part of the link that a new channel needs.
    is_shared: bool,
    held: BTreeMap<ChannelId, bool>,
    answers: VecDeque<Answer>,
}

impl Stages {
    fn offer(&self, local: &LocalChannel) -> Vec<StageGrant> {
        let stage = |kind, bound| StageGrant {
            node: self.node,
            kind,
            offered: bound,
            bound,
            propagation_max: Nanos::ZERO,
            cost: bound / 2,
            made_of: Default::default(),
            cold_start: Nanos::ZERO,
            cost_parts: Default::default(),
            costs_from: Default::default(),
            utilisation: Ppm(1_000),
            buffer_bytes: 10_000,
            degraded: None,
        };
        let cpu = match local.role {
            Role::Source => StageKind::SourceCpu,
            Role::Forwarder => StageKind::ForwardCpu,
            Role::Sink => StageKind::SinkCpu,
        };
        if self.taking == Taking::Nothing {
            return Vec::new();
        }
        let link = local.link_out.map(|_| stage(StageKind::Link, MILLI));
        core::iter::once(stage(cpu, MILLI / 10)).chain(link).collect()
    }

    fn taken(&self, local: &LocalChannel, terms: &CommitTerms) -> Vec<StageGrant> {
        let mut stages = self.offer(local);
        stages.iter_mut().zip(&terms.bounds).for_each(|(stage, most)| stage.bound = *most);
        match self.taking {
            Taking::Share | Taking::Nothing | Taking::Refused => {}
            Taking::More => stages[0].bound += Nanos(1),
            Taking::Fewer => drop(stages.pop()),
        }
        stages
    }
}

impl Resources for Stages {
    fn ask(&mut self, local: &Arc<LocalChannel>, _: Nanos, dry: bool) {
        if !dry {
            assert!(self.held.insert(local.channel, false).is_none(), "held twice");
        }
        self.answers.push_back(Answer::Held(local.channel, Ok(self.offer(local))));
    }
    fn ask_final(&mut self, local: &Arc<LocalChannel>, _: &CommitTerms) {
        self.answers.push_back(Answer::Final(local.channel));
    }
    fn try_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms, _: Nanos) {
        let taken = match self.taking {
            Taking::Refused => Err(RefuseCause::Exhausted),
            _ => Ok(self.taken(local, terms)),
        };
        self.answers.push_back(Answer::Tried(local.channel, taken));
    }
    fn poll_answer(&mut self) -> Option<Answer> {
        if self.thinks { None } else { self.answers.pop_front() }
    }
    fn commit(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &CommitTerms,
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        assert_eq!(self.held.insert(local.channel, true), Some(false), "held, and not final yet");
        Ok(self.taken(local, terms))
    }
    fn fits(&self, _: &LocalChannel) -> bool {
        !self.is_shared
    }
    fn receipt(&self, _: ChannelId) -> Receipt {
        Receipt::default()
    }
    fn passed(&self, _: ChannelId) -> Passed {
        Passed::default()
    }
    fn sent(&self, _: ChannelId) -> Tally {
        Tally::default()
    }
    fn await_last(&mut self, _: ChannelId, _: Tally) {}
    fn outdate(&mut self, _: ChannelId) {}
    fn release(&mut self, channel: ChannelId) {
        self.held.remove(&channel);
    }
}

/// One host.
struct Host {
    signalling: Signalling,
    stages: Stages,
    /// Whether its application consents to every channel.
    consents: bool,
    /// Whether all its messages are lost.
    is_mute: bool,
    /// Whether its application reads its events.
    reads: bool,
    events: Vec<Event>,
}

/// Hosts `h1` to `hN`, each of which listens on `in`.
struct Row {
    now: Instant,
    hosts: Vec<Host>,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn contract() -> Contract {
    Contract::new(1_000, Rate::per_second(50).expect("a rate"), 3, MILLI * 50).expect("valid")
}

fn config(index: usize, count: usize) -> NodeConfig {
    let node = |index: usize| NodeId(index as u32 + 1);
    let neighbours = [index.checked_sub(1), Some(index + 1).filter(|next| *next < count)];
    let links = neighbours.into_iter().flatten();
    let beyond = (0..count).filter(|to| to.abs_diff(index) > 1);
    let via = |to: usize| match to > index {
        true => (index + 1..=to).map(node).collect(),
        false => (to..index).rev().map(node).collect(),
    };
    NodeConfig {
        id: node(index),
        name: name(&alloc::format!("h{}", index + 1)),
        epoch: Epoch(1),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: links.map(|to| LinkConfig::new("link", node(to), BitRate(40_000_000))).collect(),
        cpu: CpuConfig::default(),
        directory: (0..count).map(|host| (name(&alloc::format!("h{}", host + 1)), node(host))).collect(),
        routes: beyond.map(|to| RouteConfig { via: via(to) }).collect(),
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 1 << 30,
        wakeup_margin: Nanos::ZERO,
    }
}

impl Row {
    /// `count` hosts that have met.
    fn met(count: usize) -> Self {
        let now = Instant::ZERO + Nanos::from_secs(1);
        let host = |index: usize| {
            let config = config(index, count);
            let mut signalling = Signalling::new(&config, index as u64, now);
            signalling.listen(name("in"), Nanos::ZERO).expect("free");
            let stages = Stages { node: config.id, ..Stages::default() };
            Host { signalling, stages, consents: true, is_mute: false, reads: true, events: Vec::new() }
        };
        let mut row = Self { now, hosts: (0..count).map(host).collect() };
        row.run(3_000);
        row
    }

    /// The link of a host towards the row's end, or back to its begin.
    fn link(&self, index: usize, onward: bool) -> LinkId {
        LinkId(u16::from(onward && index > 0))
    }

    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + MILLI;
            for index in 0..self.hosts.len() {
                self.at(index, |signalling, now, stages| signalling.handle_timeout(now, stages));
            }
        }
    }

    /// Calls one host's signalling, then delivers all waiting messages.
    fn at<R>(&mut self, index: usize, call: impl FnOnce(&mut Signalling, Instant, &mut Stages) -> R) -> R {
        let Host { signalling, stages, .. } = &mut self.hosts[index];
        let result = call(signalling, self.now, stages);
        while (0..self.hosts.len()).any(|index| self.deliver(index)) {}
        result
    }

    /// Delivers a host's messages, and acts for its application.
    fn deliver(&mut self, index: usize) -> bool {
        let (now, mut any, mut out) = (self.now, false, [0; 1_400]);
        let Host { signalling, stages, consents, reads, events, .. } = &mut self.hosts[index];
        while let Some(event) = reads.then(|| signalling.poll_event()).flatten() {
            if let Event::Incoming(incoming) = &event
                && *consents
            {
                signalling.consent(incoming.channel, now, stages).expect("it was asked");
            }
            events.push(event);
            any = true;
        }
        for onward in [false, true] {
            let peer = if onward { Some(index + 1) } else { index.checked_sub(1) };
            let Some(peer) = peer.filter(|peer| *peer < self.hosts.len()) else { continue };
            let (link, back) = (self.link(index, onward), self.link(peer, !onward));
            while let Some(len) = self.hosts[index].signalling.poll_signal(link, now, now, &mut out) {
                any = true;
                if self.hosts[index].is_mute {
                    continue;
                }
                let Host { signalling, stages, .. } = &mut self.hosts[peer];
                signalling.handle_signal(back, now, now, &out[..len], stages);
            }
        }
        any
    }

    /// Delivers a forged `message` to a host, as from a neighbour of the domain.
    fn deliver_message(&mut self, index: usize, from_onward: bool, message: message::Message) {
        let link = self.link(index, from_onward);
        self.at(index, |signalling, now, stages| signalling.on_message(link, message, now, stages));
    }

    /// Completes the decision of a host's stages.
    fn answer(&mut self, index: usize) {
        self.hosts[index].stages.thinks = false;
        self.at(index, |signalling, now, stages| signalling.settle(now, stages));
    }

    fn request(&self) -> OpenRequest {
        let host = name(&alloc::format!("h{}", self.hosts.len()));
        let to = Address { port: name("in"), host };
        OpenRequest { to, contract: contract(), user: UserId(7), probe: false, token: None }
    }

    /// Requests a channel, or a probe, from the first host to the last; returns its path.
    fn ask(&mut self, request: OpenRequest) -> (ChannelId, PathId) {
        let channel = self.at(0, |signalling, now, stages| signalling.open(request, now, stages));
        let channel = channel.expect("can be tried");
        let path = self.hosts[0].signalling.channels.get(channel).map(|known| known.local.path);
        (channel, path.unwrap_or_default())
    }

    fn states(&self) -> Vec<Vec<&'static str>> {
        let states = |host: &Host| host.signalling.channels().map(|channel| channel.state).collect();
        self.hosts.iter().map(states).collect()
    }

    fn unexpected(&self, index: usize) -> u64 {
        self.hosts[index].signalling.counters.unexpected
    }

    /// Packets that one host has sent, apart from HELLOs. Packets are not decoded here.
    fn sent(&self, index: usize) -> u64 {
        self.hosts[index].signalling.counters.packets_sent
    }

    fn nothing_is_held(&self) -> bool {
        let is_empty = |host: &Host| host.stages.held.is_empty() && host.signalling.deciding.is_empty();
        self.hosts.iter().all(|host| is_empty(host) && host.signalling.channels.len() == 0)
    }
}

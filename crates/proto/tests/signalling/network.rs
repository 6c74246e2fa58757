//! A network of real `Signalling` instances on a virtual clock: a seeded medium that loses, doubles and
//! reorders, hosts whose clocks are set and run differently, stages that count what is held.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use punctual_analysis::{BitRate, Contract, Instant, Nanos, Ppm, Rate, Refusal, RefusalReason};
use punctual_proto::api::{
    CloseReason, Event, OpenRequest, Passed, Receipt, RefuseCause, Role, StageGrant, StageKind, Tally, UserId,
};
use punctual_proto::config::{CpuConfig, Degraded, LinkConfig, NodeConfig, RouteConfig, SignallingConfig};
use punctual_proto::ids::{Address, ChannelId, Epoch, LinkId, Name, NodeId};
use punctual_proto::signalling::{Answer, CommitTerms, LocalChannel, RTCOP_VERSION, Resources, Signalling};

pub const SECOND: u64 = 1_000_000_000;
pub const MILLI: u64 = 1_000_000;
pub const PROPAGATION_MIN: u64 = 20_000;
pub const PROPAGATION_MAX: u64 = 400_000;

/// SplitMix64.
#[derive(Clone)]
pub struct Random(pub u64);
impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// One host's stages: a CPU and its links, of fixed bounds, and what is held of them.
#[derive(Default)]
pub struct Stages {
    pub node: NodeId,
    /// By channel: whether it is committed.
    pub held: BTreeMap<ChannelId, bool>,
    pub holds: u32,
    pub probes: u32,
    pub refuse: Option<RefuseCause>,
    pub refuse_commit: bool,
    /// Takes only half of every share, the rest is handed on.
    pub modest: bool,
    /// Last terms and grants, by role.
    pub committed: Vec<(LocalChannel, CommitTerms, Vec<StageGrant>)>,
    /// Payload costs: the bound of a link.
    pub link_bound: u64,
    /// Refuses channels with shorter intervals.
    pub interval_min: Nanos,
    /// Reports that it cannot keep its promises.
    pub degraded: Option<Degraded>,
    /// Counts of its applications' messages.
    pub receipt: Receipt,
    /// Counts of the packets that channels have sent from here.
    pub sent: Tally,
    /// Channels that are closing here, and what will come of them.
    pub awaited: Vec<(ChannelId, Tally)>,
    /// Probes that were tested on their way back, and the terms of the last one.
    pub tests: u32,
    pub tested: Option<CommitTerms>,
    /// Replies in the order of the requests; this many of them are given now, or all at once.
    answers: VecDeque<Answer>,
    ready: Option<usize>,
}

impl Stages {
    fn stages(&self, local: &LocalChannel, limit: Nanos) -> Result<Vec<StageGrant>, RefuseCause> {
        if let Some(cause) = &self.refuse {
            return Err(cause.clone());
        }
        if local.contract.policed_interval() < self.interval_min {
            let reason = RefusalReason::Utilisation { wanted_ppm: 2, limit_ppm: 1 };
            let period_possible = Some(self.interval_min);
            let refusal = Refusal { reason, bound_possible: None, period_possible };
            return Err(RefuseCause::Stage { kind: StageKind::Link, refusal });
        }
        let stage = |kind, bound, propagation_max, cost| StageGrant {
            node: self.node,
            kind,
            offered: Nanos(bound),
            bound: Nanos(bound),
            propagation_max: Nanos(propagation_max),
            cost: Nanos(cost),
            made_of: Default::default(),
            cold_start: Nanos::ZERO,
            cost_parts: Default::default(),
            costs_from: Default::default(),
            utilisation: Ppm(1_000),
            buffer_bytes: 10_000,
            degraded: self.degraded,
        };
        let cpu = match local.role {
            Role::Source => StageKind::SourceCpu,
            Role::Forwarder => StageKind::ForwardCpu,
            Role::Sink => StageKind::SinkCpu,
        };
        let mut stages = vec![stage(cpu, 100_000, 0, 50_000)];
        if local.link_out.is_some() {
            stages.push(stage(StageKind::Link, self.link_bound, PROPAGATION_MAX, 400_000));
        }
        let possible: Nanos = stages.iter().map(|stage| stage.bound).sum();
        if possible > limit {
            let reason = RefusalReason::Bound { possible, limit };
            let refusal = Refusal { reason, bound_possible: Some(possible), period_possible: None };
            return Err(RefuseCause::Stage { kind: StageKind::Link, refusal });
        }
        Ok(stages)
    }

    /// The grants of the stages on these terms.
    fn finished(&self, mut stages: Vec<StageGrant>, terms: &CommitTerms) -> Vec<StageGrant> {
        assert_eq!(stages.len(), terms.bounds.len());
        for (stage, most) in stages.iter_mut().zip(&terms.bounds) {
            assert!(*most >= stage.offered, "a share below the offer");
            let extra = *most - stage.offered;
            stage.bound = stage.offered + if self.modest { extra / 2 } else { extra };
        }
        stages
    }
}

impl Resources for Stages {
    fn fits(&self, _: &LocalChannel) -> bool {
        true
    }

    fn ask(&mut self, local: &Arc<LocalChannel>, limit: Nanos, dry: bool) {
        let stages = self.stages(local, limit);
        match (&stages, dry) {
            (_, true) => self.probes += 1,
            (Ok(_), false) => {
                assert!(self.held.insert(local.channel, false).is_none(), "held twice: {local:?}");
                self.holds += 1;
            }
            (Err(_), false) => {}
        }
        self.answers.push_back(Answer::Held(local.channel, stages));
    }
    fn ask_final(&mut self, local: &Arc<LocalChannel>, _: &CommitTerms) {
        assert_eq!(self.held.get(&local.channel), Some(&false), "final twice, or not held: {local:?}");
        self.answers.push_back(Answer::Final(local.channel));
    }
    fn poll_answer(&mut self) -> Option<Answer> {
        if let Some(ready) = &mut self.ready {
            *ready = ready.checked_sub(1)?;
        }
        self.answers.pop_front()
    }
    fn commit(
        &mut self,
        local: &Arc<LocalChannel>,
        terms: &CommitTerms,
    ) -> Result<Vec<StageGrant>, RefuseCause> {
        assert_eq!(self.held.get(&local.channel), Some(&false), "committed twice, or not held: {local:?}");
        if self.refuse_commit {
            return Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes: 2, free_bytes: 1 }));
        }
        self.held.insert(local.channel, true);
        let stages = self.finished(self.stages(local, Nanos::MAX)?, terms);
        self.committed.push((LocalChannel::clone(local), terms.clone(), stages.clone()));
        Ok(stages)
    }
    fn try_final(&mut self, local: &Arc<LocalChannel>, terms: &CommitTerms, limit: Nanos) {
        assert!(!self.held.contains_key(&local.channel), "nothing is held of a probe: {local:?}");
        self.tests += 1;
        self.tested = Some(terms.clone());
        let stages = match self.refuse_commit {
            true => Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes: 2, free_bytes: 1 })),
            false => self.stages(local, limit).map(|stages| self.finished(stages, terms)),
        };
        self.answers.push_back(Answer::Tried(local.channel, stages));
    }
    fn sent(&self, _: ChannelId) -> Tally {
        self.sent
    }
    fn await_last(&mut self, channel: ChannelId, sent: Tally) {
        self.awaited.push((channel, sent));
    }
    fn outdate(&mut self, _: ChannelId) {}
    fn passed(&self, _: ChannelId) -> Passed {
        Passed::default()
    }
    fn receipt(&self, _: ChannelId) -> Receipt {
        self.receipt
    }
    fn release(&mut self, channel: ChannelId) {
        self.held.remove(&channel);
        if self.ready.is_none() {
            self.answers.retain(|answer| *answer != Answer::Final(channel));
        }
    }
}

/// Reaction of a host's application.
#[derive(Clone, Copy, PartialEq)]
pub enum Agent {
    Consent,
    Refuse,
    Silent,
}

pub struct Host {
    pub config: NodeConfig,
    /// `None`: crashed.
    pub signalling: Option<Signalling>,
    pub stages: Stages,
    pub agent: Agent,
    pub events: Vec<Event>,
    /// Its clock at time 0, and how it runs.
    pub clock_offset: u64,
    pub clock_ppm: i64,
    /// By link: the neighbour's index and its link back.
    pub links: Vec<(usize, LinkId)>,
}

impl Host {
    pub fn local(&self, now: u64) -> Instant {
        let drifted = i128::from(now) * i128::from(1_000_000 + self.clock_ppm) / 1_000_000;
        Instant((i128::from(self.clock_offset) + drifted) as u64)
    }
    fn real(&self, at: Instant) -> u64 {
        let since = i128::from(at.0.saturating_sub(self.clock_offset));
        (since * 1_000_000 / i128::from(1_000_000 + self.clock_ppm)) as u64 + 1
    }
    pub fn name(&self) -> Name {
        self.config.name.clone()
    }
}

/// A packet on its way.
#[derive(Clone)]
pub struct Flying {
    pub to: usize,
    pub link: LinkId,
    pub bytes: Vec<u8>,
}

pub struct Network {
    pub seed: u64,
    pub random: Random,
    pub now: u64,
    pub hosts: Vec<Host>,
    pub loss_percent: u64,
    /// Additional loss from one host to another: each direction of a link may fail separately.
    pub lossy: BTreeMap<(usize, usize), u64>,
    /// Additional delay from one host to another.
    pub late: BTreeMap<(usize, usize), u64>,
    /// Packets that were lost, or late by [`Self::late`], from one host to another.
    pub worse: BTreeMap<(usize, usize), u64>,
    pub double_percent: u64,
    pub reorder_percent: u64,
    /// Additional delay of all packets.
    pub lag: u64,
    /// Between two packets of a host on a link; 0: they leave at once.
    pub pace: u64,
    /// From this host to that one, between two packets, whatever the pace of others.
    pub slow: Option<(usize, usize, u64)>,
    /// By host and link: when the next may leave.
    free_at: BTreeMap<(usize, usize), u64>,
    /// Longest time of stages for a reply; 0: they reply at once. Set it before any request.
    pub thinking_max: u64,
    /// The only host whose stages take time; all if it is `None`.
    pub thinker: Option<usize>,
    /// Times at which the next reply of a host is ready.
    thoughts: BTreeMap<(u64, u64), usize>,
    air: BTreeMap<(u64, u64), Flying>,
    flown: u64,
    pub delivered: u64,
    /// This host uses another version; between it and the others the versions in packets are converted.
    pub foreign: Option<usize>,
    /// Accounts are compared when the test requests it, not after each step, because that takes time with
    /// many channels.
    pub rarely: bool,
    /// Every packet that was ever sent, if recording.
    pub tape: Option<Vec<Flying>>,
}

/// Gives an authentic packet another version. The envelope is written out here, since it must never change.
fn seal_again(packet: &mut [u8], version: u8, domain_key: &[u8; 32]) {
    let key = blake3::derive_key("punctual 2026 rtcop packet authentication v1", domain_key);
    let (signed, tag) = packet.split_last_chunk_mut::<16>().expect("a tag");
    signed[0] = version;
    tag.copy_from_slice(&blake3::keyed_hash(&key, signed).as_bytes()[..16]);
}

pub fn contract(deadline_ms: u64) -> Contract {
    Contract::new(1_000, Rate::per_second(50).expect("a rate"), 3, Nanos::from_millis(deadline_ms))
        .expect("valid")
}
pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

impl Network {
    /// Hosts 0..count (nodes 1..=count, names h1...), joined by `edges`.
    pub fn new(
        seed: u64,
        count: usize,
        edges: &[(usize, usize)],
        tune: impl Fn(usize, &mut NodeConfig),
    ) -> Self {
        let mut links: Vec<Vec<(usize, LinkId)>> = vec![Vec::new(); count];
        for (a, b) in edges {
            let (link_a, link_b) = (LinkId(links[*a].len() as u16), LinkId(links[*b].len() as u16));
            links[*a].push((*b, link_b));
            links[*b].push((*a, link_a));
        }
        let mut random = Random(seed);
        let hosts = (0..count)
            .map(|index| {
                let mut config = node_config(index, count, &links[index]);
                tune(index, &mut config);
                let stages = Stages { node: config.id, link_bound: 1_000_000, ..Stages::default() };
                Host {
                    config,
                    signalling: None,
                    stages,
                    agent: Agent::Consent,
                    events: Vec::new(),
                    clock_offset: random.below(1_000) * SECOND,
                    clock_ppm: random.below(201) as i64 - 100,
                    links: links[index].clone(),
                }
            })
            .collect();
        let mut network = Self {
            seed,
            random,
            now: 0,
            hosts,
            loss_percent: 0,
            lossy: BTreeMap::new(),
            late: BTreeMap::new(),
            worse: BTreeMap::new(),
            double_percent: 0,
            reorder_percent: 0,
            lag: 0,
            pace: 0,
            slow: None,
            free_at: BTreeMap::new(),
            thinking_max: 0,
            thinker: None,
            thoughts: BTreeMap::new(),
            air: BTreeMap::new(),
            flown: 0,
            delivered: 0,
            foreign: None,
            rarely: false,
            tape: None,
        };
        (0..count).for_each(|index| network.start(index));
        network
    }

    /// Hosts in a row, each with routes to all others along it.
    pub fn line(seed: u64, count: usize, tune: impl Fn(usize, &mut NodeConfig)) -> Self {
        let edges: Vec<_> = (1..count).map(|index| (index - 1, index)).collect();
        Self::new(seed, count, &edges, |index, config| {
            for to in (0..count).filter(|to| to.abs_diff(index) > 1) {
                let node = |i: usize| NodeId(i as u32 + 1);
                let via = if to > index {
                    (index + 1..=to).map(node).collect()
                } else {
                    (to..index).rev().map(node).collect()
                };
                config.routes.push(RouteConfig { via });
            }
            tune(index, config);
        })
    }

    /// A host begins a life (again): it listens on `in`.
    pub fn start(&mut self, index: usize) {
        let (seed, now) = (self.random.next(), self.now);
        let host = &mut self.hosts[index];
        if host.signalling.is_some() || now > 0 {
            host.config.epoch = Epoch(host.config.epoch.0 + 1);
        }
        host.stages.held.clear();
        host.stages.answers.clear();
        let mut signalling = Signalling::new(&host.config, seed, host.local(now));
        signalling.listen(name("in"), Nanos::ZERO).expect("free");
        host.signalling = Some(signalling);
    }
    pub fn crash(&mut self, index: usize) {
        self.hosts[index].signalling = None;
        self.hosts[index].stages.held.clear();
        self.hosts[index].stages.answers.clear();
    }

    /// Calls one host's signalling.
    pub fn at<R>(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut Signalling, Instant, &mut Stages) -> R,
    ) -> R {
        let now = self.now;
        let host = &mut self.hosts[index];
        let local = host.local(now);
        let result = call(host.signalling.as_mut().expect("alive"), local, &mut host.stages);
        // Only this host has received a packet.
        self.settle_one(index);
        result
    }
    pub fn request(&self, to: usize, deadline_ms: u64) -> OpenRequest {
        OpenRequest {
            to: Address { port: name("in"), host: self.hosts[to].name() },
            contract: contract(deadline_ms),
            user: UserId(7),
            probe: false,
            token: None,
        }
    }
    pub fn open(&mut self, from: usize, to: usize, deadline_ms: u64) -> ChannelId {
        let request = self.request(to, deadline_ms);
        self.at(from, |s, now, stages| s.open(request, now, stages)).expect("can be tried")
    }
    pub fn close(&mut self, index: usize, channel: ChannelId) {
        self.close_for(index, channel, CloseReason::Local);
    }
    pub fn close_for(&mut self, index: usize, channel: ChannelId, reason: CloseReason) {
        self.at(index, |s, now, stages| s.close(channel, reason, now, stages)).expect("an open end");
    }

    /// Runs for `nanos`.
    pub fn run(&mut self, nanos: u64) {
        let until = self.now + nanos;
        while self.step(until) {}
        self.now = until;
    }
    /// Runs until `done` or for `nanos`.
    pub fn run_until(&mut self, nanos: u64, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + nanos;
        while !done(self) {
            if !self.step(until) {
                return false;
            }
        }
        true
    }
    /// Processes the next packet or timeout; `false` if there is none up to `until`.
    pub fn step(&mut self, until: u64) -> bool {
        self.settle();
        let timeout = |(index, host): (usize, &Host)| {
            Some((host.real(host.signalling.as_ref()?.poll_timeout()?).max(self.now), index))
        };
        let timer = self.hosts.iter().enumerate().filter_map(timeout).min();
        let packet = self.air.first_key_value().map(|(key, _)| *key);
        let thought = self.thoughts.first_key_value().map(|(key, _)| *key);
        let turn = self.next_turn();
        let others = [packet.map(|(at, _)| at), timer.map(|(at, _)| at), turn];
        let others = others.into_iter().flatten().min();
        if let Some(key) = thought.filter(|(at, _)| *at <= until && others.is_none_or(|other| *at <= other)) {
            self.now = self.now.max(key.0);
            self.finish_thought(key);
            return true;
        }
        if let Some(at) = turn.filter(|at| *at <= until && others == Some(*at)) {
            // Packets that may leave now are sent when the next step begins.
            self.now = at;
            return true;
        }
        match (packet, timer) {
            (Some(key), timer) if key.0 <= until && timer.is_none_or(|(at, _)| key.0 <= at) => {
                let flying = self.air.remove(&key).expect("in the air");
                self.now = self.now.max(key.0);
                self.deliver(&flying);
            }
            (_, Some((at, index))) if at <= until => {
                self.now = self.now.max(at);
                self.at(index, |s, now, stages| s.handle_timeout(now, stages));
            }
            _ => return false,
        }
        true
    }
    /// When a link is free for a packet that waits.
    fn next_turn(&self) -> Option<u64> {
        let waits = |(host, link): &(usize, usize)| {
            let signalling = self.hosts[*host].signalling.as_ref();
            signalling.is_some_and(|s| s.has_signal(LinkId(*link as u16)))
        };
        self.free_at.iter().filter(|(on, at)| **at > self.now && waits(on)).map(|(_, at)| *at).min()
    }
    pub fn deliver(&mut self, flying: &Flying) {
        self.delivered += 1;
        if self.hosts[flying.to].signalling.is_some() {
            self.at(flying.to, |s, now, stages| {
                s.handle_signal(flying.link, now, now, &flying.bytes, stages)
            });
        }
    }

    /// One more reply of a host is ready; the host may be down, or have begun another life.
    fn finish_thought(&mut self, key: (u64, u64)) {
        let index = self.thoughts.remove(&key).expect("a thought");
        if self.hosts[index].signalling.is_none() {
            return;
        }
        self.at(index, |s, now, stages| {
            stages.ready = Some(1);
            s.settle(now, stages);
            stages.ready = Some(0);
        });
    }
    /// Each reply of a host with slow stages is ready some time after the previous one.
    fn think(&mut self, index: usize) {
        if self.thinking_max == 0 || self.thinker.is_some_and(|thinker| thinker != index) {
            return;
        }
        self.hosts[index].stages.ready.get_or_insert(0);
        let thoughts = self.thoughts.values().filter(|thinker| **thinker == index).count();
        for _ in thoughts..self.hosts[index].stages.answers.len() {
            self.flown += 1;
            let at = self.now + self.random.below(self.thinking_max);
            self.thoughts.insert((at, self.flown), index);
        }
    }

    /// Sends waiting packets, takes the events of applications, lets them reply, checks the accounts.
    fn settle(&mut self) {
        (0..self.hosts.len()).for_each(|index| self.settle_one(index));
    }
    fn settle_one(&mut self, index: usize) {
        self.answer(index);
        self.think(index);
        self.transmit(index);
        if !self.rarely {
            self.check(index);
        }
    }
    fn transmit(&mut self, index: usize) {
        for link in 0..self.hosts[index].links.len() {
            let (to, back) = self.hosts[index].links[link];
            let mut out = [0; 1_400];
            while self.free_at.get(&(index, link)).is_none_or(|at| *at <= self.now) {
                let host = &mut self.hosts[index];
                let local = host.local(self.now);
                let Some(signalling) = &mut host.signalling else { break };
                let id = LinkId(link as u16);
                let expected = signalling.has_signal(id);
                let len = signalling.poll_signal(id, local, local, &mut out);
                assert_eq!(expected, len.is_some(), "has_signal and poll_signal agree");
                let Some(len) = len else { break };
                let foreign = [index, to].map(|host| self.foreign == Some(host));
                if foreign[0] != foreign[1] {
                    let version = RTCOP_VERSION + 1 - 2 * u8::from(foreign[1]);
                    seal_again(&mut out[..len], version, &self.hosts[index].config.signalling.domain_key);
                }
                let slow = self.slow.filter(|(from, on, _)| (*from, *on) == (index, to));
                let pace = slow.map_or(self.pace, |(.., pace)| pace);
                if pace > 0 {
                    self.free_at.insert((index, link), self.now + pace);
                }
                self.throw(index, Flying { to, link: back, bytes: out[..len].to_vec() });
            }
        }
    }
    fn throw(&mut self, from: usize, flying: Flying) {
        if let Some(tape) = &mut self.tape {
            tape.push(flying.clone());
        }
        let copies = 1 + u64::from(self.random.below(100) < self.double_percent);
        for _ in 0..copies {
            let late = self.late.get(&(from, flying.to)).copied().unwrap_or(0);
            let lost = self.random.below(100) < self.loss_percent || self.is_lost_on(from, flying.to);
            if lost || late > 0 {
                *self.worse.entry((from, flying.to)).or_default() += 1;
            }
            if lost {
                continue;
            }
            let mut delay =
                self.lag + late + PROPAGATION_MIN + self.random.below(PROPAGATION_MAX - PROPAGATION_MIN);
            if self.random.below(100) < self.reorder_percent {
                delay += self.random.below(30 * MILLI);
            }
            self.flown += 1;
            self.air.insert((self.now + delay, self.flown), flying.clone());
        }
    }
    /// From now on each direction of each link loses as much as it likes, up to so much.
    pub fn lopsided(&mut self, percent_max: u64) {
        for from in 0..self.hosts.len() {
            for link in 0..self.hosts[from].links.len() {
                let to = self.hosts[from].links[link].0;
                let percent = self.random.below(percent_max + 1);
                self.lossy.insert((from, to), percent);
            }
        }
    }
    fn is_lost_on(&mut self, from: usize, to: usize) -> bool {
        let percent = self.lossy.get(&(from, to)).copied();
        percent.is_some_and(|percent| self.random.below(100) < percent)
    }
    fn answer(&mut self, index: usize) {
        loop {
            let local = self.hosts[index].local(self.now);
            let host = &mut self.hosts[index];
            let Some(signalling) = &mut host.signalling else { return };
            let Some(event) = signalling.poll_event() else { return };
            host.events.push(event.clone());
            match (event, host.agent) {
                (Event::Incoming(incoming), Agent::Consent) => {
                    // It may have ended: a DESTROY can follow in the same packet.
                    signalling.consent(incoming.channel, local, &mut host.stages).ok();
                }
                (Event::Incoming(incoming), Agent::Refuse) => {
                    signalling
                        .refuse(incoming.channel, "no camera", local, &mut host.stages)
                        .expect("it was asked");
                }
                (Event::Requested { to, contract, user, token, .. }, Agent::Consent) => {
                    let request = OpenRequest { to, contract, user, probe: false, token: Some(token) };
                    signalling.open(request, local, &mut host.stages).expect("it was asked");
                }
                (Event::Requested { token, .. }, Agent::Refuse) => {
                    signalling.refuse_request(token, "no camera", local).expect("it was asked");
                }
                _ => {}
            }
        }
    }
    /// The stages hold exactly the channels in signalling's table, except those whose replies are pending.
    pub fn check(&self, index: usize) {
        let host = &self.hosts[index];
        let Some(signalling) = &host.signalling else { return };
        let known: Vec<_> = signalling
            .channels()
            .filter(|c| !matches!(c.state, "probing" | "offering" | "settling"))
            .map(|c| c.local.channel)
            .collect();
        // Both are in the order of ids. Mostly nothing is pending: thousands of channels need not be looked
        // up one by one.
        if host.stages.held.keys().eq(&known) {
            return;
        }
        let answers = |id| host.stages.answers.iter().any(|answer| answer.channel() == id);
        let stays = |id: &ChannelId| known.binary_search(id).is_ok() || !answers(*id);
        let held: Vec<_> = host.stages.held.keys().copied().filter(stays).collect();
        assert_eq!(known, held, "seed {} host {index} at {}", self.seed, self.now);
    }

    pub fn alive(&self, index: usize, link: u16) -> bool {
        let host = &self.hosts[index];
        let view = |s: &Signalling| s.neighbour(LinkId(link), host.local(self.now)).alive;
        host.signalling.as_ref().is_some_and(view)
    }
    pub fn states(&self, index: usize) -> Vec<&'static str> {
        self.hosts[index]
            .signalling
            .iter()
            .flat_map(|s| s.channels().map(|c| c.state).collect::<Vec<_>>())
            .collect()
    }
    pub fn all_in(&self, state: &str) -> bool {
        (0..self.hosts.len()).all(|index| self.states(index) == [state])
    }
    pub fn nothing_held(&self) -> bool {
        self.hosts.iter().all(|host| host.stages.held.is_empty())
    }
    pub fn has(&self, index: usize, wanted: impl Fn(&Event) -> bool) -> bool {
        self.hosts[index].events.iter().any(wanted)
    }
    pub fn count(&self, index: usize, wanted: impl Fn(&Event) -> bool) -> usize {
        self.hosts[index].events.iter().filter(|event| wanted(event)).count()
    }
}

fn node_config(index: usize, count: usize, links: &[(usize, LinkId)]) -> NodeConfig {
    let host = |index: usize| (name(&format!("h{}", index + 1)), NodeId(index as u32 + 1));
    let link = |(to, _): &(usize, LinkId)| LinkConfig {
        propagation_min: Nanos(PROPAGATION_MIN),
        propagation_max: Nanos(PROPAGATION_MAX),
        ..LinkConfig::new(&format!("to{to}"), NodeId(*to as u32 + 1), BitRate(40_000_000))
    };
    NodeConfig {
        id: NodeId(index as u32 + 1),
        name: host(index).0,
        epoch: Epoch(1),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: links.iter().map(link).collect(),
        cpu: CpuConfig::default(),
        directory: (0..count).map(host).collect(),
        routes: Vec::new(),
        signalling: SignallingConfig { domain_key: [9; 32], ..SignallingConfig::default() },
        buffer_bytes_max: 1 << 30,
        wakeup_margin: Nanos::from_micros(200),
    }
}

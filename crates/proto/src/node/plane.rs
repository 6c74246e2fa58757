//! The data plane of a node: links, processor, clips, best effort. Signalling shapes it through
//! [`Resources`](crate::signalling::Resources); packets flow through it.
//!
//! Invariants: a clip's handler and link flow live exactly as long as the clip; a queue never holds more than
//! its reservation; `paths` names every clip that takes packets from a link.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hashbrown::HashMap;
use punctual_analysis::arrival::{ArrivalTerms, LogicalArrivals};
use punctual_analysis::mutation::{Mutation, active};
use punctual_analysis::{BitRate, Instant, Nanos, Policing, Ppm, Rate};

use super::backlog::Backlog;
use super::best_effort::{Arrivals, Binding, Flow, Message};
use super::clip::{Clip, Ending, PacketIn, RoleState};
use super::leftovers::Leftovers;
use super::neighbour_clock::NeighbourClock;
use super::outgoing::Messages;
use super::packet::Packet;
use super::rate::arrivals::FillerArrivals;
use super::rate::filler::Filler;
use super::record::WorkRecord;
use super::shaper::Shaper;
use super::signals::Signals;
use super::source::Portion;
use super::stages::{Stages, signal_rate};
use super::standstill::Promises;
use crate::api::{ChannelCounters, DropCounters, FilterChange, Notice};
use crate::config::{KernelTraffic, LinkConfig, NodeConfig};
use crate::fragment::packet_wire_bytes;
use crate::ids::{ChannelId, LinkId, NodeId, PathId};
use crate::interned::Interned;
use crate::limits::{
    ARRIVALS_PACKETS_MAX, FRAMES_BEST_EFFORT_DIVISOR, IN_FLIGHT_PACKETS_MAX, SIGNALS_WAITING_MAX,
};
use crate::linksched::{BestEffortKey, FlowIndex, Guaranteed, LinkParameters, LinkScheduler};
use crate::memory::Memory;
use crate::sched::{Budget, Class, Executor, HandlerId, HandlerParameters, Trigger};
use crate::slab::{Slab, reserve};
use crate::table::{Paths, Table};
use crate::times::earliest;
use crate::watch::Watch;

/// Whose handler it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A channel's.
    Clip(ChannelId),
    /// The best-effort part of a source that demotes.
    Demoted(ChannelId),
    /// Deliveries of a sink that holds messages for their deadline.
    Delivery(ChannelId),
    /// A best-effort flow that starts here.
    Flow(ChannelId),
    /// Best-effort and demoted packets that came in.
    Arrivals,
    /// Rings that hold more than their contract.
    Backlog,
    /// Signalling that came in on a link.
    Signals(LinkId),
    /// What fills a link while it is measured.
    Filler(LinkId),
}

/// A signalling packet that waits for the processor.
pub(super) struct SignalIn<F> {
    pub received: Instant,
    pub frame: F,
}

/// No channel has this handle: they are counted from 1 on.
const NO_SOURCE: ChannelId = ChannelId(0);

/// One link of this host.
pub(super) struct LinkState<M: Memory> {
    pub config: LinkConfig,
    pub scheduler: LinkScheduler<Packet<M::Frame>>,
    /// The implicit signalling channel: its flow, regulator and bound, and whether a packet of it is queued.
    pub signal_flow: FlowIndex,
    pub signal_regulator: LogicalArrivals,
    pub signal_bound: Nanos,
    pub signal_queued: bool,
    pub signal_packets: u64,
    /// Data packets of another version that came in.
    pub packets_foreign: u64,
    /// The neighbour's clock, and what its packets take to our driver at most.
    pub neighbour: NeighbourClock,
    /// What has come in over it, in bytes of the wire.
    pub bytes_in: u64,
    /// When its driver had no room last.
    pub full_at: Instant,
    /// Packets that left later than the link's bound for them since the adapter had not sent those before: what is paced by
    /// completions tells that itself.
    pub departures_watch: Watch,
    /// What came in later than that. Packets of data tell it, which somebody on the wire can forge.
    pub arrivals_watch: Watch,
    /// What fills it, while it is measured.
    pub filler: Option<Filler>,
    /// What the neighbour fills it with, likewise.
    pub counting: Option<Box<FillerArrivals>>,
    pub signals_in: VecDeque<SignalIn<M::Frame>>,
    pub signals_handler: HandlerId,
    /// Frames of this link's driver that best effort may keep, and those that it does.
    pub best_effort_frames_max: u32,
    pub best_effort_frames: u32,
    /// Frames that soft channels keep; they share a pool.
    pub soft_frames: u32,
    /// Where the kernel's share of the link follows admission.
    pub shaper: Option<Box<Shaper>>,
    /// Sources and flows that wait for room in this link's queues, each once.
    pub blocked: VecDeque<ChannelId>,
    /// The sources of this host, by their flow; [`NO_SOURCE`] for flows of channels that pass through.
    sources: Vec<ChannelId>,
    /// Flows whose packets have left in the completion at hand; empty otherwise.
    left: Vec<FlowIndex>,
}

impl<M: Memory> LinkState<M> {
    /// Wire bytes of a packet with `payload_bytes`.
    pub fn wire_bytes(&self, payload_bytes: u32) -> u32 {
        packet_wire_bytes(payload_bytes, self.config.overhead_bytes)
    }

    /// Lists who waits for room in this link's queues; `listed` keeps it from standing there twice.
    pub fn wait(&mut self, channel: ChannelId, listed: &mut bool) {
        if !core::mem::replace(listed, true) {
            self.blocked.push_back(channel);
        }
    }

    /// Notes which source of this host a flow belongs to.
    pub fn set_source(&mut self, flow: FlowIndex, source: Option<ChannelId>) {
        let index = flow.0 as usize;
        if self.sources.len() <= index {
            reserve(&mut self.sources, index + 1);
            self.sources.resize(index + 1, NO_SOURCE);
        }
        self.sources[index] = source.unwrap_or(NO_SOURCE);
    }

    /// The source of this host that a flow belongs to.
    fn source_of(&self, flow: FlowIndex) -> Option<ChannelId> {
        self.sources.get(flow.0 as usize).copied().filter(|source| *source != NO_SOURCE)
    }

    /// Queues the token of one outgoing signalling packet at its logical arrival.
    pub fn queue_signal(&mut self, now: Instant) {
        if self.signal_queued || self.scheduler.slots_free(self.signal_flow) == 0 {
            return;
        }
        let effective = self.signal_regulator.peek(now);
        self.signal_regulator.accept(now, Policing::Delay);
        let wire_bytes = self.config.signal_bytes_max() + self.config.overhead_bytes;
        if active(Mutation::SignallingAsBestEffort) {
            let key = BestEffortKey(u64::MAX);
            self.signal_queued =
                self.scheduler.enqueue_best_effort(now, key, wire_bytes, Packet::Signal).is_ok();
            return;
        }
        let key = Guaranteed { effective, deadline: effective + self.signal_bound, wire_bytes };
        self.signal_queued = self.scheduler.enqueue(now, self.signal_flow, key, Packet::Signal).is_ok();
    }
}

/// The data plane.
pub(super) struct Plane<M: Memory> {
    pub config: NodeConfig,
    pub stages: Stages,
    pub lines: Vec<LinkState<M>>,
    pub executor: Executor,
    /// By handler.
    pub owners: Vec<Option<Owner>>,
    pub clips: Table<Clip<M>>,
    /// Those of them whose guarantee is soft.
    pub clips_soft: u32,
    /// Packets of all channels that wait for their handlers; there is room for what admission has reserved.
    pub waiting: Slab<PacketIn<M::Frame>>,
    /// Of channels that come in.
    pub arrival_terms: Interned<ArrivalTerms>,
    /// Messages of all sources and flows on their way out.
    pub messages: Messages<Message<M>>,
    pub paths: Paths,
    pub flows: HashMap<ChannelId, Flow<M>>,
    /// Bound ports by the hash of their name.
    pub bindings: HashMap<u32, Binding<M>>,
    /// Those hashes, by the handle of the port.
    pub bound: HashMap<ChannelId, u32>,
    pub arrivals: Arrivals<M::Frame>,
    pub arrivals_handler: HandlerId,
    pub backlog: Backlog,
    pub leftovers: Leftovers<M>,
    pub drops: DropCounters,
    /// What channels had counted that are here no more.
    pub counted_gone: ChannelCounters,
    pub notices: VecDeque<(ChannelId, Notice)>,
    /// Channels whose applications are to be shown what they have counted when the turn ends.
    pub touched: Vec<ChannelId>,
    /// What drivers have not been told yet.
    pub filters: VecDeque<(LinkId, FilterChange)>,
    /// Closing sources that have sent everything, and channels that pass or end here of which nothing more comes.
    pub drained: VecDeque<ChannelId>,
    /// Whether the kernel's share of any link follows admission.
    pub follows: bool,
    /// Channels whose grants have waited for a shaper, and may go.
    pub fitted: Vec<ChannelId>,
    /// A channel that ends here, of which the unit that was just done has taken in the first packet.
    pub first_data: Option<ChannelId>,
    /// What units of work took, beside what admission assumes.
    pub record: WorkRecord,
    /// Packets that this processor served later than its bound for them, and its standstills.
    pub processor_watch: Watch,
    /// What those are compared with.
    pub promises: Promises,
    /// Something was late since the node looked.
    pub stirred: bool,
}

impl<M: Memory> Plane<M> {
    pub fn new(config: NodeConfig) -> Result<Self, crate::config::NodeConfigError> {
        let rate = signal_rate(&config)?;
        let stages = Stages::new(&config)?;
        let mut executor = Executor::new(config.cpu.run)
            .with_caps(config.cpu.utilisation_max, config.cpu.best_effort_cpu_cap)
            .with_flow_cap(config.cpu.best_effort_flow_cpu_cap);
        let arrivals = Arrivals::new(config.cpu.best_effort_flow_cpu_cap);
        let mut owners = Vec::new();
        let arrivals_handler = executor.add(best_effort_parameters(&config));
        own(&mut owners, arrivals_handler, Owner::Arrivals);
        let background = HandlerParameters { class: Class::Background, ..best_effort_parameters(&config) };
        let backlog = Backlog::new(executor.add(background));
        own(&mut owners, backlog.handler, Owner::Backlog);
        let mut lines = Vec::with_capacity(config.links.len());
        for (index, link) in config.links.iter().enumerate() {
            let handler = executor.add(signals_parameters(rate));
            own(&mut owners, handler, Owner::Signals(LinkId(index as u16)));
            lines.push(line(link, rate, &stages, index, handler));
        }
        let mut plane = Self {
            config,
            stages,
            lines,
            executor,
            owners,
            clips: Table::default(),
            clips_soft: 0,
            waiting: Slab::new(),
            arrival_terms: Interned::new(),
            messages: Messages::new(),
            paths: Paths::default(),
            flows: HashMap::new(),
            bindings: HashMap::new(),
            bound: HashMap::new(),
            arrivals,
            arrivals_handler,
            backlog,
            leftovers: Leftovers::default(),
            drops: DropCounters::default(),
            counted_gone: ChannelCounters::default(),
            notices: VecDeque::with_capacity(ARRIVALS_PACKETS_MAX),
            touched: Vec::new(),
            filters: VecDeque::new(),
            drained: VecDeque::new(),
            follows: false,
            fitted: Vec::new(),
            first_data: None,
            record: WorkRecord::new(),
            processor_watch: Watch::default(),
            promises: Promises::default(),
            stirred: false,
        };
        (0..plane.lines.len()).for_each(|link| plane.divide_rest(Some(LinkId(link as u16))));
        plane.follows = plane.lines.iter().any(|line| line.shaper.is_some());
        Ok(plane)
    }

    /// A handler for `owner`.
    pub fn add_handler(&mut self, owner: Owner, parameters: HandlerParameters) -> HandlerId {
        let handler = self.executor.add(parameters);
        own(&mut self.owners, handler, owner);
        handler
    }

    /// Forgets a handler.
    pub fn remove_handler(&mut self, handler: HandlerId) {
        self.executor.remove(handler);
        self.owners[handler.0 as usize] = None;
    }

    /// Where the kernel's packets go behind ours, best effort takes at most half of what is not given away: the kernel has
    /// the other half, and what best effort leaves.
    pub fn divide_rest(&mut self, link: Option<LinkId>) {
        let Some(link) = link else { return };
        let given = self.stages.link_utilisation(link);
        let line = self.line_mut(link);
        if line.config.kernel_traffic == KernelTraffic::Behind {
            let half = Ppm(Ppm::ONE.0.saturating_sub(given.0) / 2);
            line.scheduler.set_best_effort_cap(half.min(line.config.best_effort_cap));
        }
    }

    /// A link that no channel uses drains so much from now on; `false`, with nothing changed, where it cannot carry its own
    /// signalling then.
    pub fn set_link_rate(&mut self, link: LinkId, rate: BitRate, error: Ppm) -> bool {
        let index = usize::from(link.0);
        let known = &self.config.links[index];
        // Another measurement tries as much as the first one did.
        let rate_ceiling = Some(known.rate_ceiling.unwrap_or(known.rate));
        let changed = LinkConfig { rate, rate_error: error, rate_ceiling, ..known.clone() };
        if !self.stages.set_link(link, &changed, &self.config) {
            return false;
        }
        let line = self.line_mut(link);
        line.scheduler.set_parameters(&LinkParameters::of(&changed));
        line.config = changed.clone();
        self.config.links[index] = changed;
        self.divide_rest(Some(link));
        true
    }

    pub fn line(&self, link: LinkId) -> &LinkState<M> {
        &self.lines[usize::from(link.0)]
    }
    pub fn line_mut(&mut self, link: LinkId) -> &mut LinkState<M> {
        &mut self.lines[usize::from(link.0)]
    }

    /// The channel that takes packets of `path` from a link.
    pub fn channel_of(&self, path: &PathId) -> Option<ChannelId> {
        self.paths.find(path, |id| self.clips.get(id).is_some_and(|clip| clip.local.path == *path))
    }

    /// The link to a neighbour.
    pub fn link_to(&self, node: NodeId) -> Option<LinkId> {
        let index = self.lines.iter().position(|line| line.config.neighbour == node)?;
        Some(LinkId(index as u16))
    }

    /// The link on which best effort leaves for `destination`.
    pub fn best_effort_link(&self, destination: NodeId) -> Option<LinkId> {
        let route = self.config.routes.iter().find(|route| route.via.last() == Some(&destination));
        let next = route.and_then(|route| route.via.first()).copied().unwrap_or(destination);
        self.link_to(next)
    }

    /// The processor has served something `late`, if that is any time.
    pub fn note_processor(&mut self, late: Nanos, now: Instant) {
        if late > Nanos::ZERO {
            self.processor_watch.late(late, now);
            self.stirred = true;
        }
    }

    /// A demoted packet of a channel found no room as best effort: of one that was touched by it, or that passes.
    pub fn note_demoted_dropped(&mut self, path: &PathId) {
        let Some(channel) = self.channel_of(path) else { return };
        if let Some(clip) = self.clips.get_mut(channel) {
            clip.counters.demoted_dropped += 1;
        }
        self.look_for_end(channel);
    }

    /// Something of a channel has gone on, was taken in or thrown away: if that was all of one that closes, signalling hears
    /// of it.
    pub fn look_for_end(&mut self, channel: ChannelId) {
        let Some(clip) = self.clips.get_mut(channel).filter(|clip| clip.last.is_some()) else { return };
        if clip.has_ended() && !self.arrivals.has(&clip.local.path) {
            clip.last = None;
            self.drained.push_back(channel);
        }
    }

    /// Tells an application something once.
    pub fn notice(&mut self, channel: ChannelId, notice: Notice) {
        let news = self.clips.get_mut(channel).is_some_and(|clip| clip.notices_given.first(notice));
        if news && self.notices.len() < ARRIVALS_PACKETS_MAX {
            self.notices.push_back((channel, notice));
        }
    }

    /// Whether a waiting signal of the link could be queued by a call of `transmit`.
    pub fn may_queue_signal(&self, link: LinkId, signalling: &Signals) -> bool {
        let line = self.line(link);
        !line.signal_queued && signalling.has_signal(link) && line.scheduler.slots_free(line.signal_flow) > 0
    }

    /// The adapter has sent `wire_bytes` more: the sources whose slots came free compete for the processor again.
    pub fn complete(&mut self, link: LinkId, wire_bytes: u32, now: Instant) {
        let LinkState { scheduler, left, .. } = self.line_mut(link);
        scheduler.complete_each(wire_bytes, |flow| left.push(flow));
        while let Some(flow) = self.line_mut(link).left.pop() {
            if let Some(channel) = self.line(link).source_of(flow) {
                self.arm_clip(channel, now);
            }
        }
        self.unblock_one(link, now);
    }

    /// Room came free in a link's queues: who waited longest competes for the processor again.
    pub fn unblock_one(&mut self, link: LinkId, now: Instant) {
        let Some(channel) = self.line_mut(link).blocked.pop_front() else { return };
        if let Some(flow) = self.flows.get_mut(&channel) {
            flow.listed = false;
            return self.arm_flow(channel, now);
        }
        let Some(clip) = self.clips.get_mut(channel) else { return };
        if let RoleState::Source(source) = &mut clip.role {
            source.listed = false;
            clip.arm_source(&mut self.lines, &mut self.executor, &self.messages, &mut self.drained, now);
        }
    }

    /// A source that is closed by its application: signalling hears when its last message is sent.
    pub fn begin_closing(&mut self, channel: ChannelId, now: Instant) {
        let Some(Clip { role: RoleState::Source(source), .. }) = self.clips.get_mut(channel) else { return };
        if source.ending == Ending::Open {
            source.ending = Ending::Closing;
            self.drain_outbox(channel, Portion::ALONE, now);
        }
    }

    /// The earliest time at which something happens by itself, where no handler is ready.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let links = self.lines.iter().map(|line| line.scheduler.next_timeout());
        links.fold(self.executor.next_timeout(), earliest)
    }
}

/// A handler of best effort.
pub(super) fn best_effort_parameters(config: &NodeConfig) -> HandlerParameters {
    HandlerParameters {
        class: Class::BestEffort,
        level: 0,
        period: Nanos::ZERO,
        place: 0,
        quantum_packets: config.cpu.quantum_packets,
        budget: None,
        trigger: Trigger::Reactive,
    }
}

/// Signalling on the processor: one packet in each of the intervals that admission counts with. What exceeds that, a
/// flood, waits for everybody else; but its head is served in the next interval, whatever best effort does.
fn signals_parameters(rate: Rate) -> HandlerParameters {
    HandlerParameters {
        class: Class::Signalling,
        level: 0,
        period: Nanos::ZERO,
        place: 0,
        quantum_packets: 1,
        budget: Some(Budget {
            packets: 1,
            // A neighbour whose clock is fast is still within it (I').
            period: rate.policed_interval(),
            deadline: Nanos::ZERO,
        }),
        trigger: Trigger::Refilled,
    }
}

fn own(owners: &mut Vec<Option<Owner>>, handler: HandlerId, owner: Owner) {
    if owners.len() <= handler.0 as usize {
        reserve(owners, handler.0 as usize + 1);
        owners.resize(handler.0 as usize + 1, None);
    }
    owners[handler.0 as usize] = Some(owner);
}

fn line<M: Memory>(
    link: &LinkConfig,
    rate: Rate,
    stages: &Stages,
    index: usize,
    handler: HandlerId,
) -> LinkState<M> {
    let mut scheduler = LinkScheduler::new(LinkParameters::of(link));
    let (model, signalling) = stages.link(index);
    let mut line = LinkState {
        config: link.clone(),
        signal_flow: scheduler.add_channel(2, Nanos::ZERO),
        signal_regulator: LogicalArrivals::new(rate.interval(), 1),
        signal_bound: stages.signal_bound(index),
        signal_queued: false,
        signal_packets: 0,
        packets_foreign: 0,
        neighbour: NeighbourClock::default(),
        bytes_in: 0,
        arrivals_watch: Watch::default(),
        full_at: Instant::ZERO,
        departures_watch: Watch::default(),
        filler: None,
        counting: None,
        signals_in: VecDeque::with_capacity(SIGNALS_WAITING_MAX),
        signals_handler: handler,
        best_effort_frames_max: link.frames / FRAMES_BEST_EFFORT_DIVISOR,
        best_effort_frames: 0,
        soft_frames: 0,
        blocked: VecDeque::new(),
        sources: Vec::new(),
        left: Vec::with_capacity(IN_FLIGHT_PACKETS_MAX),
        shaper: Shaper::of(link, model, signalling),
        scheduler,
    };
    if line.shaper.is_some() {
        line.set_pace_beside(link.interference.rho, Instant::ZERO);
    }
    line
}

//! The data plane of a node: its state. Signalling configures it through
//! [`Resources`](crate::signalling::Resources); packets flow through it. The submodules implement the work
//! and access all fields; the node accesses it through methods only.
//!
//! A channel's clip is found in [`Channels`]. A clip works with the state that all share, the [`Context`]:
//! clip and context are borrowed side by side.
//!
//! Invariants: a clip's handler and link flow exist exactly as long as the clip; a queue never holds more
//! than its reservation; `paths` names every clip that takes packets from a link.

mod accounts;
mod admit;
mod backlog;
mod best_effort;
mod best_effort_flow;
mod buffers;
mod channels;
mod clip;
mod counters;
mod filler;
mod filters;
mod forward;
mod leftovers;
mod link_state;
mod links;
mod new;
mod outgoing;
mod outside;
mod processor;
mod receive;
mod room;
mod rtu;
mod shaper;
mod show;
mod sink;
mod source;
mod standstill;
mod transmit;
mod work;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;
use punctual_analysis::arrival::{ArrivalTerms, ArrivalsWithin, EffectiveArrivals, LogicalArrivals};
use punctual_analysis::{Instant, Nanos};

pub(super) use self::best_effort::Message;
pub(super) use self::best_effort_flow::FlowRoute;
#[cfg(test)]
pub(super) use self::filler::filler_header;
pub(super) use self::outgoing::room_bytes;
pub(super) use self::source::Portion;

use self::backlog::Backlog;
use self::best_effort::{Arrivals, Binding, Slot};
use self::clip::{Ending, LinkReservation, NoticesGiven};
use self::counters::Counters;
use self::filler::Filler;
use self::leftovers::Leftovers;
use self::outgoing::{Messages, Outgoing};
use self::rtu::Rtus;
use self::shaper::Shaper;
use self::standstill::Promises;
use super::neighbour_clock::NeighbourClock;
use super::packet::Packet;
use super::rate::arrivals::FillerArrivals;
use super::record::WorkRecord;
use super::stages::Stages;
use crate::api::{ChannelCounters, DropCounters, FilterChange, Notice, RtuId, Tally};
use crate::breach::Watch;
use crate::config::{LinkConfig, NodeConfig};
use crate::fragment::Reassembly;
use crate::ids::{ChannelId, LinkId};
use crate::interned::Interned;
use crate::linksched::{FlowIndex, LinkScheduler};
use crate::memory::{Memory, MessageInfo};
use crate::sched::{Executor, HandlerId};
use crate::signalling::LocalChannel;
use crate::slab::{Fifo, Next, Slab};
use crate::table::{Paths, Table};
use crate::wire::Header;

/// The data plane.
pub(super) struct Plane<M: Memory> {
    config: NodeConfig,
    stages: Stages,
    channels: Channels<M>,
    best_effort: BestEffort<M>,
    context: Context<M>,
    backlog: Backlog,
    leftovers: Leftovers<M>,
    rtus: Rtus<M>,
    drops: DropCounters,
}

/// The channels that start, pass or end here.
struct Channels<M: Memory> {
    clips: Table<Clip<M>>,
    /// Channels among `clips` whose guarantee is soft.
    soft: u32,
    paths: Paths,
    /// Terms on which packets of incoming channels are policed; equal ones are stored once.
    arrival_terms: Interned<ArrivalTerms>,
    /// Counters of channels that have been closed.
    counted_gone: ChannelCounters,
}

/// Flows and ports without guarantees.
struct BestEffort<M: Memory> {
    flows: HashMap<ChannelId, Flow<M>>,
    /// Bound ports by the hash of their name.
    bindings: HashMap<u32, Binding<M>>,
    /// Hash of each bound port's name, by the handle of the port.
    bound: HashMap<ChannelId, u32>,
    arrivals: Arrivals<M::Frame>,
    arrivals_handler: HandlerId,
}

/// The state that clips and flows work with.
struct Context<M: Memory> {
    links: Links<M>,
    processor: Processor,
    /// Messages of all sources and flows on their way out.
    messages: Messages<Message<M>>,
    /// Packets of all channels that wait for their handlers; the slab has room for what admission has
    /// reserved.
    waiting: Slab<PacketIn<M::Frame>>,
    news: PendingOutput,
}

/// The links out.
struct Links<M: Memory> {
    states: Vec<LinkState<M>>,
    /// Whether the kernel's share of at least one link follows admission.
    follows: bool,
}

/// The processor: its executor, and measurements of its work.
struct Processor {
    executor: Executor,
    /// Owner of each handler, by handler.
    owners: Vec<Option<Owner>>,
    /// Measured durations of units of work, compared with what admission assumes.
    record: WorkRecord,
    /// Packets that this processor served later than its bound for them, and its standstills.
    watch: Watch,
    /// Bounds that the watch compares with.
    promises: Promises,
}

/// Output that is not delivered yet: to applications, drivers, signalling and the node.
struct PendingOutput {
    notices: VecDeque<(ChannelId, Notice)>,
    /// Channels whose applications get new counters when the turn ends.
    touched: Vec<ChannelId>,
    /// Changes that were not passed to drivers yet.
    filters: VecDeque<(LinkId, FilterChange)>,
    /// Closing sources that have sent everything, and channels that pass or end here and receive nothing
    /// more.
    drained: VecDeque<ChannelId>,
    /// Channels whose grants waited for a shaper and may be sent now.
    fitted: Vec<ChannelId>,
    /// A channel that ends here, if the unit that was just done has received its first packet.
    first_data: Option<ChannelId>,
    /// True if something was late since the node checked last.
    stirred: bool,
}

/// The purpose of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A clip of a channel.
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
    /// Filler packets, while a link is measured.
    Filler(LinkId),
    /// A program's handler within its budget.
    Rtu(RtuId),
    /// A program's handler beyond its budget, or without one.
    RtuRest(RtuId),
}

/// State of one link of this host.
pub(super) struct LinkState<M: Memory> {
    config: LinkConfig,
    scheduler: LinkScheduler<Packet<M::Frame>>,
    signals: SignalPort<M::Frame>,
    /// The neighbour's clock, and the longest time that its packets take to our driver.
    neighbour: NeighbourClock,
    /// Received bytes, in bytes of the wire.
    bytes_in: u64,
    /// Number of received data packets of another version.
    packets_foreign: u64,
    watches: Watches,
    measuring: Measuring,
    frames: Frames,
    waiters: Waiters,
    /// Shaper of the link, if the kernel's share of the link follows admission.
    shaper: Option<Box<Shaper>>,
}

/// The implicit signalling channel of a link.
struct SignalPort<F> {
    /// Flow of the signalling channel in the link's scheduler.
    flow: FlowIndex,
    regulator: LogicalArrivals,
    bound: Nanos,
    is_queued: bool,
    /// Number of packets that have left.
    packets: u64,
    /// Received packets that wait for the processor.
    waiting: VecDeque<SignalIn<F>>,
    handler: HandlerId,
}

/// A signalling packet that waits for the processor.
struct SignalIn<F> {
    received: Instant,
    frame: F,
}

/// Records of lateness on a link.
struct Watches {
    /// Time at which the link's driver had no room last.
    full_at: Instant,
    /// Packets that left later than the link's bound for them because the adapter had not sent the previous
    /// ones. Only links that are paced by completions can show that.
    departures: Watch,
    /// Packets that arrived later than that. The evidence is data packets, which an attacker on the wire can
    /// forge.
    arrivals: Watch,
}

/// A measurement of the drain rate of a link.
struct Measuring {
    /// The filler, while this host measures the link.
    filler: Option<Filler>,
    /// The count of the neighbour's filler packets, while the neighbour measures the link.
    counting: Option<Box<FillerArrivals>>,
}

/// Frames of a link's driver that are held without a reservation of their own.
struct Frames {
    /// Frames that best effort may hold at most, and frames that it holds.
    best_effort_max: u32,
    best_effort: u32,
    /// Frames that soft channels hold; they share a pool.
    pooled: u32,
}

/// Channels and flows that wait for room in a link's queues.
struct Waiters {
    /// Sources and flows, each at most once.
    blocked: VecDeque<ChannelId>,
    /// The sources of this host, by their flow; [`NO_SOURCE`](link_state::NO_SOURCE) for flows of channels that pass through.
    sources: Vec<ChannelId>,
    /// Flows whose packets have left in the present completion; empty otherwise.
    left: Vec<FlowIndex>,
}

/// A channel at this host.
struct Clip<M: Memory> {
    /// The channel's state, shared with signalling.
    local: Arc<LocalChannel>,
    /// d(k) of the processor.
    cpu_bound: Nanos,
    /// h(k) of the processor.
    cpu_horizon: Nanos,
    handler: HandlerId,
    /// Terms that only soft channels have.
    soft: Option<Box<SoftTerms>>,
    /// If the channel is closing: all packets that will still come. `None` at a source, and if the number is
    /// unknown.
    last: Option<Box<Tally>>,
    counters: Counters,
    notices_given: NoticesGiven,
    role: RoleState<M>,
}

/// Terms that only soft channels have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SoftTerms {
    /// The smallest slack in nanoseconds at which a packet has not expired. The least value if late packets
    /// are delivered too.
    slack_ns_min: i64,
    /// The channel's part of the frame pool of its incoming link. `None` if the channel has frames of its own, or no
    /// incoming link.
    pooled: Option<PooledFrames>,
}

/// A soft channel's part of a frame pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PooledFrames {
    /// The link whose driver's frames they are.
    link: LinkId,
    kept: u32,
}

/// State that a channel's role keeps.
enum RoleState<M: Memory> {
    Source(Source<M>),
    Forwarder(Forwarder),
    Sink(Sink<M>),
}

/// The clip of a channel whose messages start here, with its role already determined.
struct SourceEnd<'clip, M: Memory> {
    local: &'clip LocalChannel,
    cpu_bound: Nanos,
    cpu_horizon: Nanos,
    handler: HandlerId,
    counters: &'clip mut Counters,
    source: &'clip mut Source<M>,
}

/// A channel's clip where its messages end, its role known.
struct SinkEnd<'clip, M: Memory> {
    local: &'clip LocalChannel,
    cpu_bound: Nanos,
    soft: Option<&'clip mut SoftTerms>,
    /// True if all packets that will still come are known.
    closes: bool,
    counters: &'clip mut Counters,
    sink: &'clip mut Sink<M>,
}

/// Messages that start here.
struct Source<M: Memory> {
    reservation: LinkReservation,
    outbox: Option<M::Outbox>,
    regulator: LogicalArrivals,
    /// Number of the next message that is kept. A dropped message takes no number, because the sink stores
    /// only as many numbers as may be under way at the contract's rate.
    number_next: u64,
    outgoing: Outgoing,
    /// e of the link stage.
    link_arrivals: ArrivalsWithin,
    /// Messages that broke the contract and travel as best effort (`Policing::Demote`).
    demoted: Option<Box<Demoted>>,
    /// True if the ring is among those that are drained in the background.
    in_backlog: bool,
    /// Time since which the ring holds more messages than were taken, as far as known.
    rest_since: Option<Instant>,
    ending: Ending,
    /// True if the source is among the link's blocked ones.
    listed: bool,
}

/// The best-effort part of a source that demotes.
struct Demoted {
    outgoing: Outgoing,
    handler: HandlerId,
}

/// The packets of one channel that wait for its handler. They are in the slab of all channels, which has room
/// for as many as buffers are reserved for.
struct PacketQueue {
    packets: Fifo,
    packets_used: u32,
    packets_max: u32,
    arrivals: EffectiveArrivals,
    /// Terms on which packets are policed. Channels with equal terms share them.
    terms: Arc<ArrivalTerms>,
}

/// Packets that pass through this host.
struct Forwarder {
    reservation: LinkReservation,
    input: PacketQueue,
    link_arrivals: ArrivalsWithin,
    /// The message whose remaining packets are dropped because a slot was missing.
    dropping: Option<u64>,
}

/// Messages that end here.
struct Sink<M: Memory> {
    input: PacketQueue,
    reassembly: Reassembly<Slot<M>>,
    /// `None` until the application has consented; no packet arrives before.
    inbox: Option<M::Inbox>,
    /// The longest time between l and n(sink), to compute l from n.
    upstream: Nanos,
    /// The application takes messages as fast as it is given them, so more follow soon.
    is_resuming: bool,
    /// `Delivery::AtDeadline`.
    at_deadline: Option<Box<HeldDeliveries<Slot<M>>>>,
}

/// Complete messages that wait for l + D.
struct HeldDeliveries<S> {
    /// The handler that delivers them. It has its own deadlines, so it is separate from the handler of
    /// packets.
    handler: HandlerId,
    /// Messages in the order of completion.
    held: VecDeque<Held<S>>,
}

/// A flow that starts here.
struct Flow<M: Memory> {
    way: FlowRoute,
    message_bytes_max: u32,
    outbox: M::Outbox,
    outgoing: Outgoing,
    handler: HandlerId,
    /// True if the flow is among the link's blocked ones.
    listed: bool,
    /// Number of the next message, whether that message is kept or dropped.
    number_next: u64,
}

/// A packet that waits for its handler.
struct PacketIn<F> {
    frame: F,
    header: Header,
    nominal: Instant,
    effective: Instant,
    /// The packet behind this one in its queue.
    next: Next,
}

/// A message that waits for its delivery.
struct Held<S> {
    deliver_at: Instant,
    due: Instant,
    slot: S,
    info: MessageInfo,
}

/// A packet that waits for the processor as best effort.
struct Waiting<F> {
    frame: F,
    header: Header,
    received: Instant,
    /// Link whose frame the packet occupies.
    link: LinkId,
}

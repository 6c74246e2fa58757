//! The packets that fill a link while it is measured: best effort like any other to the executor and the link scheduler,
//! counted and dropped at the neighbour.

use punctual_analysis::{Instant, Nanos, Ppm};

use super::best_effort::key_of;
use super::processor::best_effort_parameters;
use super::work::Unit;
use super::{LinkState, Owner, Plane};
use crate::api::WorkKind;
use crate::config::LinkConfig;
use crate::ids::{ChannelNumber, Cookie, LinkId, NodeId, PathId};
use crate::limits::{HEADER_BYTES, RATE_BYTES_MAX, RATE_QUEUED_MAX};
use crate::linksched::LinkParameters;
use crate::memory::Memory;
use crate::node::packet::Packet;
use crate::sched::{Activation, HandlerId};
use crate::wire::{Age, ClockError, Header, Kind};

/// Channel number of filler packets: no channel and no flow has it.
const CHANNEL: ChannelNumber = ChannelNumber(0);

/// The packets that fill a link now, to measure its rate.
#[derive(Debug)]
pub(in crate::node) struct Filler {
    cookie: Cookie,
    handler: HandlerId,
    number_next: u64,
    /// Made and not handed over.
    queued: u32,
    bytes_left: u64,
    /// Bytes that the link had handed over before.
    handed_before: u64,
    /// Number of times that the driver had no room. If that happens, the link and not this host sets the
    /// pace.
    full_times: u32,
    /// True if no more packets are made.
    stopped: bool,
}

impl Filler {
    /// Notes that the driver had no room.
    pub const fn note_full(&mut self) {
        self.full_times += 1;
    }

    /// Whether no packet of the filler waits here any more.
    pub const fn is_empty(&self) -> bool {
        self.queued == 0
    }
}

impl<M: Memory> LinkState<M> {
    /// Bytes of the wire that were handed over since the start.
    pub(in crate::node) fn handed_bytes(&self) -> u64 {
        let counters = self.scheduler.counters();
        counters.guaranteed_bytes + counters.best_effort_bytes
    }

    pub(in crate::node) fn filler_wire_bytes(&self) -> u32 {
        self.wire_bytes(filler_payload_bytes(&self.config))
    }
}

/// Payload of the largest best-effort packet.
fn filler_payload_bytes(link: &LinkConfig) -> u32 {
    link.best_effort_bytes_max().saturating_sub(HEADER_BYTES as u32)
}

/// The header of a filler packet that is sent at `sent`.
pub(in crate::node) fn filler_header(
    path: PathId,
    destination: NodeId,
    cookie: Cookie,
    number: u64,
    payload_bytes: u32,
    sent: Instant,
) -> Header {
    Header {
        kind: Kind::BestEffort,
        demoted: false,
        unpromised: false,
        path,
        cookie,
        message: number,
        fragment: 0,
        fragments: 1,
        message_bytes: payload_bytes,
        slack_ns: 0,
        logical_arrival: sent,
        age: Age::NONE,
        payload_bytes,
        clock_error: ClockError::NONE,
        destination,
    }
}

impl<M: Memory> Plane<M> {
    fn filler_path(&self) -> PathId {
        PathId { node: self.config.id, channel: CHANNEL, epoch: self.config.epoch }
    }

    /// Begins to fill a link that no channel uses, at the highest rate that its configuration allows.
    pub(in crate::node) fn start_filling(&mut self, link: LinkId, cookie: Cookie, now: Instant) {
        let handler =
            self.context.processor.add_handler(Owner::Filler(link), best_effort_parameters(&self.config));
        let state = self.link_state_mut(link);
        let full_pace = LinkConfig {
            rate: state.config.rate_ceiling.unwrap_or(state.config.rate).max(state.config.rate),
            best_effort_cap: Ppm::ONE,
            best_effort_flow_cap: Ppm::ONE,
            ..state.config.clone()
        };
        state.scheduler.set_parameters(&LinkParameters::of(&full_pace));
        let handed_before = state.handed_bytes();
        state.measuring.filler = Some(Filler {
            cookie,
            handler,
            number_next: 0,
            queued: 0,
            bytes_left: RATE_BYTES_MAX,
            handed_before,
            full_times: 0,
            stopped: false,
        });
        self.arm_filler(link, now);
    }

    /// Stops making packets. Returns `true` once no filler packet waits for transmission.
    pub(in crate::node) fn stop_filling(&mut self, link: LinkId, now: Instant) -> bool {
        let is_empty = self.link_state_mut(link).measuring.filler.as_mut().is_none_or(|filler| {
            filler.stopped = true;
            filler.is_empty()
        });
        self.arm_filler(link, now);
        is_empty
    }

    /// Ends the measurement, drops what is left, and restores the link's own pace. Returns how often the
    /// driver was full.
    pub(in crate::node) fn end_filling(&mut self, link: LinkId) -> u32 {
        let key = key_of(self.filler_path());
        let state = self.link_state_mut(link);
        let Some(filler) = state.measuring.filler.take() else { return 0 };
        state.scheduler.remove_best_effort(key, drop);
        let parameters = LinkParameters::of(&state.config);
        state.scheduler.set_parameters(&parameters);
        self.context.processor.remove_handler(filler.handler);
        self.divide_rest(Some(link));
        filler.full_times
    }

    /// Updates the filler's handler in the executor. Without room in queue 2 it waits until any packet of the
    /// link leaves (`unblock_one`).
    pub fn arm_filler(&mut self, link: LinkId, now: Instant) {
        let key = key_of(self.filler_path());
        let state = &mut self.context.links.states[usize::from(link.0)];
        let Some(filler) = &state.measuring.filler else { return };
        let wire_bytes = state.filler_wire_bytes();
        if filler.stopped || filler.bytes_left < u64::from(wire_bytes) {
            return self.context.processor.executor.idle(filler.handler);
        }
        self.context.processor.executor.ready(
            filler.handler,
            Activation { eligible: now, deadline: now },
            now,
        );
        // Filler packets that wait here are useless after the end of the measurement, and delay the next
        // users of the link.
        let has_space = filler.queued < RATE_QUEUED_MAX;
        if has_space && state.scheduler.best_effort_space(key, wire_bytes) {
            self.context.processor.executor.unblock(filler.handler, now);
        } else {
            self.context.processor.executor.block(filler.handler);
        }
    }

    pub(super) fn filler_unit(&self, link: LinkId) -> Option<Unit> {
        let state = self.link_state(link);
        state.measuring.filler.as_ref().filter(|filler| !filler.stopped)?;
        Some(Unit {
            kind: WorkKind::BestEffort,
            packets: 1,
            bytes: filler_payload_bytes(&state.config),
            message_edge: false,
            application: Nanos::ZERO,
        })
    }

    /// Makes one packet, if there is still room.
    pub fn run_filler(&mut self, link: LinkId, now: Instant) {
        let key = key_of(self.filler_path());
        let state = self.link_state_mut(link);
        let wire_bytes = state.filler_wire_bytes();
        let is_queued = state.queue_best_effort(key, wire_bytes, Packet::Filler { link }, now);
        if let Some(filler) = state.measuring.filler.as_mut().filter(|_| is_queued) {
            filler.queued += 1;
            filler.bytes_left = filler.bytes_left.saturating_sub(wire_bytes.into());
        }
    }

    /// Writes the next packet, which leaves now.
    pub fn write_filler(&mut self, link: LinkId, now: Instant, out: &mut [u8]) -> Option<usize> {
        let path = self.filler_path();
        let state = self.link_state_mut(link);
        let (payload_bytes, neighbour) = (filler_payload_bytes(&state.config), state.config.neighbour);
        let (handed, wire_bytes) = (state.handed_bytes(), u64::from(state.filler_wire_bytes()));
        let filler = state.measuring.filler.as_mut()?;
        let (number, cookie) = (filler.number_next, filler.cookie);
        // Bytes of other packets on the link meanwhile. The neighbour assumes the same loss rate for them as
        // for filler.
        let others = (handed - filler.handed_before).saturating_sub((number + 1) * wire_bytes);
        filler.number_next += 1;
        filler.queued = filler.queued.saturating_sub(1);
        let header = filler_header(path, neighbour, cookie, number, payload_bytes, now);
        let header = Header { slack_ns: i64::try_from(others).unwrap_or(i64::MAX), ..header };
        let payload = out.get_mut(HEADER_BYTES..HEADER_BYTES + payload_bytes as usize)?;
        // The buffer may hold another application's data.
        payload.fill(0);
        Some(header.write(out) + payload_bytes as usize)
    }

    /// Receives a packet with which the neighbour fills the link; `false` if the packet is of another kind.
    pub fn take_filler(&mut self, link: LinkId, header: &Header, received: Instant) -> bool {
        let is_filler = header.path.channel == CHANNEL && header.destination == self.config.id;
        let state = &mut self.context.links.states[usize::from(link.0)];
        let counting = state.measuring.counting.as_deref_mut().filter(|_| is_filler);
        counting.is_some_and(|counting| counting.take(header, received))
    }
}

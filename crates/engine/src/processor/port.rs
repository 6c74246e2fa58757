//! A link as the processor drives it: owns its driver, and the state of what is ready, queued and
//! outstanding.
//!
//! A link that fails permanently is reported in the log, counted, and not used any more; the node finds by
//! its HELLOs that the neighbour is down, and the other links continue.

mod poll_mode;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use punctual_link::kernel::Mac;
use punctual_link::{
    Filter, FlowFilter, FlowKey, Frame, Link, LinkError, ListenerFilter, NextHop, Port, Received, Spins,
    Stream,
};
use punctual_proto::api::{self, CapturedKind, FilterChange, PacketOut, RtuId};
use punctual_proto::config::{LinkConfig, Pacing};
use punctual_proto::ids::{LinkId, PathId};
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Instant, Nanos};
use punctual_trial::{Defence, holds};

use self::poll_mode::PollMode;
use super::filters::{driver_filter, path_key, seal_key};
use crate::capture::Capture;
use crate::memory::HostMemory;
use crate::statistics::{Counters, LinkReport};

/// How long a packet may wait in the driver's queue for others to share its system call. Part of the link's
/// reaction time (delta), which is longer.
const FLUSH_DELAY: Nanos = Nanos::from_micros(20);
/// Packets that one call takes from the link scheduler.
const TRANSMIT_BATCH: usize = 64;

pub(super) struct DrivenLink {
    id: LinkId,
    driver: Box<dyn Link>,
    by_completion: bool,
    input: Input,
    /// Best-effort packets were left in their ring.
    has_left_best_effort: bool,
    /// The driver had no room.
    full: bool,
    /// There was more to transmit than one call takes.
    unfinished: bool,
    /// When the oldest packet that is queued and not flushed was queued.
    queued_since: Option<Instant>,
    /// Wire bytes handed over and not completed.
    outstanding_bytes: u64,
    poll_mode: PollMode,
    /// Next hops of the handlers whose packets leave as they are.
    hops: BTreeMap<RtuId, NextHop>,
    /// Times at which the driver found no frame, until the last check.
    dry: u64,
    failed: bool,
}

/// Whether packets may still wait in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Nothing,
    Packets,
    /// Packets, but no frame to put them in.
    Dry,
}

impl DrivenLink {
    pub fn new(id: LinkId, driver: Box<dyn Link>, config: &LinkConfig) -> Self {
        Self {
            id,
            driver,
            by_completion: config.pace == Pacing::Completion,
            input: Input::Packets,
            has_left_best_effort: true,
            full: false,
            unfinished: false,
            queued_since: None,
            outstanding_bytes: 0,
            poll_mode: PollMode::default(),
            hops: BTreeMap::new(),
            dry: 0,
            failed: false,
        }
    }

    /// Id of the link.
    pub const fn id(&self) -> LinkId {
        self.id
    }

    /// Token that the descriptors report.
    pub fn token(&self) -> u64 {
        token_of(usize::from(self.id.0))
    }

    /// The descriptor that reports best effort only.
    pub fn best_effort_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.driver.best_effort_descriptor()
    }

    /// The descriptor reports that packets came.
    pub fn readable(&mut self) {
        self.input = Input::Packets;
    }

    /// Receives up to `max` packets into `out`, the most urgent first, if there may be any. Best-effort
    /// packets only if `takes_best_effort`: otherwise they stay in their ring at no cost.
    pub fn receive(
        &mut self,
        takes_best_effort: bool,
        out: &mut Vec<Received>,
        max: usize,
        counters: &Counters,
    ) {
        let returns = takes_best_effort && self.has_left_best_effort;
        if self.failed || (self.input == Input::Nothing && !returns) {
            return;
        }
        let least = if takes_best_effort { Stream::BestEffort } else { Stream::Guaranteed };
        self.has_left_best_effort = !takes_best_effort;
        match self.driver.receive_from(least, out, max) {
            Ok(count) if count == max => self.input = Input::Packets,
            Ok(_) => self.input = self.what_is_left(counters),
            Err(error) => self.fail(&error, counters),
        }
    }

    /// Determines why a check brought fewer packets than possible: whether the pool was empty.
    fn what_is_left(&mut self, counters: &Counters) -> Input {
        let dry = self.driver.statistics().pool_dry;
        if std::mem::replace(&mut self.dry, dry) == dry {
            return Input::Nothing;
        }
        counters.receive_pool_dry.add(1);
        Input::Dry
    }

    /// Changes the driver's filter for a channel. If that fails, the driver would not let the channel's
    /// packets in: returns the path that must be aborted. Other channels are not affected.
    pub fn filter(&mut self, change: FilterChange, counters: &Counters) -> Option<PathId> {
        let done = match change {
            FilterChange::Set(filter) => self.driver.set_filter(&driver_filter(&filter)),
            FilterChange::Clear(path) => self.driver.clear_filter(path_key(path)),
            FilterChange::Neighbour(_) if !holds(Defence::Seals) => Ok(()),
            FilterChange::Neighbour(key) => self.driver.set_neighbour(seal_key(key)),
        };
        let Err(error) = done else { return None };
        tracing::error!(link = self.id.0, ?change, %error, "the driver's filter was not changed");
        counters.filters_failed.add(1);
        match change {
            FilterChange::Set(filter) => Some(filter.path),
            FilterChange::Clear(_) | FilterChange::Neighbour(_) => None,
        }
    }

    /// The filters that the driver has; `None`: it keeps none.
    pub fn filters(&self) -> Option<Vec<Filter>> {
        self.driver.filters()
    }

    /// The way to `remote`.
    pub fn next_hop(&mut self, remote: IpAddr) -> Result<NextHop, LinkError> {
        self.driver.next_hop(remote)
    }

    /// Tells the driver of a flow, whose segments `sender` makes.
    pub fn set_flow(&mut self, flow: &FlowFilter, (sender, hop): (RtuId, NextHop)) -> Result<(), LinkError> {
        self.driver.set_flow(flow)?;
        self.hops.insert(sender, hop);
        Ok(())
    }

    /// Forgets where a handler's segments go; its flow stays.
    pub fn forget_hop(&mut self, sender: RtuId) {
        self.hops.remove(&sender);
    }

    /// Forgets a flow. An error means that the driver, and the flow with it, are gone.
    pub fn clear_flow(&mut self, flow: FlowKey, sender: RtuId) {
        self.hops.remove(&sender);
        if let Err(error) = self.driver.clear_flow(flow) {
            tracing::debug!(link = self.id.0, ?flow, %error, "a flow was not cleared");
        }
    }

    pub fn set_listener(&mut self, listener: &ListenerFilter) -> Result<(), LinkError> {
        self.driver.set_listener(listener)
    }

    /// Forgets a listener, as [`Self::clear_flow`] a flow.
    pub fn clear_listener(&mut self, local: SocketAddr) {
        if let Err(error) = self.driver.clear_listener(local) {
            tracing::debug!(link = self.id.0, %local, %error, "a listener was not cleared");
        }
    }

    /// Wire bytes that the adapter has finished, on a link that is paced by that.
    pub fn completed(&mut self) -> Option<u32> {
        if !self.by_completion || self.outstanding_bytes == 0 {
            return None;
        }
        let wire_bytes = self.driver.completed();
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(u64::from(wire_bytes));
        (wire_bytes > 0).then_some(wire_bytes)
    }

    /// Fills the driver's buffers with the node's packets; returns whether there were any.
    pub fn transmit<O: Outbox, I: Inbox>(
        &mut self,
        node: &mut Node<HostMemory<O, I>>,
        capture: &mut Option<Capture<I>>,
        at: Instant,
        counters: &Counters,
    ) -> bool {
        let mut any = false;
        let id = self.id;
        (self.full, self.unfinished) = (false, false);
        for _ in 0..TRANSMIT_BATCH {
            if self.failed {
                return any;
            }
            if !node.may_transmit(id) {
                self.flush_if_waiting(at, counters);
                return any;
            }
            let Some(buffer) = self.buffer(counters) else {
                node.handle_full(id, at);
                self.full = true;
                break;
            };
            let Some(transmit) = node.poll_transmit(id, at, buffer) else {
                self.flush_if_waiting(at, counters);
                return any;
            };
            any = true;
            if let Some(capture) = capture {
                self.copy(&transmit, capture, at);
            }
            self.queue(transmit, at, counters);
        }
        self.unfinished = !self.full;
        self.flush(counters);
        any
    }

    /// A buffer to fill; makes room once if there is none.
    fn buffer(&mut self, counters: &Counters) -> Option<&mut [u8]> {
        if self.driver.transmit_buffer().is_none() {
            self.flush(counters);
            if self.driver.transmit_buffer().is_none() {
                counters.driver_full.add(1);
            }
        }
        self.driver.transmit_buffer()
    }

    /// Copies a packet that leaves.
    fn copy<I: Inbox>(&mut self, transmit: &api::Transmit<Frame>, capture: &mut Capture<I>, at: Instant) {
        let (kind, len) = match &transmit.packet {
            PacketOut::Frame(frame) => {
                let kind = captured(transmit.port);
                return capture.packet((kind, true, self.id), frame.as_ref(), at);
            }
            PacketOut::Written(len) => (captured(transmit.port), *len),
            PacketOut::Raw { len, .. } => (CapturedKind::Ip, *len),
        };
        // The buffer that the node has just written.
        if let Some(written) = self.driver.transmit_buffer().and_then(|buffer| buffer.get(..len)) {
            capture.packet((kind, true, self.id), written, at);
        }
    }

    fn queue(&mut self, transmit: api::Transmit<Frame>, at: Instant, counters: &Counters) {
        let (port, wire_bytes) = (driver_port(transmit.port), transmit.wire_bytes);
        let queued = match transmit.packet {
            PacketOut::Written(len) => self.driver.transmit(port, len, wire_bytes),
            PacketOut::Frame(frame) => self.queue_frame(port, frame, wire_bytes),
            PacketOut::Raw { handler, tag, len } => self.queue_raw(handler, tag, len, wire_bytes),
        };
        match queued {
            Ok(()) => {
                self.queued_since.get_or_insert(at);
                if self.by_completion {
                    self.outstanding_bytes += u64::from(wire_bytes);
                }
            }
            Err(error) => self.fail(&error, counters),
        }
    }

    /// Queues a packet that a handler has made whole: to the hardware address in its tag, or to the next hop of the handler.
    fn queue_raw(&mut self, handler: RtuId, tag: u64, len: usize, wire_bytes: u32) -> Result<(), LinkError> {
        if tag != 0 {
            let hop = NextHop::fixed(Mac::from_number(tag));
            return self.driver.transmit_ip(&hop, len, wire_bytes);
        }
        match self.hops.get(&handler) {
            Some(hop) => self.driver.transmit_ip(hop, len, wire_bytes),
            // The handler was removed after its packet was queued.
            None => Ok(()),
        }
    }

    /// Queues a frame: as it is if its memory is the driver's, or else a copy.
    fn queue_frame(&mut self, port: Port, frame: Frame, wire_bytes: u32) -> Result<(), LinkError> {
        let Err(frame) = self.driver.transmit_frame(port, frame, wire_bytes) else { return Ok(()) };
        let Some(buffer) = self.driver.transmit_buffer() else {
            // This is the buffer that the node has written.
            return Err(LinkError::Options("the driver took back a buffer that was not transmitted".into()));
        };
        let len = PacketOut::Frame(frame).copy_to(buffer);
        self.driver.transmit(port, len, wire_bytes)
    }

    fn flush_if_waiting(&mut self, at: Instant, counters: &Counters) {
        if self.queued_since.is_some_and(|since| at.since(since) >= FLUSH_DELAY) {
            self.flush(counters);
        }
    }

    /// Hands the queued packets to the medium; returns whether there were any.
    pub fn flush(&mut self, counters: &Counters) -> bool {
        if self.failed || (self.queued_since.is_none() && !self.driver.is_pending()) {
            return false;
        }
        self.queued_since = None;
        if let Err(error) = self.driver.flush() {
            self.fail(&error, counters);
        }
        true
    }

    /// Whether something can be done at once.
    pub fn has_more(&self, takes_best_effort: bool) -> bool {
        let returns = takes_best_effort && self.has_left_best_effort;
        !self.failed && (self.input == Input::Packets || self.unfinished || returns)
    }

    /// Whether some work waits that no descriptor reports.
    pub fn must_retry(&self) -> bool {
        let waits =
            self.input == Input::Dry || self.full || self.driver.is_pending() || self.outstanding_bytes > 0;
        !self.failed && waits
    }

    /// How long the link requests to be polled before its thread sleeps.
    pub fn spins(&self) -> Spins {
        self.driver.spins()
    }

    /// Recent traffic of other senders on the link's device, in bits of the wire a second, if it is measured.
    pub fn foreign_bps(&self) -> Option<u64> {
        self.driver.foreign_bps()
    }

    /// Holds kernel traffic on the link's device to `rate` from now on; another thread does it.
    pub fn shape(&mut self, rate: BitRate) {
        self.driver.shape(rate.0);
    }

    /// The rate limit of kernel traffic, once after each change.
    pub fn shaped(&mut self) -> Option<BitRate> {
        self.driver.shaped().map(BitRate)
    }

    pub fn report(&self) -> LinkReport {
        LinkReport {
            mode: self.driver.mode(),
            facts: self.driver.facts(),
            statistics: self.driver.statistics(),
            drops: self.driver.stream_drops(),
            foreign_bps: self.driver.foreign_bps(),
            failed: self.failed,
        }
    }

    fn fail(&mut self, error: &LinkError, counters: &Counters) {
        tracing::error!(link = self.id.0, %error, "link failed");
        counters.links_failed.add(1);
        self.failed = true;
    }
}

/// The token of the descriptors of link number `index`.
pub(super) const fn token_of(index: usize) -> u64 {
    index as u64
}

/// The core's word for a driver's port.
pub(super) fn node_port(port: Port) -> api::Port {
    match port {
        Port::Data => api::Port::Data,
        Port::Signalling => api::Port::Signalling,
    }
}

fn driver_port(port: api::Port) -> Port {
    match port {
        api::Port::Data => Port::Data,
        api::Port::Signalling => Port::Signalling,
    }
}

/// What a captured packet of a port begins with.
pub(super) const fn captured(port: api::Port) -> CapturedKind {
    match port {
        api::Port::Data => CapturedKind::Data,
        api::Port::Signalling => CapturedKind::Signalling,
    }
}

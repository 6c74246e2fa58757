//! One host's protocol engine: wire, signalling, handlers and link schedulers joined, without I/O.
//!
//! The node has four kinds of method: `handle_*` take input, `poll_*` return output, and the rest are
//! requests of applications (`open`, `listen`, ...) and getters. `Signalling` decides which channels exist,
//! and the data plane moves their packets. The two meet in the trait `Resources` and here.

mod breach_monitor;
mod late;
mod neighbour_clock;
mod overrun_tolerance;
mod packet;
mod plane;
pub(crate) mod rate;
mod record;
mod requests;
mod signals;
mod stages;
mod status;
#[cfg(test)]
mod tests;

use punctual_analysis::{Instant, Nanos, Ppm};

pub use self::stages::{Decided, Decision};

use self::breach_monitor::BreachWatch;
use self::neighbour_clock::NeighbourClock;
use self::plane::{Owner, Plane};
use self::rate::Rates;
use self::signals::Signals;
use crate::api::{CloseReason, Event, FilterChange, Port, Transmit, Work, WorkKind};
use crate::config::{CpuCosts, NodeConfig, NodeConfigError};
use crate::ids::{LinkId, PathId};
use crate::limits::ENDS_MAX;
use crate::memory::Memory;
use crate::sched::HandlerId;
use crate::signalling::Signalling;
use crate::times::earliest;

/// The protocol engine of one host.
pub struct Node<M: Memory> {
    signalling: Signals,
    plane: Plane<M>,
    breach_watch: BreachWatch,
    rates: Rates,
}

impl<M: Memory> Node<M> {
    /// A new node. `seed`: 64 bits that differ at each start.
    ///
    /// # Errors
    /// If the configuration contradicts itself.
    pub fn new(config: NodeConfig, seed: u64, now: Instant) -> Result<Self, NodeConfigError> {
        config.check()?;
        let signalling = Signals::new(Signalling::new(&config, seed, now));
        let (breach_watch, rates) = (BreachWatch::new(config.links.len()), Rates::new(&config.links));
        Ok(Self { breach_watch, rates, signalling, plane: Plane::new(config)? })
    }

    /// Handles a packet that came in on `link` at the driver's time `received`, not after `now`. Constant
    /// work.
    pub fn handle_frame(
        &mut self,
        link: LinkId,
        port: Port,
        received: Instant,
        frame: M::Frame,
        now: Instant,
    ) {
        self.plane.receive(link, port, received.min(now), frame, now);
    }

    /// The adapter has sent `wire_bytes` more, in the order of hand-over (only links paced by completions).
    pub fn handle_sent(&mut self, link: LinkId, wire_bytes: u32, now: Instant) {
        self.plane.complete(link, wire_bytes, now);
    }

    /// Notes that the driver of a link had no room for the next packet: this processor does not cause the
    /// lateness of packets that leave later because of that.
    pub fn handle_full(&mut self, link: LinkId, now: Instant) {
        self.plane.link_state_mut(link).note_full(now);
    }

    /// The next packet that `link` may take now: written to `out`, or a frame that passes through, which fits
    /// into `out` too.
    pub fn poll_transmit(
        &mut self,
        link: LinkId,
        now: Instant,
        out: &mut [u8],
    ) -> Option<Transmit<M::Frame>> {
        self.plane.transmit(link, &mut self.signalling, now, out)
    }

    /// Whether [`Node::poll_transmit`] may have something for `link`. Check first to avoid taking a buffer
    /// that is not needed.
    pub fn may_transmit(&self, link: LinkId) -> bool {
        !self.plane.link_state(link).is_empty() || self.signalling.has_signal(link)
    }

    /// The next filter change for the driver of a link: channels that come in on it, and the neighbour. Call
    /// it before [`Node::poll_transmit`], because the next packet may permit a source to begin.
    pub fn poll_filter(&mut self) -> Option<(LinkId, FilterChange)> {
        let of_neighbour =
            || self.signalling.poll_seal().map(|(link, key)| (link, FilterChange::Neighbour(key)));
        self.plane.poll_filter().or_else(of_neighbour)
    }

    /// Ends a channel that comes in by `path` because this host cannot serve it after all: it is refused, or
    /// closed.
    pub fn abort_path(&mut self, path: PathId, reason: CloseReason, now: Instant) {
        if let Some(channel) = self.plane.channel_of(&path) {
            self.signalling.abort(channel, reason, now, &mut self.plane);
        }
    }

    /// Aborts the channel that was admitted last. Returns `false` if there is no channel.
    pub fn abort_newest(&mut self, reason: CloseReason, now: Instant) -> bool {
        let newest = self.signalling.newest();
        if let Some(channel) = newest {
            self.signalling.abort(channel, reason, now, &mut self.plane);
        }
        newest.is_some()
    }

    /// Moves decisions of admission to the caller of [`Node::poll_decision`]: with thousands of channels a
    /// decision may take milliseconds, and packets need not wait for it. Before this call each decision is
    /// made within the call that requests it.
    pub const fn decide_elsewhere(&mut self) {
        self.plane.stages_mut().decide_elsewhere();
    }

    /// The next decision for admission; return it by [`Node::handle_decided`]. Until then this returns
    /// `None`.
    pub fn poll_decision(&mut self) -> Option<Decision> {
        self.plane.stages_mut().poll_decision()
    }

    /// Whether admission has a decision to make, or has made one whose result was not taken yet.
    pub fn is_deciding(&self) -> bool {
        self.plane.stages().is_asked()
    }

    /// Applies the results of decisions.
    pub fn handle_decided(&mut self, decided: Decided, now: Instant) {
        for &(channel, took) in decided.took() {
            self.signalling.note_decision(channel, took);
        }
        self.plane.stages_mut().handle_decided(decided);
        self.plane.divide_rests();
        self.signalling.settle(now, &mut self.plane);
        self.settle_rtus(now);
    }

    /// The utilisation of the processor that admission has reserved, interference included.
    pub fn cpu_utilisation(&self) -> Ppm {
        self.plane.stages().cpu_utilisation()
    }

    /// Whether best-effort packets are worth taking from a link's driver now: nothing more urgent waits for
    /// the processor, and there is room for them. While this is `false`, a flood of them may stay in its ring
    /// and costs no CPU.
    ///
    /// More urgent work is work within its budget. Signalling has one packet in each interval of
    /// `packets_per_second`. Packets beyond that are behind best effort until the next interval (otherwise a
    /// flood of them would starve best effort), so this is true while such a packet waits. The value is that
    /// of the last `begin_work`. A budget that the clock has refilled since has its effect at the next
    /// `begin_work`, which serves that signal before all best effort, taken or not. If this is true too
    /// early, best effort waits in the node instead of the ring.
    pub fn has_best_effort_room(&self, link: LinkId) -> bool {
        self.plane.takes_best_effort(link)
    }

    /// Picks one unit of protocol work, if any is due. It is finished before the next is begun.
    pub fn begin_work(&mut self, now: Instant) -> Option<Work> {
        self.plane.begin(now)
    }

    /// Applies the effects of a unit.
    #[allow(clippy::needless_pass_by_value, reason = "a unit is finished once")]
    pub fn finish_work(&mut self, work: Work, now: Instant) {
        if let Some(Owner::Signals(link)) = self.plane.finish(&work, now) {
            if let Some((received, frame)) = self.plane.link_state_mut(link).take_signal() {
                self.signalling.handle_signal(link, received, now, frame.as_ref(), &mut self.plane);
                let view = self.signalling.neighbour(link, now);
                self.plane.link_state_mut(link).set_neighbour(NeighbourClock::of(&view));
                self.tend_rate(link, now);
            }
            self.plane.arm_signals(link, now);
            self.outdate_channels();
        }
        if let Some(channel) = self.plane.take_first_data() {
            self.signalling.first_data(channel, now, &mut self.plane);
        }
    }

    /// Records that the last finished unit of `handler` took `took`, including all work for it, where
    /// admission assumes `declared`. The record is for `status`; too many long units raise a notice. The
    /// unused part of the time does not count against `cpu_share_max`.
    pub fn record_unit(
        &mut self,
        handler: HandlerId,
        kind: WorkKind,
        took: Nanos,
        declared: Nanos,
        now: Instant,
    ) {
        if kind != WorkKind::Signalling {
            self.plane.refund(declared - took, now);
        }
        self.plane.record_unit(handler, kind, took, declared);
    }

    /// Notes that the processor was idle for `span`, or did other work than protocol work: the next unit may
    /// find cold caches.
    pub fn record_idle(&mut self, span: Nanos) {
        self.plane.record_idle(span);
    }

    /// Records that the processor woke `late` after the requested time, whatever else woke it. This counts as
    /// lateness of the processor's stage.
    pub fn record_wake(&mut self, late: Nanos, now: Instant) {
        self.plane.record_wake(late, now);
    }

    /// Records that the processor, which was not waiting, checked for work `late` after it should have.
    pub fn record_standstill(&mut self, late: Nanos, now: Instant) {
        self.plane.note_standstill(late, now);
    }

    /// Whether channels start here. Their messages show no standstill of the processor, so it should have a
    /// timer that does.
    pub const fn has_sources(&self) -> bool {
        self.plane.has_sources()
    }

    /// The costs that admission assumes here.
    pub fn costs(&self) -> &CpuCosts {
        &self.plane.config().cpu.costs
    }

    /// Handles everything that is due. Call it at `poll_timeout`, or earlier.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.signalling.poll_timeout().is_some_and(|due| due <= now) {
            self.signalling.handle_timeout(now, &mut self.plane);
        }
        self.plane.free_some();
        for _ in 0..ENDS_MAX {
            let Some(channel) = self.plane.poll_drained() else { break };
            self.signalling.drained(channel, now, &mut self.plane);
        }
        if self.plane.shapers_due().is_some_and(|due| due <= now) {
            self.plane.follow(now);
            while let Some(channel) = self.plane.poll_fitted() {
                if !self.plane.fit_sender(channel, now) {
                    self.signalling.fitted(channel, now, &mut self.plane);
                }
            }
        }
        if self.breaches_due().is_some_and(|due| due <= now) {
            self.check_breaches(now);
        }
        if self.rates.due().is_some_and(|due| due <= now) {
            self.handle_rates(now);
        }
        self.plane.ready_due_rtus(now);
        self.outdate_channels();
    }

    /// Whether [`Node::handle_timeout`] has work left from a call that reached its limit.
    pub fn has_leftovers(&self) -> bool {
        self.plane.has_drained() || self.plane.has_leftovers() || self.signalling.has_more()
    }

    /// The earliest time at which something becomes due without input; a time in the past means now.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut links = self.plane.links();
        // If work is ready, no times need be compared.
        if self.plane.has_ready()
            || self.plane.has_drained()
            || self.plane.has_leftovers()
            || self.signalling.has_signals()
                && links.any(|link| self.plane.may_queue_signal(link, &self.signalling))
        {
            return Some(Instant::ZERO);
        }
        let own = earliest(earliest(self.breaches_due(), self.rates.due()), self.plane.shapers_due());
        let own = earliest(own, self.plane.rtus_due());
        earliest(own, earliest(self.signalling.poll_timeout(), self.plane.poll_timeout()))
    }

    /// Whether best effort waits to be sent on `link`. Flows that wait only because of their cap do not
    /// count.
    pub fn best_effort_waits(&self, link: LinkId) -> bool {
        self.plane.link_state(link).best_effort_waits()
    }

    /// Whether this node holds the channel of `path`, in any state.
    pub fn holds(&self, path: PathId) -> bool {
        self.signalling.knows(path)
    }

    /// The next event for an application.
    pub fn poll_event(&mut self) -> Option<Event> {
        let notice = self.plane.poll_notice().or_else(|| self.plane.poll_registered());
        let notice = notice.or_else(|| self.rates.poll_event());
        let notice = notice.or_else(|| self.breach_watch.poll_event());
        notice.or_else(|| if self.signalling.has_event() { self.signalling.poll_event() } else { None })
    }
}

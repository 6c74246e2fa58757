//! The processor: one thread that drives one node and all its links.
//!
//! It owns both; other threads reach it only through [`crate::command`]. One *turn* takes the arrived
//! packets, does protocol work for at most [`WORK_SLICE`] (one unit at a time, transmitting between units),
//! and hands out events. Then the processor polls every descriptor without waiting if there is more to do, or
//! sleeps until the next time at which the node wants to run. An arrival therefore waits at most one turn
//! until it is noticed: [`RECEIVE_BATCH`] packets of each link, [`RUNG_MESSAGES`] of rings, one slice, one
//! unit, and one request of a program. Requests are done in the background, one in a turn in which the slice
//! was not used up, or after [`commands::BACKGROUND_TURNS`] others. A node that wants to run at once but then
//! does no work is made to wait [`waiting::RETRY`]. If a link requests it, the processor polls the rings for
//! a time before it sleeps (see [`spin`]).

mod bodies;
mod commands;
mod doorbells;
pub(crate) mod filters;
mod handles;
pub(crate) mod lead;
mod links;
mod meter;
mod port;
mod share;
mod spin;
mod standstill_timer;
pub(crate) mod tcp;
mod waiting;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use punctual_link::Received;
use punctual_os::calls::{self, Forbidden, ThreadKind};
use punctual_os::heap::{Lease, Sizes};
use punctual_os::{now, realtime, wait::Waiter};
use punctual_proto::api::Event;
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::limits::RING_MESSAGES_BEHIND;
use punctual_proto::memory::{Inbox, Outbox};
use punctual_proto::node::Node;
use punctual_proto::{Instant, Nanos};

use self::bodies::Bodies;
use self::doorbells::Doorbells;
use self::handles::CloseOnDrop;
use self::links::RECEIVE_BATCH;
use self::meter::Meter;
use self::port::DrivenLink;
use self::share::Share;
use self::spin::{Spin, Waited};
use self::standstill_timer::StandstillTimer;
use self::tcp::Tcp;
use self::waiting::{BACKGROUND, COMMANDS};
use crate::capture::Capture;
use crate::command::Answer;
use crate::config::EngineConfig;
use crate::decider::Decider;
use crate::direct;
use crate::error::EngineError;
use crate::memory::HostMemory;
use crate::ready::Cursor;

pub(crate) use self::commands::Mailboxes;

/// Protocol work without a check of the descriptors; a check is a system call.
pub const WORK_SLICE: Nanos = Nanos::from_micros(50);
/// How long after its grace a stopping node may still be driven. Whatever its channels would need, it stops by then.
const STOP_MARGIN: Nanos = Nanos::from_millis(100);
/// Messages that one turn takes out of all rings that have rung. When this number is reached,
/// [`RING_MESSAGES_BEHIND`] of each other ring. That takes some tens of microseconds for all rings that one
/// check reports (ADR 0047).
const RUNG_MESSAGES: u32 = 128;

/// Whether commands may wait.
#[derive(Clone, Copy, Debug)]
struct Orders {
    are_waiting: bool,
    /// Where connections whose programs have used their rings are looked for.
    ready: Cursor,
    background: Background,
}

/// Whether a command in the background may wait, and for how many turns it was put off.
#[derive(Clone, Copy, Debug, Default)]
struct Background {
    may_wait: bool,
    put_off: u32,
}

/// See the module.
pub(crate) struct Processor<O: Outbox, I: Inbox> {
    node: Node<HostMemory<O, I>>,
    /// Makes the node's decisions of admission.
    decider: Decider,
    ports: Vec<DrivenLink>,
    waiter: Waiter,
    programs: Programs<O, I>,
    received: Vec<Received>,
    meter: Meter,
    /// Events that wait for the lock of their queue.
    events: VecDeque<Event>,
    orders: Orders,
    timing: Timing,
    /// The CPU share that the kernel has granted to the thread, if it follows admission.
    share: Option<Share>,
    lead: Leading<O, I>,
    stop: Stop,
    shared: Arc<Mailboxes<O, I>>,
    /// Dropped last: all fields above are allocated there.
    heap: Option<Lease>,
}

/// What programs have given the processor to watch and to call.
struct Programs<O: Outbox, I: Inbox> {
    doorbells: Doorbells,
    bodies: Bodies,
    /// TCP of this host's own, if it runs any.
    tcp: Option<Tcp<O, I>>,
    /// Where packets are copied to.
    capture: Option<Capture<I>>,
}

/// Times at which the processor checks its inputs, and at which it sleeps.
struct Timing {
    spin: Spin,
    standstill: StandstillTimer,
    /// When the next turn began, if it includes events that were found while waiting.
    turn_begun: Option<Instant>,
}

/// The thread that drives the processor, and the next one to do so.
struct Leading<O: Outbox, I: Inbox> {
    /// The thread that leads next.
    successor: Option<lead::LeadAnswer<O, I>>,
    /// An application's thread drives, not the engine's own.
    is_led: bool,
}

/// How it stops.
struct Stop {
    grace: Nanos,
    /// Time at which a stopping processor ends at the latest.
    at: Option<Instant>,
}

/// How a step ended.
enum Step {
    /// The time at which the next turn begins.
    Goes(Instant),
    /// The awaited condition is true, or the time limit was reached.
    Done(Instant),
    /// The processor has stopped.
    Stopped,
}

/// The work that one turn has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// True if something was done.
    progress: bool,
    /// True if something can be done at once.
    more: bool,
    /// True if work waits for another thread or for the adapter.
    retry: bool,
    /// Time at which the turn was over.
    ended: Instant,
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// The thread's main function. Returns what is left of the processor to the thread that joins it: closing
    /// it takes system calls that this thread may not make.
    pub fn main(
        config: EngineConfig,
        decider: Decider,
        heap: Option<(Lease, Sizes)>,
        shared: Arc<Mailboxes<O, I>>,
        started: Answer<Result<(), EngineError>>,
    ) -> Option<Box<Self>> {
        // This closes the mailboxes however the thread ends: after a panic no thread may wait forever.
        let _close = CloseOnDrop::new(Arc::clone(&shared));
        let forbidden = config.forbidden_calls;
        match Self::new(config, decider, heap, shared).and_then(|processor| processor.confined(forbidden)) {
            Ok(processor) => {
                started.send(Ok(()));
                lead::keep(Box::new(processor))
            }
            Err(error) => {
                started.send(Err(error));
                None
            }
        }
    }

    /// Confines the thread to the system calls in its list from now on.
    fn confined(self, forbidden: Forbidden) -> Result<Self, EngineError> {
        // Read now what a report reads from files, once per thread.
        drop(self.link_reports());
        let shared = ThreadKind::ProcessorOnSharedHeap;
        let kind = self.heap.as_ref().map_or(shared, |_| ThreadKind::Processor);
        calls::confine(kind, forbidden).map_err(EngineError::Confine)?;
        Ok(self)
    }

    fn new(
        config: EngineConfig,
        decider: Decider,
        heap: Option<(Lease, Sizes)>,
        shared: Arc<Mailboxes<O, I>>,
    ) -> Result<Self, EngineError> {
        realtime::apply(&config.real_time)?;
        let os = |what| move |error| EngineError::Os { what, error };
        let begin = |(mut lease, sizes): (Lease, _)| lease.begin(sizes).map(|()| lease);
        let heap = heap.map(begin).transpose().map_err(os("filling the processor's heap"))?;
        direct::prepare();
        let waiter = Waiter::new().map_err(os("epoll"))?;
        waiter.watch(shared.commands().doorbell().as_fd(), COMMANDS).map_err(os("epoll"))?;
        waiter.watch(shared.background().doorbell().as_fd(), BACKGROUND).map_err(os("epoll"))?;
        let mut ports = Vec::with_capacity(config.links.len());
        for (index, (driver, link)) in config.links.into_iter().zip(&config.node.links).enumerate() {
            for descriptor in driver.descriptors() {
                waiter.watch(descriptor, port::token_of(index)).map_err(os("waiting for a link"))?;
            }
            ports.push(DrivenLink::new(LinkId(index as u16), driver, link));
        }
        let received = Vec::with_capacity(RECEIVE_BATCH);
        let spin = Spin::new(config.spin, ports.iter().map(DrivenLink::spins));
        realtime::check_spin(&config.real_time, spin.longest())?;
        let grace = config.node.signalling.grace + STOP_MARGIN;
        let mut node = Node::new(config.node, config.seed, now())?;
        node.decide_elsewhere();
        let tcp = config.tcp.map(Tcp::new);
        let programs =
            Programs { doorbells: Doorbells::default(), bodies: Bodies::default(), tcp, capture: None };
        let share = Share::of(config.real_time.class, node.cpu_utilisation(), shared.counters())?;
        Ok(Self {
            node,
            decider,
            ports,
            waiter,
            programs,
            received,
            meter: Meter::default(),
            events: VecDeque::new(),
            orders: Orders {
                are_waiting: true,
                ready: Cursor::default(),
                background: Background { may_wait: true, put_off: 0 },
            },
            timing: Timing { spin, standstill: StandstillTimer::default(), turn_begun: None },
            share,
            lead: Leading { successor: None, is_led: false },
            stop: Stop { grace, at: None },
            shared,
            heap,
        })
    }

    /// Does one turn, and sleeps until the next one, until `rest_until` at the latest. Returns the time, or
    /// how the processor ended. It calls `is_done` between the two, so that a thread that waits for a result
    /// of the turn does not sleep.
    fn step(
        &mut self,
        started: Instant,
        rest_until: Option<Instant>,
        is_done: &mut impl FnMut(&Self) -> bool,
    ) -> Step {
        let begun = self.timing.turn_begun.take().unwrap_or(started);
        let turn = self.turn(started);
        let ended = turn.ended;
        let counters = self.shared.counters();
        counters.loops.add(1);
        counters.loop_ns_max.max(ended.since(begun).0);
        if self.stop.at.is_some_and(|at| ended >= at || self.node.is_quiet()) {
            self.finish();
            return Step::Stopped;
        }
        if is_done(self) || rest_until.is_some_and(|until| until <= ended) {
            return Step::Done(ended);
        }
        let until = self.next_turn(turn, ended).into_iter().chain(rest_until).min();
        let Waited { idle_until, at } = self.wait(until, turn.progress, ended);
        self.node.record_idle(idle_until.since(ended));
        self.timing.turn_begun = Some(idle_until);
        Step::Goes(at)
    }

    /// Does one turn that begins at `at`. The clock is read again only after work, because a reading costs as
    /// much as a check of a ring. Work after the last reading of a turn with messages belongs to the next
    /// turn, which begins at that time, or is a check of the next timers.
    fn turn(&mut self, at: Instant) -> Turn {
        if let Some(late) = self.timing.standstill.check(at, self.node.has_sources()) {
            self.node.record_standstill(late, at);
        }
        self.ports.iter_mut().for_each(|port| port.end_rest(at));
        let received = self.receive(at);
        let at = received.unwrap_or(at);
        let read_at = at;
        let completed_first = self.complete(at);
        let mut progress = received.is_some() | completed_first;
        progress |= self.serve_doorbells(at);
        progress |= self.run_commands(at);
        if self.node.is_looking() {
            self.report_foreign_traffic();
        }
        // Does nothing if nothing is due; finding the earliest time of all costs more.
        self.report_shaped(at);
        self.node.handle_timeout(at);
        self.shape();
        let (worked, at) = self.work(at);
        let (asked, at) = self.answer(worked, at);
        // Transmit everything that may be transmitted after each unit.
        let transmitted = (asked || worked == Nanos::ZERO) && self.transmit(at);
        progress |= worked > Nanos::ZERO || asked || transmitted;
        let flushed = self.flush(at);
        // Many adapters are done at once: the window that opens is used at once.
        let completed = self.complete(flushed);
        let has_reported = self.hand_out_events() | self.have_decided();
        progress |= has_reported;
        if progress {
            self.timing.standstill.work();
        }
        // Neither belongs to a message: commands and timers in a turn without one, and the events of
        // channels.
        let is_untimed = has_reported || (flushed == read_at && !completed_first);
        let ended = if is_untimed { now() } else { flushed };
        Turn {
            progress: progress | completed,
            more: completed
                || worked >= WORK_SLICE
                || self.orders.are_waiting
                || self.orders.background.may_wait
                || self.node.has_leftovers()
                || self.ports.iter().any(|port| port.has_more(self.node.has_best_effort_room(port.id()))),
            retry: !self.events.is_empty()
                || self.decider.must_retry()
                || self.ports.iter().any(DrivenLink::must_retry),
            ended,
        }
    }

    /// Begins a capture; gives its ring back if one runs already.
    pub fn begin_capture(&mut self, capture: Capture<I>) -> Option<I> {
        if self.programs.capture.is_some() {
            return Some(capture.into_inbox());
        }
        self.programs.capture = Some(capture);
        None
    }

    /// Ends a capture; its ring, if it runs.
    pub fn end_capture(&mut self, id: ChannelId) -> Option<I> {
        self.programs.capture.take_if(|capture| capture.id() == id).map(Capture::into_inbox)
    }

    fn serve_doorbells(&mut self, at: Instant) -> bool {
        self.programs.doorbells.unmute(at, &self.waiter);
        let (mut any, mut left) = (false, RUNG_MESSAGES);
        while let Some(channel) = self.programs.doorbells.next_rung() {
            // Take the first messages of each ring now, so that the node has their deadlines.
            let most = left.max(RING_MESSAGES_BEHIND);
            if !self.ring_tcp(channel, at) {
                left = left.saturating_sub(self.node.handle_ring_within(channel, most, at));
            }
            any = true;
        }
        any
    }

    /// Units of work until none is left or the slice is over; returns how long it took (zero: there was none), and
    /// the time.
    fn work(&mut self, started: Instant) -> (Nanos, Instant) {
        let mut at = started;
        while let Some(work) = self.node.begin_work(at) {
            let (handler, kind, packets) = (work.handler, work.kind, work.packets);
            let declared = work.declared_cost(self.node.costs());
            let begun = at;
            self.finish_unit(work, at);
            self.serve_handlers(at);
            self.shared.counters().work_units.add(1);
            at = now();
            if self.transmit(at) {
                at = now();
            }
            self.timing.spin.stay_for(kind, at);
            let own = at.since(begun);
            self.node.record_unit(handler, kind, self.meter.unit(kind, packets, own), declared, at);
            let spent = at.since(started).max(Nanos(1));
            if spent >= WORK_SLICE {
                return (spent, at);
            }
        }
        (at.since(started), at)
    }

    fn hand_out_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.node.poll_event() {
            self.events.push_back(event);
            any = true;
        }
        self.process_handler_events();
        self.shared.events().try_put(&mut self.events);
        any
    }

    /// Passes on what admission must decide; returns whether there was anything.
    fn have_decided(&mut self) -> bool {
        let decision = self.node.poll_decision();
        let any = decision.is_some() || self.decider.must_retry();
        if any {
            self.decider.put(decision);
        }
        any
    }

    /// The grace period is over or no work is left: transmits the rest, hands out the last events and ends.
    fn finish(&mut self) {
        let at = now();
        self.transmit(at);
        self.flush(at);
        self.hand_out_events();
        self.shared.events().close(&mut self.events);
    }
}

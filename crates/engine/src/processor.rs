//! The processor: one thread that drives one node and all its links.
//!
//! It owns both; other threads reach it through [`crate::command`] only. One *turn* takes what came in, does
//! protocol work for at most [`WORK_SLICE`] (one unit at a time, transmitting between units), and hands out events;
//! then it looks at every descriptor without waiting if there is more to do, or sleeps until the next time at
//! which the node wants to run. So an arrival goes unseen for at most one turn: [`RECEIVE_BATCH`] packets of each
//! link, [`RUNG_MESSAGES`] of rings, one slice, one unit, and one request of a program: these are done in the background, one in a turn in which the
//! slice was not used up, or after [`BACKGROUND_TURNS`] others. A node that wants to run at once and then does nothing is made
//! to wait [`RETRY`]. Where a link asks for it, it looks at the rings for so long before it sleeps (see [`spin`]).

mod doorbells;
pub(crate) mod filters;
mod handles;
pub(crate) mod lead;
mod links;
mod meter;
mod port;
mod sentry;
mod share;
mod spin;

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

use self::doorbells::Doorbells;
use self::handles::CloseOnDrop;
use self::links::RECEIVE_BATCH;
use self::meter::Meter;
use self::port::DrivenLink;
use self::sentry::Sentry;
use self::share::Share;
use self::spin::{Spin, Waited};
use crate::command::{Answer, CommandQueue};
use crate::config::EngineConfig;
use crate::decider::Decider;
use crate::direct;
use crate::error::EngineError;
use crate::events::Events;
use crate::memory::HostMemory;
use crate::statistics::Counters;

/// Protocol work without a look at the descriptors; a look is a system call.
pub const WORK_SLICE: Nanos = Nanos::from_micros(50);
/// How soon to look again at what no descriptor tells: a completion, a full driver, a lock, a pool of frames.
const RETRY: Nanos = Nanos::from_micros(50);
/// A wake-up later than this is counted.
const LATE: Nanos = Nanos::from_millis(1);
/// How long after its grace a stopping node may still be driven. Whatever its channels would need, it stops by then.
const STOP_MARGIN: Nanos = Nanos::from_millis(100);
/// Commands taken in one turn.
const COMMANDS_PER_TURN: usize = 16;
/// Messages that one turn takes out of all rings that have rung; when they are taken, [`RING_MESSAGES_BEHIND`] of each other:
/// some tens of microseconds for all that one look tells of (ADR 0047).
const RUNG_MESSAGES: u32 = 128;
/// Turns that were full of protocol work until one in the background is done all the same: some 3 ms.
const BACKGROUND_TURNS: u32 = 64;
/// Token of the command queue's doorbell; links and channels have theirs below (see `wake_up`).
const COMMANDS: u64 = 1 << 63;
/// That of the queue whose commands wait for messages.
const BACKGROUND: u64 = COMMANDS + 1;
/// Tokens of channels; their numbers stay below 2^62.
const CHANNELS: u64 = 1 << 62;

/// What the processor shares with its handles.
pub(crate) struct Mailboxes<O: Outbox, I: Inbox> {
    commands: CommandQueue<Processor<O, I>>,
    /// What is done when no message waits for its handler, one in a turn.
    background: CommandQueue<Processor<O, I>>,
    events: Events,
    counters: Counters,
}

impl<O: Outbox, I: Inbox> Mailboxes<O, I> {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            commands: CommandQueue::new()?,
            background: CommandQueue::new()?,
            events: Events::new()?,
            counters: Counters::default(),
        })
    }
    pub const fn commands(&self) -> &CommandQueue<Processor<O, I>> {
        &self.commands
    }
    /// Of what is done when no message waits for its handler, one in a turn.
    pub const fn background(&self) -> &CommandQueue<Processor<O, I>> {
        &self.background
    }
    pub const fn events(&self) -> &Events {
        &self.events
    }
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// See the module.
pub(crate) struct Processor<O: Outbox, I: Inbox> {
    node: Node<HostMemory<O, I>>,
    /// Makes the node's decisions of admission.
    decider: Decider,
    ports: Vec<DrivenLink>,
    waiter: Waiter,
    doorbells: Doorbells,
    received: Vec<Received>,
    meter: Meter,
    /// Events that wait for the lock of their queue.
    events: VecDeque<Event>,
    orders: Orders,
    pace: Pace,
    /// What the kernel has given the thread, where that follows admission.
    share: Option<Share>,
    lead: Leading<O, I>,
    stop: Stop,
    shared: Arc<Mailboxes<O, I>>,
    /// Last: all of the above lies there.
    heap: Option<Lease>,
}

/// Whether commands may wait.
#[derive(Clone, Copy, Debug)]
struct Orders {
    are_waiting: bool,
    background: Background,
}

/// When it looks, and when it sleeps.
struct Pace {
    spin: Spin,
    sentry: Sentry,
    /// When the turn that is next has begun, where what was found while waiting is part of it.
    turn_begun: Option<Instant>,
}

/// Which thread drives.
struct Leading<O: Outbox, I: Inbox> {
    /// Who is to lead next.
    successor: Option<lead::Successor<O, I>>,
    /// An application's thread drives, not the engine's own.
    is_led: bool,
}

/// How it stops.
struct Stop {
    grace: Nanos,
    /// When a stopping processor ends at the latest.
    at: Option<Instant>,
}

/// Whether a command in the background may wait, and for how many turns it was put off.
#[derive(Clone, Copy, Debug, Default)]
struct Background {
    may_wait: bool,
    put_off: u32,
}

/// How a step ended.
enum Step {
    /// The time, from which the next one goes on.
    Goes(Instant),
    /// What was waited for is there, or its time is over.
    Done(Instant),
    /// The processor has stopped.
    Stopped,
}

/// What one turn has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// Something was done.
    progress: bool,
    /// Something can be done at once.
    more: bool,
    /// Something waits for somebody else.
    retry: bool,
    /// When it was over.
    ended: Instant,
}

impl<O: Outbox + 'static, I: Inbox + 'static> Processor<O, I> {
    /// The thread's main function. What is left of the processor is for whoever waits for the thread: closing it takes
    /// calls that are not the thread's.
    pub fn main(
        config: EngineConfig,
        decider: Decider,
        heap: Option<(Lease, Sizes)>,
        shared: Arc<Mailboxes<O, I>>,
        started: Answer<Result<(), EngineError>>,
    ) -> Option<Box<Self>> {
        // Told however the thread ends: a panic in it must not leave anybody waiting.
        let _farewell = CloseOnDrop::new(Arc::clone(&shared));
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

    /// From now on the thread makes no system calls but those in its list.
    fn confined(self, forbidden: Forbidden) -> Result<Self, EngineError> {
        // What a report reads from files, once a thread.
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
        waiter.watch(shared.commands.doorbell().as_fd(), COMMANDS).map_err(os("epoll"))?;
        waiter.watch(shared.background.doorbell().as_fd(), BACKGROUND).map_err(os("epoll"))?;
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
        let share = Share::of(config.real_time.class, node.cpu_utilisation(), &shared.counters)?;
        Ok(Self {
            node,
            decider,
            ports,
            waiter,
            doorbells: Doorbells::default(),
            received,
            meter: Meter::default(),
            events: VecDeque::new(),
            orders: Orders { are_waiting: true, background: Background { may_wait: true, put_off: 0 } },
            pace: Pace { spin, sentry: Sentry::default(), turn_begun: None },
            share,
            lead: Leading { successor: None, is_led: false },
            stop: Stop { grace, at: None },
            shared,
            heap,
        })
    }

    /// One turn, and the sleep until the next one, `rest_until` at the latest; the time, or how it ended. `is_done` is
    /// asked between the two: who waits for something that the turn has brought does not sleep.
    fn step(
        &mut self,
        started: Instant,
        rest_until: Option<Instant>,
        is_done: &mut impl FnMut(&Self) -> bool,
    ) -> Step {
        let begun = self.pace.turn_begun.take().unwrap_or(started);
        let turn = self.turn(started);
        let ended = turn.ended;
        let counters = &self.shared.counters;
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
        self.pace.turn_begun = Some(idle_until);
        Step::Goes(at)
    }

    /// Begins at `at`. The clock is read anew only where something was done: a reading costs as much as a look at a
    /// ring. What is done after the last reading of a turn with messages is the next turn's, which begins at that time, or a
    /// look at the next timers.
    fn turn(&mut self, at: Instant) -> Turn {
        if let Some(late) = self.pace.sentry.look(at, self.node.has_sources()) {
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
            self.tell_foreign_traffic();
        }
        // Does nothing where nothing is due; asking for the earliest time of all costs more.
        self.tell_shaped(at);
        self.node.handle_timeout(at);
        self.shape();
        let (worked, at) = self.work(at);
        let (asked, at) = self.answer(worked, at);
        // After each unit everything is transmitted that may be.
        let transmitted = (asked || worked == Nanos::ZERO) && self.transmit(at);
        progress |= worked > Nanos::ZERO || asked || transmitted;
        let flushed = self.flush(at);
        // Many adapters are done at once: the window that opens is used at once.
        let completed = self.complete(flushed);
        let told = self.hand_out_events() | self.have_decided();
        progress |= told;
        if progress {
            self.pace.sentry.work();
        }
        // Neither is any message's: commands and timers in a turn without one, and what is told of channels.
        let is_untimed = told || (flushed == read_at && !completed_first);
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

    fn serve_doorbells(&mut self, at: Instant) -> bool {
        self.doorbells.unmute(at, &self.waiter);
        let (mut any, mut left) = (false, RUNG_MESSAGES);
        while let Some(channel) = self.doorbells.next_rung() {
            // Each gives its first ones now, so that the node knows how urgent it is.
            let most = left.max(RING_MESSAGES_BEHIND);
            left = left.saturating_sub(self.node.handle_outbox_within(channel, most, at));
            any = true;
        }
        any
    }

    fn run_commands(&mut self, at: Instant) -> bool {
        if !self.orders.are_waiting {
            return false;
        }
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = self.shared.commands.try_pop() else {
                // Whoever is just adding one rings after it.
                self.orders.are_waiting = false;
                break;
            };
            command(self, at);
        }
        self.serve_handlers(at);
        true
    }

    /// Does one command of the background where the turn had little else to do, or has had much for long; whether it did
    /// one, and the time. What was waiting for it is a unit of work to all others: nothing but the command bounds it.
    fn answer(&mut self, worked: Nanos, at: Instant) -> (bool, Instant) {
        let Background { may_wait, put_off } = self.orders.background;
        if !may_wait {
            return (false, at);
        }
        if worked >= WORK_SLICE && put_off < BACKGROUND_TURNS {
            self.orders.background.put_off += 1;
            return (false, at);
        }
        let command = self.shared.background.try_pop();
        self.orders.background = Background { may_wait: command.is_some(), put_off: 0 };
        let Some(command) = command else { return (false, at) };
        command(self, at);
        self.serve_handlers(at);
        (true, now())
    }

    /// What applications on this thread have just sent.
    fn serve_handlers(&mut self, at: Instant) {
        while let Some(channel) = direct::next_rung() {
            self.node.handle_outbox(channel, at);
        }
    }

    /// Units of work until none is left or the slice is over; returns how long it took (zero: there was none), and
    /// the time.
    fn work(&mut self, started: Instant) -> (Nanos, Instant) {
        let mut at = started;
        while let Some(work) = self.node.begin_work(at) {
            let (handler, kind, packets) = (work.handler, work.kind, work.packets);
            let declared = work.declared_cost(self.node.costs());
            let begun = at;
            self.node.finish_work(work, at);
            self.serve_handlers(at);
            self.shared.counters.work_units.add(1);
            at = now();
            if self.transmit(at) {
                at = now();
            }
            self.pace.spin.stay_for(kind, at);
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
        self.shared.events.try_put(&mut self.events);
        any
    }

    /// Gives away what admission is to decide; whether there was anything.
    fn have_decided(&mut self) -> bool {
        let decision = self.node.poll_decision();
        let any = decision.is_some() || self.decider.must_retry();
        if any {
            self.decider.put(decision);
        }
        any
    }

    /// When the next turn is due: `None` means when something comes in.
    fn next_turn(&self, turn: Turn, at: Instant) -> Option<Instant> {
        if turn.more {
            return Some(at);
        }
        let retry = turn.retry.then_some(at + RETRY);
        let wanted = self.node.poll_timeout();
        // The node is due and nothing came of it: waiting is all that can help.
        let stalled = !turn.progress && wanted.is_some_and(|wanted| wanted <= at);
        if stalled {
            self.shared.counters.stalls.add(1);
        }
        let wanted = if stalled { Some(at + RETRY) } else { wanted };
        let rests = self.ports.iter().filter_map(DrivenLink::rests_until).min();
        let others = [rests, self.doorbells.next_unmute(), self.pace.sentry.due(), self.stop.at];
        [retry, wanted].into_iter().chain(others).flatten().min()
    }

    /// Looks at the descriptors without waiting; whether anything is there.
    fn look(&mut self, at: Instant) -> bool {
        self.ready(Some(Nanos::ZERO), at).is_some()
    }

    /// Waits for descriptors at most `span` and notes what is ready; `None`: nothing is, else the time at which that was
    /// found.
    fn ready(&mut self, span: Option<Nanos>, at: Instant) -> Option<Instant> {
        let ready = match self.waiter.wait(span) {
            Ok(ready) => ready,
            Err(error) => panic!("epoll failed on descriptors of our own: {error}"),
        };
        let woken = if span == Some(Nanos::ZERO) || ready == 0 { at } else { now() };
        for n in 0..ready {
            if let Some(token) = self.waiter.token(n) {
                self.wake_up(token, woken);
            }
        }
        (ready > 0).then_some(woken)
    }

    /// Sleeps until something comes in or `until`; the time, and when it woke.
    fn sleep(&mut self, until: Option<Instant>, at: Instant) -> Waited {
        let found = self.ready(until.map(|until| until.since(at)), at);
        let woken = now();
        self.shared.counters.wakes.add(1);
        // After a standstill something else is ready too: the timer was late all the same.
        if let Some(until) = until.filter(|until| *until <= woken) {
            let late = woken.since(until);
            self.shared.counters.wake_late_ns_max.max(late.0);
            self.shared.counters.late_wakes.add(u64::from(late > LATE));
            self.node.record_wake(late, woken);
            // Of one standstill that is enough.
            self.pace.sentry.seen(woken);
        }
        Waited { idle_until: found.unwrap_or(woken), at: woken }
    }

    fn wake_up(&mut self, token: u64, at: Instant) {
        match token {
            COMMANDS => self.orders.are_waiting = true,
            BACKGROUND => self.orders.background.may_wait = true,
            token if token & CHANNELS != 0 => {
                self.doorbells.rung(ChannelId(token & !CHANNELS), at, &self.waiter);
            }
            token => {
                if let Some(port) = self.ports.get_mut(token as usize) {
                    port.readable();
                }
            }
        }
    }

    /// The grace is over or nothing is left: says the rest and ends.
    fn finish(&mut self) {
        let at = now();
        self.transmit(at);
        self.flush(at);
        self.hand_out_events();
        self.shared.events.close(&mut self.events);
    }
}

//! The run queue of one processor.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_analysis::{Instant, Nanos, Ppm};

use super::budget::Account;
use super::caps::{Bucket, Caps};
use super::heap::IndexedHeap;
use super::order::{Order, banded, by_rate, level};
use super::parameters::{Activation, Class, HandlerParameters};
use crate::config::RunPolicy;
use crate::ids::HandlerId;
use crate::limits::EXECUTOR_MOVES_MAX;
use crate::slab::reserve;
use crate::times::earliest;

/// A handler's head PDU, or none: nothing is queued. `None` is a head that never becomes eligible, so it
/// takes 16 bytes where an option takes 24.
#[derive(Clone, Copy, Debug)]
struct Head(Activation);

impl Head {
    const NONE: Self = Self(Activation { eligible: Instant(u64::MAX), deadline: Instant(u64::MAX) });

    fn get(self) -> Option<Activation> {
        (self.0.eligible != Self::NONE.0.eligible).then_some(self.0)
    }
}

#[derive(Debug)]
struct Handler {
    order: Order,
    head: Head,
    /// True if the handler is out of slots.
    blocked: bool,
    /// Place of the handler in a FIFO: the smallest is at the head.
    ticket: u64,
    /// PDUs done since it came to the head of its level.
    turn_packets: u32,
    account: Account,
    /// Share of the processor that the handler has while it is best effort. It is boxed, because most hosts
    /// cap no flow.
    share: Option<Box<Share>>,
}

/// Share of one best-effort flow.
#[derive(Debug)]
struct Share {
    bucket: Bucket,
    spent_until: Option<Instant>,
}

/// Orders the handlers of one processor: selects the next to run, and decides whether the running one should
/// yield.
///
/// A handler is in exactly one of: running, ready, waiting to be eligible, idle or blocked.
#[derive(Debug)]
pub struct Executor {
    policy: RunPolicy,
    handlers: Vec<Option<Handler>>,
    free: Vec<HandlerId>,
    /// Eligible handlers, by urgency.
    ready: IndexedHeap,
    /// Other handlers, by the time at which they become eligible.
    waiting: IndexedHeap,
    /// Ready handlers, by the time at which the clock begins their next period.
    clocked: IndexedHeap,
    running: Option<HandlerId>,
    tickets: u64,
    caps: Caps,
    /// The share of each flow of best effort.
    flow_share: Option<Bucket>,
}

impl Executor {
    /// An executor without handlers.
    pub fn new(policy: RunPolicy) -> Self {
        Self {
            policy,
            handlers: Vec::new(),
            free: Vec::new(),
            ready: IndexedHeap::default(),
            waiting: IndexedHeap::default(),
            clocked: IndexedHeap::default(),
            running: None,
            tickets: 0,
            caps: Caps::default(),
            flow_share: None,
        }
    }

    /// This executor with caps: on all work, and on the best-effort part of it. The order `fifo` has no caps.
    #[must_use]
    pub fn with_caps(self, all: Ppm, best_effort: Ppm) -> Self {
        let caps = if self.policy == RunPolicy::Fifo { Caps::default() } else { Caps::new(all, best_effort) };
        Self { caps, ..self }
    }

    /// This executor with a cap on each best-effort flow, for handlers that are added from now on.
    #[must_use]
    pub fn with_flow_cap(self, share: Ppm) -> Self {
        let flow_share = Bucket::of(share).filter(|_| self.policy != RunPolicy::Fifo);
        Self { flow_share, ..self }
    }

    /// Charges completed work of this declared cost to the handler's own flow. If it is best effort, it waits
    /// once its share is spent.
    pub fn charge_flow(&mut self, id: HandlerId, cost: Nanos, now: Instant) {
        let Some(handler) = self.get_mut(id).filter(|handler| handler.takes_turns()) else { return };
        if let Some(share) = &mut handler.share {
            share.spent_until = share.bucket.charge(cost, now);
        }
    }

    /// Charges completed work of this declared cost to the caps.
    pub fn charge(&mut self, id: HandlerId, cost: Nanos, now: Instant) {
        let is_best_effort = self.get(id).is_some_and(Handler::takes_turns);
        self.caps.charge(cost, is_best_effort, now);
    }

    /// Refunds `saved`, the part of the last charged work that was not used, to the caps that were charged.
    /// The handler's present state does not matter (it may just have spent its budget). A flow's own share is
    /// charged by declared costs and gets no refund.
    pub fn refund(&mut self, saved: Nanos, now: Instant) {
        self.caps.refund(saved, now);
    }

    /// Best effort waits for [`BEST_EFFORT_PAUSE`](crate::limits::BEST_EFFORT_PAUSE): a program was woken that precedes it. It does so for at most
    /// half of the time. The order `fifo` knows no precedence.
    pub fn pause_best_effort(&mut self, now: Instant) {
        if self.policy != RunPolicy::Fifo {
            self.caps.pause_best_effort(now);
        }
    }

    /// Adds a handler, idle; reserves its memory.
    pub fn add(&mut self, parameters: HandlerParameters) -> HandlerId {
        let HandlerParameters { class, level, place, quantum_packets, period, .. } = parameters;
        let handler = Handler {
            order: Order { class, level, place, quantum_packets, period },
            head: Head::NONE,
            blocked: false,
            ticket: 0,
            turn_packets: 0,
            account: Account::new(parameters.budget, parameters.trigger),
            share: self.flow_share.map(|bucket| Box::new(Share { bucket, spent_until: None })),
        };
        if let Some(id) = self.free.pop() {
            self.handlers[id.0 as usize] = Some(handler);
            return id;
        }
        let handlers = self.handlers.len() + 1;
        reserve(&mut self.handlers, handlers);
        self.handlers.push(Some(handler));
        reserve(&mut self.free, handlers);
        for heap in [&mut self.ready, &mut self.waiting, &mut self.clocked] {
            heap.reserve(handlers);
        }
        HandlerId((handlers - 1) as u32)
    }

    /// Removes a handler in any state. Its id may be reused.
    pub fn remove(&mut self, id: HandlerId) {
        if self.get(id).is_none() {
            return;
        }
        self.unqueue(id);
        self.handlers[id.0 as usize] = None;
        self.free.push(id);
        self.running = self.running.filter(|running| *running != id);
    }

    /// Sets the handler's head PDU; replaces the previous one. For the running handler it takes effect at
    /// `finished`.
    pub fn ready(&mut self, id: HandlerId, activation: Activation, now: Instant) {
        let ticket = self.tickets;
        let Some(handler) = self.get_mut(id) else { return };
        let starts_anew = handler.starts_anew(&activation);
        handler.head = Head(activation);
        if starts_anew {
            handler.take_ticket(ticket);
            self.tickets += 1;
        }
        self.place(id, now);
    }

    /// Notes that the handler has no PDU queued any more.
    pub fn idle(&mut self, id: HandlerId) {
        let Some(handler) = self.get_mut(id) else { return };
        // A handler without a head is in no queue.
        if handler.head.get().is_some() {
            handler.head = Head::NONE;
            self.unqueue(id);
        }
    }

    /// Blocks a handler because the link has no slots for the packets that it would make (HARTS 5.2.2): it
    /// does not compete for the CPU.
    pub fn block(&mut self, id: HandlerId) {
        if let Some(handler) = self.get_mut(id) {
            handler.blocked = true;
            self.unqueue(id);
        }
    }

    /// Notes that the handler has slots again: it goes to the tail of its level. No effect if it was not
    /// blocked.
    pub fn unblock(&mut self, id: HandlerId, now: Instant) {
        let ticket = self.tickets;
        let Some(handler) = self.get_mut(id).filter(|handler| handler.blocked) else { return };
        handler.blocked = false;
        handler.take_ticket(ticket);
        self.tickets += 1;
        self.place(id, now);
    }

    /// The most urgent eligible handler, which is then the running one. At most [`EXECUTOR_MOVES_MAX`] become
    /// eligible in a call; while more are due it returns `None` and `next_timeout` is in the past.
    pub fn pick(&mut self, now: Instant) -> Option<HandlerId> {
        if let Some(running) = self.running {
            self.finished(running, 0, now);
        }
        if !self.settle(now) {
            return None;
        }
        self.caps.settle(now);
        let id = self.first_ready()?;
        self.unqueue(id);
        let handler = self.get_mut(id)?;
        // The clock may have begun a period since it became ready: this run is charged to that.
        handler.account.renew(handler.head.get()?.eligible, now);
        self.running = Some(id);
        self.running
    }

    /// Whether a handler is the running one. A handler that has got the id of a removed one is not running
    /// until it is picked itself.
    pub fn is_running(&self, id: HandlerId) -> bool {
        self.running == Some(id)
    }

    /// Whether a more urgent handler than the running one is eligible; call it after its quantum.
    pub fn yield_request(&mut self, now: Instant) -> bool {
        if !self.settle(now) {
            return true;
        }
        let Some((key, _)) = self.ready.peek() else { return false };
        let running = self.running.and_then(|id| self.get(id));
        let own = running.and_then(|handler| Some(handler.key(&handler.head.get()?, self.policy)));
        own.is_none_or(|own| key < own)
    }

    /// The running handler has processed `packets` PDUs: they are charged to its budget. If it has more, it
    /// keeps its place at the head of its level; a best-effort handler only until its turn of a quantum is
    /// over.
    pub fn finished(&mut self, id: HandlerId, packets: u32, now: Instant) {
        self.running = self.running.filter(|running| *running != id);
        let ticket = self.tickets;
        let Some(handler) = self.get_mut(id) else { return };
        handler.account.charge(packets);
        handler.turn_packets = handler.turn_packets.saturating_add(packets);
        if handler.takes_turns() && handler.turn_packets >= handler.order.quantum_packets.max(1) {
            handler.take_ticket(ticket);
            self.tickets += 1;
        }
        self.place(id, now);
    }

    /// Time at which a waiting handler becomes eligible, if none is ready; a time in the past means that
    /// `pick` must be called now.
    pub fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.waiting.peek().map(|(key, _)| instant(key));
        let throttled = self.caps.throttled().filter(|_| self.ready.peek().is_some() && !self.has_ready());
        if throttled.is_none() {
            return waiting;
        }
        // The caps hold a handler that has spent its budget only until the clock begins its next period.
        let refilled = self.clocked.peek().map(|(key, _)| instant(key));
        earliest(waiting, earliest(throttled, refilled))
    }

    /// Whether `pick` may return a handler without time passing.
    pub fn has_ready(&self) -> bool {
        self.first_ready().is_some()
    }

    /// The most urgent ready handler, if the caps let it run: best effort is after all other work.
    fn first_ready(&self) -> Option<HandlerId> {
        let (_, id) = self.ready.peek()?;
        let waits = self.caps.throttled().is_some() && self.get(id).is_some_and(Handler::takes_turns);
        (!waits).then_some(id)
    }

    /// Whether the next handler precedes best effort.
    pub fn has_urgent(&self) -> bool {
        let next = self.ready.peek().and_then(|(_, id)| self.get(id));
        next.is_some_and(|handler| !handler.takes_turns())
    }

    /// Packets that the next unit of a handler may have: b_p, within what is left of its budget; at least 1.
    pub fn unit_packets(&self, id: HandlerId) -> u32 {
        let of = |handler: &Handler| handler.account.unit_packets(handler.order.quantum_packets);
        self.get(id).map_or(1, of).max(1)
    }

    /// Whether a handler is a soft channel's, which may be served after its deadline.
    pub fn is_soft(&self, id: HandlerId) -> bool {
        self.get(id).is_some_and(|handler| handler.order.class == Class::Soft)
    }

    fn get(&self, id: HandlerId) -> Option<&Handler> {
        self.handlers.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: HandlerId) -> Option<&mut Handler> {
        self.handlers.get_mut(id.0 as usize)?.as_mut()
    }

    fn unqueue(&mut self, id: HandlerId) {
        for heap in [&mut self.ready, &mut self.waiting, &mut self.clocked] {
            heap.remove(id);
        }
    }

    /// Puts a handler that is not running into the queue for its head.
    fn place(&mut self, id: HandlerId, now: Instant) {
        if self.running == Some(id) {
            return;
        }
        let policy = self.policy;
        let Some(handler) = self.get_mut(id).filter(|handler| !handler.blocked) else { return };
        // Idle or blocked handlers are in no queue.
        let Some(head) = handler.head.get() else { return };
        let release = handler.account.release(head.eligible);
        if release > now {
            return self.place_waiting(id, release);
        }
        handler.account.renew(head.eligible, now);
        let (key, refills) = (handler.key(&head, policy), handler.account.refills());
        if let Some(until) = handler.held(now) {
            return self.place_waiting(id, refills.map_or(until, |refills| refills.min(until)));
        }
        self.waiting.remove(id);
        self.ready.set(id, key);
        match refills {
            Some(refills) => self.clocked.set(id, u128::from(refills.0)),
            None => self.clocked.remove(id),
        }
    }

    /// Puts a handler among those that become eligible at `until`.
    fn place_waiting(&mut self, id: HandlerId, until: Instant) {
        self.ready.remove(id);
        self.clocked.remove(id);
        self.waiting.set(id, u128::from(until.0));
    }

    /// Makes eligible handlers ready and promotes refilled budgets; `false` if more are due.
    fn settle(&mut self, now: Instant) -> bool {
        for _ in 0..EXECUTOR_MOVES_MAX {
            let Some(id) = self.due(now) else { return true };
            self.place(id, now);
        }
        self.due(now).is_none()
    }

    fn due(&self, now: Instant) -> Option<HandlerId> {
        let first = |heap: &IndexedHeap| heap.peek().filter(|(key, _)| instant(*key) <= now);
        first(&self.waiting).or_else(|| first(&self.clocked)).map(|(_, id)| id)
    }
}

impl Handler {
    /// Whether the handler takes turns: best effort does; a guaranteed handler stays until its message is
    /// done.
    fn takes_turns(&self) -> bool {
        matches!(self.order.class, Class::BestEffort | Class::Background) || self.account.is_spent()
    }

    /// Time until which a best-effort handler has spent its flow's share; `None` if it may run.
    fn held(&self, now: Instant) -> Option<Instant> {
        let until = self.share.as_ref().and_then(|share| share.spent_until);
        until.filter(|until| *until > now && self.takes_turns())
    }

    /// Whether `activation` begins a new stay in the FIFO: after idleness, or with another message.
    fn starts_anew(&self, activation: &Activation) -> bool {
        self.head.get().is_none_or(|head| !self.takes_turns() && head != *activation)
    }

    fn take_ticket(&mut self, ticket: u64) {
        self.ticket = ticket;
        self.turn_packets = 0;
    }

    /// Band of the handler and place within it, with this head; the smaller, the more urgent.
    fn key(&self, head: &Activation, policy: RunPolicy) -> u128 {
        let class = if self.account.is_spent() { Class::Background } else { self.order.class };
        match policy {
            RunPolicy::Edf => match class {
                Class::LowLatency | Class::Guaranteed => {
                    banded(Class::Guaranteed as u8, self.account.due(head.deadline).0)
                }
                Class::Soft => banded(Class::Soft as u8, self.account.due(head.deadline).0),
                _ => banded(class as u8, self.ticket),
            },
            RunPolicy::FixedPriority => banded(level(class, self.order.level), self.ticket),
            RunPolicy::Rmdp => by_rate(class, &self.order, self.ticket),
            // The baseline policy has neither classes nor budgets.
            RunPolicy::Fifo => head.eligible.0.into(),
        }
    }
}

fn instant(key: u128) -> Instant {
    Instant(u64::try_from(key).unwrap_or(u64::MAX))
}

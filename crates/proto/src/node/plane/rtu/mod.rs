//! Programs' handlers: registered, picked, charged and monitored like those of channels (RTU 3; ADR 0051).
//!
//! Ownership: the node owns the account and counters of a handler, the driver owns its body. A handler has at
//! most two places in the run queue: that of its class, where it runs within its budget, and one of best
//! effort, where it runs beyond it. Cancellation: a handler that is removed while its body runs is removed at
//! once; the effects of the call are ignored.

mod conduct;
mod pace;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use punctual_analysis::{Class as Rank, Instant, Nanos};

use self::conduct::{Conduct, Disturbance, Verdict};
use self::pace::Pace;
use super::new::best_effort_parameters;
use super::work::Unit;
use super::{Owner, Plane};
use crate::api::{
    Misconduct, RtuClass, RtuCounters, RtuEvent, RtuGrant, RtuId, RtuRefusal, RtuStatus, RtuTerms,
    UpcallDone, Work, WorkKind,
};
use crate::limits::RTU_HANDLERS_MAX;
use crate::memory::Memory;
use crate::node::Node;
use crate::node::stages::RtuAnswer;
use crate::sched::{Activation, Class, HandlerId, HandlerParameters, Trigger};

/// All programs' handlers of a node.
#[derive(Default)]
pub(super) struct Rtus {
    handlers: BTreeMap<RtuId, Box<Rtu>>,
    next: u64,
    news: VecDeque<RtuEvent>,
    /// Idle time of the processor since its start.
    idle: Nanos,
}

/// One handler.
struct Rtu {
    terms: RtuTerms,
    /// Its place in its class; `None` until admission has granted it, for best effort, and once it is
    /// demoted.
    own: Option<Own>,
    /// Its place among best effort, or in the background; `None` while it has none.
    rest: Option<HandlerId>,
    /// Time since which it has work.
    since: Option<Instant>,
    /// Time of the last call to make it ready since its body was called.
    again: Option<Instant>,
    /// Time at which its body was called last.
    called: Instant,
    pace: Option<Pace>,
    conduct: Conduct,
    demoted: Option<Misconduct>,
    counters: RtuCounters,
}

/// A place in the run queue within the budget.
#[derive(Clone, Copy)]
struct Own {
    handler: HandlerId,
    bound: Nanos,
}

impl Rtu {
    fn new(terms: RtuTerms) -> Self {
        Self {
            terms,
            own: None,
            rest: None,
            since: None,
            again: None,
            called: Instant::ZERO,
            pace: Pace::of(terms.class),
            conduct: Conduct::default(),
            demoted: None,
            counters: RtuCounters::default(),
        }
    }

    /// Release of the next PDU within the budget.
    fn release(&self, now: Instant) -> Option<Instant> {
        Some(self.pace.as_ref()?.release(self.since?, now))
    }

    /// PDUs of the next call, within the budget or beyond it.
    fn given(&self, within: bool, now: Instant) -> u32 {
        let Some(since) = self.since else { return 0 };
        match &self.pace {
            Some(pace) if within => pace.released(since, now, self.terms.quantum),
            _ => self.terms.quantum,
        }
    }

    /// Charges a call. Returns the lateness of its first PDU.
    fn charge(&mut self, within: bool, given: u32, done: &UpcallDone, now: Instant) -> Nanos {
        self.counters.calls += 1;
        self.counters.took_max = self.counters.took_max.max(done.took);
        // A call that found no work is charged one PDU all the same. A timed handler with more work is
        // charged a whole quantum.
        let whole = done.more && matches!(self.terms.class, RtuClass::Guaranteed { .. });
        let charged = done.units.max(if whole { given } else { 1 });
        let (Some(pace), Some(since), true) = (self.pace.as_mut(), self.since, within) else {
            self.counters.units_beyond += u64::from(done.units);
            return Nanos::ZERO;
        };
        self.counters.units += u64::from(done.units);
        let release = pace.charge(since, self.called, charged);
        let late = self.own.map_or(Nanos::ZERO, |own| now.since(release + own.bound));
        self.counters.late += u64::from(late > Nanos::ZERO);
        self.counters.late_max = self.counters.late_max.max(late);
        late
    }

    fn count(&mut self, verdict: Verdict) {
        self.counters.overruns += u64::from(verdict.overran);
        self.counters.yields_ignored += u64::from(verdict.ignored_yield);
    }

    /// Whether it holds a place of the processor's admission: a demoted handler keeps its place.
    const fn holds(&self) -> bool {
        self.own.is_some() || self.demoted.is_some() && self.pace.is_some()
    }

    fn places(&self) -> usize {
        usize::from(self.own.is_some()) + usize::from(self.rest.is_some())
    }
}

impl<M: Memory> Node<M> {
    /// Registers a program's handler. If this returns an id, the reply follows: [`RtuEvent::Granted`] or
    /// [`RtuEvent::Refused`] by [`Node::poll_rtu`], at once unless admission decides elsewhere.
    ///
    /// # Errors
    /// If it cannot be honoured here whatever else is admitted: a range, the processor's order, the length of
    /// a call.
    pub fn register_handler(&mut self, terms: RtuTerms, now: Instant) -> Result<RtuId, RtuRefusal> {
        let id = self.plane.register_rtu(terms)?;
        self.settle_rtus(now);
        Ok(id)
    }

    /// Notes that the handler has work from now on. No effect if it already has work, or is not granted.
    pub fn make_ready(&mut self, id: RtuId, now: Instant) {
        self.plane.ready_rtu(id, now);
    }

    /// Removes a handler and releases its reservation; no effect if there is none.
    pub fn remove_handler(&mut self, id: RtuId) {
        self.plane.remove_rtu(id);
    }

    /// The handler whose body is to be called for a unit that [`Node::begin_work`] has picked; `None` for all other units.
    /// `packets` of the unit is how many PDUs it may process.
    pub fn upcall(&self, work: &Work) -> Option<RtuId> {
        match self.plane.context.processor.owner(HandlerId(work.handler))? {
            Owner::Rtu(id) | Owner::RtuRest(id) => Some(id),
            _ => None,
        }
    }

    /// Applies a unit whose body was called. It replaces [`Node::finish_work`], which assumes that a body has
    /// done all that it was given in its declared time.
    pub fn finish_upcall(&mut self, work: &Work, done: UpcallDone, now: Instant) {
        self.plane.finish_rtu(work, &done, now);
    }

    /// The next event of programs' handlers.
    pub fn poll_rtu(&mut self) -> Option<RtuEvent> {
        self.plane.rtus.news.pop_front()
    }

    /// All programs' handlers, by name.
    pub fn handlers(&self) -> impl Iterator<Item = RtuStatus> + '_ {
        self.plane.rtus.handlers.iter().map(|(&id, rtu)| RtuStatus {
            id,
            terms: rtu.terms,
            bound: rtu.own.map(|own| own.bound),
            demoted: rtu.demoted,
            counters: rtu.counters,
        })
    }

    /// Applies the replies of admission.
    pub(in crate::node) fn settle_rtus(&mut self, now: Instant) {
        while let Some(answer) = self.plane.stages.poll_rtu() {
            self.plane.install_rtu(answer, now);
        }
    }
}

impl<M: Memory> Plane<M> {
    fn register_rtu(&mut self, terms: RtuTerms) -> Result<RtuId, RtuRefusal> {
        if self.rtus.handlers.len() >= RTU_HANDLERS_MAX {
            return Err(RtuRefusal::Exhausted);
        }
        self.stages.check_rtu(&terms, &self.config)?;
        let id = RtuId(self.rtus.next);
        self.rtus.next += 1;
        let mut rtu = Box::new(Rtu::new(terms));
        if terms.class == RtuClass::BestEffort {
            rtu.rest = Some(self.add_rest(id, Class::BestEffort, &terms));
            let grant = RtuGrant { bound: None, cpu_utilisation: self.stages.cpu_utilisation() };
            self.rtus.news.push_back(RtuEvent::Granted(id, grant));
        }
        self.rtus.handlers.insert(id, rtu);
        self.stages.ask_rtu(id, &terms);
        Ok(id)
    }

    fn add_rest(&mut self, id: RtuId, class: Class, terms: &RtuTerms) -> HandlerId {
        let parameters = HandlerParameters {
            class,
            quantum_packets: terms.quantum,
            ..best_effort_parameters(&self.config)
        };
        self.context.processor.add_handler(Owner::RtuRest(id), parameters)
    }

    /// Applies the reply for a handler. If the handler was removed meanwhile, what was granted is released.
    fn install_rtu(&mut self, (id, answer): RtuAnswer, now: Instant) {
        let Some(terms) = self.rtus.handlers.get(&id).map(|rtu| rtu.terms) else { return };
        let (place, grant) = match answer {
            Ok(granted) => granted,
            Err(refusal) => {
                self.rtus.handlers.remove(&id);
                return self.rtus.news.push_back(RtuEvent::Refused(id, refusal));
            }
        };
        let Some(demand) = self.stages.rtu_demand(&terms) else { return };
        let class = match demand.urgency.class {
            Rank::LowLatency => Class::LowLatency,
            Rank::Guaranteed => Class::Guaranteed,
        };
        let parameters = HandlerParameters {
            class,
            level: place.rank,
            period: demand.urgency.rate,
            place: demand.urgency.place,
            quantum_packets: terms.quantum,
            budget: None,
            trigger: Trigger::Reactive,
        };
        let handler = self.context.processor.add_handler(Owner::Rtu(id), parameters);
        let rest = (class == Class::LowLatency).then(|| self.add_rest(id, Class::BestEffort, &terms));
        if let Some(rtu) = self.rtus.handlers.get_mut(&id) {
            (rtu.own, rtu.rest) = (Some(Own { handler, bound: place.bound }), rest);
        }
        self.rtus.news.push_back(RtuEvent::Granted(id, grant));
        self.arm_rtu(id, now);
    }

    fn ready_rtu(&mut self, id: RtuId, now: Instant) {
        let Some(rtu) = self.rtus.handlers.get_mut(&id) else { return };
        if rtu.since.is_some() {
            // The body may have checked for work already.
            rtu.again = rtu.again.or(Some(now));
            return;
        }
        rtu.since = Some(now);
        self.arm_rtu(id, now);
    }

    /// Notes that the handler's body is called: it sees all work that is present now.
    pub(super) fn call_rtu(&mut self, id: RtuId, now: Instant) {
        if let Some(rtu) = self.rtus.handlers.get_mut(&id) {
            (rtu.again, rtu.called) = (None, now);
        }
    }

    fn remove_rtu(&mut self, id: RtuId) {
        let Some(rtu) = self.rtus.handlers.remove(&id) else { return };
        for handler in rtu.own.map(|own| own.handler).into_iter().chain(rtu.rest) {
            self.context.processor.remove_handler(handler);
        }
        if rtu.terms.class != RtuClass::BestEffort {
            self.stages.release_rtu(id);
        }
    }

    /// Updates the handler's activations in the executor, within its budget and beyond.
    pub(super) fn arm_rtu(&mut self, id: RtuId, now: Instant) {
        let Some(rtu) = self.rtus.handlers.get(&id) else { return };
        let executor = &mut self.context.processor.executor;
        if let Some(Own { handler, bound }) = rtu.own {
            match rtu.release(now) {
                Some(eligible) => {
                    executor.ready(handler, Activation { eligible, deadline: eligible + bound }, now);
                }
                None => executor.idle(handler),
            }
        }
        if let Some(rest) = rtu.rest {
            match rtu.since {
                Some(eligible) => executor.ready(rest, Activation { eligible, deadline: eligible }, now),
                None => executor.idle(rest),
            }
        }
    }

    /// The next call of a handler; `None` if it has no work.
    pub(super) fn rtu_unit(&self, id: RtuId, within: bool, now: Instant) -> Option<Unit> {
        let rtu = self.rtus.handlers.get(&id)?;
        let packets = rtu.given(within, now);
        Some(Unit {
            kind: WorkKind::Upcall,
            packets,
            bytes: 0,
            message_edge: false,
            application: rtu.terms.cost.of(packets),
        })
    }

    /// Assumes that a body has done all that it was given, in its declared time: for drivers that have no
    /// bodies.
    pub(super) fn run_rtu(&mut self, work: &Work, now: Instant) {
        let done = UpcallDone { units: work.packets, more: false, took: work.application };
        self.finish_rtu(work, &done, now);
    }

    fn finish_rtu(&mut self, work: &Work, done: &UpcallDone, now: Instant) {
        let handler = HandlerId(work.handler);
        let is_running = self.context.processor.executor.is_running(handler);
        let owner = self.context.processor.owner(handler).filter(|_| is_running);
        let (id, within) = match owner {
            Some(Owner::Rtu(id)) => (id, true),
            Some(Owner::RtuRest(id)) => (id, false),
            // The handler was removed while its body ran.
            _ => return,
        };
        let cost = work.declared_cost(&self.config.cpu.costs);
        self.context.processor.executor.charge(handler, cost, now);
        if !within {
            self.context.processor.executor.charge_flow(handler, cost, now);
        }
        let (burst, rho) = (self.config.cpu.burst(), self.config.cpu.interference.rho);
        let disturbance = Disturbance { burst, rho, idle: self.rtus.idle };
        let Some(rtu) = self.rtus.handlers.get_mut(&id) else { return };
        let late = rtu.charge(within, work.packets, done, now);
        let declared = rtu.terms.cost.of(done.units.clamp(1, work.packets.max(1)));
        let verdict = rtu.conduct.judge(done, (work.packets, declared), disturbance, now);
        rtu.count(verdict);
        // Lateness that the handler caused itself is not the processor's fault.
        let own_fault = rtu.conduct.is_in_excess() || verdict.ignored_yield;
        rtu.since = if done.more { rtu.since } else { rtu.again.take() };
        if !own_fault {
            self.note_processor(late, now);
        }
        if let Some(why) = verdict.demote {
            self.demote_rtu(id, why);
        }
        self.arm_rtu(id, now);
        self.context.processor.executor.finished(handler, work.packets, now);
    }

    /// Moves the handler to the background. It keeps its reservation of the processor, which covers the
    /// blocking by its calls.
    fn demote_rtu(&mut self, id: RtuId, why: Misconduct) {
        let Some(rtu) = self.rtus.handlers.get_mut(&id) else { return };
        if rtu.demoted.replace(why).is_some() {
            return;
        }
        let (own, rest, terms) = (rtu.own.take(), rtu.rest.take(), rtu.terms);
        for handler in own.map(|own| own.handler).into_iter().chain(rest) {
            self.context.processor.remove_handler(handler);
        }
        let background = self.add_rest(id, Class::Background, &terms);
        if let Some(rtu) = self.rtus.handlers.get_mut(&id) {
            rtu.rest = Some(background);
        }
        self.rtus.news.push_back(RtuEvent::Demoted(id, why));
    }

    /// Notes that the processor was idle for `span`. The next unit may find cold caches, which is charged
    /// once per busy period.
    pub(super) fn rtus_idle(&mut self, span: Nanos) {
        if span > Nanos::ZERO {
            self.rtus.idle += span.max(self.config.cpu.costs.cold_start);
        }
    }

    /// Places of programs' handlers in the run queue, for the accounts.
    pub(super) fn rtu_places(&self) -> usize {
        self.rtus.handlers.values().map(|rtu| rtu.places()).sum()
    }

    /// Places of the processor's admission that are held, and handlers that should hold them, for the
    /// accounts.
    pub(super) fn rtu_books(&self) -> Option<[usize; 2]> {
        let held = self.rtus.handlers.values().filter(|rtu| rtu.holds()).count();
        self.stages.rtus_held().map(|counted| [counted, held])
    }
}

//! Programs' handlers beside channels, and their promises (RTU 3, ADR 0051): bodies with as much work at once
//! as allowed, and an account of their PDUs that is independent of the node.

mod sending;

use std::collections::{BTreeMap, VecDeque};

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_proto::api::{RtuClass, RtuCost, RtuEvent, RtuId, RtuTerms, UpcallDone, Work, WorkKind};
use punctual_proto::config::RunPolicy;

use self::sending::Sends;
use super::call::Call;
use super::{Act, Event, World};
use crate::dice::{Dice, Draw};

/// Most handlers of a host.
const HANDLERS_MAX: u64 = 6;

/// The handlers of one host.
#[derive(Debug)]
pub(super) struct Bodies {
    seed: (u64, u64),
    dice: Dice,
    bodies: BTreeMap<RtuId, Body>,
    /// Handlers whose grants wait for the shaper of a link: they have nothing to do in this run.
    unanswered: Vec<RtuId>,
    /// The present call.
    running: Option<Running>,
    /// Time since which the processor sleeps.
    asleep: Option<Instant>,
}

/// A call of a body.
#[derive(Clone, Copy, Debug)]
struct Running {
    id: RtuId,
    /// PDUs that were present when it began.
    units: usize,
    took: Nanos,
    /// Declared time of what the node does to send for it.
    sending: Nanos,
}

/// A handler from its program's point of view.
#[derive(Debug)]
pub(super) struct Body {
    terms: RtuTerms,
    bound: Option<Nanos>,
    /// Waiting PDUs, by the times at which the node was notified of them.
    waiting: VecDeque<Instant>,
    /// e of the last PDUs: at most B in any window.
    releases: VecDeque<Instant>,
    period: Period,
    sends: Option<Sends>,
}

/// The present period of a timed handler.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    begin: Instant,
    /// Guaranteed PDUs of the period, those done within the bound, and all.
    due: usize,
    in_time: usize,
    done: usize,
}

impl Bodies {
    pub fn new(seed: u64, host: u64) -> Self {
        let dice = Dice::of(seed, Draw::Handlers(host));
        Self {
            seed: (seed, host),
            dice,
            bodies: BTreeMap::new(),
            unanswered: Vec::new(),
            running: None,
            asleep: None,
        }
    }

    /// Handlers end with their host; in its next life there are the same again.
    fn forget(&mut self) {
        let (seed, host) = self.seed;
        self.dice = Dice::of(seed, Draw::Handlers(host));
        self.bodies.clear();
        self.unanswered.clear();
        (self.running, self.asleep) = (None, None);
    }

    /// Handlers that are registered, or wait for an answer.
    pub fn count(&self) -> usize {
        self.bodies.len() + self.unanswered.len()
    }

    fn draw(&mut self, run: RunPolicy) -> RtuTerms {
        let dice = &mut self.dice;
        let period = Nanos(dice.between(1, 40) * 500_000);
        let units = dice.between(1, 8) as u32;
        let priority = (run == RunPolicy::Rmdp && dice.between(0, 2) == 0).then(|| dice.between(0, 63) as u8);
        let class = match dice.between(0, 4) {
            0 | 1 => RtuClass::LowDelay { interval: period, units, priority },
            2 => RtuClass::periodic(period, units),
            3 => RtuClass::periodic(period, units).sporadic(),
            _ => RtuClass::BestEffort,
        };
        let deadline = (dice.between(0, 3) == 0).then(|| Nanos(dice.between(period.0 / 2, period.0)));
        // A small part of the processor, so that channels are admitted, too.
        let unit = dice.between(500, (period.0 / 50 / u64::from(units)).clamp(1_000, 20_000));
        let cost = RtuCost { run: Nanos(dice.between(0, 2_000)), unit: Nanos(unit) };
        RtuTerms { class, deadline, quantum: dice.between(1, 8) as u32, cost }
    }
}

impl Body {
    /// One that sends nothing.
    pub(super) fn silent(terms: RtuTerms, bound: Option<Nanos>) -> Self {
        Self::new(terms, bound, None)
    }

    fn new(terms: RtuTerms, bound: Option<Nanos>, sends: Option<Sends>) -> Self {
        let (waiting, releases) = (VecDeque::new(), VecDeque::new());
        Self { terms, bound, waiting, releases, period: Period::default(), sends }
    }

    /// The budget may have been used up by `now`: for work from then on.
    pub(super) fn use_up(&mut self, now: Instant) {
        if let Some((_, units)) = self.terms.class.windows() {
            self.releases = (0..units).map(|_| now).collect();
        }
        if let Some((period, _)) = self.terms.class.periods() {
            self.period.begin = Instant(now.0 - now.0 % period.0);
        }
    }

    /// A call without a PDU used a unit of a budget of windows, no later than `now`.
    pub(super) fn use_one(&mut self, now: Instant) {
        let Some((interval, units)) = self.terms.class.windows() else { return };
        let full = self.releases.len() >= units as usize;
        let oldest = if full { self.releases.pop_front() } else { None };
        self.releases.push_back(oldest.map_or(now, |oldest| now.max(oldest + interval)));
    }

    /// The node was notified of one more PDU.
    pub(super) fn came(&mut self, now: Instant) {
        self.waiting.push_back(now);
    }

    /// Release of the last data unit that was done.
    fn released(&self) -> Option<Instant> {
        match self.terms.class {
            RtuClass::BestEffort => None,
            class if class.periods().is_some() => Some(self.period.begin),
            _ => self.releases.back().copied(),
        }
    }

    /// e of the PDU at the head, with all before it counted.
    fn release(&self) -> Option<Instant> {
        let (interval, units) = self.terms.class.windows()?;
        let full = self.releases.len() >= units as usize;
        let oldest = self.releases.front().filter(|_| full).map(|oldest| *oldest + interval);
        self.waiting.front().map(|came| oldest.map_or(*came, |oldest| oldest.max(*came)))
    }

    /// Whether work within the budget waits.
    fn is_pending(&mut self, now: Instant) -> bool {
        let _ = self.roll(now);
        match self.terms.class {
            _ if self.bound.is_none() => false,
            RtuClass::BestEffort => false,
            class if class.periods().is_some() => self.period.done < self.period.due,
            _ => self.release().is_some_and(|release| release <= now),
        }
    }

    /// Advances to the period of `now`; returns the unmet guarantee of the previous ones.
    pub(super) fn roll(&mut self, now: Instant) -> Option<String> {
        let ((period, units), bound) = (self.terms.class.periods()?, self.bound?);
        let mut wrong = None;
        while self.period.begin + period <= now {
            let Period { begin, due, in_time, .. } = self.period;
            if in_time < due {
                wrong = Some(format!("has {in_time} of {due} PDUs within {bound} of {begin:?}"));
            }
            let begin = begin + period;
            let there = self.waiting.iter().filter(|came| **came <= begin).count();
            self.period = Period { begin, due: there.min(units as usize), in_time: 0, done: 0 };
            if there == 0 && begin + period <= now {
                // No guarantee is open up to now: advance there at once.
                let skipped = Instant(now.0 - now.0 % period.0);
                let there = self.waiting.iter().filter(|came| **came <= skipped).count();
                self.period = Period { begin: skipped, due: there.min(units as usize), in_time: 0, done: 0 };
            }
        }
        wrong
    }

    /// A PDU is done; returns a violation.
    pub(super) fn finish_unit(&mut self, now: Instant) -> Option<String> {
        let release = self.release();
        let came = self.waiting.pop_front()?;
        let bound = self.bound?;
        match (self.terms.class.windows(), self.terms.class.periods()) {
            (Some((_, units)), _) => {
                let release = release?;
                if self.releases.len() >= units as usize {
                    self.releases.pop_front();
                }
                self.releases.push_back(release);
                (now > release + bound).then(|| {
                    format!(
                        "is done at {now:?} with what came at {came:?}, released {release:?}, bound {bound}"
                    )
                })
            }
            (_, Some((_, units))) => {
                self.period.done += 1;
                self.period.in_time += usize::from(now <= self.period.begin + bound);
                (self.period.done > units as usize)
                    .then(|| format!("has {} PDUs in a period of {units}", self.period.done))
            }
            (None, None) => None,
        }
    }
}

impl World {
    /// Registers the handlers of a host that starts. Admission decides at once: the idle state is compared
    /// with it later.
    pub(super) fn register_handlers(&mut self, host: usize) {
        if !self.options.handlers {
            return;
        }
        let now = self.hosts[host].clock.read(self.now);
        let run = self.scenario.hosts[host].config.cpu.run;
        self.hosts[host].bodies.forget();
        let mut next = 0;
        for _ in 0..self.hosts[host].bodies.dice.between(1, HANDLERS_MAX) {
            let bodies = &mut self.hosts[host].bodies;
            let (terms, sends) = (bodies.draw(run), bodies.draw_sending());
            // Names are given in the order of asking.
            let sending = sends.and_then(|sends| self.sending_of(host, sends, RtuId(next)));
            let member = &mut self.hosts[host];
            let asked = match &sending {
                Some((sending, outbox)) => member.node.register_sender(terms, sending, outbox.clone(), now),
                None => member.node.register_handler(terms, now),
            };
            let Ok(id) = asked else { continue };
            next = id.0 + 1;
            let sends = sends.zip(sending).map(|(sends, (_, outbox))| Sends::new(host, id, sends, outbox));
            while let Some(decision) = member.node.poll_decision() {
                member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
            }
            match member.node.poll_rtu() {
                Some(RtuEvent::Granted(_, grant)) => {
                    member.bodies.bodies.insert(id, Body::new(terms, grant.bound, sends));
                    self.outcome.handlers += 1;
                }
                Some(_) => {}
                None => member.bodies.unanswered.push(id),
            }
        }
        let (ids, life) =
            (self.hosts[host].bodies.bodies.keys().copied().collect::<Vec<_>>(), self.hosts[host].life);
        let begins = self.now.max(self.scenario.times.opens);
        ids.into_iter()
            .for_each(|id| self.queue.schedule(begins, Event::Act(Act::Prompt { host, id, life })));
    }

    /// PDUs arrive for a handler, and the next arrival is planned: all PDUs of its budget at once and
    /// sometimes more, as often as allowed or more rarely.
    pub(super) fn prompt(&mut self, host: usize, id: RtuId, life: u32) {
        if self.hosts[host].life != life || self.now >= self.scenario.times.stops {
            return;
        }
        let bodies = &mut self.hosts[host].bodies;
        let Some(terms) = bodies.bodies.get(&id).map(|body| body.terms) else { return };
        let (units, period) = terms.budget().unwrap_or((4, Nanos::from_millis(2)));
        let dice = &mut bodies.dice;
        let count = match dice.between(0, 3) {
            0 => dice.between(1, u64::from(units)),
            1 => u64::from(units) + dice.between(0, 2),
            _ => u64::from(units),
        };
        let wait = match dice.between(0, 2) {
            0 => dice.span(period, period * 2),
            1 => dice.span(Nanos(1), period),
            _ => period,
        };
        self.call(host, Call::Prompt { id, count });
        self.queue.schedule(self.now + wait, Event::Act(Act::Prompt { host, id, life }));
    }

    /// Notifies the node of them.
    pub(super) fn do_prompt(&mut self, host: usize, id: RtuId, count: u64, now: Instant) {
        let Some(body) = self.hosts[host].bodies.bodies.get_mut(&id) else { return };
        let wrong = body.roll(now);
        body.waiting.extend((0..count).map(|_| now));
        let unheard = self.options.sabotage.handlers_unheard;
        if unheard == Ppm(0) || !self.hosts[host].bodies.dice.chance(unheard) {
            self.hosts[host].node.make_ready(id, now);
        }
        self.judge_handler(host, id, wrong);
    }

    /// Sets the time of a call by the PDUs that are present.
    pub(super) fn prepare_upcall(&mut self, host: usize, work: &mut Work) {
        let member = &mut self.hosts[host];
        let Some(id) = member.node.upcall(work) else { return };
        let Some(body) = member.bodies.bodies.get(&id) else { return };
        let units = body.waiting.len().min((work.packets + self.options.sabotage.handlers_greed) as usize);
        let of_node = work.application - body.terms.cost.of(work.packets);
        let sending = Nanos(of_node.0 / u64::from(work.packets.max(1)) * units as u64);
        work.application = body.terms.cost.of(units as u32) + sending;
        member.bodies.running = Some(Running { id, units, took: Nanos::ZERO, sending });
    }

    /// A unit begins that occupies the processor for `cost`: checks that it is the most urgent.
    pub(super) fn begin_upcall(&mut self, host: usize, work: &Work, cost: Nanos, now: Instant) {
        if self.hosts[host].bodies.bodies.is_empty() {
            return;
        }
        let member = &mut self.hosts[host];
        let id = member.node.upcall(work);
        let dispatch = member.node.costs().dispatch();
        let class = id.and_then(|id| member.bodies.bodies.get(&id)).map(|body| body.terms.class);
        if let Some(running) = &mut member.bodies.running {
            running.took = cost - dispatch - running.sending;
        }
        let run = self.scenario.hosts[host].config.cpu.run;
        let of_best_effort = work.kind == WorkKind::BestEffort || class == Some(RtuClass::BestEffort);
        let timed = matches!(class, Some(RtuClass::Guaranteed { .. })) && run == RunPolicy::Rmdp;
        if !of_best_effort && !timed {
            return;
        }
        let pending = member.bodies.bodies.iter_mut().find_map(|(id, body)| {
            let may_wait = timed && !matches!(body.terms.class, RtuClass::LowDelay { .. });
            (!may_wait && body.is_pending(now)).then_some(*id)
        });
        let wrong = pending.map(|_| "waits for what is less urgent than it".to_owned());
        self.judge_handler(host, pending.unwrap_or(RtuId(0)), wrong);
    }

    /// A call is done.
    pub(super) fn finish_upcall(&mut self, host: usize, work: &Work, now: Instant) {
        let member = &mut self.hosts[host];
        let Some(Running { id, units, took, .. }) = member.bodies.running.take() else { return };
        let Some(body) = member.bodies.bodies.get_mut(&id) else { return };
        let mut wrong = body.roll(now);
        for _ in 0..units {
            wrong = body.finish_unit(now).or(wrong);
        }
        let (more, released) = (!body.waiting.is_empty(), body.released());
        if let Some(sends) = &mut body.sends {
            sends.put(units, now);
        }
        let done = UpcallDone { units: units as u32, more, took };
        member.node.finish_upcall(work, done, now);
        self.outcome.upcalls += 1;
        self.note_sent(host, id, released);
        self.judge_handler(host, id, wrong);
        self.handle_rtu_events(host, now);
    }

    /// An event of a handler that belongs to a program of this host.
    pub(super) fn handle_rtu_event(&mut self, host: usize, event: &RtuEvent) {
        let (RtuEvent::Refused(id, _) | RtuEvent::Demoted(id, _)) = *event else { return };
        self.judge_handler(host, id, Some(format!("is honest, and the node says {event:?}")));
        // It has no promise any more.
        if let Some(body) = self.hosts[host].bodies.bodies.get_mut(&id) {
            body.bound = None;
        }
    }

    /// The processor goes to sleep, or wakes up.
    pub(super) fn note_sleep(&mut self, host: usize, sleeps: bool, now: Instant) {
        let member = &mut self.hosts[host];
        if member.bodies.bodies.is_empty() && member.tcp.is_none() {
            return;
        }
        match (sleeps, member.bodies.asleep.take()) {
            (true, _) => member.bodies.asleep = Some(now),
            (false, Some(since)) => member.node.record_idle(now.since(since)),
            (false, None) => {}
        }
    }

    /// Records a violation by a handler, unless its host was disturbed.
    fn judge_handler(&mut self, host: usize, id: RtuId, wrong: Option<String>) {
        let Some(wrong) = wrong.filter(|_| self.hosts[host].has_been_well()) else { return };
        let Some(body) = self.hosts[host].bodies.bodies.get(&id) else { return };
        let what = format!("host {host}: handler {} ({:?}) {wrong}", id.0, body.terms);
        self.violate(&what);
    }

    /// At the end of the run: no handler was found to misbehave, and removal leaves no state.
    pub(super) fn dismiss_handlers(&mut self) {
        for host in 0..self.hosts.len() {
            let bodies = &self.hosts[host].bodies;
            let ids: Vec<RtuId> = bodies.bodies.keys().chain(&bodies.unanswered).copied().collect();
            if ids.is_empty() || !self.hosts[host].is_up {
                continue;
            }
            let counted: Vec<_> = self.hosts[host].node.handlers().collect();
            for status in counted {
                let odd =
                    status.counters.overruns + status.counters.yields_ignored + status.counters.late > 0;
                let wrong = odd.then(|| format!("has {:?}", status.counters));
                self.judge_handler(host, status.id, wrong);
            }
            let (member, now) = (&mut self.hosts[host], Instant(u64::MAX / 4));
            ids.iter().for_each(|id| member.node.remove_handler(*id, now));
            while let Some(decision) = member.node.poll_decision() {
                member.node.handle_decided(decision.decide(|| Instant::ZERO), now);
            }
            let left =
                member.node.accounts().into_iter().find(|account| account.what == "places of handlers");
            if left.is_some_and(|left| (left.counted, left.held) != (0, 0)) {
                self.violate(&format!("host {host}: {left:?} after its handlers are gone"));
            }
        }
    }
}

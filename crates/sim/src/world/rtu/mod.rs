//! Programs' handlers beside channels (RTU 3, ADR 0051): their bodies, and what a node is told of their work. [`draw`] draws it, as much
//! at once as allowed, and [`judge`] has an account of their PDUs that is independent of the node.

mod draw;
mod judge;
mod sending;

use std::collections::{BTreeMap, VecDeque};

use punctual_analysis::{Instant, Nanos, Ppm};
use punctual_proto::api::{RtuId, RtuTerms, UpcallDone, Work};

use self::sending::Sends;
use super::World;
use crate::dice::{Dice, Draw};

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
}

impl World {
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
}

//! One host with programs' handlers on a processor in virtual time. Calls take the time of their bodies; nothing else takes time.
//! Work is counted in PDUs that arrive, by an account of its own.

use std::collections::{BTreeMap, VecDeque};

use punctual_proto::api::{
    RtuClass, RtuCounters, RtuEvent, RtuGrant, RtuId, RtuRefusal, RtuTerms, UpcallDone, Work, WorkKind,
};
use punctual_proto::config::{Admission, CpuConfig, Interference};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

use crate::line::line_config;
use crate::rings::TestMemory;

/// A program's handler as its program sees it.
pub struct Body {
    /// What it has declared.
    pub terms: RtuTerms,
    /// What the node has granted.
    pub grant: RtuGrant,
    /// PDUs that wait, by the times at which they arrived.
    pub waiting: VecDeque<Instant>,
    /// PDUs that are done: when they arrived and when they were done.
    pub done: Vec<(Instant, Instant)>,
    /// Its actual run time, in percent of the declared one.
    pub percent: u64,
    /// PDUs that each call takes beyond its allowance.
    pub greed: u32,
}

/// One call of a handler.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The handler.
    pub id: RtuId,
    /// When it began.
    pub begun: Instant,
    /// When it ended.
    pub ended: Instant,
    /// PDUs that it took.
    pub units: u32,
}

/// See the module.
pub struct Bench {
    /// The host.
    pub node: Node<TestMemory>,
    /// The virtual time.
    pub now: Instant,
    /// The bodies of all handlers.
    pub bodies: BTreeMap<RtuId, Body>,
    /// All calls so far.
    pub calls: Vec<Call>,
    /// Events that [`Bench::register`] did not wait for.
    pub events: Vec<RtuEvent>,
    /// PDUs that arrive later.
    arrivals: BTreeMap<(Instant, u64), RtuId>,
    arrived: u64,
    dispatch: Nanos,
}

/// A processor without interference, for handlers alone.
pub fn cpu(admission: Admission) -> CpuConfig {
    CpuConfig {
        admission,
        run: admission.run,
        interference: Interference { sigma: Nanos::ZERO, rho: Ppm(0) },
        quantum_packets: 8,
        ..CpuConfig::default()
    }
}

impl Bench {
    /// A host with this processor.
    ///
    /// # Panics
    /// If the configuration is refused.
    pub fn new(cpu: CpuConfig) -> Self {
        let dispatch = cpu.costs.dispatch();
        let mut config = line_config(0, 1, BitRate(1_000_000_000));
        config.cpu = cpu;
        let node = Node::new(config, 1, Instant(0)).expect("a configuration");
        Self {
            node,
            now: Instant(0),
            bodies: BTreeMap::new(),
            calls: Vec::new(),
            events: Vec::new(),
            arrivals: BTreeMap::new(),
            arrived: 0,
            dispatch,
        }
    }

    /// Registers a handler whose body keeps to its terms.
    ///
    /// # Errors
    /// The refusal, if it was refused.
    ///
    /// # Panics
    /// If the node does not answer at once.
    pub fn register(&mut self, terms: RtuTerms) -> Result<RtuId, RtuRefusal> {
        let id = self.node.register_handler(terms, self.now)?;
        let grant = loop {
            match self.node.poll_rtu().expect("an answer") {
                RtuEvent::Granted(of, grant) if of == id => break grant,
                RtuEvent::Refused(of, refusal) if of == id => return Err(refusal),
                other => self.events.push(other),
            }
        };
        let body = Body { terms, grant, waiting: VecDeque::new(), done: Vec::new(), percent: 100, greed: 0 };
        self.bodies.insert(id, body);
        Ok(id)
    }

    /// `count` PDUs arrive at `at`.
    pub fn arrive(&mut self, id: RtuId, at: Instant, count: u32) {
        for _ in 0..count {
            self.arrived += 1;
            self.arrivals.insert((at, self.arrived), id);
        }
    }

    fn take_in(&mut self, until: Instant) {
        while let Some((&(at, number), &id)) = self.arrivals.first_key_value() {
            if at > until {
                return;
            }
            self.arrivals.remove(&(at, number));
            if let Some(body) = self.bodies.get_mut(&id) {
                body.waiting.push_back(at);
                self.node.make_ready(id, at);
            }
        }
    }

    /// Calls the body of a unit, whose time passes.
    fn call(&mut self, work: Work) {
        assert_eq!(work.kind, WorkKind::Upcall);
        let id = self.node.upcall(&work).expect("a program's handler");
        let body = self.bodies.get_mut(&id).expect("a body");
        let most = work.packets + body.greed;
        let taken: Vec<_> = body.waiting.drain(..(most as usize).min(body.waiting.len())).collect();
        let units = taken.len() as u32;
        let took = Nanos(body.terms.cost.of(units).0 * body.percent / 100);
        let begun = self.now;
        self.now = self.now + self.dispatch + took;
        body.done.extend(taken.iter().map(|came| (*came, self.now)));
        self.take_in(self.now);
        let more = !self.bodies[&id].waiting.is_empty();
        self.node.finish_upcall(&work, UpcallDone { units, more, took }, self.now);
        self.calls.push(Call { id, begun, ended: self.now, units });
        while let Some(event) = self.node.poll_rtu() {
            self.events.push(event);
        }
    }

    /// Runs until `until`. A call that has begun is finished.
    ///
    /// # Panics
    /// If time does not pass, or the node gives a unit that is not a handler's.
    pub fn run_until(&mut self, until: Instant) {
        while self.now < until {
            self.take_in(self.now);
            if let Some(work) = self.node.begin_work(self.now) {
                self.call(work);
                continue;
            }
            let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.node.poll_timeout();
            let next = arrival.into_iter().chain(timeout).min().unwrap_or(until).min(until);
            assert!(next > self.now, "time passes: {next:?} after {:?}", self.now);
            self.node.record_idle(next.since(self.now));
            self.now = next;
            self.node.handle_timeout(self.now);
        }
    }

    /// The body of a handler.
    ///
    /// # Panics
    /// If it is not registered.
    pub fn body(&mut self, id: RtuId) -> &mut Body {
        self.bodies.get_mut(&id).expect("a body")
    }

    /// The counters of a handler.
    ///
    /// # Panics
    /// If it is not registered.
    pub fn counters(&self, id: RtuId) -> RtuCounters {
        self.node.handlers().find(|status| status.id == id).expect("a handler").counters
    }
}

/// Describes a broken promise: a PDU within the budget that was done too late, or a period with too much or too little.
pub fn broken(body: &Body) -> Option<String> {
    let bound = body.grant.bound?;
    match body.terms.class {
        RtuClass::LowDelay { interval, units, .. } => late_in_window(body, interval, units as usize, bound),
        RtuClass::Guaranteed { period, units } => wrong_period(body, period, units as usize, bound),
        RtuClass::BestEffort => None,
    }
}

/// e(i) = max(arrival, e(i - B) + interval), by all that came.
fn late_in_window(body: &Body, interval: Nanos, units: usize, bound: Nanos) -> Option<String> {
    let mut releases: Vec<Instant> = Vec::new();
    for (n, (came, done)) in body.done.iter().enumerate() {
        let after = n.checked_sub(units).map(|before| releases[before] + interval);
        let release = after.map_or(*came, |after| after.max(*came));
        releases.push(release);
        if *done > release + bound {
            return Some(format!(
                "PDU {n} came {came:?}, released {release:?}, done {done:?}, bound {bound}"
            ));
        }
    }
    None
}

fn wrong_period(body: &Body, period: Nanos, units: usize, bound: Nanos) -> Option<String> {
    let last = body.done.last()?.1;
    let mut begin = Instant(0);
    while begin + period <= last {
        let end = begin + period;
        let before = |at: Instant| body.done.iter().filter(|(_, done)| *done <= at).count();
        let came = body.done.iter().filter(|(came, _)| *came <= begin).count();
        let there = came - body.done.iter().filter(|(came, done)| *came <= begin && *done <= begin).count();
        let (within, all) = (before(begin + bound) - before(begin), before(end) - before(begin));
        if within < there.min(units) || all > units {
            return Some(format!(
                "period {begin:?}: {there} waited, {within} done by {bound}, {all} in all of {units}"
            ));
        }
        begin = end;
    }
    None
}

//! One host with programs' handlers on a processor in virtual time. Calls take the time of their bodies; nothing else takes time.
//! Work is counted in PDUs that arrive, by an account of its own.

use std::collections::{BTreeMap, VecDeque};

use punctual_proto::api::{
    PacketOut, Port, RtuActivation, RtuClass, RtuCounters, RtuEvent, RtuGrant, RtuId, RtuRefusal, RtuSending,
    RtuTarget, RtuTerms, UpcallDone, Work, WorkKind,
};
use punctual_proto::config::{Admission, CpuConfig, Interference, NodeConfig};
use punctual_proto::ids::{Address, LinkId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Instant, Nanos, Ppm};

use crate::line::{line_config, name};
use crate::rings::{TestMemory, TestOutbox};
use crate::world::FRAME_BYTES;

/// A program's handler from its program's point of view.
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
    /// Its ring, and the number of messages that it puts there for each PDU.
    pub sends: Option<(TestOutbox, u32)>,
    /// Its messages in the order in which they left: index of the PDU, and when the last bit was on the wire.
    pub left: Vec<(usize, Instant)>,
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
    /// Rate of the link, and when the wire is free; nothing is taken from the link while that is in the future.
    rate: BitRate,
    free_at: Instant,
    /// Bytes on the wire of the last packet.
    pub last_wire_bytes: u32,
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
        let mut config = line_config(0, 1, BitRate(1_000_000_000));
        config.cpu = cpu;
        Self::of(config)
    }

    /// A host with this processor and a link of this rate. The host at its other end is silent.
    ///
    /// # Panics
    /// If the configuration is refused.
    pub fn with_link(cpu: CpuConfig, rate: BitRate) -> Self {
        let mut config = line_config(0, 2, rate);
        config.cpu = cpu;
        Self::of(config)
    }

    /// A host with this configuration.
    ///
    /// # Panics
    /// If the configuration is refused.
    pub fn of(config: NodeConfig) -> Self {
        let dispatch = config.cpu.costs.dispatch();
        let rate = config.links.first().map_or(BitRate(1), |link| link.rate);
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
            rate,
            free_at: Instant(0),
            last_wire_bytes: 0,
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
        self.answered(id, terms, None)
    }

    /// Registers one that sends `packets` of `payload_bytes` for each PDU.
    pub fn register_sender(
        &mut self,
        terms: RtuTerms,
        packets: u32,
        payload_bytes: u32,
    ) -> Result<RtuId, RtuRefusal> {
        let to = RtuTarget::Port(Address { host: name("h2"), port: name("port") });
        self.register_sender_to(to, terms, packets, payload_bytes)
    }

    /// Registers one that sends to `to`.
    ///
    /// # Errors
    /// The refusal, if it was refused.
    ///
    /// # Panics
    /// If the node does not answer at once.
    pub fn register_sender_to(
        &mut self,
        to: RtuTarget,
        terms: RtuTerms,
        packets: u32,
        payload_bytes: u32,
    ) -> Result<RtuId, RtuRefusal> {
        let outbox = TestOutbox::new(8_192, payload_bytes as usize);
        let sending = RtuSending { to, packets, payload_bytes };
        let id = self.node.register_sender(terms, &sending, outbox.clone(), self.now)?;
        self.answered(id, terms, Some((outbox, packets)))
    }

    fn answered(
        &mut self,
        id: RtuId,
        terms: RtuTerms,
        sends: Option<(TestOutbox, u32)>,
    ) -> Result<RtuId, RtuRefusal> {
        let grant = loop {
            match self.node.poll_rtu().expect("an answer") {
                RtuEvent::Granted(of, grant) if of == id => break grant,
                RtuEvent::Refused(of, refusal) if of == id => return Err(refusal),
                other => self.events.push(other),
            }
        };
        let body = Body {
            terms,
            grant,
            waiting: VecDeque::new(),
            done: Vec::new(),
            percent: 100,
            greed: 0,
            sends,
            left: Vec::new(),
        };
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
        let body = &self.bodies[&id];
        let more = !body.waiting.is_empty();
        // What the node does to send takes its time, too.
        let node_part = work.application - body.terms.cost.of(work.packets);
        self.now = self.now + node_part;
        if let Some((outbox, packets)) = &body.sends {
            let first = body.done.len() - taken.len();
            for index in first..body.done.len() {
                (0..*packets).for_each(|_| assert!(outbox.send(&message(id, index), self.now), "room"));
            }
        }
        self.node.finish_upcall(&work, UpcallDone { units, more, took }, self.now);
        self.calls.push(Call { id, begun, ended: self.now, units });
        while let Some(event) = self.node.poll_rtu() {
            self.events.push(event);
        }
    }

    /// Hands packets to the wire.
    fn serve_link(&mut self) {
        let mut out = [0; FRAME_BYTES as usize];
        while self.rate != BitRate(1) {
            let Some(transmit) = self.node.poll_transmit(LinkId(0), self.now, &mut out) else { return };
            self.free_at = self.free_at.max(self.now) + self.rate.time_of(u64::from(transmit.wire_bytes));
            let packet = match transmit.packet {
                PacketOut::Written(len) if transmit.port == Port::Data => &out[HEADER_BYTES..len],
                PacketOut::Written(_) => continue,
                PacketOut::Raw { handler, tag, len } => {
                    let packet = &out[..len];
                    assert_eq!(
                        message_of(packet).map(|(of, _)| of),
                        Some(handler),
                        "the handler that made it"
                    );
                    assert_eq!(tag, u64::from_le_bytes([0x5a; 8]), "what the handler wrote behind it");
                    packet
                }
                PacketOut::Frame(_) => panic!("nothing passes through"),
            };
            if let Some((id, index)) = message_of(packet) {
                self.last_wire_bytes = transmit.wire_bytes;
                let left = self.free_at;
                self.body(id).left.push((index, left));
            }
        }
    }

    /// Runs until `until`. A call that has begun is finished.
    ///
    /// # Panics
    /// If time does not pass, or the node gives a unit that is not a handler's.
    pub fn run_until(&mut self, until: Instant) {
        let mut rounds = 0;
        while self.now < until {
            self.take_in(self.now);
            self.node.handle_timeout(self.now);
            self.serve_link();
            if let Some(work) = self.node.begin_work(self.now) {
                self.call(work);
                continue;
            }
            let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
            let timeout = self.node.poll_timeout();
            let next = arrival.into_iter().chain(timeout).min().unwrap_or(until).min(until);
            rounds = if next > self.now { 0 } else { rounds + 1 };
            assert!(rounds < 100, "time passes: {next:?} after {:?}", self.now);
            self.node.record_idle(next.since(self.now));
            self.now = self.now.max(next);
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

/// A message of PDU `index` of a handler; its last bytes are the tag of a packet that leaves as it is.
fn message(id: RtuId, index: usize) -> [u8; 32] {
    let mut bytes = [0x5a; 32];
    bytes[..8].copy_from_slice(&id.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&(index as u64).to_le_bytes());
    bytes
}

fn message_of(bytes: &[u8]) -> Option<(RtuId, usize)> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    (bytes.get(16) == Some(&0x5a)).then(|| Some((RtuId(word(0)?), word(8)? as usize)))?
}

/// A packet that left later than promised, of a handler whose PDUs were all within its budget.
pub fn left_late(body: &Body) -> Option<String> {
    let (sent, (units, period)) = (body.grant.sent?, body.terms.budget()?);
    let mut releases: Vec<Instant> = Vec::new();
    for (n, (came, done)) in body.done.iter().enumerate() {
        let after = n.checked_sub(units as usize).map(|before| releases[before] + period);
        releases.push(match body.terms.class {
            class if class.periods().is_some() => Instant(done.0 - done.0 % period.0),
            _ => after.map_or(*came, |after| after.max(*came)),
        });
    }
    let late = body.left.iter().find(|(index, at)| *at > releases[*index] + sent);
    late.map(|(index, at)| format!("PDU {index} released {:?}, left {at:?}, bound {sent}", releases[*index]))
}

/// Describes a broken promise: a PDU within the budget that was done too late, or a period with too much or too little.
pub fn broken(body: &Body) -> Option<String> {
    let bound = body.grant.bound?;
    match body.terms.class {
        RtuClass::LowDelay { interval, units, .. } => late_in_window(body, interval, units as usize, bound),
        RtuClass::Guaranteed { period, units, activation: RtuActivation::Periodic } => {
            wrong_period(body, period, units as usize, bound)
        }
        RtuClass::Guaranteed { period, units, activation: RtuActivation::Sporadic } => {
            let window = late_in_window(body, period, units as usize, bound);
            window.or_else(|| crowded(body, period, units as usize, bound))
        }
        RtuClass::BestEffort => None,
    }
}

/// e(i) = max(arrival, e(i - B) + interval), over all arrivals.
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

/// A budget of windows that was exceeded: releases of B + 1 PDUs span a period, and each is done by its release + B times the
/// bound, because a PDU that comes while others wait is released with the first of them.
fn crowded(body: &Body, period: Nanos, units: usize, bound: Nanos) -> Option<String> {
    let wrong = body.done.windows(units + 1).find(|pdus| {
        let span = pdus[units].1.since(pdus[0].1);
        span + bound * (units as u64) < period
    });
    wrong.map(|pdus| format!("{} PDUs from {:?} to {:?}", units + 1, pdus[0].1, pdus[units].1))
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

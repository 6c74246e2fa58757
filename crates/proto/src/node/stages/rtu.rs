//! Admission requests of programs' handlers: checks of their terms, and the demand for the processor and for a link
//! (ADR 0051).

use punctual_analysis::contract::{INTERVAL_MIN, SPAN_MAX};
use punctual_analysis::{Class, Demand, Nanos, RunPolicy, Urgency};

use super::Stages;
use super::policies::Question;
use super::rtu_places::{RtuLinkStageRequest, RtuPlace, RtuStageRequest, RtuStageRequests};
use crate::api::{Breach, RtuClass, RtuCost, RtuGrant, RtuId, RtuNumber, RtuRefusal, RtuTerms, WorkKind};
use crate::config::{self, Admission, NodeConfig};
use crate::ids::LinkId;
use crate::limits::{HEADER_BYTES, RTU_PACKETS_MAX, RTU_PRIORITIES, RTU_UNITS_MAX};

/// The packets that a handler sends on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) struct RtuPackets {
    pub link: LinkId,
    pub packets: u32,
    /// Bytes of the largest packet, with our header or its tag.
    pub packet_bytes: u32,
    /// Bytes of header or tag in a packet.
    pub header_bytes: u32,
}

impl RtuPackets {
    /// Payload of a data packet of the same length. A packet that is shorter than our header counts as one header.
    const fn payload_bytes(&self) -> u32 {
        self.packet_bytes.saturating_sub(HEADER_BYTES as u32)
    }
}

/// Admission decision about a program's handler.
pub(in crate::node) type RtuAnswer = (RtuId, Result<(RtuPlace, RtuGrant), RtuRefusal>);

impl Stages {
    /// Checks the terms of a program's handler, as far as no policy is needed.
    ///
    /// # Errors
    /// If this host can never grant the terms, whatever else is admitted.
    pub fn check_rtu(&self, terms: &RtuTerms, config: &NodeConfig) -> Result<(), RtuRefusal> {
        check_ranges(terms)?;
        let run = config.cpu.run;
        let priority = matches!(terms.class, RtuClass::LowDelay { priority: Some(_), .. });
        match run {
            RunPolicy::Fifo if terms.class != RtuClass::BestEffort => return Err(RtuRefusal::NoClasses(run)),
            RunPolicy::Rmdp => {}
            _ if priority => return Err(RtuRefusal::NoPriorities(run)),
            _ => {}
        }
        self.check_call(terms)?;
        self.check_rtu_broken(self.cpu.breach)
    }

    /// Refuses a handler that would use a broken stage, if the operator has configured that.
    fn check_rtu_broken(&self, breach: Option<Breach>) -> Result<(), RtuRefusal> {
        match breach {
            Some(breach) if self.while_broken == config::WhileBroken::Refuse => {
                Err(RtuRefusal::Broken(breach))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a handler which may run as best effort blocks other work no longer than best effort does.
    fn check_call(&self, terms: &RtuTerms) -> Result<(), RtuRefusal> {
        let (call, call_max) = (self.call(terms, terms.quantum), self.cpu.model.best_effort_unit);
        if call <= call_max || matches!(terms.class, RtuClass::Guaranteed { .. }) {
            return Ok(());
        }
        let left = call_max - self.call(terms, 0);
        let quantum_possible = left.0.checked_div(terms.cost.unit.0).unwrap_or(0) as u32;
        Err(RtuRefusal::Call { call, call_max, quantum_possible })
    }

    /// Time of one call, the node's part included.
    fn call(&self, terms: &RtuTerms, units: u32) -> Nanos {
        self.cpu.costs.dispatch() + terms.cost.of(units)
    }

    /// Checks that a link can carry a handler's packets, as far as no policy is needed.
    ///
    /// # Errors
    /// If the link can never carry them, whatever else is admitted.
    pub fn check_rtu_packets(&self, terms: &RtuTerms, sent: &RtuPackets) -> Result<(), RtuRefusal> {
        let stage = &self.links[usize::from(sent.link.0)];
        let budget = terms.budget().map_or(terms.quantum, |(units, _)| units);
        if sent.packets == 0 || budget.saturating_mul(sent.packets) > RTU_PACKETS_MAX {
            return Err(RtuRefusal::packets());
        }
        // Packets beyond the budget go as best effort.
        let bytes = stage.packet_bytes_max.min(stage.packet_best_effort_bytes_max);
        let payload_bytes_max = bytes.saturating_sub(sent.header_bytes);
        let payload_bytes = sent.packet_bytes.saturating_sub(sent.header_bytes);
        if !(1..=payload_bytes_max).contains(&payload_bytes) {
            let most = payload_bytes_max.into();
            return Err(RtuRefusal::Range { what: RtuNumber::PayloadBytes, least: 1, most });
        }
        if let Some(why) = stage.rate_unknown {
            return Err(RtuRefusal::Rate(why));
        }
        self.check_rtu_broken(stage.breach)
    }

    /// Cost of a handler: the declared cost of its body, and the node's work to send the packets of each PDU.
    pub fn rtu_cost(&self, cost: RtuCost, sent: Option<&RtuPackets>) -> RtuCost {
        let Some(sent) = sent else { return cost };
        let packet = self.cpu.costs.of_unit(WorkKind::Send, 1, sent.payload_bytes(), true);
        RtuCost { unit: cost.unit + packet * u64::from(sent.packets), ..cost }
    }

    /// Requests a place. The decision follows from [`Self::poll_rtu`]. Best-effort handlers need none.
    pub fn ask_rtu(&mut self, id: RtuId, terms: &RtuTerms, sent: Option<&RtuPackets>) {
        if let Some(cpu) = self.rtu_stage_request(terms) {
            let link = sent.and_then(|sent| self.rtu_link_stage_request(terms, sent, &cpu));
            // The link gets the part of the deadline that the processor leaves.
            let smallest = cpu.smallest || link.is_some() && !cpu.follows;
            self.put(Question::HoldRtu(
                id,
                RtuStageRequests { cpu: RtuStageRequest { smallest, ..cpu }, link },
            ));
        }
    }

    /// Releases a place, or withdraws the request for one.
    pub fn release_rtu(&mut self, id: RtuId, link: Option<LinkId>) {
        self.put(Question::ReleaseRtu(id, link));
    }

    /// Demand for the outgoing link: the packets of the budget in each period.
    fn rtu_link_stage_request(
        &self,
        terms: &RtuTerms,
        sent: &RtuPackets,
        cpu: &RtuStageRequest,
    ) -> Option<RtuLinkStageRequest> {
        let (units, period) = terms.budget()?;
        let model = &self.links[usize::from(sent.link.0)].model;
        let packets = units.saturating_mul(sent.packets);
        let count = u64::from(packets);
        let wire_bytes = model.wire_bytes(sent.payload_bytes(), sent.payload_bytes());
        let unit_cost_max = model.cost_of(wire_bytes);
        // Where one packet is under way at a time, each has a reaction of its own.
        let alone = model.pipeline_depth <= 1;
        let cost = if alone { unit_cost_max * count } else { model.cost_of(wire_bytes * count) };
        let demand = Demand {
            cost: cost.max(unit_cost_max),
            unit_cost_max,
            period,
            release_latency: self.cpu.release_latency,
            early: Nanos::ZERO,
            urgency: Urgency::of_period(Class::Guaranteed, period),
            soft: None,
        };
        // They may come one by one.
        let demand = if count > 1 { demand.in_pieces() } else { demand };
        let smallest = is_low_delay(terms) && cpu.follows;
        let request = RtuStageRequest { demand, smallest, ..*cpu };
        Some(RtuLinkStageRequest { link: sent.link, packets, request })
    }

    fn rtu_stage_request(&self, terms: &RtuTerms) -> Option<RtuStageRequest> {
        let (units, period) = terms.budget()?;
        let demand = self.rtu_demand(terms)?;
        let in_pieces = terms.class.windows().is_some() && units > 1;
        let limit = terms.deadline.unwrap_or(period).min(period);
        // A handler that works unit by unit can be preempted after it has begun.
        let demand = if in_pieces { demand.in_pieces() } else { demand };
        let follows = terms.deadline.is_none();
        // Under `rmdp` a bound gives no place in the order: the smallest one would only keep out the handlers that come later and
        // precede this one.
        let smallest = is_low_delay(terms) && follows && self.cpu.admission != Admission::RMDP;
        Some(RtuStageRequest { demand, limit, smallest, follows })
    }

    /// The demand of a handler for the processor; `None` for best effort.
    fn rtu_demand(&self, terms: &RtuTerms) -> Option<Demand> {
        let (units, period) = terms.budget()?;
        let quantum = terms.quantum.min(units);
        // The units of a window may arrive one by one.
        let calls = terms.class.windows().map_or(units.div_ceil(quantum), |_| units);
        let urgency = match terms.class {
            RtuClass::LowDelay { priority, .. } => {
                // Shorter than any interval, so these handlers precede all without a priority.
                let rate = priority.map_or(period, |priority| Nanos(priority.into()));
                Urgency::of_period(Class::LowLatency, rate)
            }
            _ => Urgency::of_period(Class::Guaranteed, period),
        };
        Some(Demand {
            cost: self.call(terms, 0) * u64::from(calls) + terms.cost.unit * u64::from(units),
            unit_cost_max: self.call(terms, quantum),
            period,
            release_latency: self.cpu.release_latency,
            early: Nanos::ZERO,
            urgency,
            soft: None,
        })
    }

    pub(super) fn note_rtu(&mut self, id: RtuId, answer: Result<RtuPlace, RtuRefusal>) {
        if let Ok(place) = &answer {
            self.rtus.insert(id, place.link.map(|on| on.link));
        }
        let cpu_utilisation = self.cpu.utilisation;
        let grant = |place: RtuPlace| {
            let sent = place.link.map(|on| place.bound + on.bound);
            (place, RtuGrant { bound: Some(place.bound), sent, cpu_utilisation })
        };
        self.asking.rtus.push_back((id, answer.map(grant)));
    }

    /// The next answer about programs' handlers, in the order of the requests.
    pub fn poll_rtu(&mut self) -> Option<RtuAnswer> {
        self.asking.rtus.pop_front()
    }

    /// Number of handlers that have a place, for the accounts. `None` while some requests or releases are
    /// pending.
    pub fn rtus_held(&self) -> Option<usize> {
        let settled = self.asking.policies.is_some() && self.asking.questions.is_empty();
        settled.then_some(self.rtus.len())
    }
}

const fn is_low_delay(terms: &RtuTerms) -> bool {
    matches!(terms.class, RtuClass::LowDelay { .. })
}

fn check_ranges(terms: &RtuTerms) -> Result<(), RtuRefusal> {
    if !(1..=RTU_UNITS_MAX).contains(&terms.quantum) {
        return Err(RtuRefusal::units(RtuNumber::Quantum));
    }
    let span = |what| RtuRefusal::Range { what, least: INTERVAL_MIN.0, most: SPAN_MAX.0 };
    if let RtuClass::LowDelay { priority: Some(RTU_PRIORITIES..), .. } = terms.class {
        return Err(RtuRefusal::priority());
    }
    // A call of no time at all would never overrun, and never be charged.
    if terms.cost.unit == Nanos::ZERO || terms.cost.of(terms.quantum) > SPAN_MAX {
        return Err(RtuRefusal::Range { what: RtuNumber::Cost, least: 1, most: SPAN_MAX.0 });
    }
    let Some((units, period)) = terms.budget() else { return Ok(()) };
    if !(1..=RTU_UNITS_MAX).contains(&units) {
        return Err(RtuRefusal::units(RtuNumber::Units));
    }
    if !(INTERVAL_MIN..=SPAN_MAX).contains(&period) {
        return Err(span(RtuNumber::Period));
    }
    match terms.deadline {
        Some(deadline) if deadline == Nanos::ZERO || deadline > period => {
            Err(RtuRefusal::Range { what: RtuNumber::Deadline, least: 1, most: period.0 })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use punctual_analysis::{BitRate, Link, Ppm};

    use super::super::tests::{config, stages_of};
    use super::*;
    use crate::config::CpuCosts;

    /// A call is not preempted. What is done in several calls, or unit by unit, may be.
    #[test]
    fn a_budget_of_one_call_is_one_unit_of_work_and_a_budget_of_several_is_more() {
        let stages = stages_of(&config());
        let period = Nanos::from_millis(10);
        let low = |units| RtuClass::LowDelay { interval: period, units, priority: None };
        let guaranteed = |units| RtuClass::periodic(period, units);
        let sporadic = |units| guaranteed(units).sporadic();
        let cost = RtuCost { run: Nanos(1_000), unit: Nanos(1_000) };
        let of = |class, quantum| {
            let request = stages.rtu_stage_request(&RtuTerms { class, deadline: None, quantum, cost });
            let Demand { cost, unit_cost_max, .. } = request.expect("a place").demand;
            (cost, unit_cost_max)
        };
        for (class, quantum) in
            [(low(1), 1), (low(1), 4), (guaranteed(1), 1), (guaranteed(4), 4), (sporadic(1), 4)]
        {
            let (cost, unit_cost_max) = of(class, quantum);
            assert_eq!(cost, unit_cost_max, "{class:?} in one call");
        }
        for (class, quantum) in [(low(4), 4), (low(2), 1), (guaranteed(4), 3), (sporadic(4), 4)] {
            let (cost, unit_cost_max) = of(class, quantum);
            assert!(cost > unit_cost_max, "{class:?} in calls of {quantum}");
        }
    }

    /// PDUs that may come one by one are calls of their own: such work is never safe from preemption once it has begun, even if
    /// a call costs nothing beside its PDUs.
    #[test]
    fn several_pdus_are_more_than_one_piece() {
        let mut config = config();
        config.cpu.costs = CpuCosts { deliver_message: Nanos::ZERO, ..config.cpu.costs };
        let stages = stages_of(&config);
        for units in 1..=4 {
            let interval = Nanos::from_millis(10);
            let low = RtuClass::LowDelay { interval, units, priority: None };
            for class in [low, RtuClass::periodic(interval, units).sporadic()] {
                let cost = RtuCost { run: Nanos::ZERO, unit: Nanos(1_000) };
                let terms = RtuTerms { class, deadline: None, quantum: units, cost };
                let demand = stages.rtu_stage_request(&terms).expect("it has a budget").demand;
                assert_eq!(demand.cost > demand.unit_cost_max, units > 1, "{demand:?}");
            }
        }
    }

    /// A handler of any class but guaranteed may take as long in one call as a unit of best effort, and no
    /// nanosecond more: then it is told the quantum with which it may.
    #[test]
    fn a_call_may_take_as_long_as_a_unit_of_best_effort() {
        let config = config();
        let stages = stages_of(&config);
        let period = Nanos::from_millis(100);
        let low = RtuClass::LowDelay { interval: period, units: 9, priority: None };
        let nothing = RtuTerms {
            class: RtuClass::BestEffort,
            deadline: None,
            quantum: 1,
            cost: RtuCost { run: Nanos::ZERO, unit: Nanos::ZERO },
        };
        let call_max = stages.cpu.model.best_effort_unit;
        let free = call_max - stages.call(&nothing, 0);
        for quantum in [1, 3, 4] {
            // What the units leave of it is the call's own.
            let unit = Nanos(free.0 / u64::from(quantum));
            let run = free - unit * u64::from(quantum);
            for class in [RtuClass::BestEffort, low] {
                let terms = RtuTerms { class, quantum, cost: RtuCost { run, unit }, ..nothing };
                assert_eq!(stages.check_rtu(&terms, &config), Ok(()), "{terms:?}");
                let longer = RtuCost { run: run + Nanos(1), unit };
                let refused = stages.check_rtu(&RtuTerms { cost: longer, ..terms }, &config);
                let call = call_max + Nanos(1);
                let quantum_possible = quantum - 1;
                assert_eq!(refused, Err(RtuRefusal::Call { call, call_max, quantum_possible }), "{terms:?}");
            }
            let class = RtuClass::periodic(period, 9);
            // No quantum helps where the PDUs cost nothing.
            let of_run = RtuTerms { cost: RtuCost { run: call_max, unit: Nanos::ZERO }, ..nothing };
            let call = stages.call(&of_run, 1);
            let refused = Err(RtuRefusal::Call { call, call_max, quantum_possible: 0 });
            assert_eq!(stages.check_call(&of_run), refused);
            let cost = RtuCost { run: run + call_max, unit };
            let terms = RtuTerms { class, quantum, cost, ..nothing };
            assert_eq!(stages.check_rtu(&terms, &config), Ok(()), "{terms:?}");
        }
    }

    const LINK: LinkId = LinkId(1);
    const PERIOD: Nanos = Nanos::from_millis(20);

    fn model(stages: &Stages) -> Link {
        stages.links[usize::from(LINK.0)].model
    }

    /// A handler's packets of a period: one message on a link that pipelines them, each with a reaction of its own on one that
    /// does not. Several come in pieces.
    #[test]
    fn a_handlers_packets_are_charged_as_the_link_sends_them() {
        // On the faster link, which reacts at once, a few packets take as long as one: a nanosecond.
        let rates = [BitRate(40_000_000), BitRate(1 << 50)];
        for (depth, rate) in [1, 2, 3].into_iter().flat_map(|depth| rates.map(|rate| (depth, rate))) {
            for (units, packets, bytes) in
                [(1, 1, 200), (1, 2, 200), (2, 1, 200), (1, 3, 200), (4, 1, 1_464), (4, 3, 500), (7, 2, 10)]
            {
                let mut config = config();
                config.links[1].rate = rate;
                config.links[1].reaction =
                    if rate == rates[1] { Nanos::ZERO } else { config.links[1].reaction };
                config.links[1].pipeline_depth = depth;
                let stages = stages_of(&config);
                let cost = RtuCost { run: Nanos(500), unit: Nanos(700) };
                let terms =
                    RtuTerms { class: RtuClass::periodic(PERIOD, units), deadline: None, quantum: 1, cost };
                let sent = RtuPackets {
                    link: LINK,
                    packets,
                    packet_bytes: bytes,
                    header_bytes: HEADER_BYTES as u32,
                };
                let cpu = stages.rtu_stage_request(&terms).expect("it has a budget");
                let found = stages.rtu_link_stage_request(&terms, &sent, &cpu).expect("it has a budget");
                let (count, model) = (units * packets, model(&stages));
                let payload = u64::from(bytes.saturating_sub(HEADER_BYTES as u32));
                let wire_bytes = payload + u64::from(model.overhead_bytes);
                let one = model.cost_of(wire_bytes);
                let all = if depth == 1 {
                    one * u64::from(count)
                } else {
                    model.cost_of(wire_bytes * u64::from(count))
                };
                let whole = if count > 1 { all.max(one + Nanos(1)) } else { one };
                let what = format!("{depth} {units} {packets} {bytes}");
                assert_eq!((found.link, found.packets), (LINK, count), "{what}");
                let Demand { cost, unit_cost_max, period, release_latency, early, .. } = found.request.demand;
                assert_eq!((cost, unit_cost_max), (whole, one), "{what}");
                assert_eq!((period, early), (terms.budget().expect("a budget").1, Nanos::ZERO), "{what}");
                assert_eq!(release_latency, config.cpu.release_latency, "{what}");
                assert_eq!((found.request.limit, found.request.follows), (cpu.limit, cpu.follows), "{what}");
                assert_eq!(model.rate_error, Ppm(0), "the model's rate is what is assured");
            }
        }
    }

    /// A handler that sends pays for each packet what a message of one packet costs, with its bytes.
    #[test]
    fn the_packets_of_a_handler_are_part_of_its_cost() {
        let config = config();
        let (stages, costs) = (stages_of(&config), config.cpu.costs);
        let cost = RtuCost { run: Nanos(500), unit: Nanos(700) };
        assert_eq!(stages.rtu_cost(cost, None), cost);
        for (packets, payload) in [(1, 0), (1, 1_400), (3, 200)] {
            let packet_bytes = payload + HEADER_BYTES as u32;
            let sent = RtuPackets { link: LINK, packets, packet_bytes, header_bytes: HEADER_BYTES as u32 };
            let copied = Nanos(costs.copy_kib.0 * u64::from(payload) / 1_024);
            let packet = costs.send_message + costs.send_packet + copied;
            let unit = cost.unit + packet * u64::from(packets);
            assert_eq!(stages.rtu_cost(cost, Some(&sent)), RtuCost { unit, ..cost });
        }
    }

    /// A handler sends at least a packet and at most so many in a period, each with a byte at least and with
    /// no more than goes both as admitted and as best effort.
    #[test]
    fn a_handler_sends_packets_that_its_link_takes() {
        let mut config = config();
        config.links[1].packet_bytes_max = 1_400;
        let cost = RtuCost { run: Nanos(500), unit: Nanos(700) };
        let class = RtuClass::periodic(PERIOD, 1_024);
        let terms = RtuTerms { class, deadline: None, quantum: 1, cost };
        for (header_bytes, best_effort) in [(HEADER_BYTES as u32, 1_000), (8, 1_000), (8, 2_000)] {
            config.links[1].packet_best_effort_bytes_max = Some(best_effort);
            let stages = stages_of(&config);
            let check = |packets, payload: u32| {
                let packet_bytes = payload + header_bytes;
                stages.check_rtu_packets(
                    &terms,
                    &RtuPackets { link: LINK, packets, packet_bytes, header_bytes },
                )
            };
            let most = best_effort.min(1_400) - header_bytes;
            let what = RtuNumber::PayloadBytes;
            let refused = Err(RtuRefusal::Range { what, least: 1, most: most.into() });
            let found = [0, 1, 2, most - 1, most, most + 1].map(|payload| check(1, payload));
            assert_eq!(found, [refused, Ok(()), Ok(()), Ok(()), Ok(()), refused]);
            // 1,024 PDUs a period with so many packets each: 4,096 together.
            let found = [0, 1, 3, 4, 5].map(|packets| check(packets, 10) == Err(RtuRefusal::packets()));
            assert_eq!((found, RTU_PACKETS_MAX), ([true, false, false, false, true], 4 * 1_024));
        }
    }

    /// A period of a handler costs its calls and its units: as many calls as its quantum needs, or one for
    /// each unit where units may come one by one. A call has a quantum at most, and no more units than there
    /// are.
    #[test]
    fn a_handlers_period_costs_its_calls_and_its_units() {
        let stages = stages_of(&config());
        let cost = RtuCost { run: Nanos(500), unit: Nanos(70) };
        let begin = stages.cpu.costs.dispatch() + cost.run;
        for (units, quantum) in (1..6_u32).flat_map(|units| (1..8_u32).map(move |quantum| (units, quantum))) {
            let low = RtuClass::LowDelay { interval: PERIOD, units, priority: None };
            let periodic = RtuClass::periodic(PERIOD, units);
            let in_quanta = (1..).find(|calls| calls * quantum >= units).expect("some are enough");
            for (class, calls) in [(periodic, in_quanta), (periodic.sporadic(), units), (low, units)] {
                let terms = RtuTerms { class, deadline: None, quantum, cost };
                let demand = stages.rtu_demand(&terms).expect("it has a budget");
                let all = begin * u64::from(calls) + cost.unit * u64::from(units);
                let one = begin + cost.unit * u64::from(quantum.min(units));
                assert_eq!((demand.cost, demand.unit_cost_max), (all, one), "{class:?} {units} {quantum}");
            }
        }
    }
}

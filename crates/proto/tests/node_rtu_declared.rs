//! What a call of a program's handler may take, and who is to blame if it ends late: a handler is held to the
//! time that it has declared for the data units that it was given, and a call that breaks that is late by its
//! own fault.

use punctual_proto::api::{
    RtuClass, RtuCost, RtuId, RtuTerms, UPCALL_BYTES, UpcallDone, UpcallReport, UpcallRequest, Work,
};
use punctual_proto::config::{Admission, CpuConfig, Interference};
use punctual_proto::{Instant, Nanos, Ppm};
use punctual_rig::handlers::{Bench, cpu};
use punctual_rig::{TestInbox, TestOutbox};

const US: fn(u64) -> Nanos = Nanos::from_micros;
const COST: RtuCost = RtuCost { run: US_2, unit: US_20 };
const US_2: Nanos = Nanos::from_micros(2);
const US_20: Nanos = Nanos::from_micros(20);
const NOW: Instant = Instant(1_000_000_000);

/// A budget of four data units, `quantum` of them in one call.
fn terms(quantum: u32) -> RtuTerms {
    let class = RtuClass::LowDelay { interval: US(5_000), units: 4, priority: None };
    RtuTerms { class, deadline: None, quantum, cost: COST }
}

/// The time of a call that was given `given` data units and reports `units`: of one at least, and of none
/// that it was not given.
fn declared(given: u32, units: u32) -> Nanos {
    COST.run + COST.unit * u64::from(units.min(given).max(1))
}

/// The first call of a handler in this process.
fn called_on(cpu: CpuConfig, terms: RtuTerms) -> (Bench, RtuId, Work) {
    let mut bench = Bench::new(cpu);
    let id = bench.register(terms).expect("granted");
    bench.node.make_ready(id, NOW);
    let work = bench.node.begin_work(NOW).expect("it has work");
    assert_eq!((bench.node.upcall(&work), work.packets, work.bytes), (Some(id), terms.quantum, 0));
    (bench, id, work)
}

fn called(quantum: u32) -> (Bench, RtuId, Work) {
    called_on(cpu(Admission::EDF), terms(quantum))
}

/// Overruns of a handler after a first call that has taken `took` for `units` data units.
fn overruns(cpu: CpuConfig, terms: RtuTerms, units: u32, took: Nanos) -> u64 {
    let (mut bench, id, work) = called_on(cpu, terms);
    bench.node.finish_upcall(&work, UpcallDone { units, more: false, took }, NOW + took);
    bench.counters(id).overruns
}

/// The same for a handler whose program is another process.
fn overruns_elsewhere(cpu: CpuConfig, terms: RtuTerms, units: u32, took: Nanos) -> u64 {
    let mut node = Bench::new(cpu).node;
    let (calls, reports) = (TestInbox::new(4, UPCALL_BYTES), TestOutbox::new(4, 12));
    let rings = (calls.clone(), reports.clone());
    let (channel, _) = node.register_upcall(terms, rings, true, NOW).expect("granted");
    assert!(reports.send(&UpcallReport::Ready.to_bytes(), NOW));
    node.handle_ring(channel, NOW);
    let work = node.begin_work(NOW).expect("it has work");
    node.finish_work(work, NOW);
    let call = UpcallRequest::read(&calls.take_all()[0]).expect("a call");
    assert_eq!(call.units, terms.quantum);
    let done = UpcallReport::Done { number: call.number, units, more: false };
    assert!(reports.send(&done.to_bytes(), NOW + took));
    node.handle_ring(channel, NOW + took);
    node.handlers().next().expect("a handler").counters.overruns
}

/// Beyond the declared time, a first call may take the burst of its processor: cold caches.
#[test]
fn a_call_overruns_when_it_exceeds_the_time_of_what_it_was_given() {
    let config = cpu(Admission::EDF);
    let burst = config.burst();
    for (quantum, units) in (1..=3).flat_map(|quantum| (0..=4).map(move |units| (quantum, units))) {
        let most = declared(quantum, units) + burst;
        for (took, count) in [(most, 0), (most + Nanos(1), 1)] {
            let counted =
                [overruns, overruns_elsewhere].map(|of| of(config.clone(), terms(quantum), units, took));
            assert_eq!(counted, [count; 2], "{units} of {quantum} in {took}");
        }
    }
}

/// Beside that, interference has its share of the call's own time.
#[test]
fn interference_has_its_share_of_a_call() {
    let rho = Ppm(100_000);
    let interference = Interference { sigma: Nanos::ZERO, rho };
    let config = CpuConfig { interference, ..cpu(Admission::EDF) };
    // 23 us are declared, and the burst is 40 us: nine tenths of a call of 70 us.
    let terms = RtuTerms { cost: RtuCost { run: US(2), unit: US(21) }, ..terms(1) };
    assert_eq!(config.burst(), US(40));
    for (took, count) in [(US(70), 0), (US(70) + Nanos(10), 1)] {
        let counted = [overruns, overruns_elsewhere].map(|of| of(config.clone(), terms, 1, took));
        assert_eq!(counted, [count; 2], "{took}");
    }
}

/// A processor that returns to a handler too late is late, unless the handler has delayed itself: it has
/// taken longer than declared, or more than it was given.
#[test]
fn a_late_call_is_its_processors_fault_unless_it_breaks_its_declaration() {
    for (units, beyond, is_processors) in
        [(1, Nanos::ZERO, true), (1, Nanos(1), false), (2, Nanos::ZERO, false), (2, Nanos(1), false)]
    {
        let (mut bench, id, work) = called(1);
        let bound = bench.bodies[&id].grant.bound.expect("within its budget");
        let took = declared(1, 1) + beyond;
        bench.node.finish_upcall(&work, UpcallDone { units, more: false, took }, NOW + bound + US(7));
        let counters = bench.counters(id);
        assert_eq!((counters.late, counters.late_max), (1, US(7)), "late it is in any case");
        let late = bench.node.status(NOW + US(9_000)).late_service.times;
        assert_eq!(late, u64::from(is_processors), "{units} units, {beyond} too long");
    }
}

/// After idle time, caches may be cold: it pays for a cold start at least, and for no more than the handler
/// owes. If there was none, nothing is paid.
#[test]
fn idle_time_pays_for_a_cold_start_and_no_time_for_nothing() {
    let config = cpu(Admission::EDF);
    let (cold, burst) = (config.costs.cold_start, config.burst());
    for (idle, paid) in [(Nanos::ZERO, Nanos::ZERO), (Nanos(1), cold), (cold, cold), (cold * 2, burst)] {
        for (beyond, count) in [(Nanos::ZERO, 0), (Nanos(1), 1)] {
            // The first call takes all that it may.
            let (mut bench, id, work) = called(1);
            let took = declared(1, 1) + burst;
            bench.node.finish_upcall(&work, UpcallDone { units: 1, more: false, took }, NOW + took);
            bench.node.record_idle(idle);
            let now = NOW + US(10_000);
            bench.node.make_ready(id, now);
            let work = bench.node.begin_work(now).expect("it has work");
            let took = declared(1, 1) + paid + beyond;
            bench.node.finish_upcall(&work, UpcallDone { units: 1, more: false, took }, now + took);
            assert_eq!(bench.counters(id).overruns, count, "idle for {idle}, {beyond} more");
        }
    }
}

/// A call that reports no data unit has used the budget of one all the same: otherwise a handler that never
/// finds anything could be called without end.
#[test]
fn a_call_that_finds_nothing_to_do_uses_the_budget_of_one() {
    let span = US(10_000);
    for reported in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let mut node = Bench::new(cpu(Admission::EDF)).node;
        let class = RtuClass::periodic(span, 2).sporadic();
        let terms = RtuTerms { class, deadline: None, quantum: 1, cost: COST };
        let id = node.register_handler(terms, NOW).expect("granted");
        for units in reported {
            node.make_ready(id, NOW);
            let work = node.begin_work(NOW).expect("within its budget");
            node.finish_upcall(&work, UpcallDone { units, more: false, took: declared(1, 1) }, NOW);
        }
        node.make_ready(id, NOW);
        let over = NOW + span;
        let calls = [NOW, Instant(over.0 - 1), over].map(|now| node.begin_work(now).is_some());
        assert_eq!(calls, [false, false, true], "{reported:?}");
    }
}

//! Handlers of programs in other processes (ADR 0051; RTU 5.1, 5.2): the node wakes the program by a message, and calls it
//! again when it has reported, one to one. The program is hostile.

use punctual_proto::api::{
    Event, Misconduct, RtuClass, RtuCost, RtuId, RtuRefusal, RtuStatus, RtuTerms, UPCALL_BYTES, UpcallReport,
    UpcallRequest,
};
use punctual_proto::config::Admission;
use punctual_proto::ids::ChannelId;
use punctual_proto::limits::{RTU_VIOLATIONS_MAX, UPCALL_REPORTS_MAX};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Instant, Nanos};
use punctual_rig::handlers::cpu;
use punctual_rig::{TestInbox, TestMemory, TestOutbox, line_config};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const US: fn(u64) -> Nanos = Nanos::from_micros;
const AT: fn(u64) -> Instant = |us| Instant(us * 1_000);

/// A node, a program and the two rings between them.
struct Bench {
    node: Node<TestMemory>,
    channel: ChannelId,
    id: RtuId,
    calls: TestInbox,
    reports: TestOutbox,
    now: Instant,
}

fn terms(class: RtuClass, quantum: u32) -> RtuTerms {
    // What the program takes is not the processor's: it may be long.
    RtuTerms { class, deadline: None, quantum, cost: RtuCost { run: US(100), unit: MS(1) } }
}

fn low(interval: Nanos, units: u32) -> RtuTerms {
    terms(RtuClass::LowDelay { interval, units, priority: None }, 1)
}

fn node() -> Node<TestMemory> {
    let mut config = line_config(0, 1, BitRate(1_000_000_000));
    config.cpu = cpu(Admission::RMDP);
    Node::new(config, 1, AT(0)).expect("a configuration")
}

fn try_bench(terms: RtuTerms, timed: bool) -> Result<Bench, RtuRefusal> {
    let mut node = node();
    let (calls, reports) = (TestInbox::new(4, UPCALL_BYTES), TestOutbox::new(64, 12));
    let (channel, id) = node.register_upcall(terms, (calls.clone(), reports.clone()), timed, AT(0))?;
    match node.poll_event().expect("an answer") {
        Event::Registered { channel: of, answer } if of == channel => drop(answer?),
        other => panic!("{other:?}"),
    }
    Ok(Bench { node, channel, id, calls, reports, now: AT(0) })
}

fn bench(terms: RtuTerms, timed: bool) -> Bench {
    try_bench(terms, timed).expect("granted")
}

impl Bench {
    fn report(&mut self, report: UpcallReport) {
        assert!(self.reports.send(&report.to_bytes(), self.now), "room");
        self.node.handle_ring(self.channel, self.now);
    }

    fn done(&mut self, call: UpcallRequest, units: u32, more: bool) {
        self.report(UpcallReport::Done { number: call.number, units, more });
    }

    /// Units up to `until`.
    fn serve_until(&mut self, until: Instant) {
        while self.now < until {
            self.node.handle_timeout(self.now);
            if let Some(work) = self.node.begin_work(self.now) {
                assert_eq!(self.node.upcall(&work), None, "no body is called here");
                self.now = self.now + US(10);
                self.node.finish_work(work, self.now);
                continue;
            }
            let next = self.node.poll_timeout().unwrap_or(until).clamp(self.now + US(1), until);
            self.now = next;
        }
    }

    /// Units up to `until`, and the calls that the program sees.
    fn run_until(&mut self, until: Instant) -> Vec<UpcallRequest> {
        self.serve_until(until);
        self.calls.take_all().iter().filter_map(|bytes| UpcallRequest::read(bytes)).collect()
    }

    fn status(&self) -> RtuStatus {
        self.node.handlers().find(|status| status.id == self.id).expect("a handler")
    }
}

#[test]
fn a_program_is_called_again_when_it_has_reported() {
    let mut bench = bench(low(MS(5), 2), false);
    bench.report(UpcallReport::Ready);
    let calls = bench.run_until(AT(1_000));
    assert_eq!(calls, [UpcallRequest { number: 1, units: 1 }]);
    bench.report(UpcallReport::Ready);
    assert_eq!(bench.run_until(AT(4_000)), [], "one to one: it has not come back");
    bench.done(calls[0], 1, false);
    assert_eq!(bench.run_until(AT(5_000)), [UpcallRequest { number: 2, units: 1 }], "what came meanwhile");
    bench.done(UpcallRequest { number: 2, units: 1 }, 1, true);
    assert_eq!(bench.run_until(AT(6_000)).len(), 1, "its report announced more work");
}

#[test]
fn a_period_has_its_units_and_no_more() {
    let mut bench = bench(terms(RtuClass::periodic(MS(2), 3), 2), false);
    bench.report(UpcallReport::Ready);
    let mut units = Vec::new();
    for n in 1..=100 {
        for call in bench.run_until(AT(n * 100)) {
            units.push((n * 100 / 2_000, call.units));
            bench.done(call, call.units, true);
        }
    }
    for period in 1..5 {
        let of_period: u32 = units.iter().filter(|(of, _)| *of == period).map(|(_, units)| units).sum();
        assert_eq!(of_period, 3, "{units:?}");
    }
    assert_eq!(bench.status().counters.overruns, 0);
}

#[test]
fn one_that_processes_more_than_it_was_given_is_demoted() {
    let mut bench = bench(low(MS(1), 1), false);
    bench.report(UpcallReport::Ready);
    for n in 1..=u64::from(RTU_VIOLATIONS_MAX) {
        let calls = bench.run_until(AT(n * 2_000));
        bench.done(calls[0], 3, true);
    }
    let status = bench.status();
    assert_eq!((status.demoted, status.bound), (Some(Misconduct::IgnoredYield), None));
    assert_eq!(status.counters.yields_ignored, u64::from(RTU_VIOLATIONS_MAX));
    let calls = bench.run_until(AT(50_000));
    assert_eq!(calls.len(), 1, "it runs in the background");
}

#[test]
fn time_from_call_to_report_counts_only_where_it_is_the_programs() {
    for timed in [false, true] {
        let mut bench = bench(low(MS(20), 1), timed);
        bench.report(UpcallReport::Ready);
        for n in 1..=u64::from(RTU_VIOLATIONS_MAX) {
            let calls = bench.run_until(AT(n * 20_000 - 10_000));
            let Some(call) = calls.first() else { panic!("call {n}, {timed}") };
            // The declared time is 1.1 ms.
            assert_eq!(bench.run_until(AT(n * 20_000)), []);
            bench.done(*call, 1, true);
        }
        let status = bench.status();
        let overruns = if timed { RTU_VIOLATIONS_MAX } else { 0 };
        assert_eq!((status.demoted.is_some(), status.counters.overruns), (timed, overruns.into()));
        assert!(status.counters.took_max >= MS(5), "{:?}", status.counters);
    }
}

#[test]
fn reports_that_fit_no_call_change_nothing() {
    let mut bench = bench(low(MS(1), 1), true);
    for number in [0, 1, 2, u32::MAX] {
        bench.done(UpcallRequest { number, units: 1 }, u32::MAX, true);
    }
    assert!(bench.reports.send(b"no report", AT(0)));
    bench.node.handle_ring(bench.channel, AT(0));
    assert_eq!(bench.run_until(AT(1_000)), []);
    bench.report(UpcallReport::Ready);
    let calls = bench.run_until(AT(2_000));
    bench.done(calls[0], 1, false);
    bench.done(calls[0], 1, true);
    assert_eq!(bench.run_until(AT(9_000)), [], "a call is reported once");
    let counters = bench.status().counters;
    assert_eq!((counters.yields_ignored, counters.reports_unmatched), (0, 6));
}

#[test]
fn few_reports_are_read_at_once() {
    let mut bench = bench(low(MS(1), 1), false);
    let most = UPCALL_REPORTS_MAX as usize;
    bench.reports.push_beyond_room(&UpcallReport::Ready.to_bytes(), most + 1, AT(0));
    bench.node.handle_ring(bench.channel, AT(0));
    assert_eq!(bench.reports.waiting(), 1);
}

#[test]
fn a_program_that_closes_or_is_gone_gives_everything_back() {
    let fresh = node().cpu_utilisation();
    for abandoned in [false, true] {
        let mut bench = bench(low(MS(1), 1), true);
        assert!(bench.node.cpu_utilisation() > fresh);
        bench.report(UpcallReport::Ready);
        assert_eq!(bench.run_until(AT(500)).len(), 1);
        let (channel, now) = (bench.channel, bench.now);
        let ended = if abandoned { bench.node.abandon(channel, now) } else { bench.node.close(channel, now) };
        assert_eq!(ended, Ok(()));
        assert_eq!((bench.node.handlers().count(), bench.node.cpu_utilisation()), (0, fresh));
        assert!(bench.node.accounts().iter().all(|account| account.counted == account.held));
        assert!(bench.node.close(channel, now).is_err(), "once");
        bench.node.handle_ring(channel, now);
        assert_eq!(bench.run_until(AT(2_000)), []);
    }
}

#[test]
fn one_that_is_refused_holds_nothing() {
    let refused = try_bench(terms(RtuClass::periodic(US(10), 4), 1), false);
    assert!(matches!(refused, Err(RtuRefusal::Processor(_))), "{:?}", refused.err());
}

/// A program that reports its calls and takes none out of its ring: calls beyond the room are lost to it, and cost it nothing
/// else.
#[test]
fn one_that_takes_no_calls_is_called_again_when_it_does() {
    let mut bench = bench(low(MS(1), 1), false);
    for number in 1..=6 {
        bench.report(UpcallReport::Ready);
        bench.serve_until(AT(u64::from(number) * 2_000));
        assert_eq!(bench.calls.waiting(), 4.min(number as usize));
        bench.done(UpcallRequest { number, units: 1 }, 1, false);
    }
    assert_eq!(bench.run_until(AT(13_000)).len(), 4);
    bench.report(UpcallReport::Ready);
    assert_eq!(bench.run_until(AT(16_000)), [UpcallRequest { number: 5, units: 1 }]);
    assert_eq!(bench.status().demoted, None);
}

#[test]
fn a_report_of_another_call_does_not_end_the_present_one() {
    let mut bench = bench(low(MS(1), 1), true);
    bench.report(UpcallReport::Ready);
    let calls = bench.run_until(AT(1_000));
    assert_eq!(calls.len(), 1);
    bench.done(UpcallRequest { number: calls[0].number + 1, units: 1 }, 5, true);
    bench.report(UpcallReport::Ready);
    assert_eq!(bench.run_until(AT(9_000)), [], "it is not back");
    bench.done(calls[0], 1, false);
    assert_eq!(bench.run_until(AT(10_000)).len(), 1);
    assert_eq!(bench.status().counters.yields_ignored, 0);
}

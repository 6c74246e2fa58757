//! Events of programs' handlers come in the order in which they happened, however late the driver fetches
//! them.

use punctual_proto::api::{
    Event, Misconduct, RtuClass, RtuCost, RtuEvent, RtuId, RtuTerms, UPCALL_BYTES, UpcallDone,
};
use punctual_proto::config::Admission;
use punctual_proto::limits::RTU_VIOLATIONS_MAX;
use punctual_proto::node::Node;
use punctual_proto::{Instant, Nanos};
use punctual_rig::handlers::{Bench, cpu};
use punctual_rig::{TestInbox, TestMemory, TestOutbox};

const MS: fn(u64) -> Nanos = Nanos::from_millis;
const NOW: Instant = Instant(1_000_000_000);

/// What has happened to which handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Granted(RtuId),
    Refused(RtuId),
    Demoted(RtuId, Misconduct),
}

fn fetched(node: &mut Node<TestMemory>) -> Vec<News> {
    let news = |event| match event {
        RtuEvent::Granted(id, _) => News::Granted(id),
        RtuEvent::Refused(id, _) => News::Refused(id),
        RtuEvent::Demoted(id, why) => News::Demoted(id, why),
    };
    std::iter::from_fn(|| node.poll_rtu()).map(news).collect()
}

fn terms(class: RtuClass) -> RtuTerms {
    let cost = RtuCost { run: Nanos::from_micros(2), unit: Nanos::from_micros(20) };
    RtuTerms { class, deadline: None, quantum: 1, cost }
}

fn low() -> RtuTerms {
    terms(RtuClass::LowDelay { interval: MS(1), units: 1, priority: None })
}

/// 101 units of 20 us in 2 ms.
fn too_much() -> RtuTerms {
    terms(RtuClass::periodic(MS(2), 101))
}

/// The handler takes more than it is given until it is demoted.
fn misbehave(node: &mut Node<TestMemory>, id: RtuId) {
    for n in 0..u64::from(RTU_VIOLATIONS_MAX) {
        let now = NOW + MS(10) * n;
        node.make_ready(id, now);
        let work = node.begin_work(now).expect("it has work");
        assert_eq!(node.upcall(&work), Some(id));
        let done = UpcallDone { units: 2, more: false, took: Nanos::from_micros(22) };
        node.finish_upcall(&work, done, now + done.took);
    }
}

#[test]
fn events_come_in_the_order_in_which_they_happened() {
    let mut node = Bench::new(cpu(Admission::EDF)).node;
    let mut register = |terms| node.register_handler(terms, NOW).expect("it can be tried");
    let first = register(terms(RtuClass::BestEffort));
    let greedy = register(low());
    let refused = register(too_much());
    let last = register(terms(RtuClass::BestEffort));
    misbehave(&mut node, greedy);
    let other = node.register_handler(low(), NOW).expect("it can be tried");
    let expected = [
        News::Granted(first),
        News::Granted(greedy),
        News::Refused(refused),
        News::Granted(last),
        News::Demoted(greedy, Misconduct::IgnoredYield),
        News::Granted(other),
    ];
    assert_eq!(fetched(&mut node), expected);
}

/// Those of other processes get theirs with their channels' events.
#[test]
fn other_processes_learn_of_their_handlers_in_the_order_of_the_answers() {
    let mut node = Bench::new(cpu(Admission::EDF)).node;
    // Four calls, which the processor makes and whose reports it reads, in 10 us.
    let too_often = terms(RtuClass::periodic(Nanos::from_micros(10), 4));
    let wanted = [terms(RtuClass::BestEffort), too_often, low(), too_often];
    let registered = wanted.map(|terms| {
        let rings = (TestInbox::new(4, UPCALL_BYTES), TestOutbox::new(4, 12));
        node.register_upcall(terms, rings, false, NOW).expect("it can be tried").0
    });
    let answers = std::iter::from_fn(|| node.poll_event()).filter_map(|event| match event {
        Event::Registered { channel, answer } => Some((channel, answer.is_ok())),
        _ => None,
    });
    let expected: Vec<_> = registered.into_iter().zip([true, false, true, false]).collect();
    assert_eq!(answers.collect::<Vec<_>>(), expected);
}

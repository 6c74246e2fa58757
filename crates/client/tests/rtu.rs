//! A program's own code on the processor of an embedded endsystem.

#[path = "../examples/alternation.rs"]
#[allow(dead_code, reason = "an example has a main")]
mod alternation;
#[path = "../examples/handler.rs"]
#[allow(dead_code, reason = "an example has a main")]
mod example;
mod support;

use std::sync::mpsc::channel;

use punctual::Nanos;
use punctual::rtu::{Class, Cost, Progress, Refusal, RtuError, Terms};

use support::{PATIENCE, pair};

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn low() -> Terms {
    let cost = Cost { run: Nanos::ZERO, unit: Nanos::from_micros(5) };
    Terms {
        class: Class::LowDelay { interval: MS(5), units: 1, priority: None },
        deadline: None,
        quantum: 1,
        cost,
    }
}

#[test]
fn a_sample_is_answered_in_each_period() {
    let host = example::host().expect("a host");
    let (sampler, receiver) = example::sample(&host).expect("granted");
    let numbers: Vec<u64> = (0..50).map(|_| receiver.recv_timeout(PATIENCE).expect("an answer")).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let status = sampler.status().expect("a status");
    assert!(status.counters.units >= 50 && status.bound.is_some_and(|bound| bound <= MS(2)), "{status:?}");
    assert_eq!(host.handlers().expect("handlers").len(), 2);
    // The sampler's body holds the other handler: both go.
    drop(sampler);
    assert!(receiver.recv_timeout(PATIENCE).is_ok() || receiver.try_recv().is_err());
    assert_eq!(host.handlers().expect("handlers").len(), 0);
}

/// The protocol's handler makes the application's ready: they run one to one, in the order of their classes, and what the
/// application's handler sends leaves on its own slots.
#[test]
fn protocol_and_application_share_the_run_queue() {
    use alternation::{BURST, Ran};
    let (ran, squares) = alternation::run().expect("an order");
    let expected: Vec<Ran> =
        (0..BURST).flat_map(|number| [Ran::Protocol(number), Ran::Application(number)]).collect();
    assert_eq!(ran, expected);
    assert_eq!(squares, (0..BURST).map(|number| number * number).collect::<Vec<_>>());
}

#[test]
fn what_a_body_sends_has_slots_and_a_bound() {
    let (a, b) = pair();
    let mut port = b.bind_best_effort("port", 64).expect("a port");
    let sender = a.register_sending(low(), "port@b", (2, 64), |_, sender| {
        (0..2).for_each(|n: u8| sender.send(&[n; 64]).expect("room"));
        Progress { units: 1, more: false }
    });
    let sender = sender.expect("granted");
    let (bound, sent) = (sender.grant().bound.expect("a bound"), sender.grant().sent.expect("a bound"));
    assert!(bound < sent && sent <= MS(10), "{bound}, {sent}");
    let mut bytes = [0; 64];
    for _ in 0..5 {
        sender.make_ready().expect("an engine");
        for n in 0..2 {
            port.recv_timeout(&mut bytes, PATIENCE).expect("a message");
            assert_eq!(bytes, [n; 64]);
        }
    }
    let status = sender.status().expect("a status").sent.expect("it sends");
    assert_eq!((status.packets + status.packets_beyond, status.bound, status.too_long), (10, Some(sent), 0));
    let refused = a.register_sending(low(), "port@nobody", (1, 64), |_, _| Progress::default());
    assert!(matches!(refused.err(), Some(RtuError::Refused(Refusal::NoRoute))));
    drop(sender);
    let audit = a.status().expect("a status").audit.expect("an audit");
    assert_eq!(audit.wrong, []);
}

#[test]
fn a_body_that_panics_ends_no_other_handler() {
    let (a, _b) = pair();
    let (reporter, receiver) = channel();
    let broken = a.register(low(), |_| panic!("a body that fails")).expect("granted");
    let sound = a.register(low(), move |units| {
        let _ = reporter.send(units);
        Progress { units, more: false }
    });
    let sound = sound.expect("granted");
    broken.make_ready().expect("an engine");
    for _ in 0..3 {
        sound.make_ready().expect("an engine");
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
    }
    broken.make_ready().expect("an engine");
    while broken.status().expect("a status").counters.calls < 2 {
        std::thread::yield_now();
    }
    assert!(broken.has_panicked() && !sound.has_panicked());
    assert!(a.status().is_ok(), "the engine goes on");
}

#[test]
fn a_refusal_is_one_line_with_what_would_be_granted() {
    let (a, _b) = pair();
    let cost = Cost { run: Nanos::ZERO, unit: MS(9) };
    let heavy = Terms { class: Class::periodic(MS(9), 1), cost, ..low() };
    let error = a.register(heavy, |_| Progress::default()).err().expect("refused");
    assert!(matches!(error, RtuError::Refused(Refusal::Processor(_))), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("the processor") && text.contains("it would be granted every"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

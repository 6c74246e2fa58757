//! Programs' handlers on an engine's processor (RTU 3): registered from other threads, called on the processor's own.

mod support;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};

use punctual_engine::{CallError, Progress, Upcall};
use punctual_os::now;
use punctual_proto::api::{Misconduct, RtuClass, RtuCost, RtuRefusal, RtuTerms};
use punctual_proto::{Instant, Nanos};
use punctual_rig::{RemoteInbox, RemoteOutbox};

use support::{Handle, PATIENCE, over_memory};

type Registered = Upcall<RemoteOutbox, RemoteInbox>;

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn terms(class: RtuClass) -> RtuTerms {
    let cost = RtuCost { run: Nanos::ZERO, unit: Nanos::from_micros(5) };
    RtuTerms { class, deadline: None, quantum: 1, cost }
}

fn low() -> RtuTerms {
    terms(RtuClass::LowDelay { interval: MS(5), units: 2, priority: None })
}

/// A handler that reports when it is called and with how many PDUs; `work` returns the result of the call.
fn reporting(
    engine: &Handle,
    terms: RtuTerms,
    mut work: impl FnMut(u32) -> Progress + Send + 'static,
) -> (Registered, Receiver<(Instant, u32)>) {
    let (sender, receiver) = channel();
    let body = Box::new(move |units| {
        // The receiver is gone once the test is over.
        let _ = sender.send((now(), units));
        work(units)
    });
    (engine.register(terms, body).expect("an engine").expect("granted"), receiver)
}

fn done(units: u32) -> Progress {
    Progress { units, more: false }
}

#[test]
fn a_body_is_called_when_its_handler_is_made_ready() {
    let (a, _b) = over_memory();
    let (handler, receiver) = reporting(&a, low(), done);
    for _ in 0..3 {
        handler.make_ready().expect("an engine");
        assert_eq!(receiver.recv_timeout(PATIENCE).expect("called").1, 1);
    }
    let status = handler.status().expect("an engine").expect("registered");
    assert_eq!((status.counters.calls, status.bound), (3, handler.grant().bound));
    assert!(handler.remove().expect("an engine").is_some(), "its body comes back");
    assert!(handler.remove().expect("an engine").is_none());
    assert_eq!((handler.status(), a.handlers()), (Ok(None), Ok(Vec::new())));
    assert_eq!(handler.make_ready(), Ok(()), "without effect");
    assert!(receiver.recv().is_err(), "the body is gone and was not called again");
}

#[test]
fn a_timed_body_is_called_in_its_periods() {
    let (a, _b) = over_memory();
    let class = RtuClass::periodic(MS(4), 3);
    let (handler, receiver) = reporting(&a, terms(class), |units| Progress { units, more: true });
    handler.make_ready().expect("an engine");
    let calls: Vec<_> = (0..60).map(|_| receiver.recv_timeout(PATIENCE).expect("called").0).collect();
    let span = calls[59].since(calls[0]);
    // At most three in each period, the first and the last of them shared.
    assert!(span >= MS(4) * 18, "60 PDUs, three in 4 ms: {span}");
}

#[test]
fn a_body_makes_another_ready_and_may_not_wait_for_its_engine() {
    let (a, _b) = over_memory();
    let (second, receiver) = reporting(&a, low(), done);
    let waited = Arc::new(OnceLock::new());
    let (waits, engine, next) = (Arc::clone(&waited), a.clone(), second.clone());
    let (first, _receiver) = reporting(&a, low(), move |units| {
        let _ = waits.set(engine.call(|_, _| ()).err());
        next.make_ready().expect("this is its processor");
        done(units)
    });
    first.make_ready().expect("an engine");
    receiver.recv_timeout(PATIENCE).expect("the second is called");
    assert_eq!(waited.get(), Some(&Some(CallError::OnProcessor)));
    // The body holds a handle of its own engine: removing it breaks that cycle.
    first.remove().expect("an engine");
}

#[test]
fn a_refusal_comes_with_its_offer() {
    let (a, _b) = over_memory();
    let cost = RtuCost { run: Nanos::ZERO, unit: MS(9) };
    let heavy = RtuTerms { cost, ..terms(RtuClass::periodic(MS(10), 1)) };
    let refusal = a.register(heavy, Box::new(done)).expect("an engine").err().expect("refused");
    let RtuRefusal::Processor(offer) = refusal else { panic!("{refusal}") };
    let period = offer.period_possible.expect("a longer period would do");
    let slower = RtuTerms { class: RtuClass::periodic(period, 1), ..heavy };
    assert!(a.register(slower, Box::new(done)).expect("an engine").is_ok());
}

#[test]
fn a_body_that_takes_far_too_long_is_demoted() {
    let (a, _b) = over_memory();
    let (handler, receiver) = reporting(&a, low(), |units| {
        let begun = now();
        while now().since(begun) < MS(2) {
            std::hint::spin_loop();
        }
        Progress { units, more: true }
    });
    handler.make_ready().expect("an engine");
    for _ in 0..12 {
        receiver.recv_timeout(PATIENCE).expect("called");
    }
    let status = handler.status().expect("an engine").expect("registered");
    assert_eq!((status.demoted, status.bound), (Some(Misconduct::Overrun), None));
    assert!(status.counters.overruns >= 8 && status.counters.took_max >= MS(2), "{:?}", status.counters);
    // The record of the node's own paths is not touched.
    assert_eq!(a.call(|node, now| node.status(now).overruns), Ok(0));
}

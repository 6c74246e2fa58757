//! A thread that leads: the calls in which it may not wait, its scheduling meanwhile, and the engine after
//! it.

mod support;

use std::sync::mpsc;
use std::thread;

use punctual_engine::{CallError, Engine, EngineConfig, EngineGone, LeadError};
use punctual_os::attributes::{Attributes, SELF, attributes};
use punctual_os::now;
use punctual_os::realtime::{self, RealTime, SchedulingClass};
use punctual_proto::Nanos;

use punctual_rig::{RemoteInbox, RemoteOutbox};
use support::{Handle, alone, over_memory};

fn start(real_time: RealTime) -> Handle {
    Engine::start(EngineConfig { real_time, ..alone() }).unwrap_or_else(|error| panic!("{error}"))
}

/// `SCHED_FIFO` if this program may have it, else an ordinary thread.
fn best_class(priority: u8) -> SchedulingClass {
    let class = SchedulingClass::Fifo { priority };
    let wanted = RealTime { class, ..RealTime::BEST_EFFORT_HOST };
    let may = thread::spawn(move || realtime::apply(&wanted).is_ok()).join().expect("no panic");
    if may { class } else { SchedulingClass::BestEffortHost }
}

#[test]
fn it_does_not_wait_for_itself() {
    let (a, b) = over_memory();
    let lead = a.lead().expect("it leads");
    for engine in [&a, &b] {
        assert_eq!(engine.call(|_, _| ()), Err(CallError::OnProcessor));
        assert_eq!(engine.stop(), Err(CallError::OnProcessor));
        assert!(matches!(engine.lead(), Err(LeadError::Twice)));
    }
    drop(lead);
    for engine in [&a, &b] {
        assert_eq!(engine.call(|_, _| ()), Ok(()));
    }
    let copy = a.clone();
    let within = a.call(move |_, _| copy.call(|_, _| ()));
    assert_eq!(within, Ok(Err(CallError::OnProcessor)), "a request that asks");
}

#[test]
fn it_may_hold_the_last_handle() {
    let (a, b) = over_memory();
    let lead = a.lead().expect("it leads");
    let events = a.events();
    drop(a);
    drop(lead);
    support::until_gone(&events);
    assert_eq!(b.call(|_, _| ()), Ok(()));
}

#[test]
fn stopping_an_engine_does_not_wait_for_the_end_of_its_lead() {
    let (a, _b) = over_memory();
    let mut lead = a.lead().expect("it leads");
    let stopping = thread::spawn(move || a.stop());
    assert_eq!(lead.drive(now(), None, || false), Err(EngineGone));
    assert_eq!(stopping.join().expect("no panic"), Ok(()));
    assert_eq!(lead.drive(now(), None, || true), Err(EngineGone));
}

#[test]
fn a_failure_under_the_lead_is_reported_to_all_holders() {
    let (a, _b) = over_memory();
    let events = a.events();
    let mut lead = a.lead().expect("it leads");
    let asking = thread::spawn(move || a.call(|_, _| -> u32 { panic!("a request that fails") }));
    let driving = std::panic::AssertUnwindSafe(|| lead.drive(now(), None, || false));
    assert!(std::panic::catch_unwind(driving).is_err());
    assert_eq!(asking.join().expect("no panic"), Err(CallError::Gone(EngineGone)));
    support::until_gone(&events);
    assert_eq!(lead.drive(now(), None, || true), Err(EngineGone));
}

/// The leading thread runs in the engine's class; threads that it starts do not, and afterwards it does not
/// either. A refused thread keeps its class.
#[test]
fn its_class_is_its_own_and_ends_with_it() {
    let class = best_class(3);
    let a = start(RealTime { class, ..RealTime::BEST_EFFORT_HOST });
    let starts = || thread::spawn(|| attributes(SELF).expect("a thread")).join().expect("no panic");
    let (before, started_before) = (attributes(SELF).expect("a thread"), starts());
    let lead = a.lead().expect("it leads");
    let leading = attributes(SELF).expect("a thread");
    let started = starts();
    let (second, sender) = (a.clone(), mpsc::sync_channel(1));
    let (sender, receiver) = sender;
    let refused = thread::spawn(move || {
        let before = attributes(SELF).expect("a thread");
        // The answer comes when the leader does its work.
        let refusal = second.lead().map(drop);
        sender.send((refusal, before == attributes(SELF).expect("a thread"))).expect("the test waits");
    });
    let mut lead = lead;
    let mut answer = None;
    lead.drive(now(), None, || {
        answer = receiver.try_recv().ok();
        answer.is_some()
    })
    .expect("it runs");
    refused.join().expect("no panic");
    let (refusal, is_as_before) = answer.expect("an answer");
    assert!(matches!(refusal, Err(LeadError::Led)) && is_as_before, "{refusal:?}");
    drop(lead);
    // Threads that a real-time thread starts have the default scheduling; those of an ordinary thread inherit
    // its nice value.
    let expected = match class {
        SchedulingClass::Fifo { priority } => (Attributes::Fifo { priority }, Attributes::ORDINARY),
        _ => (before, started_before),
    };
    assert_eq!((leading, started), expected);
    assert_eq!(attributes(SELF).expect("a thread"), before);
}

/// The class was given to the engine's own thread.
#[test]
fn a_deadline_stays_where_it_is() {
    let _alone = support::deadline_turn();
    let period = Nanos::from_millis(1);
    let class = SchedulingClass::Deadline { period };
    let real_time = RealTime { class, ..RealTime::BEST_EFFORT_HOST };
    match Engine::start::<RemoteOutbox, RemoteInbox>(EngineConfig { real_time, ..alone() }) {
        Ok(engine) => {
            assert!(matches!(engine.lead(), Err(LeadError::Deadline)));
            assert_eq!(engine.stop(), Ok(()));
        }
        Err(error) => support::without_deadline(&error),
    }
}

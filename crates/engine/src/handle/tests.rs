use std::time::Duration;

use punctual_os::calls::Forbidden;
use punctual_os::realtime::SchedulingClass;
use punctual_proto::{BitRate, Nanos};
use punctual_rig::{RemoteInbox, RemoteOutbox, line_config};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// A host without links.
fn alone() -> EngineHandle<RemoteOutbox, RemoteInbox> {
    let mut node = line_config(0, 1, BitRate(1));
    node.signalling.grace = Nanos::from_millis(1);
    Engine::start(EngineConfig::new(node, Vec::new(), 7)).expect("an engine")
}

/// Whether the engine reports that it has stopped, before the test's time limit.
fn ends_by_itself(events: &Events) -> bool {
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    loop {
        match events.try_next() {
            Err(_) => return true,
            Ok(Some(_)) => {}
            Ok(None) => {
                let mut set = [PollFd::new(events, PollFlags::IN)];
                if poll(&mut set, Some(&patience)).expect("a wait") == 0 {
                    return false;
                }
            }
        }
    }
}

#[test]
fn an_engine_whose_admission_has_panicked_stops_with_that_error() {
    let engine = alone();
    let failing = Arc::downgrade(&engine.inner.shared);
    let decide = |()| panic!("a panic of a test");
    let failed = move || admission_failed(&failing);
    let mut decider = Decider::<()>::start(SchedulingClass::BestEffortHost, Forbidden::Allow, decide, failed)
        .expect("a thread");
    assert!(engine.call(|node, _| node.cpu_utilisation()).is_ok(), "it runs");
    decider.put(Some(()));
    assert!(ends_by_itself(&engine.events()));
    assert!(engine.call(|node, _| node.cpu_utilisation()).is_err());
    assert_eq!(engine.stop(), Ok(()), "it has ended in order");
}

#[test]
fn a_decider_that_is_dropped_has_not_failed() {
    let (outcomes, asked) = std::sync::mpsc::channel();
    let failed = move || outcomes.send(()).expect("the test waits for it");
    let decider = Decider::<()>::start(SchedulingClass::BestEffortHost, Forbidden::Allow, |()| true, failed)
        .expect("one");
    drop(decider);
    // The other end goes with the thread.
    assert!(
        asked
            .recv_timeout(Duration::from_secs(30))
            .is_err_and(|error| { error == std::sync::mpsc::RecvTimeoutError::Disconnected })
    );
}

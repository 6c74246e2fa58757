use std::time::Duration;

use punctual_os::calls::Forbidden;
use punctual_os::realtime::SchedulingClass;
use punctual_proto::Nanos;
use punctual_proto::config::{CpuConfig, NodeConfig, SignallingConfig};
use punctual_proto::ids::{Epoch, Name, NodeId};
use punctual_proto::memory::{MessageInfo, MessageRead, MessageWrite};
use punctual_proto::{Ppm, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

/// Buffers of a host without senders and receivers.
struct Nothing;

impl MessageRead for Nothing {
    fn len(&self) -> u32 {
        0
    }
    fn copy_to(&self, _: u32, _: &mut [u8]) {}
}

impl MessageWrite for Nothing {
    fn copy_from(&mut self, _: u32, _: &[u8]) {}
}

impl Outbox for Nothing {
    type Message = Self;
    fn take(&mut self, _: Instant) -> Option<(Self, Instant)> {
        None
    }
    fn is_ready(&self) -> bool {
        false
    }
}

impl Inbox for Nothing {
    type Slot = Self;
    fn reserve(&mut self) -> Option<Self> {
        None
    }
    fn publish(&mut self, _: Self, _: MessageInfo) {}
}

/// A host without links.
fn alone() -> EngineHandle<Nothing, Nothing> {
    let signalling = SignallingConfig { grace: Nanos::from_millis(1), ..SignallingConfig::default() };
    let node = NodeConfig {
        id: NodeId(1),
        name: Name::new("a").expect("a name"),
        epoch: Epoch(1),
        fragment_bytes: limits::FRAGMENT_BYTES_DEFAULT,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(limits::CLOCK_TOLERANCE_PPM_DEFAULT),
        links: Vec::new(),
        cpu: CpuConfig::default(),
        directory: vec![(Name::new("a").expect("a name"), NodeId(1))],
        routes: Vec::new(),
        signalling,
        buffer_bytes_max: 1 << 20,
        wakeup_margin: Nanos::ZERO,
    };
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
fn an_engine_whose_admission_has_panicked_stops_and_says_so() {
    let engine = alone();
    let failing = Arc::downgrade(&engine.inner.shared);
    let decide = |()| panic!("what a test of this kind says");
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
    let (told, asked) = std::sync::mpsc::channel();
    let failed = move || told.send(()).expect("somebody waits");
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

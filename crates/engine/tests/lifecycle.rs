//! Starting, refusing to start, failing, idling, stopping.

mod support;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use punctual_engine::{CallError, Engine, EngineConfig, EngineError, EngineGone, WatchError};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use punctual_os::realtime::{RealTime, SchedulingClass};
use punctual_proto::ids::{ChannelId, NodeId};

use punctual_rig::{RemoteInbox, RemoteOutbox};
use support::{Handle, PATIENCE, alone, over_memory, until_gone};

fn memory_link(packet_bytes_max: usize) -> Box<dyn Link> {
    let options = MemoryOptions { packet_bytes_max, ..MemoryOptions::default() };
    Box::new(MemoryLink::pair(options).expect("a pair").0)
}

fn refusal(config: EngineConfig) -> EngineError {
    Engine::start::<RemoteOutbox, RemoteInbox>(config).err().expect("refused")
}

#[test]
fn what_the_host_does_not_give_is_an_error_with_the_fix() {
    let class = SchedulingClass::Fifo { priority: 200 };
    let error =
        refusal(EngineConfig { real_time: RealTime { class, ..RealTime::BEST_EFFORT_HOST }, ..alone() });
    assert!(matches!(error, EngineError::RealTime(_)), "{error:?}");
    assert!(error.to_string().contains("use 1 to 99"), "{error}");
}

#[test]
fn contradictions_are_errors() {
    let error = refusal(EngineConfig { links: vec![], ..alone() });
    assert!(matches!(error, EngineError::Links { configured: 1, given: 0 }), "{error:?}");
    let error = refusal(EngineConfig { links: vec![memory_link(1_463)], ..alone() });
    assert!(error.to_string().contains("1464 B") && error.to_string().contains("\"right\""), "{error}");
    let mut unconnected = alone();
    unconnected.node.id = NodeId(0);
    let error = refusal(unconnected);
    assert!(matches!(error, EngineError::Node(_)), "{error:?}");
}

#[test]
fn a_failed_processor_is_reported_to_all_holders() {
    let (a, _b) = over_memory();
    let events = a.events();
    let failed = a.call(|_, _| -> u32 { panic!("a request that fails") });
    assert_eq!(failed, Err(CallError::Gone(EngineGone)));
    assert_eq!(a.call(|_, _| 1), Err(CallError::Gone(EngineGone)));
    let bell = punctual_os::wait::Doorbell::new().expect("an eventfd");
    let copy = bell.as_fd().try_clone_to_owned().expect("a descriptor");
    assert!(matches!(
        a.watch(ChannelId(1), copy.into(), None),
        Err(WatchError::Call(CallError::Gone(EngineGone)))
    ));
    until_gone(&events);
    assert_eq!(a.stop(), Err(CallError::Gone(EngineGone)));
}

#[test]
fn a_doorbell_must_be_waitable() {
    let (a, _b) = over_memory();
    let file = std::fs::File::open("/dev/null").expect("it is there");
    let refused =
        a.watch(ChannelId(1), std::sync::Arc::new(file.into()), None).expect_err("no descriptor to wait for");
    assert!(matches!(refused, WatchError::Os(_)) && refused.to_string().contains("doorbell"));
    assert_eq!(a.call(|_, _| 7), Ok(7), "and no other caller is disturbed");
}

#[test]
fn dropping_the_last_handle_stops_the_engine() {
    let (a, b) = over_memory();
    let events = a.events();
    let copy = a.clone();
    drop(a);
    assert_eq!(copy.call(|_, _| 7), Ok(7));
    drop(copy);
    while let Ok(event) = events.try_next() {
        assert!(event.is_some(), "the end is reported at once");
    }
    assert_eq!(b.stop(), Ok(()));
}

/// A turn that only runs a command, and one in which a command causes events of many channels.
#[test]
fn the_longest_turn_has_all_that_is_done_in_it() {
    const BUSY: Duration = Duration::from_millis(20);
    let (a, _b) = over_memory();
    a.call(|_, _| {
        let begun = Instant::now();
        while begun.elapsed() < BUSY {
            std::hint::spin_loop();
        }
    })
    .expect("it runs");
    // The answer comes while its turn is still running: the turn has ended, and is counted, when the next one
    // has.
    let (turns, until) = (a.statistics().loops, Instant::now() + PATIENCE);
    while a.statistics().loops < turns + 2 {
        assert!(Instant::now() < until, "it takes no turn any more");
        a.call(|_, _| ()).expect("it runs");
    }
    let longest = Duration::from_nanos(a.statistics().loop_ns_max);
    assert!(longest >= BUSY, "{longest:?}");
}

/// The wake-ups of an idle engine come from HELLO alone: two per second and neighbour, however long the test
/// takes.
#[test]
fn an_idle_engine_uses_no_cpu() {
    let (a, b) = over_memory();
    // Meeting takes more of them; each question here is one more.
    let met = |handle: &Handle| handle.call(|node, now| node.status(now).links[0].alive).expect("it runs");
    let until = Instant::now() + PATIENCE;
    while !(met(&a) && met(&b)) {
        assert!(Instant::now() < until, "they never met");
    }
    let began = Instant::now();
    let before = [&a, &b].map(|handle| handle.statistics());
    // The test lets time pass and compares a count with the elapsed time.
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    assert!(never.recv_timeout(Duration::from_secs(2)).is_err());
    let seconds = began.elapsed().as_secs_f64();
    for (handle, before) in [&a, &b].into_iter().zip(before) {
        let now = handle.statistics();
        let wakes = (now.wakes - before.wakes) as f64;
        assert!(wakes < 5.0 * seconds.max(2.0), "{wakes} wakes in {seconds} s: {now:?}");
        assert!(now.wakes > before.wakes, "HELLOs go out");
        assert_eq!(now.stalls, 0, "{now:?}");
    }
    assert!(a.stop().is_ok() && b.stop().is_ok());
}

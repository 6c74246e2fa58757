//! The real-time class and the locked memory of a running engine. Alone in its program: locking holds for all of it.

mod support;

use punctual_engine::os::realtime::{RealTime, SchedulingClass};
use punctual_engine::{Engine, EngineConfig};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use punctual_proto::Nanos;

use support::{TestInbox, TestOutbox, node};

/// Where the host permits it the thread runs in the class; where not, the start fails. Never anything between.
#[test]
fn a_real_time_class_is_held_or_refused() {
    let class = SchedulingClass::Fifo { priority: 3 };
    let real_time = RealTime { class, cpu: None, lock_memory: true };
    let options = MemoryOptions { frames: 64, ring_packets: 16, ..MemoryOptions::default() };
    let links: Vec<Box<dyn Link>> = vec![Box::new(MemoryLink::pair(options).expect("a pair").0)];
    let wanted = EngineConfig { node: node(1), links, real_time, spin: Nanos::ZERO, seed: 1 };
    match Engine::start::<TestOutbox, TestInbox>(wanted) {
        Ok(engine) => {
            let stat = engine.call(|_, _| std::fs::read_to_string("/proc/thread-self/stat"));
            let stat = stat.expect("it runs").expect("proc is there");
            let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
            // Fields 40 and 41 of proc(5), counted from 3: the real-time priority and the policy, 1 for SCHED_FIFO.
            assert_eq!((fields[37], fields[38]), ("3", "1"), "{stat}");
            let status = std::fs::read_to_string("/proc/self/status").expect("proc is there");
            let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
            assert!(!locked.trim().starts_with("0 "), "{locked}");
            assert_eq!(engine.stop(), Ok(()));
        }
        Err(error) => assert!(error.to_string().contains("grant CAP_"), "{error}"),
    }
}

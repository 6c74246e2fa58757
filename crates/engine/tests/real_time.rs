//! The real-time class and the locked memory of a running engine. Alone in its program: locking holds for all of it.

mod support;

use std::sync::mpsc;

use punctual_engine::{Engine, EngineConfig};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use punctual_os::attributes::{Attributes, SELF, attributes, set_attributes};
use punctual_os::realtime::{RealTime, SchedulingClass, runtime};
use punctual_proto::api::Event;
use punctual_proto::{Contract, Nanos, Rate};

use punctual_rig::{RemoteInbox, RemoteOutbox, name};
use support::{alone, deadline_turn, expect, node, open, request, start, without_deadline};

/// If the host permits it, the thread runs in the class; if not, the start fails. There is no third result.
#[test]
fn a_real_time_class_is_held_or_refused() {
    let class = SchedulingClass::Fifo { priority: 3 };
    let real_time = RealTime { class, cpu: None, lock_memory: true };
    let options = MemoryOptions { frames: 64, ring_packets: 16, ..MemoryOptions::default() };
    let links: Vec<Box<dyn Link>> = vec![Box::new(MemoryLink::pair(options).expect("a pair").0)];
    let wanted = EngineConfig { real_time, ..EngineConfig::new(node(1), links, 1) };
    match Engine::start::<RemoteOutbox, RemoteInbox>(wanted) {
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

/// Threads that hold all that the kernel still gives, and sleep; they end with this.
struct Hogs(Vec<(mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Hogs {
    fn take_all() -> Self {
        let mut hogs = Vec::new();
        let period = Nanos::from_millis(1);
        for runtime in [900, 300, 100, 30, 10].map(Nanos::from_micros) {
            while let Some(hog) = hog(Attributes::Deadline { runtime, period }) {
                hogs.push(hog);
            }
        }
        Self(hogs)
    }
}

/// `None` where the kernel gives it nothing.
fn hog(wanted: Attributes) -> Option<(mpsc::Sender<()>, std::thread::JoinHandle<()>)> {
    let (end, ended) = mpsc::channel();
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let held = set_attributes(SELF, wanted).is_ok();
        sender.send(held).expect("the test waits");
        // Ends when the test lets its end go.
        let _ = ended.recv().is_err() || held;
    });
    receiver.recv().expect("an answer").then_some((end, thread))
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for (end, thread) in self.0.drain(..) {
            drop(end);
            thread.join().expect("no panic");
        }
        // The kernel takes their shares back a little later: as soon as they could not run any more.
        let most = Attributes::Deadline { runtime: Nanos::from_micros(900), period: Nanos::from_millis(1) };
        let until = std::time::Instant::now() + support::PATIENCE;
        while hog(most).is_none() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// A channel for which the kernel has no runtime left is refused, and the host continues as before.
#[test]
fn a_channel_without_runtime_is_refused() {
    let _alone = deadline_turn();
    let period = Nanos::from_millis(1);
    let real_time = RealTime { class: SchedulingClass::Deadline { period }, cpu: None, lock_memory: false };
    let (link_a, link_b) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    let links: Vec<Box<dyn Link>> = vec![Box::new(link_a)];
    let wanted = EngineConfig { real_time, ..EngineConfig::new(node(1), links, 1) };
    let a = match Engine::start::<RemoteOutbox, RemoteInbox>(wanted) {
        Ok(engine) => engine,
        Err(error) => return without_deadline(&error),
    };
    let b = start(node(2), Box::new(link_b));
    let before = a.statistics().runtime_ns;
    let hogs = Hogs::take_all();
    b.call(|node, _| node.listen(name("sink"))).expect("b runs").expect("a free name");
    let rate = Rate::per_second(1_000).expect("a rate");
    let contract = Contract::new(2_000, rate, 2, Nanos::from_millis(100)).expect("a contract");
    let wanted = request(contract);
    a.call(move |node, now| node.open(wanted, now)).expect("a runs").expect("can be tried");
    let refusal = expect(&a.events(), |event| match event {
        Event::Refused { refusal, .. } => Some(refusal.to_string()),
        Event::Opened { .. } => panic!("nothing is left for it"),
        _ => None,
    });
    assert!(refusal.contains("kernel does not give"), "{refusal}");
    let after = a.statistics();
    assert_eq!((after.runtime_ns, after.runtimes_refused), (before, 1));
    assert_eq!(a.call(|node, _| node.channels().len()), Ok(0));
    drop(hogs);
    assert_eq!(a.stop(), Ok(()));
}

/// In the deadline class the thread holds the utilisation that admission has granted, more while a channel is
/// open. The kernel's report is checked.
#[test]
fn the_runtime_follows_admission_or_the_start_is_refused() {
    let _alone = deadline_turn();
    let period = Nanos::from_millis(1);
    let real_time = RealTime { class: SchedulingClass::Deadline { period }, cpu: None, lock_memory: false };
    let options = MemoryOptions::default();
    let (link_a, link_b) = MemoryLink::pair(options).expect("a pair");
    let links: Vec<Box<dyn Link>> = vec![Box::new(link_a)];
    let wanted = EngineConfig { real_time, ..EngineConfig::new(node(1), links, 1) };
    let a = match Engine::start::<RemoteOutbox, RemoteInbox>(wanted) {
        Ok(engine) => engine,
        Err(error) => return without_deadline(&error),
    };
    let b = start(node(2), Box::new(link_b));
    let held = || {
        let receiver = a.call(|node, _| (attributes(SELF), node.cpu_utilisation()));
        let (attributes, utilisation) = receiver.expect("it runs");
        let expected = Attributes::Deadline { runtime: runtime(utilisation, period), period };
        assert_eq!(attributes.expect("a thread"), expected);
        assert_eq!(a.statistics().runtime_ns, runtime(utilisation, period).0);
        utilisation
    };
    let idle = held();
    let rate = Rate::per_second(100).expect("a rate");
    let contract = Contract::new(2_000, rate, 2, Nanos::from_millis(100)).expect("a contract");
    let (channel, _) = open(&a, &b, contract);
    let loaded = held();
    assert!(runtime(loaded, period) > runtime(idle, period), "{idle:?} {loaded:?}");
    let source = channel.source;
    a.call(move |node, now| node.close(source, now)).expect("it runs").expect("it is open");
    expect(&a.events(), |event| {
        matches!(event, Event::Closed { channel, .. } if channel == source).then_some(())
    });
    assert_eq!(held(), idle);
    assert_eq!(a.stop(), Ok(()), "the next one finds its share free");
}

/// A thread that is restricted to some CPUs is refused before the request to the kernel. A thread that never
/// sleeps needs more of a CPU than there is.
#[test]
fn what_the_kernel_does_not_give_is_refused() {
    let _alone = deadline_turn();
    let period = Nanos::from_millis(1);
    let class = SchedulingClass::Deadline { period };
    let started = |real_time, spin| {
        Engine::start::<RemoteOutbox, RemoteInbox>(EngineConfig { real_time, spin, ..alone() })
    };
    let pinned = RealTime { class, cpu: Some(0), lock_memory: false };
    let error = started(pinned, Nanos::ZERO).err().expect("refused").to_string();
    assert!(error.contains("cpu = 0") && error.contains("class = \"fifo\""), "{error}");
    let anywhere = RealTime { cpu: None, ..pinned };
    let error = started(anywhere, Nanos::MAX).err().expect("refused");
    match started(anywhere, Nanos::ZERO) {
        Ok(engine) => {
            assert!(error.to_string().contains("give a shorter spin"), "{error}");
            assert_eq!(engine.stop(), Ok(()));
        }
        Err(refused) => {
            assert!(error.to_string().contains("was refused"), "{error}");
            without_deadline(&refused);
        }
    }
}

//! Handlers of programs that are other processes than their daemon (RTU 5.1, 5.2; ADR 0051): called by a wake-up, one call and
//! one report in turns; they count in their user's quotas, and a program that is gone leaves nothing behind.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use common::raw::Raw;
use common::{Daemon, PATIENCE, config, eventually, memory_links};
use punctual::rtu::{Class, Cost, Misconduct, Progress, Refusal, Rtu, RtuError, Terms};
use punctual::{ApiError, Endsystem, Nanos};
use punctual_host::priorities::Priorities;
use punctual_ipc::api::{Answer, Call, Request, Resource, VERSION_OLDEST};
use punctual_ipc::socket::Packet;
use punctual_os::attributes::{Attributes, SELF, attributes};
use punctual_os::realtime::{self, RealTime, SchedulingClass};

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn terms(class: Class) -> Terms {
    let cost = Cost { run: Nanos::ZERO, unit: MS(1) };
    Terms { class, deadline: None, quantum: 1, cost }
}

fn low() -> Terms {
    terms(Class::LowDelay { interval: MS(5), units: 2, priority: None })
}

/// A daemon whose links have no neighbour.
fn daemon(name: &str, more: &str) -> Daemon {
    let socket = std::env::temp_dir().join(format!("punctual-upcalls-{name}-{}", std::process::id()));
    let (links, _) = memory_links();
    Daemon::start(config("a", &socket, more), links)
}

/// A handler that reports with how many data units it is called; `work` is its body.
fn reporting(
    host: &Endsystem,
    terms: Terms,
    mut work: impl FnMut(u32) -> Progress + Send + 'static,
) -> (Rtu, Receiver<u32>) {
    let (sender, receiver) = channel();
    let handler = host.register(terms, move |units| {
        // The receiver is gone once the test is over.
        let _ = sender.send(units);
        work(units)
    });
    (handler.expect("granted"), receiver)
}

fn done(units: u32) -> Progress {
    Progress { units, more: false }
}

#[test]
fn a_body_is_called_on_a_thread_of_the_program() {
    let daemon = daemon("called", "");
    let host = daemon.connect();
    let own = std::thread::current().id();
    let (handler, receiver) = reporting(&host, low(), move |units| {
        assert_ne!(std::thread::current().id(), own);
        done(units)
    });
    for _ in 0..3 {
        handler.make_ready().expect("a daemon");
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
    }
    let bound = handler.grant().bound.expect("a promise");
    assert!(bound <= MS(5), "{bound}");
    assert_eq!(handler.priority(), None, "a best-effort host");
    // A call counts when it begins; the report of the last one, with its time, may come between two questions.
    eventually("both answers are about three calls", || {
        let status = handler.status().expect("a status");
        status.counters.calls == 3 && host.handlers().expect("handlers") == [status]
    });
    let status = handler.status().expect("a status");
    assert_eq!((status.bound, status.demoted, handler.has_panicked()), (Some(bound), None, false));
    drop(handler);
    eventually("it is gone", || host.handlers().expect("handlers").is_empty());
    assert!(receiver.recv().is_err(), "its body is gone, too");
}

#[test]
fn work_that_arrives_in_between_is_not_lost() {
    let daemon = daemon("between", "");
    let host = daemon.connect();
    let work = Arc::new(AtomicU32::new(0));
    let (left, (sender, receiver)) = (Arc::clone(&work), channel());
    let handler = host.register(terms(Class::BestEffort), move |units| {
        let had = left.load(Ordering::SeqCst);
        let units = units.min(had);
        if left.fetch_sub(units, Ordering::SeqCst) == units {
            let _ = sender.send(());
        }
        Progress { units, more: had > units }
    });
    let handler = handler.expect("best effort");
    for _ in 0..2_000 {
        if work.fetch_add(1, Ordering::SeqCst).is_multiple_of(3) {
            std::thread::yield_now();
        }
        handler.make_ready().expect("a daemon");
    }
    while work.load(Ordering::SeqCst) > 0 {
        receiver.recv_timeout(PATIENCE).expect("all of it is done");
    }
    eventually("all is counted", || handler.status().expect("a status").counters.units_beyond >= 2_000);
}

#[test]
fn a_period_has_as_many_calls_as_were_granted() {
    let daemon = daemon("period", "");
    let host = daemon.connect();
    let class = Class::periodic(MS(10), 2);
    let (handler, receiver) = reporting(&host, terms(class), |units| Progress { units, more: true });
    handler.make_ready().expect("a daemon");
    let begun = std::time::Instant::now();
    (0..41).for_each(|_| assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1)));
    // Two in each period, the first and the last of them shared.
    assert!(begun.elapsed() >= std::time::Duration::from_millis(190), "{:?}", begun.elapsed());
}

#[test]
fn one_that_takes_more_than_it_is_given_is_demoted() {
    let daemon = daemon("greedy", "");
    let host = daemon.connect();
    let (handler, receiver) = reporting(&host, low(), |units| Progress { units: units + 1, more: true });
    handler.make_ready().expect("a daemon");
    eventually("it is demoted", || {
        let _ = receiver.try_recv();
        handler.status().expect("a status").demoted == Some(Misconduct::IgnoredYield)
    });
    assert_eq!(handler.status().expect("a status").bound, None);
}

#[test]
fn a_refusal_comes_with_its_offer() {
    let daemon = daemon("refused", "");
    let host = daemon.connect();
    let none = terms(Class::periodic(Nanos::from_micros(20), 8));
    let error = host.register(none, done).err().expect("refused");
    let RtuError::Refused(Refusal::Processor(offer)) = &error else { panic!("{error:?}") };
    let period = offer.period_possible.expect("a longer period would do");
    assert!(error.to_string().contains("it would be granted every"), "{error}");
    assert!(host.register(terms(Class::periodic(period, 8)), done).is_ok());
    let users = host.status().expect("a status").users;
    assert_eq!(users.iter().map(|user| user.channels).sum::<u64>(), 0, "both are gone: {users:?}");
}

/// A quota of two ends: the third handler is one too many, and each that goes makes room.
#[test]
fn handlers_count_in_their_users_quota() {
    let daemon = daemon("quota", "channels_per_user_max = 2");
    let host = daemon.connect();
    let mut handlers: Vec<Rtu> = (0..2).map(|_| host.register(low(), done).expect("granted")).collect();
    let error = host.register(low(), done).err().expect("over the quota");
    let is_quota = |error: &RtuError| {
        let RtuError::Host(punctual::Error::Daemon(ApiError::Quota { what, .. })) = error else {
            return false;
        };
        *what == Resource::Channels
    };
    assert!(is_quota(&error), "{error:?}");
    handlers.pop();
    eventually("there is room", || host.register(low(), done).is_ok());
}

/// Programs that are cut off at every step: nothing is left of them, and the daemon goes on.
#[test]
fn a_program_that_is_gone_gives_everything_back() {
    let daemon = daemon("gone", "");
    let host = daemon.connect();
    let idle = host.status().expect("a status");
    for step in 0..4 {
        let raw = Raw::greeted(&daemon.socket);
        let register = Request::Register { terms: low(), thread: None };
        if step == 0 {
            let call = Packet::new(&Call { id: 1, request: register }, Vec::new()).expect("small");
            raw.send(&call.bytes);
            continue;
        }
        let (answer, _rings) = raw.ask(register);
        let Ok(Answer::Registered { channel, .. }) = answer else { panic!("{answer:?}") };
        if step >= 2 {
            let (answer, _ring) = raw.ask(Request::Reports { channel });
            assert!(matches!(answer, Ok(Answer::Ring { .. })), "{answer:?}");
            let again = raw.ask(Request::Reports { channel }).0;
            assert!(again.is_err(), "the ring is given once");
        }
        if step == 3 {
            // It has not attached: its file is not sealed.
            assert!(raw.ask(Request::Attached { channel }).0.is_err());
        }
    }
    eventually("nothing is left of them", || {
        let now = host.status().expect("a status");
        let held = |status: &punctual::HostStatus| {
            status.users.iter().map(|user| (user.channels, user.buffer_bytes)).collect::<Vec<_>>()
        };
        host.handlers().expect("handlers").is_empty()
            && held(&now) == held(&idle)
            && now.node.cpu_utilisation == idle.node.cpu_utilisation
    });
    let audit = host.status().expect("a status").audit.expect("of its own user");
    assert_eq!(audit.wrong, []);
}

/// A client of the version before has what it had.
#[test]
fn a_client_of_the_version_before_is_served() {
    let daemon = daemon("older", "");
    let raw = Raw::greeted_as(&daemon.socket, VERSION_OLDEST);
    let (answer, _) = raw.ask(Request::Status);
    assert!(matches!(answer, Ok(Answer::Status(_))), "{answer:?}");
}

#[test]
fn the_thread_runs_at_the_priority_of_its_class_where_the_host_allows_it() {
    let class = SchedulingClass::Fifo { priority: 50 };
    let real_time = RealTime { class, cpu: None, lock_memory: false };
    if std::thread::spawn(move || realtime::apply(&real_time)).join().expect("no panic").is_err() {
        punctual_skip::skipped!("real-time classes need CAP_SYS_NICE");
        return;
    }
    let socket = std::env::temp_dir().join(format!("punctual-upcalls-rank-{}", std::process::id()));
    let mut text = config("a", &socket, "");
    (text.real_time, text.co_scheduling) = (real_time, Some(Priorities::default()));
    let (links, _) = memory_links();
    let daemon = Daemon::start(text, links);
    let host = daemon.connect();
    let seen = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&seen);
    let (handler, receiver) = reporting(&host, low(), move |units| {
        *theirs.lock().expect("no panic") = attributes(SELF).ok();
        done(units)
    });
    handler.make_ready().expect("a daemon");
    receiver.recv_timeout(PATIENCE).expect("called");
    let priority = handler.priority().expect("a priority");
    // 5 ms: 8 half-octaves above 250 us, in the upper half of 10 to 40.
    assert_eq!(priority, 32);
    eventually("it has looked", || seen.lock().expect("no panic").is_some());
    assert_eq!(*seen.lock().expect("no panic"), Some(Attributes::Fifo { priority }));
}

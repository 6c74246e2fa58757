//! Adapters whose servants run in the application's main thread.

#[path = "common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[allow(dead_code, clippy::module_inception)]
#[path = "generated/demo.rs"]
mod demo;
#[path = "common/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "common/probe.rs"]
#[allow(dead_code)]
mod probe;

use std::num::NonZeroUsize;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use demo::demo::CallbackClient;
use probe::{client, listening, object, policies, servant, server};
use punctual_giop::{Reference, SystemExceptionKind as Kind};
use punctual_orb::poa::{Bidirectional, ThreadModel};
use punctual_orb::{Concurrency, Options, Orb, Pool, Servant, Stub as _};

fn each_model(test: impl Fn(Concurrency)) {
    let pool = Concurrency::Pool(Pool::of(NonZeroUsize::MIN));
    [Concurrency::ThreadPerConnection, Concurrency::Reactive, pool].into_iter().for_each(test);
}

/// An object whose servant runs in the main thread.
fn of_main_thread(orb: &Orb, servant: Arc<dyn Servant>) -> Reference {
    let policies = policies(|all| {
        all.thread_model = ThreadModel::MainThread;
        all.bidirectional = Bidirectional::Both;
    });
    let root = orb.root_poa();
    let poa = root.create_poa("main", policies, Some(root.manager())).expect("policies that go together");
    let id = poa.activate_object(servant).expect("a new servant");
    poa.id_to_reference(&id).expect("it is active")
}

fn call(reference: &Reference) -> Result<(), Kind> {
    client(&checks::client(), reference).called(0).map_err(|exception| exception.kind)
}

/// They run where the application calls `run` or `perform_work`, however requests come.
#[test]
fn servants_run_in_the_main_thread() {
    each_model(|concurrency| {
        let orb = server(Options { concurrency, ..listening() });
        let (seen, threads) = channel();
        let seen = Mutex::new(seen);
        let reference = of_main_thread(
            &orb,
            servant(move |_| {
                let sent = seen.lock().expect("nobody panics").send(thread::current().id());
                sent.expect("it is awaited");
                Ok(())
            }),
        );
        let of_remote = reference.clone();
        let remote = thread::spawn(move || call(&of_remote));
        while !orb.work_pending() {
            thread::yield_now();
        }
        orb.perform_work();
        assert_eq!(remote.join().expect("no panic"), Ok(()));
        // A call within the process.
        let of_local = orb.clone();
        let local = thread::spawn(move || {
            let called = client(&of_local, &reference).called(2);
            of_local.shutdown(false);
            called
        });
        orb.run();
        assert_eq!(local.join().expect("no panic"), Ok(()));
        assert_eq!(threads.try_iter().collect::<Vec<_>>(), vec![thread::current().id(); 2]);
    });
}

/// If the application never calls `run`, a request is refused after a while, and others are served meanwhile.
#[test]
fn requests_do_not_wait_for_the_main_thread_for_ever() {
    each_model(|concurrency| {
        let hold_time = Duration::from_millis(300);
        let orb = server(Options { concurrency, hold_time, ..listening() });
        let waits = of_main_thread(&orb, servant(|_| Ok(())));
        let other = object(&orb, |_| Ok(()));
        let waiting = thread::spawn(move || call(&waits));
        assert_eq!(call(&other), Ok(()));
        assert_eq!(waiting.join().expect("no panic"), Err(Kind::Transient));
        assert!(!orb.work_pending());
    });
}

/// The main thread calls objects of its own process without waiting for itself.
#[test]
fn the_main_thread_calls_its_own_objects() {
    let orb = server(listening());
    let reference = of_main_thread(&orb, servant(|_| Ok(())));
    orb.perform_work();
    assert_eq!(client(&orb, &reference).called(0), Ok(()));
}

/// An object of another ORB that calls an object of the main thread, as often as it is told.
fn caller_of(orb: &Orb, main: &Arc<Mutex<Reference>>) -> Reference {
    let (of_caller, main) = (orb.clone(), Arc::clone(main));
    object(orb, move |level| {
        let main = main.lock().expect("nobody panics").clone();
        client(&of_caller, &main).called(level)
    })
}

/// Calls a servant of the main thread that calls an object which calls it back, so many levels deep.
fn called_back(concurrency: Concurrency, hold_time: Duration, levels: i32) -> Result<(), Kind> {
    let (orb, other) = (server(Options { concurrency, hold_time, ..listening() }), server(listening()));
    let own = Arc::new(Mutex::new(Reference::default()));
    let caller = caller_of(&other, &own);
    let of_servant = orb.clone();
    let reference = of_main_thread(
        &orb,
        servant(move |level| match level {
            0 => Ok(()),
            _ => client(&of_servant, &caller).called(level - 1),
        }),
    );
    *own.lock().expect("nobody panics") = reference.clone();
    let of_client = orb.clone();
    let calls = thread::spawn(move || {
        let called = client(&checks::client(), &reference).called(levels);
        of_client.shutdown(false);
        called.map_err(|exception| exception.kind)
    });
    orb.run();
    calls.join().expect("no panic")
}

/// While the main thread waits for a reply, it serves requests: else its servants would wait for themselves.
#[test]
fn servants_of_the_main_thread_are_called_back() {
    each_model(|concurrency| {
        assert_eq!(called_back(concurrency, Duration::from_secs(60), 3), Ok(()));
    });
}

/// It serves requests within requests only so deep: one that is deeper is refused when it has waited.
#[test]
fn requests_within_requests_of_the_main_thread_have_a_limit() {
    each_model(|concurrency| {
        assert_eq!(called_back(concurrency.clone(), Duration::from_secs(60), 4), Ok(()));
        assert_eq!(called_back(concurrency, Duration::from_millis(300), 5), Err(Kind::Transient));
    });
}

/// The same where the application itself calls, and the reply comes over a connection that others read.
#[test]
fn the_main_thread_is_called_back_while_it_calls() {
    each_model(|concurrency| {
        for both_ways in [false, true] {
            let other = server(Options { accept_bidirectional: both_ways, ..listening() });
            let orb = server(Options {
                concurrency: concurrency.clone(),
                offer_bidirectional: both_ways,
                ..listening()
            });
            let served = Arc::new(Mutex::new(Vec::new()));
            let by_servant = Arc::clone(&served);
            let reference = of_main_thread(
                &orb,
                servant(move |number| {
                    by_servant.lock().expect("nobody panics").push((number, thread::current().id()));
                    Ok(())
                }),
            );
            let caller = caller_of(&other, &Arc::new(Mutex::new(reference)));
            orb.perform_work();
            let called = client(&orb, &caller);
            assert_eq!(called.called(1), Ok(()));
            assert_eq!(called.called_async(2).wait(), Ok(()));
            let soon = called.called_async(3).wait_for(Duration::from_secs(60));
            assert_eq!(soon.expect("it is there"), Ok(()));
            let here = thread::current().id();
            assert_eq!(*served.lock().expect("nobody panics"), [(1, here), (2, here), (3, here)]);
        }
    });
}

/// Work of others does not keep a call from ending at its time.
#[test]
fn a_call_of_the_main_thread_ends_at_its_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it has one").port();
    let orb = server(listening());
    orb.perform_work();
    let reference = orb.reference(&format!("corbaloc::1.2@127.0.0.1:{port}/key")).expect("a reference");
    let object = client(&orb, &reference).object().with_timeout(Some(Duration::from_millis(50)));
    let called = CallbackClient::new(object.expect("the same object"));
    let kind = |called: Result<(), punctual_orb::SystemException>| called.map_err(|failed| failed.kind);
    assert_eq!(kind(called.called(1)), Err(Kind::Timeout));
    assert_eq!(kind(called.called_async(1).wait()), Err(Kind::Timeout));
}

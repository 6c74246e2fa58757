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

use probe::{client, listening, object, policies, servant, server};
use punctual_giop::{Reference, SystemExceptionKind as Kind};
use punctual_orb::poa::ThreadModel;
use punctual_orb::{Concurrency, Options, Orb, Pool, Servant};

fn each_model(test: impl Fn(Concurrency)) {
    let pool = Concurrency::Pool(Pool::of(NonZeroUsize::MIN));
    [Concurrency::ThreadPerConnection, Concurrency::Reactive, pool].into_iter().for_each(test);
}

/// An object whose servant runs in the main thread.
fn of_main_thread(orb: &Orb, servant: Arc<dyn Servant>) -> Reference {
    let policies = policies(|all| all.thread_model = ThreadModel::MainThread);
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

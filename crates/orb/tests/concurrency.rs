//! Servers with each concurrency model: which threads serve, what waits, and what is refused.

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

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use demo::demo::{Callback, CallbackClient, Echo as EchoReference, EchoClient, EchoSkeleton};
use echo::Echo;
use probe::{client, listening, object, server};
use punctual_giop::{Reference, SystemExceptionKind as Kind};
use punctual_orb::poa::Policies;
use punctual_orb::{Concurrency, Endpoint, Options, Orb, Pool, Stub as _};

fn pool(threads: usize) -> Pool {
    Pool::of(NonZeroUsize::new(threads).expect("some"))
}

/// All models; the pool has two threads.
fn models() -> [Concurrency; 3] {
    [Concurrency::ThreadPerConnection, Concurrency::Reactive, Concurrency::Pool(pool(2))]
}

fn serve(concurrency: Concurrency) -> Orb {
    server(Options { concurrency, ..listening() })
}

fn echo(orb: &Orb) -> Reference {
    orb.root_poa().serve(EchoSkeleton::new(Echo::new(orb))).expect("it is active")
}

fn echo_client(orb: &Orb, reference: &Reference) -> EchoClient {
    EchoReference(reference.clone()).connect(orb).expect("a usable reference")
}

#[test]
fn all_values_and_calls_work_with_each_model_over_each_transport() {
    for (number, concurrency) in models().into_iter().enumerate() {
        let path = std::env::temp_dir().join(format!("punctual-servers-{number}-{}", std::process::id()));
        let listen = vec![Endpoint::tcp("127.0.0.1", 0), Endpoint::Unix(path)];
        for endpoint in listen {
            let options = Options { concurrency: concurrency.clone(), ..Options::listening(endpoint) };
            let orb = server(options);
            let client = checks::client();
            let echo = echo_client(&client, &echo(&orb));
            checks::values(&echo);
            checks::calls(&echo);
            checks::calls_later(&echo);
        }
    }
}

/// The threads that serve calls of several clients, some at the same time.
fn threads_of(concurrency: Concurrency, clients: usize) -> HashSet<ThreadId> {
    let orb = serve(concurrency);
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let by_servant = Arc::clone(&seen);
    let reference = object(&orb, move |_| {
        by_servant.lock().expect("no panic").insert(thread::current().id());
        Ok(())
    });
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let (orb, reference) = (checks::client(), reference.clone());
                let called = client(&orb, &reference);
                (0..20).for_each(|number| called.called(number).expect("it is there"));
            });
        }
    });
    seen.lock().expect("no panic").clone()
}

#[test]
fn each_model_serves_with_its_threads() {
    assert_eq!(threads_of(Concurrency::ThreadPerConnection, 4).len(), 4);
    assert_eq!(threads_of(Concurrency::Reactive, 4).len(), 1);
    let of_pool = threads_of(Concurrency::Pool(pool(2)), 8).len();
    assert!((1..=2).contains(&of_pool), "{of_pool}");
}

/// A server whose servant waits: it says that it has begun, and goes on when it is told.
struct Gate {
    orb: Orb,
    reference: Reference,
    begun: Receiver<i32>,
    go_on: Sender<()>,
}

fn gate(options: Options) -> Gate {
    let orb = server(options);
    let (begins, begun) = channel();
    let (go_on, goes_on) = channel();
    let (begins, goes_on) = (Mutex::new(begins), Mutex::new(goes_on));
    let reference = object(&orb, move |number| {
        begins.lock().expect("no panic").send(number).expect("the test waits");
        goes_on.lock().expect("no panic").recv().expect("the test tells it");
        Ok(())
    });
    Gate { orb, reference, begun, go_on }
}

fn kind_of(outcome: Result<(), punctual_orb::SystemException>) -> Option<Kind> {
    outcome.err().map(|exception| exception.kind)
}

#[test]
fn a_full_pool_refuses_at_once_and_serves_those_that_wait() {
    let waiting = Pool { waiting_max: 1, wait_max: Duration::from_secs(600), ..pool(1) };
    let gate = gate(Options { concurrency: Concurrency::Pool(waiting), ..listening() });
    let orb = checks::client();
    let called = client(&orb, &gate.reference);
    let first = called.called_async(1);
    assert_eq!(gate.begun.recv(), Ok(1));
    // On one connection requests come in order: the second waits, the third finds no place.
    let (second, third) = (called.called_async(2), called.called_async(3));
    assert_eq!(kind_of(third.wait()), Some(Kind::Transient));
    gate.go_on.send(()).expect("the servant waits");
    assert_eq!(first.wait(), Ok(()));
    assert_eq!(gate.begun.recv(), Ok(2));
    gate.go_on.send(()).expect("the servant waits");
    assert_eq!(second.wait(), Ok(()));
}

#[test]
fn a_request_waits_for_a_pool_for_its_time_only() {
    let short = Pool { wait_max: Duration::from_millis(20), ..pool(1) };
    let gate = gate(Options { concurrency: Concurrency::Pool(short), ..listening() });
    let orb = checks::client();
    let called = client(&orb, &gate.reference);
    let first = called.called_async(1);
    assert_eq!(gate.begun.recv(), Ok(1));
    assert_eq!(kind_of(called.called(2)), Some(Kind::Transient));
    gate.go_on.send(()).expect("the servant waits");
    assert_eq!(first.wait(), Ok(()));
    drop(gate.go_on);
    assert!(gate.begun.try_recv().is_err(), "the second was not begun");
}

#[test]
fn a_cancelled_request_is_not_begun() {
    let long = Pool { waiting_max: 1, wait_max: Duration::from_secs(600), ..pool(1) };
    let gate = gate(Options { concurrency: Concurrency::Pool(long), ..listening() });
    let orb = checks::client();
    let called = client(&orb, &gate.reference);
    let first = called.called_async(1);
    assert_eq!(gate.begun.recv(), Ok(1));
    let short = called.object().with_timeout(Some(Duration::from_millis(20))).expect("the same object");
    let cancelled = CallbackClient::new(short).called_async(2);
    assert_eq!(kind_of(cancelled.wait()), Some(Kind::Timeout));
    // The connection of asynchronous calls is one: these come behind the CancelRequest, which makes room for one.
    let (third, fourth) = (called.called_async(3), called.called_async(4));
    assert_eq!(kind_of(fourth.wait()), Some(Kind::Transient));
    gate.go_on.send(()).expect("the servant waits");
    assert_eq!(first.wait(), Ok(()));
    assert_eq!(gate.begun.recv(), Ok(3));
    gate.go_on.send(()).expect("the servant waits");
    assert_eq!(third.wait(), Ok(()));
}

/// Calls of objects that call back, so many levels deep.
fn deep(concurrency: &Concurrency, levels: i32) -> Result<(), punctual_orb::SystemException> {
    let server = serve(concurrency.clone());
    let callee = serve(concurrency.clone());
    let echo = echo(&server);
    let (of_callee, of_echo) = (callee.clone(), echo.clone());
    let own = Arc::new(Mutex::new(Reference::default()));
    let own_of_servant = Arc::clone(&own);
    let reference = object(&callee, move |level| match level {
        0 => Ok(()),
        _ => {
            let own = own_of_servant.lock().expect("no panic").clone();
            echo_client(&of_callee, &of_echo).call_back(&Callback(own), level - 1)
        }
    });
    *own.lock().expect("no panic") = reference.clone();
    let client = checks::client();
    let done = echo_client(&client, &echo).call_back(&Callback(reference), levels);
    callee.shutdown(false);
    server.shutdown(false);
    done
}

#[test]
fn servants_that_call_each_other_are_served_or_get_transient() {
    let short = Pool { wait_max: Duration::from_millis(20), ..pool(2) };
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive, Concurrency::Pool(short)] {
        assert_eq!(deep(&concurrency, 1), Ok(()), "{concurrency:?}");
        let failed = deep(&concurrency, 1_000).expect_err("no server has so many threads, or levels");
        assert_eq!(failed.kind, Kind::Transient, "{concurrency:?}");
    }
    assert_eq!(deep(&Concurrency::Reactive, 4), Ok(()));
    assert_eq!(deep(&Concurrency::Pool(pool(8)), 7), Ok(()));
}

#[test]
fn a_client_that_does_not_read_delays_nobody_and_gets_all_later() {
    for concurrency in models() {
        let orb = serve(concurrency);
        let reference = echo(&orb);
        let profile = reference.iiop_profiles().next().expect("a profile").expect("it is whole");
        let mut slow =
            TcpStream::connect((&*profile.address.host, profile.address.port)).expect("it listens");
        let octets = vec![7u8; 4 << 20];
        let requests = request(&profile.object_key, "echo_octets", &octets);
        let mut sender = slow.try_clone().expect("a descriptor");
        let writes = thread::spawn(move || (0..4).for_each(|_| sender.write_all(&requests).expect("sent")));
        // It is served long before the replies are read.
        let client = checks::client();
        let quick = echo_client(&client, &reference);
        (0..100).for_each(|number| assert_eq!(quick.echo_octet(number), Ok(number)));
        for _ in 0..4 {
            let mut head = [0u8; 12];
            slow.read_exact(&mut head).expect("a header");
            assert_eq!(&head[..4], b"GIOP");
            let size = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
            let mut body = vec![0; size];
            slow.read_exact(&mut body).expect("the whole reply");
            assert_eq!(body[size - 1], 7);
        }
        writes.join().expect("all is sent");
    }
}

/// A request of GIOP 1.2 with octets as its argument.
fn request(key: &[u8], operation: &str, octets: &[u8]) -> Vec<u8> {
    use punctual_giop::message::{Request, RequestId, Response, Target};
    use punctual_giop::{ByteOrder, Encode as _, Encoder, TaggedList, Version};
    let mut to = Encoder::new(ByteOrder::Little, Version::V1_2);
    let contexts = TaggedList::default();
    let (response, target) = (Response::Target, Target::Key(key));
    let head = Request { id: RequestId(2), response, target, operation, contexts };
    let open = head.begin(&mut to).expect("it has bytes");
    octets.encode(&mut to).expect("it has bytes");
    open.finish(&mut to).expect("it has bytes");
    to.into_bytes()
}

#[test]
fn requests_wait_for_their_adapter_and_for_nobody_else() {
    for concurrency in models() {
        let orb = serve(concurrency.clone());
        let held = orb.root_poa().create_poa("held", Policies::default(), None).expect("a new name");
        let reference = held.serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
        let client = checks::client();
        let (waits, other) = (echo_client(&client, &reference), echo_client(&client, &echo(&orb)));
        let waiting: Vec<_> = (0..4).map(|number| waits.echo_octet_async(number)).collect();
        // Another connection: the blocking calls'.
        assert_eq!(other.echo_octet(7), Ok(7), "{concurrency:?}");
        assert!(waiting.iter().all(|one| !one.is_ready()));
        held.manager().activate().expect("it is not inactive");
        for (number, one) in (0..).zip(waiting) {
            assert_eq!(one.wait(), Ok(number));
        }
    }
}

#[test]
fn a_pool_holds_as_many_requests_as_may_wait_for_it() {
    let orb = serve(Concurrency::Pool(Pool { waiting_max: 2, ..pool(1) }));
    let held = orb.root_poa().create_poa("held", Policies::default(), None).expect("a new name");
    let reference = held.serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    let client = checks::client();
    let (waits, other) = (echo_client(&client, &reference), echo_client(&client, &echo(&orb)));
    let send = |number| {
        let sent = waits.echo_octet_async(number);
        // Behind it on the connection of asynchronous calls: the pool's one thread is free again.
        assert_eq!(other.echo_octet_async(number).wait(), Ok(number));
        sent
    };
    let (first, second, third) = (send(1), send(2), send(3));
    assert_eq!(third.wait().map_err(|exception| exception.kind), Err(Kind::Transient));
    assert!(!first.is_ready() && !second.is_ready());
    held.manager().activate().expect("it is not inactive");
    assert_eq!((first.wait(), second.wait()), (Ok(1), Ok(2)));
}

#[test]
fn a_request_waits_for_its_adapter_for_its_time_only() {
    for concurrency in models() {
        let hold_time = Duration::from_millis(20);
        let orb = server(Options { concurrency, hold_time, ..listening() });
        let held = orb.root_poa().create_poa("held", Policies::default(), None).expect("a new name");
        let reference = held.serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
        let client = checks::client();
        let echo = echo_client(&client, &reference);
        assert_eq!(echo.echo_octet(1).expect_err("it waits").kind, Kind::Transient);
        assert_eq!(echo.echo_octet_async(1).wait().expect_err("it waits").kind, Kind::Transient);
        held.manager().activate().expect("it is not inactive");
        assert_eq!(echo.echo_octet(1), Ok(1));
    }
}

#[test]
fn clients_beyond_the_limit_are_closed_and_others_served() {
    for concurrency in models() {
        let orb = server(Options { concurrency, connections_max: 2, ..listening() });
        let reference = echo(&orb);
        let clients: Vec<Orb> = (0..2).map(|_| checks::client()).collect();
        let echoes: Vec<EchoClient> = clients.iter().map(|orb| echo_client(orb, &reference)).collect();
        echoes.iter().for_each(|echo| assert_eq!(echo.echo_octet(1), Ok(1)));
        let third = checks::client();
        assert_eq!(echo_client(&third, &reference).echo_octet(1).expect_err("closed").kind, Kind::Transient);
        echoes.iter().for_each(|echo| assert_eq!(echo.echo_octet(2), Ok(2)));
    }
}

#[test]
fn requests_that_were_begun_get_their_replies_when_the_server_ends() {
    for concurrency in [Concurrency::Reactive, Concurrency::Pool(pool(2))] {
        let gate = gate(Options { concurrency, ..listening() });
        let orb = checks::client();
        let called = client(&orb, &gate.reference);
        let first = called.called_async(1);
        assert_eq!(gate.begun.recv(), Ok(1));
        let server = gate.orb.clone();
        let ends = thread::spawn(move || server.shutdown(true));
        gate.go_on.send(()).expect("the servant waits");
        assert_eq!(first.wait(), Ok(()));
        ends.join().expect("it ends");
        assert!(called.called(2).is_err(), "nobody listens");
    }
}

#[test]
fn a_servant_may_end_its_server() {
    for concurrency in models() {
        let orb = serve(concurrency);
        let of_servant = orb.clone();
        let reference = object(&orb, move |_| {
            of_servant.shutdown(false);
            Ok(())
        });
        let client_orb = checks::client();
        // Its reply may be lost, but nobody waits for ever.
        let _ = client(&client_orb, &reference).called(1);
        orb.run();
    }
}

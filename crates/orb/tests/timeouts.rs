//! The time of a call ends whatever it waits for: connecting, writing, replies, and forwarding.

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

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use demo::demo::{CallbackClient, Echo as EchoReference, EchoClient, EchoSkeleton};
use echo::Echo;
use probe::server;
use punctual_giop::message::{Message, Reply, ReplyStatus};
use punctual_giop::reference::{Component, IiopProfile, UnixAddress};
use punctual_giop::{
    ByteOrder, Encode as _, Encoder, Reference, SystemException, SystemExceptionKind as Kind, TaggedList,
    Version,
};
use punctual_orb::{Concurrency, Endpoint, Options, Orb, Stub as _, SyncScope};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

const SHORT: Duration = Duration::from_millis(100);
/// Nothing that ends at its time takes so long, on any machine.
const LONG: Duration = Duration::from_secs(60);

fn client(timeout: Duration) -> Orb {
    Orb::new(Options { timeout: Some(timeout), ..Options::default() }).expect("a client needs nothing")
}

fn echo_of(orb: &Orb, reference: &Reference) -> EchoClient {
    EchoReference(reference.clone()).connect(orb).expect("a usable reference")
}

fn at(address: SocketAddr) -> Reference {
    checks::client().reference(&format!("corbaloc::1.2@{address}/key")).expect("a reference")
}

/// Both ways of calling end at their time, with all of `TIMEOUT`.
fn ends_in_time(reference: &Reference, call: impl Fn(&EchoClient) -> Result<(), SystemException>) {
    let orb = client(SHORT);
    let begin = Instant::now();
    let failed = call(&echo_of(&orb, reference)).expect_err("nobody answers");
    assert_eq!(failed.kind, Kind::Timeout);
    assert!((SHORT..LONG).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[test]
fn connecting_over_tcp_ends_in_time() {
    // One client is in the queue, and nobody accepts: the others' packets are dropped.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    rustix::net::listen(&socket, 0).expect("it listens");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("it has one");
    let in_queue = TcpStream::connect(address).expect("the first one");
    let reference = at(address);
    ends_in_time(&reference, |echo| echo.echo_octet(1).map(drop));
    ends_in_time(&reference, |echo| echo.echo_octet_async(1).wait().map(drop));
    drop(in_queue);
}

#[test]
fn connecting_over_a_unix_socket_ends_in_time() {
    let path = std::env::temp_dir().join(format!("punctual-timeouts-{}", std::process::id()));
    let address = SocketAddrUnix::new(&path).expect("a path");
    let unix = || rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let listener: OwnedFd = unix();
    rustix::net::bind(&listener, &address).expect("a new path");
    rustix::net::listen(&listener, 0).expect("it listens");
    let in_queue = unix();
    rustix::net::connect(&in_queue, &address).expect("the first one");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let at = UnixAddress { host: host.clone(), path: path.to_string_lossy().into_owned() };
    let profile = IiopProfile {
        version: Version::V1_2,
        address: punctual_giop::reference::Address { host, port: 0 },
        object_key: b"key".to_vec(),
        components: vec![Component::of_unix(&at).expect("it has bytes")],
    };
    let reference = Reference::iiop(EchoReference::REPOSITORY_ID, &profile).expect("it has bytes");
    ends_in_time(&reference, |echo| echo.echo_octet(1).map(drop));
    std::fs::remove_file(path).expect("it was made");
}

#[test]
fn writing_to_a_server_that_does_not_read_ends_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let reference = at(silent.local_addr().expect("it has one"));
    let long = vec![0u8; 32 << 20];
    ends_in_time(&reference, |echo| echo.length_of(&long).map(drop));
    ends_in_time(&reference, |echo| echo.length_of_async(&long).wait().map(drop));
    let oneway = |echo: &EchoClient| {
        let once = echo.object().with_sync_scope(SyncScope::WithTransport).expect("the same object");
        once.send("length_of", |to| long[..].encode(to))
    };
    ends_in_time(&reference, oneway);
    for scope in [SyncScope::WithServer, SyncScope::WithTarget] {
        ends_in_time(&reference, |echo| {
            echo.object().with_sync_scope(scope).expect("the same object").send("note", |to| 1.encode(to))
        });
    }
}

/// A server that takes a third of the time for each answer, which is that the object is here again.
fn slow_forwarder() -> Reference {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let reference = at(listener.local_addr().expect("it has one"));
    let to = reference.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let to = to.clone();
            thread::spawn(move || forward_all(stream.expect("a client"), &to));
        }
    });
    reference
}

fn forward_all(mut stream: TcpStream, to: &Reference) {
    let mut head = [0u8; 12];
    // It ends with its client.
    while stream.read_exact(&mut head).is_ok() {
        let size = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let mut message = head.to_vec();
        message.resize(12 + size, 0);
        stream.read_exact(&mut message[12..]).expect("a whole message");
        let Ok(Message::Request(request, _)) = Message::read(&message) else { continue };
        thread::sleep(SHORT / 3);
        let mut answer = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
        let (status, contexts) = (ReplyStatus::LocationForward, TaggedList::default());
        let open = Reply { id: request.id, status, contexts }.begin(&mut answer).expect("it has bytes");
        to.encode(&mut answer).expect("it has bytes");
        open.finish(&mut answer).expect("it has bytes");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn forwarding_ends_in_time() {
    // Without an end in time it would end with TRANSIENT after ten times.
    let reference = slow_forwarder();
    ends_in_time(&reference, |echo| echo.echo_octet(1).map(drop));
    ends_in_time(&reference, |echo| echo.echo_octet_async(1).wait().map(drop));
}

#[test]
fn finding_a_host_without_an_address_is_an_exception_with_a_time_and_without() {
    let text = "corbaloc::1.2@no-such-host.invalid:7/key";
    let reference = checks::client().reference(text).expect("a reference");
    for orb in [checks::client(), client(LONG)] {
        let failed = echo_of(&orb, &reference).echo_octet(1).expect_err("no such host");
        assert_eq!(failed.kind, Kind::Transient);
    }
    if ("localhost", 7).to_socket_addrs().is_err() {
        punctual_skip::skipped!("this system cannot find the host 'localhost': add it to /etc/hosts");
        return;
    }
    let name = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = name.local_addr().expect("it has one").port();
    let reference = checks::client().reference(&format!("corbaloc::1.2@localhost:{port}/key"));
    ends_in_time(&reference.expect("a reference"), |echo| echo.echo_octet(1).map(drop));
}

#[test]
fn addresses_are_published_as_configured() {
    let options = Options {
        listen: vec![Endpoint::tcp("127.0.0.1", 0), Endpoint::tcp("0.0.0.0", 0)],
        published: vec![Endpoint::tcp("gateway.example.org", 7), Endpoint::tcp("127.0.0.2", 0)],
        ..Options::default()
    };
    let orb = server(options);
    let [Endpoint::Tcp(first), Endpoint::Tcp(second)] = orb.published() else { panic!("two addresses") };
    assert_eq!((&*first.host, first.port), ("gateway.example.org", 7));
    assert_eq!(&*second.host, "127.0.0.2");
    assert_ne!(second.port, 0, "that of the second listener");
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    let profile = reference.iiop_profiles().next().expect("one").expect("it is whole");
    let addresses = profile.addresses().expect("they are whole");
    assert_eq!(addresses, [first.clone(), second.clone()]);
    // The second one works.
    let local = checks::client().reference(&format!("corbaloc::1.2@{second}/x")).expect("a reference");
    let failed = echo_of(&checks::client(), &local).echo_octet(1).expect_err("no such object");
    assert_eq!(failed.kind, Kind::ObjectNotExist);
}

#[test]
fn a_server_that_died_leaves_a_socket_that_the_next_one_replaces() {
    let path = std::env::temp_dir().join(format!("punctual-left-{}", std::process::id()));
    // It is not removed when it is closed.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a new path"));
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive] {
        let options = Options { concurrency, ..Options::listening(Endpoint::Unix(path.clone())) };
        let orb = server(options.clone());
        assert!(Orb::new(options).is_err(), "one that lives is not replaced");
        let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
        assert_eq!(echo_of(&checks::client(), &reference).echo_octet(1), Ok(1));
        orb.shutdown(true);
    }
}

#[test]
fn half_a_message_holds_a_reactor_for_its_time_only() {
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive] {
        let listen = Options::listening(Endpoint::tcp("127.0.0.1", 0));
        let orb = server(Options { concurrency, message_time: Some(SHORT), ..listen });
        let Some(Endpoint::Tcp(at)) = orb.published().first().cloned() else { panic!("it listens") };
        let mut half = TcpStream::connect((&*at.host, at.port)).expect("it listens");
        let mut idle = half.try_clone().and(TcpStream::connect((&*at.host, at.port))).expect("it listens");
        let mut later = TcpStream::connect((&*at.host, at.port)).expect("it listens");
        half.write_all(b"GIOP\x01\x02\x01\x00\x80\0\0\0half").expect("it is sent");
        thread::sleep(SHORT / 2);
        let begin = Instant::now();
        later.write_all(b"GIOP\x01\x02\x01\x00\x80\0\0\0half").expect("it is sent");
        assert_eq!(half.read(&mut [0; 1]).unwrap_or(0), 0, "it ends");
        assert_eq!(later.read(&mut [0; 1]).unwrap_or(0), 0, "it ends");
        assert!((SHORT..LONG).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        // An idle connection owes nothing.
        idle.set_read_timeout(Some(SHORT)).expect("a timeout");
        assert_eq!(idle.read(&mut [0; 1]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    }
}

#[test]
fn a_timeout_of_one_object_is_not_that_of_others() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let reference = at(silent.local_addr().expect("it has one"));
    let orb = client(LONG);
    let called = probe::client(&orb, &reference);
    let short = called.object().with_timeout(Some(SHORT)).expect("the same object");
    assert_eq!(CallbackClient::new(short).called(1).map_err(|failed| failed.kind), Err(Kind::Timeout));
}

//! What requests say beside their arguments: how far a oneway caller waits, and service contexts. A scripted
//! server reads the bytes; servants of this ORB ask for what came.

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
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use demo::demo::CallbackClient;
use probe::{client, listening, object, server};
use punctual_giop::message::{Message, Reply, ReplyStatus, RequestId};
use punctual_giop::{
    ByteOrder, Completion, Encode as _, Encoder, SystemException, SystemExceptionKind as Kind, Tagged,
    TaggedList, Version,
};
use punctual_orb::current::{self, NoContext};
use punctual_orb::{Contexts, Orb, Stub as _, SyncScope};

/// Numbers that nobody else uses.
const FIRST: u32 = 0x5055_4E00;
const SECOND: u32 = 0x5055_4E01;

/// A server that reads one connection as the test says.
struct Script {
    address: std::net::SocketAddr,
    thread: JoinHandle<()>,
}

fn script(serve: impl FnOnce(TcpStream) + Send + 'static) -> Script {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it has one");
    let thread = thread::spawn(move || serve(listener.accept().expect("a client").0));
    Script { address, thread }
}

impl Script {
    fn client(&self, orb: &Orb, version: &str) -> CallbackClient {
        let text = format!("corbaloc::{version}@{}/key", self.address);
        client(orb, &orb.reference(&text).expect("a reference"))
    }
}

fn read_message(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    stream.read_exact(&mut bytes).expect("a header");
    let size = u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
    bytes.resize(12 + size, 0);
    stream.read_exact(&mut bytes[12..]).expect("the rest");
    bytes
}

fn reply(
    version: Version,
    id: RequestId,
    contexts: &[Tagged<'_>],
    exception: Option<SystemException>,
) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::NATIVE, version);
    let status = if exception.is_some() { ReplyStatus::SystemException } else { ReplyStatus::NoException };
    let open =
        Reply { id, status, contexts: TaggedList::from(contexts) }.begin(&mut to).expect("it has bytes");
    exception.iter().for_each(|exception| exception.encode(&mut to).expect("it has bytes"));
    open.finish(&mut to).expect("it has bytes");
    to.into_bytes()
}

fn scoped(client: &CallbackClient, scope: SyncScope) -> CallbackClient {
    CallbackClient::new(client.object().with_sync_scope(scope).expect("the same object"))
}

/// Calls `called` as if it were a oneway operation.
fn send(client: &CallbackClient, number: i32) -> Result<(), SystemException> {
    client.object().send("called", |to| number.encode(to))
}

fn refused() -> SystemException {
    SystemException { kind: Kind::NoPermission, minor: 3, completed: Completion::Yes }
}

#[test]
fn the_response_flags_say_how_far_a_oneway_caller_waits() {
    // In 1.2 the flags are behind the header and the number (CORBA 15.4.2.1); before, behind an empty list of
    // contexts and the number.
    let versions = [("1.0", Version::V1_0, 20), ("1.1", Version::V1_1, 20), ("1.2", Version::V1_2, 16)];
    for (name, version, at) in versions {
        let of_target = if version == Version::V1_2 { 3 } else { 1 };
        let expected = [
            (SyncScope::None, 0),
            (SyncScope::WithTransport, 0),
            (SyncScope::WithServer, 1),
            (SyncScope::WithTarget, of_target),
        ];
        for (scope, flags) in expected {
            let script = script(move |mut stream| {
                let message = read_message(&mut stream);
                assert_eq!(message[at], flags, "{scope:?} {version:?}");
                let Ok(Message::Request(request, _)) = Message::read(&message) else { panic!("a request") };
                if request.response.is_expected() {
                    let answer = reply(version, request.id, &[], Some(refused()));
                    stream.write_all(&answer).expect("it is sent");
                }
            });
            let orb = checks::client();
            let sent = send(&scoped(&script.client(&orb, name), scope), 1);
            let expected = if flags == 0 { Ok(()) } else { Err(refused()) };
            assert_eq!(sent, expected, "{scope:?} {version:?}");
            script.thread.join().expect("the flags are right");
        }
    }
}

#[test]
fn with_server_the_reply_comes_before_the_servant_has_ended_and_with_target_after() {
    let orb = server(listening());
    let (go_on, goes_on) = channel();
    let (ends, ended) = channel();
    let (goes_on, ends) = (Mutex::new(goes_on), Mutex::new(ends));
    let reference = object(&orb, move |number| {
        if number == 1 {
            goes_on.lock().expect("no panic").recv().expect("the test tells it");
            ends.lock().expect("no panic").send(()).expect("the test waits");
        }
        Err(refused())
    });
    let client_orb = checks::client();
    let called = client(&client_orb, &reference);
    assert_eq!(send(&scoped(&called, SyncScope::WithServer), 1), Ok(()));
    go_on.send(()).expect("the servant waits");
    ended.recv().expect("the servant ends");
    assert_eq!(send(&scoped(&called, SyncScope::WithTarget), 2), Err(refused()));
    assert_eq!(send(&scoped(&called, SyncScope::WithTransport), 2), Ok(()));
    // The server knows before it calls that there is no object, or no operation.
    let Some(address) = orb.published().first() else { panic!("it listens") };
    let nobody = client_orb.reference(&format!("corbaloc::1.2@{address}/nobody")).expect("a reference");
    let nobody = client(&client_orb, &nobody);
    for (scope, expected) in [
        (SyncScope::None, Ok(())),
        (SyncScope::WithTransport, Ok(())),
        (SyncScope::WithServer, Err(Kind::ObjectNotExist)),
        (SyncScope::WithTarget, Err(Kind::ObjectNotExist)),
    ] {
        let sent = send(&scoped(&nobody, scope), 1);
        assert_eq!(sent.map_err(|exception| exception.kind), expected, "{scope:?}");
    }
    let wrong = scoped(&called, SyncScope::WithServer);
    let unknown: Result<(), SystemException> = wrong.object().send("no_such", |_| Ok(()));
    assert_eq!(unknown.map_err(|exception| exception.kind), Err(Kind::BadOperation));
}

#[test]
fn without_a_scope_nobody_waits_for_a_server_that_does_not_read_and_what_waits_is_bounded() {
    let (go_on, goes_on) = channel::<usize>();
    let script = script(move |mut stream| {
        let count = goes_on.recv().expect("the test tells it");
        for number in 0..count {
            let message = read_message(&mut stream);
            let Ok(Message::Request(request, _)) = Message::read(&message) else { panic!("a request") };
            assert_eq!(request.operation, number.to_string(), "in their order");
        }
    });
    let orb = checks::client();
    let called = scoped(&script.client(&orb, "1.2"), SyncScope::None);
    let long = vec![0u8; 32 << 20];
    let first: Result<(), SystemException> = called.object().send("0", |to| long[..].encode(to));
    assert_eq!(first, Ok(()));
    let mut sent = 1;
    let refused = loop {
        let one: Result<(), SystemException> = called.object().send(&sent.to_string(), |_| Ok(()));
        match one {
            Ok(()) => sent += 1,
            Err(exception) => break exception,
        }
    };
    assert_eq!(refused.kind, Kind::Transient);
    assert!((1_000..=1_002).contains(&sent), "{sent}");
    go_on.send(sent).expect("the script waits");
    script.thread.join().expect("all arrive");
}

#[test]
fn a_scripted_server_sees_the_contexts_of_requests_and_its_own_come_back() {
    for (name, version) in [("1.0", Version::V1_0), ("1.1", Version::V1_1), ("1.2", Version::V1_2)] {
        let script = script(move |mut stream| {
            for _ in 0..2 {
                let message = read_message(&mut stream);
                let Ok(Message::Request(request, _)) = Message::read(&message) else { panic!("a request") };
                assert_eq!(request.contexts.find(FIRST), Some(&b"asked"[..]));
                let answers = [Tagged { id: SECOND, data: b"answered" }];
                stream.write_all(&reply(version, request.id, &answers, None)).expect("it is sent");
            }
        });
        let orb = checks::client();
        let contexts = Contexts::new([(FIRST, b"asked".to_vec())]);
        let called = script.client(&orb, name);
        let called = CallbackClient::new(called.object().with_contexts(&contexts).expect("the same object"));
        assert_eq!(contexts.received(SECOND), None);
        for _ in 0..2 {
            assert_eq!(called.called(1), Ok(()));
            assert_eq!(contexts.received(SECOND), Some(b"answered".to_vec()));
            assert_eq!(contexts.received(FIRST), None);
        }
        script.thread.join().expect("the contexts are right");
    }
}

/// A server whose servant answers the context `FIRST` with the same bytes, in reverse, as `SECOND`. It fails
/// for odd numbers.
fn reversing() -> (Orb, punctual_giop::Reference) {
    let orb = server(listening());
    let reference = object(&orb, |number| {
        let asked = current::context(FIRST).expect("a request is served");
        if let Some(mut bytes) = asked {
            bytes.reverse();
            current::add_reply_context(SECOND, &bytes).expect("a request is served");
        }
        if number % 2 == 0 { Ok(()) } else { Err(refused()) }
    });
    (orb, reference)
}

#[test]
fn servants_read_the_contexts_of_requests_and_add_those_of_replies() {
    let (server, reference) = reversing();
    // Over a connection, and within the process.
    for orb in [checks::client(), server.clone()] {
        let plain = client(&orb, &reference);
        for text in ["abc", "x", ""] {
            let contexts = Contexts::new([(SECOND, vec![9]), (FIRST, text.into())]);
            let called = CallbackClient::new(plain.object().with_contexts(&contexts).expect("the same"));
            let reversed: Vec<u8> = text.bytes().rev().collect();
            assert_eq!(called.called(0), Ok(()));
            assert_eq!(contexts.received(SECOND), Some(reversed.clone()));
            assert_eq!(called.called_async(1).wait(), Err(refused()));
            assert_eq!(contexts.received(SECOND), Some(reversed));
            let by_target = scoped(&called, SyncScope::WithTarget);
            assert_eq!(send(&by_target, 0), Ok(()));
            assert!(contexts.received(SECOND).is_some());
            // A request without contexts, and with another list, has nothing of the last one.
            let others = Contexts::default();
            let bare = CallbackClient::new(plain.object().with_contexts(&others).expect("the same"));
            assert_eq!(bare.called(0), Ok(()));
            assert_eq!(others.received(SECOND), None);
        }
    }
}

#[test]
fn the_present_request_is_the_innermost_one_of_its_thread() {
    assert_eq!(current::object_id(), Err(NoContext));
    assert_eq!(current::context(FIRST), Err(NoContext));
    assert_eq!(current::add_reply_context(FIRST, b""), Err(NoContext));
    assert!(current::poa().is_err() && current::reference("").is_err());
    let (orb, inner) = reversing();
    let of_servant = orb.clone();
    let outer = object(&orb, move |_| {
        let before = (current::object_id(), current::context(FIRST));
        current::add_reply_context(SECOND, b"outer").expect("a request is served");
        // Within the process, in the same thread.
        assert_eq!(client(&of_servant, &inner).called(0), Ok(()));
        assert_eq!((current::object_id(), current::context(FIRST)), before);
        assert_eq!(current::poa().expect("a request is served").name(), "");
        let own = current::reference("IDL:punctual/Demo/Callback:1.0").expect("the ORB listens");
        let id = of_servant.root_poa().reference_to_id(&own).expect("its own");
        assert_eq!(Ok(id), current::object_id());
        Ok(())
    });
    let client_orb = checks::client();
    let contexts = Contexts::new([(FIRST, b"o".to_vec())]);
    let plain = client(&client_orb, &outer);
    let called = CallbackClient::new(plain.object().with_contexts(&contexts).expect("the same"));
    assert_eq!(called.called(0), Ok(()));
    assert_eq!(contexts.received(SECOND), Some(b"outer".to_vec()));
    assert_eq!(current::object_id(), Err(NoContext));
}

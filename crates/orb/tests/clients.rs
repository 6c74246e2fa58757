//! Our server, and clients that do what the protocol allows, or do not.

#[path = "common/script.rs"]
#[allow(dead_code)]
mod script;

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_giop::context::CODE_SETS;
use punctual_giop::message::{
    LocateRequest, LocateStatus, Message, MessageType, ReplyStatus, Request, RequestId, Response, Target,
};
use punctual_giop::{
    ByteOrder, Decode, Decoder, Encode, Encoder, Reference, SystemException, SystemExceptionKind as Kind,
    Tagged, TaggedList, Version,
};
use punctual_orb::poa::{Bidirectional, Poa, Policies};
use punctual_orb::{Concurrency, Endpoint, Object, Operations, Options, Orb, Pool, Reply, Servant};
use rustix::time::{ClockId, clock_gettime};
use script::{End, bare, cancel, cut, header, request, written};

static OPERATIONS: Operations = Operations::new(0, &[1], &["length"]);

/// Says how long a sequence is. The servant of the tests that cancel tells that it was called, and waits.
#[derive(Default)]
struct Length {
    pause: Option<(Sender<()>, Mutex<Receiver<()>>)>,
}

impl Servant for Length {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:Length:1.0"]
    }

    fn operations(&self) -> &'static Operations {
        &OPERATIONS
    }

    fn dispatch(
        &self,
        _: usize,
        arguments: &mut Decoder<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SystemException> {
        let octets: Vec<u8> = punctual_orb::argument(arguments)?;
        if let Some((called, goes)) = &self.pause {
            called.send(()).expect("a test waits");
            goes.lock().expect("no panic").recv().expect("a test goes on");
        }
        reply.result(|to| (octets.len() as u32).encode(to))
    }
}

struct Server {
    orb: Orb,
    reference: Reference,
    key: Vec<u8>,
}

fn serving(options: Options, servant: Length) -> Server {
    let orb = Orb::new(options).expect("it listens");
    let reference = orb.root_poa().serve(servant).expect("it is active");
    orb.root_poa().manager().activate().expect("it is not inactive");
    let profile = reference.iiop_profiles().next().expect("a profile").expect("it is whole");
    Server { orb, reference, key: profile.object_key }
}

thread_local! {
    static MODEL: RefCell<Concurrency> = RefCell::default();
}

/// Runs a test with servers of each concurrency model.
fn with_each_model(test: impl Fn()) {
    let pool = Pool::of(NonZeroUsize::new(2).expect("some"));
    for model in [Concurrency::ThreadPerConnection, Concurrency::Reactive, Concurrency::Pool(pool)] {
        println!("{model:?}");
        MODEL.set(model);
        test();
    }
}

fn options() -> Options {
    let concurrency = MODEL.with_borrow(Clone::clone);
    Options { concurrency, ..Options::listening(Endpoint::tcp("127.0.0.1", 0)) }
}

fn server() -> Server {
    serving(options(), Length::default())
}

fn length(id: u32, key: &[u8], bytes: usize) -> Vec<u8> {
    request(id, key, "length", |to| vec![3u8; bytes].encode(to))
}

/// The next reply: its number and the length that it says.
fn answered(end: &mut End) -> (u32, u32) {
    let message = end.expect(MessageType::Reply);
    let Ok(Message::Reply(reply, mut body)) = Message::read(&message) else { panic!("a reply") };
    assert_eq!(reply.status, ReplyStatus::NoException);
    (reply.id.0, u32::decode(&mut body).expect("a length"))
}

#[test]
fn fragments_of_several_requests_mix() {
    with_each_model(|| {
        let server = server();
        let mut end = End::connect(&server.orb);
        let pieces: Vec<_> =
            (1..=3).map(|id| cut(&length(id, &server.key, 1_000 + id as usize), 512)).collect();
        for number in 0..pieces[0].len() {
            pieces.iter().for_each(|pieces| end.send(&pieces[number]));
        }
        // A pool's threads serve them at the same time.
        let mut all = [(); 3].map(|()| answered(&mut end));
        all.sort_unstable();
        assert_eq!(all, [(1, 1_001), (2, 1_002), (3, 1_003)]);
    });
}

#[test]
fn fragments_that_never_end_are_refused() {
    with_each_model(|| {
        let server = serving(Options { message_bytes_max: 100_000, ..options() }, Length::default());
        let mut end = End::connect(&server.orb);
        let pieces = cut(&length(1, &server.key, 50_000), 10_000);
        end.send(&pieces[0]);
        // The server may end the connection before all are sent.
        let mut more = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let mut end = end;
                    for _ in 0..8 {
                        end.send(&pieces[1]);
                    }
                    end
                })
                .join()
                .expect("they are read")
        });
        more.send(&pieces[1][..12]);
        more.expect(MessageType::MessageError);
        assert_eq!(more.read(), None);
        let mut end = End::connect(&server.orb);
        end.send(&length(2, &server.key, 10));
        assert_eq!(answered(&mut end), (2, 10));
    });
}

/// The header alone is enough: its bytes are not awaited.
#[test]
fn a_first_fragment_that_is_too_long_is_refused_by_its_header() {
    with_each_model(|| {
        let server = serving(Options { message_bytes_max: 100_000, ..options() }, Length::default());
        let mut end = End::connect(&server.orb);
        end.send(&cut(&length(1, &server.key, 90_000), 80_000)[0]);
        end.send(&cut(&length(2, &server.key, 90_000), 80_000)[0][..12]);
        end.expect(MessageType::MessageError);
        assert_eq!(end.read(), None);
    });
}

#[test]
fn half_a_request_holds_no_thread() {
    with_each_model(|| {
        let server = serving(
            Options { message_time: Some(Duration::from_millis(20)), connections_max: 1, ..options() },
            Length::default(),
        );
        let whole = length(1, &server.key, 1_000);
        for half in [&whole[..5], &whole[..500], &cut(&whole, 512)[0]] {
            // There is room for one connection only.
            let mut end = loop {
                let mut end = End::connect(&server.orb);
                end.send(&length(9, &server.key, 1));
                match end.read() {
                    Some(reply) if header(&reply).kind == MessageType::Reply => break end,
                    // The connection before is not closed yet.
                    _ => std::thread::yield_now(),
                }
            };
            end.send(half);
            assert_eq!(end.read(), None);
        }
    });
}

#[test]
fn a_request_in_pieces_is_cancelled() {
    with_each_model(|| {
        let server = server();
        let mut end = End::connect(&server.orb);
        let pieces = cut(&length(1, &server.key, 1_000), 512);
        end.send(&pieces[0]);
        end.send(&cancel(1));
        // Its number is free again.
        pieces.iter().for_each(|piece| end.send(piece));
        assert_eq!(answered(&mut end), (1, 1_000));
    });
}

#[test]
fn a_reply_that_nobody_awaits_any_more_is_not_sent() {
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive] {
        cancelled_while_its_servant_runs(concurrency);
    }
}

fn cancelled_while_its_servant_runs(concurrency: Concurrency) {
    let (called, is_called) = channel();
    let (go, goes) = channel();
    let options = Options { concurrency, ..options() };
    let server = serving(options, Length { pause: Some((called, Mutex::new(goes))) });
    let mut end = End::connect(&server.orb);
    end.send(&length(1, &server.key, 10));
    is_called.recv().expect("it is called");
    end.send(&cancel(1));
    end.send(&length(2, &server.key, 20));
    // The server looks only where a servant takes longer than a tick of the kernel, by this clock.
    let tick = || {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        (now.tv_sec, now.tv_nsec)
    };
    let before = tick();
    while tick() == before {
        std::thread::yield_now();
    }
    go.send(()).expect("it waits");
    is_called.recv().expect("the second one is called");
    go.send(()).expect("it waits");
    assert_eq!(answered(&mut end), (2, 20));
}

#[test]
fn a_pool_does_not_send_a_reply_that_nobody_awaits_any_more() {
    let (called, is_called) = channel();
    let (go, goes) = channel();
    let concurrency = Concurrency::Pool(Pool::of(NonZeroUsize::new(2).expect("some")));
    let pause = Some((called, Mutex::new(goes)));
    let server = serving(Options { concurrency, ..options() }, Length { pause });
    let mut end = End::connect(&server.orb);
    end.send(&length(1, &server.key, 10));
    is_called.recv().expect("it is called");
    end.send(&cancel(1));
    end.send(&length(2, &server.key, 20));
    // What came before the second request was read before it.
    is_called.recv().expect("the second one is called");
    (0..2).for_each(|_| go.send(()).expect("both wait"));
    assert_eq!(answered(&mut end), (2, 20));
    server.orb.shutdown(true);
    end.expect(MessageType::CloseConnection);
}

fn located(end: &mut End, key: &[u8]) -> (LocateStatus, Option<Reference>) {
    let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
    LocateRequest { id: RequestId(5), target: Target::Key(key) }.write(&mut to).expect("it has bytes");
    end.send(to.as_bytes());
    let message = end.expect(MessageType::LocateReply);
    let Ok(Message::LocateReply(reply, mut body)) = Message::read(&message) else { panic!("a reply") };
    assert_eq!(reply.id, RequestId(5));
    let is_forward = reply.status == LocateStatus::ObjectForward;
    (reply.status, is_forward.then(|| Reference::decode(&mut body).expect("a reference")))
}

#[test]
fn a_server_says_where_its_objects_are() {
    with_each_model(|| {
        let server = server();
        server.orb.set_key("known", server.reference.clone());
        let mut end = End::connect(&server.orb);
        assert_eq!(located(&mut end, &server.key), (LocateStatus::ObjectHere, None));
        assert_eq!(located(&mut end, b"unknown"), (LocateStatus::UnknownObject, None));
        // It is here, whatever address its reference has. Others are elsewhere.
        assert_eq!(located(&mut end, b"known"), (LocateStatus::ObjectHere, None));
        let elsewhere = self::server();
        server.orb.set_key("other", elsewhere.reference.clone());
        assert_eq!(
            located(&mut end, b"other"),
            (LocateStatus::ObjectForward, Some(elsewhere.reference.clone()))
        );
        // Our client finds it so.
        let client = Orb::new(Options::default()).expect("a client needs nothing");
        let profile = server.reference.iiop_profiles().next().expect("a profile").expect("it is whole");
        for (key, is_there) in [("known", true), ("unknown", false)] {
            let text = format!("corbaloc::1.2@{}/{key}", profile.address);
            let object = client.object(&client.reference(&text).expect("a reference")).expect("a usable one");
            assert_eq!(object.locate(), Ok(is_there));
        }
    });
}

#[test]
fn a_server_that_shuts_down_sends_what_it_owes_and_says_goodbye() {
    let (called, is_called) = channel();
    let (go, goes) = channel();
    let server = serving(options(), Length { pause: Some((called, Mutex::new(goes))) });
    let (mut busy, mut idle) = (End::connect(&server.orb), End::connect(&server.orb));
    // The idle one is served, too.
    assert_eq!(located(&mut idle, b"unknown").0, LocateStatus::UnknownObject);
    busy.send(&length(1, &server.key, 10));
    is_called.recv().expect("it is called");
    busy.send(&length(2, &server.key, 20));
    let orb = server.orb.clone();
    let ends = std::thread::spawn(move || orb.shutdown(false));
    idle.expect(MessageType::CloseConnection);
    assert_eq!(idle.read(), None);
    go.send(()).expect("it waits");
    assert_eq!(answered(&mut busy), (1, 10));
    busy.expect(MessageType::CloseConnection);
    assert_eq!(busy.read(), None);
    ends.join().expect("it ends");
    assert!(is_called.try_recv().is_err(), "the second request is not begun");
}

#[test]
fn what_a_client_must_not_send_is_answered_with_a_message_error() {
    with_each_model(|| {
        let server = server();
        let wrong = [
            script::answer(RequestId(1)),
            // Without its fields.
            bare(MessageType::Request),
            // A fragment of nothing.
            [&b"GIOP\x01\x02\x01\x07\x04\0\0\0"[..], &[9, 0, 0, 0]].concat(),
            // A length that lies: a string longer than the message.
            [&b"GIOP\x01\x00\x01\x00\x08\0\0\0"[..], &[0xFF; 8]].concat(),
        ];
        for wrong in wrong {
            let mut end = End::connect(&server.orb);
            end.send(&wrong);
            end.expect(MessageType::MessageError);
            assert_eq!(end.read(), None);
        }
        // A client's goodbye and error end the connection without a word.
        for kind in [MessageType::CloseConnection, MessageType::MessageError] {
            let mut end = End::connect(&server.orb);
            end.send(&bare(kind));
            assert_eq!(end.read(), None);
        }
    });
}

/// What a client on a machine with the other order of bytes sends, up to the key.
const BIG_ENDIAN_REQUEST: [u8; 24] = [
    b'G', b'I', b'O', b'P', 1, 2, 0, 0, 0, 0, 0, 0, // header: big-endian, Request
    0, 0, 0, 42, 3, 0, 0, 0, 0, 0, 0, 0, // request 42, response from the object, named by its key
];

#[test]
fn a_big_endian_client_is_understood() {
    with_each_model(|| {
        let server = server();
        let mut bytes = BIG_ENDIAN_REQUEST.to_vec();
        bytes.extend((server.key.len() as u32).to_be_bytes());
        bytes.extend(&server.key);
        while !bytes.len().is_multiple_of(4) {
            bytes.push(0);
        }
        bytes.extend([0, 0, 0, 7]);
        bytes.extend(b"length\0\0");
        // No contexts; then the arguments, at a multiple of 8.
        bytes.extend([0; 4]);
        while !bytes.len().is_multiple_of(8) {
            bytes.push(0);
        }
        bytes.extend([0, 0, 0, 3, 1, 2, 3]);
        let size = (bytes.len() - 12) as u32;
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        let mut end = End::connect(&server.orb);
        end.send(&bytes);
        assert_eq!(answered(&mut end), (42, 3));
    });
}

#[test]
fn code_sets_that_the_server_does_not_have_are_an_exception() {
    with_each_model(|| {
        let server = server();
        let unknown = [0, 0, 0, 0, 0, 0x05, 0xAB, 0xCD, 0, 0, 0, 0];
        let contexts = [Tagged { id: CODE_SETS, data: &unknown }];
        let head = Request {
            id: RequestId(1),
            response: Response::Target,
            target: Target::Key(&server.key),
            operation: "length",
            contexts: TaggedList::from(&contexts[..]),
        };
        let bytes =
            written(ByteOrder::NATIVE, Version::V1_2, |to| head.begin(to), |to| Vec::<u8>::new().encode(to));
        let mut end = End::connect(&server.orb);
        end.send(&bytes);
        let message = end.expect(MessageType::Reply);
        let Ok(Message::Reply(reply, mut body)) = Message::read(&message) else { panic!("a reply") };
        assert_eq!(reply.status, ReplyStatus::SystemException);
        let raised = SystemException::decode(&mut body).expect("an exception");
        assert_eq!(raised.kind, Kind::CodesetIncompatible);
    });
}

#[test]
fn long_replies_are_sent_in_fragments() {
    with_each_model(|| {
        let orb = Orb::new(Options { fragment_bytes: Some(32), ..options() }).expect("it listens");
        let reference = orb.root_poa().serve(Length::default()).expect("it is active");
        orb.root_poa().manager().activate().expect("it is not inactive");
        let key = reference.iiop_profiles().next().expect("a profile").expect("it is whole").object_key;
        let mut end = End::connect(&orb);
        end.send(&request(1, &key, "_repository_id", |_| Ok(())));
        let first = end.expect(MessageType::Reply);
        assert!(header(&first).has_more && first.len() == 32);
        let last = end.expect(MessageType::Fragment);
        assert!(!header(&last).has_more);
        let mut body = Decoder::new(&last, ByteOrder::NATIVE, Version::V1_2);
        body.read(16).expect("the header, and the number of the request");
        // The first fragment ends within the string.
        assert_eq!(body.read(body.remaining()), Ok(&b"Length:1.0\0"[..]));
    });
}

/// Calls the object that it is given.
struct Caller(Orb);

impl Servant for Caller {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:Caller:1.0"]
    }

    fn operations(&self) -> &'static Operations {
        static OPERATIONS: Operations = Operations::new(0, &[1], &["call"]);
        &OPERATIONS
    }

    fn dispatch(
        &self,
        _: usize,
        arguments: &mut Decoder<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SystemException> {
        let whom: Reference = punctual_orb::argument(arguments)?;
        let length = call_length(&self.0.object(&whom)?)?;
        reply.result(|to| length.encode(to))
    }
}

fn call_length(object: &Object) -> Result<u32, SystemException> {
    let read = |outcome: punctual_orb::Outcome<'_>| punctual_orb::result(&mut outcome.result()?);
    object.call("length", |to| vec![1u8; 100_000].encode(to), read)
}

/// Asks a [`Caller`] to call this object.
fn call_back(caller: &Object, own: &Reference) -> Result<u32, SystemException> {
    let read = |outcome: punctual_orb::Outcome<'_>| punctual_orb::result(&mut outcome.result()?);
    caller.call("call", |to| own.encode(to), read)
}

fn active(options: Options) -> Orb {
    let orb = Orb::new(options).expect("it listens");
    orb.root_poa().manager().activate().expect("it is not inactive");
    orb
}

/// The options of a client that nobody can connect to.
fn behind_a_wall() -> Options {
    Options { published: vec![Endpoint::tcp("127.0.0.1", 1)], ..options() }
}

/// An adapter of its own for an object.
fn with_policy(orb: &Orb, bidirectional: Bidirectional) -> Poa {
    let root = orb.root_poa();
    let policies = Policies { bidirectional, ..Policies::default() };
    root.create_poa("both", policies, Some(root.manager())).expect("a new one")
}

#[test]
fn adapters_say_whether_connections_are_called_both_ways() {
    use Bidirectional::{Both, Normal};
    let [unreached, refused] = [Err(Kind::Transient), Err(Kind::NoPermission)];
    // The policies of the server's adapter and of the client's.
    for (of_server, of_client, expected) in [
        (Both, Both, Ok(100_000)),
        (Normal, Both, unreached),
        (Both, Normal, refused),
        (Normal, Normal, unreached),
    ] {
        with_each_model(|| {
            let server = active(Options { accept_bidirectional: true, ..options() });
            let caller = with_policy(&server, of_server).serve(Caller(server.clone())).expect("it is active");
            let client = active(Options { offer_bidirectional: true, ..behind_a_wall() });
            let own = with_policy(&client, of_client).serve(Length::default()).expect("it is active");
            let object = client.object(&caller).expect("a usable reference");
            let called = call_back(&object, &own).map_err(|failed| failed.kind);
            assert_eq!(called, expected, "{of_server:?} {of_client:?}");
        });
    }
}

/// A client offers with its first request, which may be for an object of another adapter.
#[test]
fn an_offer_counts_for_later_requests_of_its_connection() {
    with_each_model(|| {
        let server = active(Options { accept_bidirectional: true, ..options() });
        let serve = |poa: &Poa| poa.serve(Caller(server.clone())).expect("it is active");
        let (normal, both) = (serve(&with_policy(&server, Bidirectional::Normal)), serve(&server.root_poa()));
        let client = active(Options { offer_bidirectional: true, ..behind_a_wall() });
        let own = client.root_poa().serve(Length::default()).expect("it is active");
        let call = |caller: &Reference| {
            let object = client.object(caller).expect("a usable reference");
            call_back(&object, &own).map_err(|failed| failed.kind)
        };
        assert_eq!(call(&normal), Err(Kind::Transient));
        assert_eq!(call(&both), Ok(100_000));
    });
}

#[test]
fn a_client_that_calls_both_ways_is_served_while_its_servant_calls_back() {
    with_each_model(|| {
        for (offer, accept, fragment_bytes) in
            [(true, true, None), (true, true, Some(1_000)), (true, false, None), (false, true, None)]
        {
            let server = active(Options { accept_bidirectional: accept, fragment_bytes, ..options() });
            let caller = server.root_poa().serve(Caller(server.clone())).expect("it is active");
            let client = active(Options { offer_bidirectional: offer, fragment_bytes, ..behind_a_wall() });
            let own = client.root_poa().serve(Length::default()).expect("it is active");
            let object = Arc::new(client.object(&caller).expect("a usable reference"));
            let many: Vec<_> = std::thread::scope(|scope| {
                let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| call_back(&object, &own))).collect();
                calls.into_iter().map(|call| call.join().expect("it does not panic")).collect()
            });
            for called in many {
                match called {
                    Ok(length) => assert!(offer && accept && length == 100_000),
                    Err(failed) => assert!(!(offer && accept) && failed.kind == Kind::Transient, "{failed}"),
                }
            }
        }
    });
}

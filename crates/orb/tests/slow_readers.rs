//! Clients that send requests and do not read the replies: with each concurrency model, and where both ends call.

#[path = "common/script.rs"]
#[allow(dead_code)]
mod script;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use punctual_giop::context::{BI_DIR_IIOP, ListenPoints};
use punctual_giop::message::{MessageType, Request, RequestId, Response, Target};
use punctual_giop::reference::Address;
use punctual_giop::{ByteOrder, Decoder, Encode, SystemException, Tagged, TaggedList, Version};
use punctual_orb::{Concurrency, Endpoint, Operations, Options, Orb, Pool, Reply, Servant};
use script::{End, header, request, written};

static OPERATIONS: Operations = Operations::new(0, &[1], &["octets"]);

/// Returns as many octets as it is asked for.
#[derive(Clone, Default)]
struct Octets {
    called: Arc<AtomicU32>,
}

impl Servant for Octets {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:Octets:1.0"]
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
        let bytes: u32 = punctual_orb::argument(arguments)?;
        self.called.fetch_add(1, Ordering::SeqCst);
        reply.result(|to| vec![7u8; bytes as usize].encode(to))
    }
}

struct Server {
    orb: Orb,
    key: Vec<u8>,
    called: Arc<AtomicU32>,
}

impl Server {
    fn new(options: Options) -> Self {
        let (orb, servant) = (Orb::new(options).expect("it listens"), Octets::default());
        let called = Arc::clone(&servant.called);
        let reference = orb.root_poa().serve(servant).expect("it is active");
        orb.root_poa().manager().activate().expect("it is not inactive");
        let profile = reference.iiop_profiles().next().expect("a profile").expect("it is whole");
        Self { orb, key: profile.object_key, called }
    }

    /// A request for so many octets.
    fn octets(&self, id: u32, bytes: u32) -> Vec<u8> {
        request(id, &self.key, "octets", |to| bytes.encode(to))
    }

    /// Waits until its servant was called so often.
    fn wait_until_called(&self, times: u32) {
        wait_until(|| self.called.load(Ordering::SeqCst) == times);
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "it does not happen");
        thread::yield_now();
    }
}

fn pool() -> Concurrency {
    Concurrency::Pool(Pool::of(NonZeroUsize::new(2).expect("some")))
}

fn models() -> [Concurrency; 3] {
    [Concurrency::ThreadPerConnection, Concurrency::Reactive, pool()]
}

fn options(concurrency: Concurrency) -> Options {
    Options { concurrency, ..Options::listening(Endpoint::tcp("127.0.0.1", 0)) }
}

/// More than the sockets of both ends take.
const LONG: u32 = 32 << 20;

/// The request offers that the client is called over the connection, too.
fn offering(server: &Server, bytes: u32) -> Vec<u8> {
    let points = ListenPoints(vec![Address { host: "127.0.0.1".into(), port: 1 }]);
    let data = points.to_context().expect("it is short");
    let contexts = [Tagged { id: BI_DIR_IIOP, data: &data }];
    let head = Request {
        id: RequestId(1),
        response: Response::Target,
        target: Target::Key(&server.key),
        operation: "octets",
        contexts: TaggedList::from(&contexts[..]),
    };
    written(ByteOrder::NATIVE, Version::V1_2, |to| head.begin(to), |to| bytes.encode(to))
}

/// Connects to a server that has room for one client only, as soon as it has room.
fn connected(server: &Server) -> End {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut client = End::connect(&server.orb);
        client.send(&server.octets(9, 1));
        match client.read() {
            Some(reply) if header(&reply).kind == MessageType::Reply => return client,
            _ => assert!(Instant::now() < end, "the client before still has its connection"),
        }
        thread::yield_now();
    }
}

#[test]
fn a_reply_that_is_not_read_holds_a_connection_for_its_time_only() {
    for concurrency in models() {
        for accept_bidirectional in [false, true] {
            println!("{concurrency:?}, both ways: {accept_bidirectional}");
            let server = Server::new(Options {
                message_time: Some(Duration::from_millis(50)),
                connections_max: 1,
                accept_bidirectional,
                ..options(concurrency.clone())
            });
            let mut slow = connected(&server);
            match accept_bidirectional {
                true => slow.send(&offering(&server, LONG)),
                false => slow.send(&server.octets(1, LONG)),
            }
            server.wait_until_called(2);
            drop(connected(&server));
            drop(slow);
        }
    }
}

/// A client that takes what it is owed, though slowly, gets it whole.
#[test]
fn a_reply_that_goes_on_is_sent_whole() {
    for concurrency in models() {
        let server = Server::new(Options {
            message_time: Some(Duration::from_secs(10)),
            fragment_bytes: Some(1 << 20),
            ..options(concurrency)
        });
        let mut slow = End::connect(&server.orb);
        slow.send(&server.octets(1, LONG));
        let mut bytes = 0;
        loop {
            let piece = slow.read().expect("a part of the reply");
            bytes += piece.len();
            if !header(&piece).has_more {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(bytes > LONG as usize);
    }
}

/// A pool serves the requests of one client at the same time, so that many replies may wait for it. They are counted.
#[test]
fn a_client_of_a_pool_has_no_more_replies_than_all_clients_may_have() {
    const REPLIES: u32 = 100;
    let server =
        Server::new(Options { message_bytes_max: 1 << 20, held_bytes_max: 16 << 20, ..options(pool()) });
    let mut slow = End::connect(&server.orb);
    (0..REPLIES).for_each(|id| slow.send(&server.octets(id, 1 << 20)));
    server.wait_until_called(REPLIES);
    let replies = std::iter::from_fn(|| slow.read_or_end()).count();
    assert!(replies < REPLIES as usize, "{replies}: all replies were kept");
    let mut other = End::connect(&server.orb);
    other.send(&server.octets(1, 10));
    other.expect(MessageType::Reply);
}

/// Threads of this process that serve connections or requests.
fn serving_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.trim() == "punctual-serve").count()
}

/// Where both ends call, each request has a thread, also while its reply waits.
#[test]
fn a_client_that_is_called_back_has_no_more_threads_than_it_may() {
    for concurrency in models() {
        let server = Server::new(Options { accept_bidirectional: true, ..options(concurrency) });
        let mut slow = End::connect(&server.orb);
        slow.send(&offering(&server, 1 << 20));
        // Never many at the same time: these are refused.
        for id in 2..=128 {
            server.wait_until_called(id - 1);
            slow.send(&server.octets(id, 1 << 20));
        }
        server.wait_until_called(128);
        (200..300).for_each(|id| slow.send(&server.octets(id, 1 << 20)));
        for _ in 0..50 {
            // Those of other tests beside this are few.
            let threads = serving_threads();
            assert!(threads < 160, "{threads} threads");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

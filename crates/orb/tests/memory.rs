//! Memory of an ORB: what a call allocates, and what an ORB, an idle connection and an object take.

#![allow(unsafe_code)]

#[allow(dead_code, clippy::module_inception)]
#[path = "generated/demo.rs"]
mod demo;
#[allow(dead_code)]
#[path = "common/echo.rs"]
mod echo;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use demo::demo::{EchoClient, EchoSkeleton};
use echo::{Echo, ten};
use punctual_giop::message::{Request, RequestId, Response, Target};
use punctual_giop::{
    ByteOrder, Decoder, Encode as _, Encoder, Reference, SystemException, TaggedList, Version,
};
use punctual_orb::{Concurrency, Endpoint, Operations, Options, Orb, Reply, Servant};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static IN_USE_BYTES: AtomicI64 = AtomicI64::new(0);
/// The most that was in use.
static MOST_BYTES: AtomicI64 = AtomicI64::new(0);

fn taken(bytes: i64) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    let now = IN_USE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST_BYTES.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A listening ORB with an echo.
fn server(concurrency: Concurrency) -> (Orb, Reference) {
    let options = Options { concurrency, ..Options::listening(Endpoint::tcp("127.0.0.1", 0)) };
    let orb = Orb::new(options).expect("it listens");
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    orb.root_poa().manager().activate().expect("it is not inactive");
    (orb, reference)
}

const CALLS: u64 = 1_000;
const ROUNDS: u64 = 20;

/// Allocations of client and server for each of many calls, when all buffers have their size: the least of some
/// rounds, since the harness has threads, too.
fn allocations(call: impl Fn()) -> f64 {
    (0..100).for_each(|_| call());
    let round = |_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..CALLS).for_each(|_| call());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    (0..ROUNDS).map(round).min().expect("some rounds") as f64 / CALLS as f64
}

#[test]
fn calls_allocate_nothing() {
    if !is_alone("calls_allocate_nothing") {
        return;
    }
    let (_server, reference) = server(Concurrency::ThreadPerConnection);
    let client = Orb::new(Options::default()).expect("a client");
    let echo: EchoClient = client.narrow(&reference).expect("it is an echo");
    let (octets, longs, ten) = (vec![3u8; 10_000], vec![3i32; 1_000], ten(1));
    assert_eq!(allocations(|| assert_eq!(echo.echo_octet(7), Ok(7))), 0.0, "octets");
    assert_eq!(allocations(|| assert_eq!(echo.echo_ten(&ten), Ok(ten))), 0.0, "structures");
    assert_eq!(allocations(|| assert_eq!(echo.length_of(&octets), Ok(10_000))), 0.0, "a sequence");
    // The caller gets a vector: one allocation. The servant sees the sequence where the message is.
    assert_eq!(allocations(|| assert_eq!(echo.echo_longs(&longs).as_ref(), Ok(&longs))), 1.0);
    assert_eq!(allocations(|| assert_eq!(echo.echo_octets(&octets).as_ref(), Ok(&octets))), 1.0);
}

/// Runs a test again in a process of its own, whose memory nothing else has used. `true` if this is that process.
fn is_alone(test: &str) -> bool {
    const VARIABLE: &str = "PUNCTUAL_TEST_OWN_PROCESS";
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let own = std::env::current_exe().expect("its own path");
    let status = Command::new(own).args(["--exact", test, "--nocapture"]).env(VARIABLE, "1").status();
    assert!(status.expect("it starts").success(), "{test} in a process of its own");
    false
}

/// Memory of this process that is in use, without what it shares with others, bytes.
fn resident_bytes() -> i64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("Linux has it");
    let of = |name: &str| {
        let line = rollup.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<i64>().ok()).expect("KiB")
    };
    (of("Private_Clean:") + of("Private_Dirty:")) << 10
}

#[test]
fn an_orb_takes_two_mib_at_most() {
    if !is_alone("an_orb_takes_two_mib_at_most") {
        return;
    }
    let (heap, resident) = (IN_USE_BYTES.load(Ordering::Relaxed), resident_bytes());
    let (_server, reference) = server(Concurrency::ThreadPerConnection);
    let (heap, resident) = (IN_USE_BYTES.load(Ordering::Relaxed) - heap, resident_bytes() - resident);
    println!("a listening ORB: heap {heap} B, resident {resident} B");
    assert!(!reference.is_nil());
    assert!(heap <= 2 << 20 && resident <= 2 << 20, "heap {heap} B, resident {resident} B");
}

/// A request for `echo_octet`, on a connection of its own.
fn request(reference: &Reference, operation: &str) -> TcpStream {
    let profile = reference.iiop_profiles().next().expect("one").expect("of IIOP");
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    let request = Request {
        id: RequestId(1),
        response: Response::Target,
        target: Target::Key(&profile.object_key),
        operation,
        contexts: TaggedList::default(),
    };
    let open = request.begin(&mut to).expect("it has bytes");
    7u8.encode(&mut to).expect("it has bytes");
    open.finish(&mut to).expect("it is short");
    let mut stream = TcpStream::connect((&*profile.address.host, profile.address.port)).expect("it listens");
    stream.write_all(to.as_bytes()).expect("it is sent");
    stream
}

fn read_reply(mut stream: &TcpStream) {
    let mut reply = [0; 25];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!((&reply[..4], reply[24]), (&b"GIOP"[..], 7));
}

/// A connection on which one call was made, so that all its buffers are there.
fn used_connection(reference: &Reference) -> TcpStream {
    let stream = request(reference, "echo_octet");
    read_reply(&stream);
    stream
}

/// Memory of each of many idle connections: on the heap, and resident.
fn idle_connection_bytes(concurrency: Concurrency) -> [i64; 2] {
    const CONNECTIONS: i64 = 400;
    let (_server, reference) = server(concurrency);
    let _first: Vec<TcpStream> = (0..20).map(|_| used_connection(&reference)).collect();
    let before = [IN_USE_BYTES.load(Ordering::Relaxed), resident_bytes()];
    let all: Vec<TcpStream> = (0..CONNECTIONS).map(|_| used_connection(&reference)).collect();
    let after = [IN_USE_BYTES.load(Ordering::Relaxed), resident_bytes()];
    assert_eq!(all.len() as i64, CONNECTIONS);
    [0, 1].map(|number| (after[number] - before[number]) / CONNECTIONS)
}

#[test]
fn an_idle_connection_takes_sixteen_kib_at_most() {
    if !is_alone("an_idle_connection_takes_sixteen_kib_at_most") {
        return;
    }
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive] {
        let [heap, resident] = idle_connection_bytes(concurrency.clone());
        println!("an idle connection, {concurrency:?}: heap {heap} B, resident {resident} B");
        assert!(resident <= 16 << 10, "{concurrency:?}: heap {heap} B, resident {resident} B");
    }
}

/// All references name it.
struct Shared;

impl Servant for Shared {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:punctual/Shared:1.0"]
    }

    fn operations(&self) -> &'static punctual_orb::Operations {
        static NONE: punctual_orb::Operations = punctual_orb::Operations::new(0, &[0], &[]);
        &NONE
    }

    fn dispatch(
        &self,
        _operation: usize,
        _arguments: &mut punctual_giop::Decoder<'_>,
        _reply: &mut punctual_orb::Reply<'_>,
    ) -> Result<(), punctual_orb::SystemException> {
        Err(punctual_orb::bad_operation())
    }
}

#[test]
fn an_object_takes_two_hundred_bytes_at_most() {
    if !is_alone("an_object_takes_two_hundred_bytes_at_most") {
        return;
    }
    let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
    let poa = orb.root_poa();
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    let mut objects = 0;
    // Tables double: an object takes most just behind a doubling (992 and 65,504 in the one, 57,344 in the others).
    for step in [1_000, 2_017, 10_000, 14_337, 30_000, 57_345, 65_505, 66_000, 100_000] {
        while objects < step {
            poa.activate_object(Arc::new(Shared)).expect("it is active");
            objects += 1;
        }
        let each = (IN_USE_BYTES.load(Ordering::Relaxed) - before) / objects;
        println!("{objects} objects: {each} B each, with a servant of no bytes");
        assert!(each <= 200, "{objects} objects: {each} B each");
    }
}

/// As many descriptors as this process may have.
fn many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
}

const MANY: &str = "many_clients_call_at_once";
/// Tells a process that it is to have the clients, and of which server.
const REFERENCE: &str = "PUNCTUAL_TEST_REFERENCE";

/// Each client has a request under way before the first reads its reply.
fn be_clients(reference: &str, clients: usize) {
    let reference =
        Orb::new(Options::default()).and_then(|orb| orb.reference(reference).map_err(io::Error::other));
    let reference = reference.expect("a reference");
    let all: Vec<TcpStream> = (0..clients).map(|_| request(&reference, "echo_octet")).collect();
    all.iter().for_each(read_reply);
    println!("served {clients}");
    // Until the server has measured.
    io::stdin().lines().for_each(drop);
}

/// No request is lost, and no client takes more than an idle one may. Clients are in another process.
#[test]
fn many_clients_call_at_once() {
    let clients =
        std::env::var("PUNCTUAL_ORB_CLIENTS").map_or(1_000, |count| count.parse().expect("a number"));
    many_descriptors();
    if let Ok(reference) = std::env::var(REFERENCE) {
        return be_clients(&reference, clients);
    }
    if !is_alone(MANY) {
        return;
    }
    let (server, reference) = server(Concurrency::Reactive);
    let text = server.stringify(&reference).expect("it has bytes");
    let (begun, before) = (Instant::now(), resident_bytes());
    let mut command = Command::new(std::env::current_exe().expect("its own path"));
    command.args(["--exact", MANY, "--nocapture"]).env(REFERENCE, text);
    let mut others = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(others.stdout.take().expect("a pipe")).lines();
    let served =
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(&format!("served {clients}"))));
    assert!(served.is_some(), "a request was lost");
    let (taken, took) = (resident_bytes() - before, begun.elapsed());
    drop(others.stdin.take());
    lines.for_each(drop);
    assert!(others.wait().expect("it ends").success());
    println!("{clients} clients at once: {} B each, {} ms", taken / clients as i64, took.as_millis());
    assert!(taken <= (2 << 20) + clients as i64 * (16 << 10), "{taken} B");
}

/// A long sequence is read into one buffer, where the servant sees it. The client sends it from where it is.
#[test]
fn a_long_sequence_is_in_one_buffer() {
    if !is_alone("a_long_sequence_is_in_one_buffer") {
        return;
    }
    const LONG: usize = 48 << 20;
    let (_server, reference) = server(Concurrency::ThreadPerConnection);
    let client = Orb::new(Options::default()).expect("a client");
    let echo: EchoClient = client.narrow(&reference).expect("it is an echo");
    let octets = vec![3u8; LONG];
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    MOST_BYTES.store(before, Ordering::Relaxed);
    assert_eq!(echo.length_of(&octets), Ok(LONG as u32));
    let most = MOST_BYTES.load(Ordering::Relaxed) - before;
    println!("a sequence of {LONG} B: {most} B at both ends");
    assert!(most <= LONG as i64 + (1 << 20), "{most} B");
    // The same buffers serve again, and the connection is in order.
    assert_eq!(allocations(|| assert_eq!(echo.length_of(&octets[..1 << 20]), Ok(1 << 20))), 0.0);
}

/// Sends the begin of a message of 8 MiB. `None` if the server has ended the connection already.
fn send_half(server: &Orb, part: &[u8]) -> Option<TcpStream> {
    let Some(Endpoint::Tcp(address)) = server.published().first() else { panic!("it listens") };
    let mut client = TcpStream::connect((&*address.host, address.port)).expect("it listens");
    client.write_all(b"GIOP\x01\x02\x01\x00\x00\x00\x80\x00").and_then(|()| client.write_all(part)).ok()?;
    Some(client)
}

/// Clients that send a half of a long message hold no more than the server is configured for, and others are served.
#[test]
fn half_messages_of_all_clients_take_bounded_memory() {
    if !is_alone("half_messages_of_all_clients_take_bounded_memory") {
        return;
    }
    const MAX: usize = 16 << 20;
    let pool = Concurrency::Pool(punctual_orb::Pool::of(std::num::NonZeroUsize::MIN));
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive, pool] {
        let is_threads = concurrency == Concurrency::ThreadPerConnection;
        let options = Options {
            concurrency,
            message_bytes_max: MAX / 2,
            held_bytes_max: MAX,
            ..Options::listening(Endpoint::tcp("127.0.0.1", 0))
        };
        let server = Orb::new(options).expect("it listens");
        let reference = server.root_poa().serve(EchoSkeleton::new(Echo::new(&server))).expect("it is active");
        server.root_poa().manager().activate().expect("it is not inactive");
        let client = Orb::new(Options::default()).expect("a client");
        let echo: EchoClient = client.narrow(&reference).expect("it is an echo");
        let (half, octets) = (vec![0; 6 << 20], vec![3u8; 4 << 20]);
        let before = IN_USE_BYTES.load(Ordering::Relaxed);
        MOST_BYTES.store(before, Ordering::Relaxed);
        let clients: Vec<_> = (0..20).filter_map(|_| send_half(&server, &half)).collect();
        // They are quiet now: whoever sends goes on.
        while ALLOCATIONS.swap(0, Ordering::Relaxed) > 0 {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        assert_eq!(echo.length_of(&octets), Ok(4 << 20));
        let most = MOST_BYTES.load(Ordering::Relaxed) - before;
        println!("{} half messages: {most} B", clients.len());
        // A thread that reads all connections does not wait until one is ended.
        let more = if is_threads { 2 << 20 } else { MAX };
        assert!(most <= (MAX + more) as i64, "{most} B");
    }
}

static OCTETS: Operations = Operations::new(0, &[1], &["octets"]);

/// Returns so many octets.
struct Octets(usize);

static OCTETS_CALLED: AtomicU64 = AtomicU64::new(0);

/// Waits until no more memory is in use than this.
fn wait_until_in_use(bytes_max: i64) {
    let end = Instant::now() + Duration::from_secs(30);
    while IN_USE_BYTES.load(Ordering::Relaxed) > bytes_max {
        let more = IN_USE_BYTES.load(Ordering::Relaxed) - bytes_max;
        assert!(Instant::now() < end, "{more} B more than allowed");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Servant for Octets {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:Octets:1.0"]
    }

    fn operations(&self) -> &'static Operations {
        &OCTETS
    }

    fn dispatch(&self, _: usize, _: &mut Decoder<'_>, reply: &mut Reply<'_>) -> Result<(), SystemException> {
        OCTETS_CALLED.fetch_add(1, Ordering::SeqCst);
        reply.result(|to| vec![7u8; self.0].encode(to))
    }
}

/// Replies that clients do not read hold no more than the server is configured for, and others are served.
#[test]
fn replies_that_clients_do_not_read_take_bounded_memory() {
    if !is_alone("replies_that_clients_do_not_read_take_bounded_memory") {
        return;
    }
    const MAX: usize = 32 << 20;
    let pool = Concurrency::Pool(punctual_orb::Pool::of(std::num::NonZeroUsize::MIN));
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive, pool] {
        let options = Options {
            concurrency,
            message_bytes_max: MAX / 4,
            held_bytes_max: MAX,
            ..Options::listening(Endpoint::tcp("127.0.0.1", 0))
        };
        let server = Orb::new(options).expect("it listens");
        let long = server.root_poa().serve(Octets(MAX / 2)).expect("it is active");
        let reference = server.root_poa().serve(EchoSkeleton::new(Echo::new(&server))).expect("it is active");
        server.root_poa().manager().activate().expect("it is not inactive");
        let client = Orb::new(Options::default()).expect("a client");
        let echo: EchoClient = client.narrow(&reference).expect("it is an echo");
        let before = IN_USE_BYTES.load(Ordering::Relaxed);
        OCTETS_CALLED.store(0, Ordering::SeqCst);
        let clients: Vec<_> = (0..12).map(|_| request(&long, "octets")).collect();
        // All are served, or were ended for others before.
        while OCTETS_CALLED.load(Ordering::SeqCst) < clients.len() as u64 {
            std::thread::sleep(Duration::from_millis(10));
        }
        wait_until_in_use(before + (MAX + (1 << 20)) as i64);
        assert_eq!(echo.length_of(&vec![3u8; 4 << 20]), Ok(4 << 20));
    }
}

/// A connection that is idle after a long reply does not keep its memory.
#[test]
fn a_long_reply_leaves_no_memory_behind() {
    if !is_alone("a_long_reply_leaves_no_memory_behind") {
        return;
    }
    let pool = Concurrency::Pool(punctual_orb::Pool::of(std::num::NonZeroUsize::MIN));
    for concurrency in [Concurrency::ThreadPerConnection, Concurrency::Reactive, pool] {
        let (orb, _) = server(concurrency);
        let long = orb.root_poa().serve(Octets(8 << 20)).expect("it is active");
        let before = IN_USE_BYTES.load(Ordering::Relaxed);
        let mut client = request(&long, "octets");
        let mut head = [0; 12];
        client.read_exact(&mut head).expect("a header");
        let size = u32::from_ne_bytes([head[8], head[9], head[10], head[11]]);
        io::copy(&mut (&client).take(size.into()), &mut io::sink()).expect("the rest");
        wait_until_in_use(before + (200 << 10));
    }
}

//! Two hosts in one process: simple rings, and what it takes to open a channel between them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::VecDeque;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_engine::{Engine, EngineConfig, EngineError, EngineHandle, Events};
use punctual_link::{Link, MemoryLink, MemoryOptions, UdpLink, UdpOptions};
use punctual_os::attributes::{Attributes, SELF, set_attributes};
use punctual_os::now;
use punctual_os::wait::Doorbell;
use punctual_proto::api::{Event, Grant, OpenRequest, UserId};
use punctual_proto::config::{CpuConfig, LinkConfig, NodeConfig, Pacing, SignallingConfig};
use punctual_proto::ids::{Address, ChannelId, Epoch, Name, NodeId};
use punctual_proto::memory::{Inbox, MessageInfo, MessageRead, MessageWrite, Outbox};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than anything that happens here, on however loaded a host.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub type Handle = EngineHandle<TestOutbox, TestInbox>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Sent = VecDeque<(Vec<u8>, Instant)>;
type Arrived = Vec<(Vec<u8>, MessageInfo)>;

/// An outgoing ring without bounds.
#[derive(Clone, Default)]
pub struct TestOutbox(Arc<Mutex<Sent>>);

pub struct TestMessage(Vec<u8>);

impl MessageRead for TestMessage {
    fn len(&self) -> u32 {
        self.0.len() as u32
    }
    fn copy_to(&self, offset: u32, out: &mut [u8]) {
        out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
    }
}

impl Outbox for TestOutbox {
    type Message = TestMessage;
    fn take(&mut self, _: Instant) -> Option<(TestMessage, Instant)> {
        lock(&self.0).pop_front().map(|(bytes, at)| (TestMessage(bytes), at))
    }
    fn is_ready(&self) -> bool {
        !lock(&self.0).is_empty()
    }
}

impl TestOutbox {
    pub fn put(&self, bytes: Vec<u8>) {
        lock(&self.0).push_back((bytes, now()));
    }
}

/// An incoming ring without bounds.
#[derive(Clone, Default)]
pub struct TestInbox(Arc<(Mutex<Arrived>, Condvar)>);

pub struct TestSlot(Vec<u8>);

impl MessageWrite for TestSlot {
    fn copy_from(&mut self, offset: u32, bytes: &[u8]) {
        let end = offset as usize + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[offset as usize..end].copy_from_slice(bytes);
    }
}

impl Inbox for TestInbox {
    type Slot = TestSlot;
    fn reserve(&mut self) -> Option<TestSlot> {
        Some(TestSlot(Vec::new()))
    }
    fn publish(&mut self, slot: TestSlot, info: MessageInfo) {
        lock(&self.0.0).push((slot.0, info));
        self.0.1.notify_all();
    }
}

impl TestInbox {
    /// Takes the oldest message, if there is one.
    pub fn take(&self) -> bool {
        let mut messages = lock(&self.0.0);
        let any = !messages.is_empty();
        messages.drain(..usize::from(any));
        any
    }

    /// Waits for `count` messages.
    pub fn gather(&self, count: usize) -> Vec<(Vec<u8>, MessageInfo)> {
        let (messages, arrived) = &*self.0;
        let (messages, waited) = arrived
            .wait_timeout_while(lock(messages), PATIENCE, |messages| messages.len() < count)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "{} of {count} messages came", messages.len());
        messages.clone()
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Host `id` of the hosts a (1) and b (2), with a link to the other.
pub fn node(id: u32) -> NodeConfig {
    let other = NodeId(3 - id);
    let mut link = LinkConfig::new("wire", other, BitRate(100_000_000));
    // These engines run as ordinary threads on a host that may be busy: a late wake-up is no breach of contract.
    link.prediction_error = Nanos::from_secs(2);
    NodeConfig {
        id: NodeId(id),
        name: name(if id == 1 { "a" } else { "b" }),
        epoch: Epoch(u64::from(id) << 32 | u64::from(std::process::id())),
        fragment_bytes: limits::FRAGMENT_BYTES_DEFAULT,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(limits::CLOCK_TOLERANCE_PPM_DEFAULT),
        links: vec![link],
        cpu: CpuConfig::default(),
        directory: vec![(name("a"), NodeId(1)), (name("b"), NodeId(2))],
        routes: vec![],
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 16 << 20,
        wakeup_margin: Nanos::from_micros(200),
    }
}

/// An engine of ordinary class.
pub fn start(node: NodeConfig, link: Box<dyn Link>) -> Handle {
    let seed = u64::from(node.id.0);
    Engine::start(EngineConfig::new(node, vec![link], seed)).unwrap_or_else(|error| panic!("{error}"))
}

/// Hosts a and b over rings.
pub fn over_memory() -> (Handle, Handle) {
    let (a, b) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    (start(node(1), Box::new(a)), start(node(2), Box::new(b)))
}

/// Hosts a and b over sockets on a loopback address of this process, with links paced by `pace`.
pub fn over_udp(port: u16, pace: Pacing) -> (Handle, Handle) {
    let paced = |id| {
        let mut node = node(id);
        node.links[0].pace = pace;
        node
    };
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = IpAddr::from(Ipv4Addr::new(127, 64 | (high & 63), middle, low.clamp(1, 254)));
    let end = |data: u16, peer: u16| UdpOptions {
        peer_data_port: peer,
        peer_signalling_port: peer + 1,
        ..UdpOptions::new(address, address, data, data + 1)
    };
    let open = |options| Box::new(UdpLink::open(&options).expect("loopback sockets"));
    let (a, b) = (open(end(port, port + 2)), open(end(port + 2, port)));
    (start(paced(1), a), start(paced(2), b))
}

/// The kernel's admission of `SCHED_DEADLINE` counts for the whole machine: one test at a time, whatever its program. The
/// turn ends with the file.
pub fn deadline_turn() -> File {
    let path = std::env::temp_dir().join("punctual-test-deadline");
    // If another user made it, opening it for creation may be refused (`fs.protected_regular`).
    let file = File::open(&path).or_else(|_| {
        std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
        File::open(&path)
    });
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("a turn");
    file
}

/// For engines that cannot start in the deadline class: reports that a test is skipped, if the kernel gives
/// no thread that class.
pub fn without_deadline(error: &EngineError) {
    assert!(error.to_string().contains("was refused"), "{error}");
    let least = Attributes::Deadline { runtime: Nanos::from_micros(10), period: Nanos::from_millis(1) };
    let given = std::thread::spawn(move || set_attributes(SELF, least)).join().expect("no panic");
    assert!(given.is_err(), "the kernel gives {least:?}, and the engine says: {error}");
    eprintln!("SKIPPED: no SCHED_DEADLINE here: {error}");
}

fn wait_readable(events: &Events) {
    let mut watched = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert!(poll(&mut watched, Some(&timeout)).expect("poll") > 0, "nothing is told");
}

/// Reads what is left until the engine is gone.
pub fn until_gone(events: &Events) {
    while let Ok(event) = events.try_next() {
        if event.is_none() {
            wait_readable(events);
        }
    }
}

/// The next event that `wanted` picks; others are passed over.
pub fn expect<T>(events: &Events, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match events.try_next() {
            Ok(Some(event)) => {
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
            Ok(None) => wait_readable(events),
            Err(gone) => panic!("{gone}"),
        }
        assert!(std::time::Instant::now() < until, "the event never came");
    }
}

/// A channel from a to b, open at both ends.
pub struct Open {
    pub source: ChannelId,
    pub sink: ChannelId,
    pub grant: Grant,
    pub outbox: TestOutbox,
    pub inbox: TestInbox,
    pub doorbell: Doorbell,
}

/// Opens a channel with the consent of a listener at b.
pub fn open(a: &Handle, b: &Handle, contract: Contract) -> Open {
    b.call(|node, _| node.listen(name("sink"))).expect("b runs").expect("a free name");
    let to = Address { port: name("sink"), host: name("b") };
    let request = OpenRequest { to, contract, user: UserId(1), probe: false, token: None };
    let source = a.call(move |node, now| node.open(request, now)).expect("a runs").expect("can be tried");
    let sink = expect(&b.events(), |event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    });
    let inbox = TestInbox::default();
    let theirs = inbox.clone();
    b.call(move |node, now| node.consent(sink, theirs, now)).expect("b runs").expect("it waits for consent");
    let grant = expect(&a.events(), |event| match event {
        Event::Opened { channel, grant } if channel == source => Some(grant),
        Event::Refused { refusal, .. } => panic!("{refusal}"),
        _ => None,
    });
    let outbox = TestOutbox::default();
    let theirs = outbox.clone();
    a.call(move |node, now| node.attach_outbox(source, theirs, now)).expect("a runs").expect("it is open");
    let doorbell = Doorbell::new().expect("an eventfd");
    let copy = doorbell.as_fd().try_clone_to_owned().expect("a descriptor");
    a.watch(source, std::sync::Arc::new(copy), None).expect("it can be watched");
    Open { source, sink, grant, outbox, inbox, doorbell }
}

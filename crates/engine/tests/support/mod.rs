//! Two hosts in one process, and what it takes to open a channel between them.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use punctual_engine::{Engine, EngineConfig, EngineError, EngineHandle, Events};
use punctual_link::{Link, MemoryLink, MemoryOptions, UdpLink, UdpOptions};
use punctual_os::attributes::{Attributes, SELF, set_attributes};
use punctual_os::wait::Doorbell;
use punctual_proto::api::{Event, OpenRequest, UserId};
use punctual_proto::config::{NodeConfig, Pacing};
use punctual_proto::ids::{Address, Epoch};
use punctual_proto::{BitRate, Contract, Nanos};
use punctual_rig::{Open, RemoteInbox, RemoteOutbox, line_config, name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than anything that happens here, on however loaded a host.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// More than a test sends at once.
const RING_MESSAGES: usize = 512;

pub type Handle = EngineHandle<RemoteOutbox, RemoteInbox>;

/// Host `id` of the hosts h1 and h2, with a link to the other.
pub fn node(id: u32) -> NodeConfig {
    let mut node = line_config(id as usize - 1, 2, BitRate(100_000_000));
    // These engines run as ordinary threads on a host that may be busy: a late wake-up is no breach of contract.
    node.links[0].prediction_error = Nanos::from_secs(2);
    node.epoch = Epoch(u64::from(id) << 32 | u64::from(std::process::id()));
    node
}

/// An engine of ordinary class whose neighbour is silent.
pub fn alone() -> EngineConfig {
    let (link, _) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    EngineConfig::new(node(1), vec![Box::new(link)], 1)
}

/// An engine of ordinary class.
pub fn start(node: NodeConfig, link: Box<dyn Link>) -> Handle {
    let seed = u64::from(node.id.0);
    Engine::start(EngineConfig::new(node, vec![link], seed)).unwrap_or_else(|error| panic!("{error}"))
}

/// Hosts h1 and h2 over rings.
pub fn over_memory() -> (Handle, Handle) {
    let (a, b) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    (start(node(1), Box::new(a)), start(node(2), Box::new(b)))
}

/// Hosts h1 and h2 over sockets on a loopback address of this process, with links paced by `pace`.
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
    assert!(given.is_err(), "the kernel gives {least:?}, and the engine reports: {error}");
    punctual_skip::skipped!("no SCHED_DEADLINE here: {error}");
}

fn wait_readable(events: &Events) {
    let mut watched = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert!(poll(&mut watched, Some(&timeout)).expect("poll") > 0, "nothing is reported");
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

/// A request for a channel to the listener at h2.
pub fn request(contract: Contract) -> OpenRequest {
    let to = Address { port: name("sink"), host: name("h2") };
    OpenRequest { to, contract, user: UserId(1), probe: false, token: None }
}

/// Opens a channel with the consent of a listener at b, whatever the contract with rings for [`RING_MESSAGES`]. The doorbell
/// tells a's processor of messages.
pub fn open(a: &Handle, b: &Handle, contract: Contract) -> (Open<RemoteOutbox, RemoteInbox>, Doorbell) {
    let bytes = contract.message_bytes_max as usize;
    b.call(|node, _| node.listen(name("sink"))).expect("b runs").expect("a free name");
    let wanted = request(contract);
    let source = a.call(move |node, now| node.open(wanted, now)).expect("a runs").expect("can be tried");
    let sink = expect(&b.events(), |event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    });
    let inbox = RemoteInbox::new(RING_MESSAGES, bytes);
    let theirs = inbox.clone();
    b.call(move |node, now| node.consent(sink, theirs, now)).expect("b runs").expect("it waits for consent");
    let grant = expect(&a.events(), |event| match event {
        Event::Opened { channel, grant } if channel == source => Some(grant),
        Event::Refused { refusal, .. } => panic!("{refusal}"),
        _ => None,
    });
    let outbox = RemoteOutbox::new(RING_MESSAGES, bytes);
    let theirs = outbox.clone();
    a.call(move |node, now| node.attach_outbox(source, theirs, now)).expect("a runs").expect("it is open");
    let doorbell = Doorbell::new().expect("an eventfd");
    let copy = doorbell.as_fd().try_clone_to_owned().expect("a descriptor");
    a.watch(source, Arc::new(copy), None).expect("it can be watched");
    (Open { source, sink, outbox, inbox, grant }, doorbell)
}

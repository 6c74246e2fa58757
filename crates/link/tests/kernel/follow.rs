//! A link over AF_XDP follows its device: addresses, and the device itself.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_link::kernel::{
    CareOptions, Device, Follow, FollowedLink, Mac, Opener, ShaperRate, follow, leftovers,
};
use punctual_link::xdp::{Addresses, ClassifierOptions, XdpLink, XdpMemory, XdpOptions};
use punctual_link::{Filter, Link, LinkError, PathKey, Port, Received, Spins, Stream};
use rustix::event::{Timespec, epoll};

use crate::facts::request;
use crate::namespaces::{ADDRESSES, Pair, hang_with, privileged};

const DATA: u16 = 7_411;
const SIGNALLING: u16 = 7_412;
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(10);

struct Xdp {
    options: XdpOptions,
    addresses: Addresses,
    memory: XdpMemory,
}

impl Opener for Xdp {
    fn open(&mut self, _: &Device) -> Result<Box<dyn Link>, LinkError> {
        Ok(Box::new(XdpLink::open(&self.options, &self.memory)?))
    }
    fn set_addresses(&mut self, source: Mac, destination: Option<Mac>) {
        self.addresses.set_source(source);
        self.addresses.set_peer(destination);
    }
}

fn everything() -> CareOptions {
    let kernel_rate = Some(ShaperRate { rate_bps: 50_000_000, burst_bytes: 8_000 });
    CareOptions { kernel_rate, napi_priority: Some(61), interrupt_defer_ns: 20_000, ..CareOptions::default() }
}

/// A link at the left end, in the namespace of this thread.
fn open() -> FollowedLink {
    let addresses = Addresses::new(Mac::default(), None);
    let classifier = ClassifierOptions {
        packet_bytes_max: 1_464,
        ..ClassifierOptions::new("va", request().local, request().peer, DATA, SIGNALLING)
    };
    let options = XdpOptions {
        classifier,
        addresses: Some(addresses.clone()),
        ..XdpOptions::new("va", request().local, request().peer, DATA, SIGNALLING)
    }
    .with_frames(256);
    let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
    let opener = Box::new(Xdp { options, addresses, memory });
    let mut links = follow(
        vec![Follow { request: request(), care: everything(), spins: Spins::default(), opener }],
        || Ok(()),
    )
    .expect("a link");
    links.remove(0)
}

/// The link as an engine uses it: the descriptors are queried once.
struct Driven {
    link: FollowedLink,
    poller: OwnedFd,
    out: Vec<Received>,
}

impl Driven {
    fn new(link: FollowedLink) -> Self {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a poller");
        for descriptor in link.descriptors() {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&poller, descriptor, epoll::EventData::new_u64(0), flags).expect("to watch");
        }
        Self { link, poller, out: Vec::with_capacity(64) }
    }

    /// Receives packets, woken by the descriptors alone, until `done`.
    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        loop {
            while self.link.receive(&mut self.out, 8).expect("a link never fails") == 8 {}
            if done(self) {
                return;
            }
            assert!(
                begun.elapsed() < LONG,
                "waited for {what}: {:?} {:?}",
                self.link,
                self.link.stream_drops()
            );
            let mut events = Vec::with_capacity(4);
            let slice = Timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };
            let spare = rustix::buffer::spare_capacity(&mut events);
            epoll::wait(self.poller.as_fd(), spare, Some(&slice)).expect("to wait");
        }
    }

    fn send(&mut self, text: &[u8]) {
        let buffer = self.link.transmit_buffer().expect("room");
        buffer[..text.len()].copy_from_slice(text);
        self.link.transmit(Port::Signalling, text.len(), 100).expect("to queue");
        self.link.flush().expect("to send");
    }

    /// Facts come from an ordinary thread, later than the packets.
    fn is_without_trouble(&self, when: &str) {
        let begun = Instant::now();
        while self.link.facts().iter().any(|(name, _)| *name == "trouble") {
            assert!(begun.elapsed() < LONG, "{when}: {:?}", self.link.facts());
            std::thread::yield_now();
        }
    }

    fn receives(&mut self, from: &UdpSocket, text: &[u8]) {
        from.send_to(text, (ADDRESSES[0], SIGNALLING)).expect("to send");
        self.until("a packet", |driven| driven.out.iter().any(|packet| packet.frame.as_ref() == text));
        self.out.clear();
    }
}

fn peer(pair: &Pair) -> UdpSocket {
    let socket = pair.within_right(|| UdpSocket::bind((ADDRESSES[1], SIGNALLING))).expect("a socket");
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    socket
}

fn reaches(peer: &UdpSocket, text: &[u8]) {
    let mut buffer = [0; 2_048];
    let (len, from) = peer.recv_from(&mut buffer).expect("a packet");
    assert_eq!((&buffer[..len], from.to_string()), (text, format!("{}:{SIGNALLING}", ADDRESSES[0])));
}

const FILTER: Filter = Filter {
    path: PathKey { node: 2, channel: 7, epoch: 9 },
    cookie: 0x1234_5678,
    stream: Stream::Guaranteed,
    packet_bytes_max: 500,
    burst_packets: 100,
    interval_ns: 1_000,
    slack_ns_min: None,
    buffers: 32,
};

/// A data packet of the filter's path, one fragment (docs/ARCHITECTURE.md, "Inside `proto`": `wire`).
fn data_packet() -> Vec<u8> {
    let mut packet = vec![5; 164];
    packet[..64].fill(0);
    (packet[0], packet[1], packet[34]) = (2, 1, 1);
    for (at, word) in [(4, 2), (8, 7), (12, FILTER.cookie), (36, 100), (56, 100)] {
        packet[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
    }
    packet[16..24].copy_from_slice(&9_u64.to_le_bytes());
    packet
}

#[test]
fn a_link_outlives_its_device_and_follows_addresses() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let peer = peer(&pair);
    let data = pair.within_right(|| UdpSocket::bind((ADDRESSES[1], DATA))).expect("a socket");
    let mut driven = Driven::new(pair.within(open));
    driven.link.set_filter(&FILTER).expect("room for a filter");
    for life in 0..3 {
        driven.receives(&peer, b"to the left");
        data.send_to(&data_packet(), (ADDRESSES[0], DATA)).expect("to send");
        driven.until("data", |driven| driven.out.iter().any(|packet| packet.port == Port::Data));
        driven.out.clear();
        driven.send(b"to the right");
        reaches(&peer, b"to the right");
        driven.is_without_trouble(&format!("life {life}"));
        let facts = driven.link.facts();
        assert!(facts.contains(&("napi_priority", "61".into())), "{facts:?}");
        assert!(pair.photograph().contains("tbf 7075:"));
        pair.left("ip link del va");
        driven.until("the end", |driven| !driven.link.is_open());
        let before = driven.link.statistics().send_errors;
        driven.send(b"to no receiver");
        assert_eq!(driven.link.completed(), 200, "what was under way and what had no receiver");
        assert_eq!(driven.link.statistics().send_errors, before + 1);
        assert!(driven.link.mode().contains("va"), "{}", driven.link.mode());
        pair.join();
        driven.until("a new device", |driven| driven.link.is_open());
    }
    assert_eq!(driven.link.stream_drops().unknown, 0);
    // The neighbour gets another address: its device does not accept packets to the old one.
    pair.right("ip link set vb address 02:00:00:00:00:77");
    pair.left(&format!("ip neighbour replace {} lladdr 02:00:00:00:00:77 dev va", ADDRESSES[1]));
    let begun = Instant::now();
    peer.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    while peer.recv(&mut [0; 64]).is_err() {
        assert!(begun.elapsed() < LONG, "{:?}", driven.link.facts());
        driven.send(b"here?");
    }
}

#[test]
fn a_link_leaves_its_device_as_it_was() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let before = pair.photograph();
    let link = pair.within(open);
    assert_ne!(pair.photograph(), before);
    assert!(link.mode().starts_with("xdp ("), "{}", link.mode());
    pair.within(|| drop(link));
    assert_eq!(pair.photograph(), before);
    assert!(pair.within(leftovers).expect("records").is_empty());
}

#[test]
fn a_link_survives_when_its_device_is_switched_off_and_on() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let peer = peer(&pair);
    let mut driven = Driven::new(pair.within(open));
    let threads = |driven: &Driven| {
        driven.link.facts().into_iter().find(|(name, _)| *name == "napi_threads").map(|(_, threads)| threads)
    };
    let first = threads(&driven).expect("kernel threads");
    pair.left("ip link set va down");
    pair.left("ip link set va up");
    // The neighbour's entry went with the carrier; new NAPI instances have new threads.
    let begun = Instant::now();
    while threads(&driven).is_none_or(|now| now == first) {
        assert!(begun.elapsed() < LONG, "{:?}", driven.link.facts());
        pair.left("true");
    }
    driven.receives(&peer, b"again");
    driven.send(b"again");
    reaches(&peer, b"again");
    assert!(driven.link.facts().iter().all(|(name, _)| *name != "trouble"), "{:?}", driven.link.facts());
}

#[test]
fn child_that_hangs_with_an_open_link() {
    hang_with(open);
}

#[test]
fn a_killed_host_leaves_nothing_that_is_not_put_back() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let before = pair.photograph();
    let mut child = pair.hanging("follow::child_that_hangs_with_an_open_link");
    assert!(pair.photograph().contains("xdp"), "{}", pair.photograph());
    child.kill().expect("to kill it");
    child.wait().expect("its end");
    for leftover in pair.within(leftovers).expect("records") {
        pair.within(|| leftover.repair()).expect("to put back");
    }
    // The kernel closes sockets and the program's link when it has time.
    let begun = Instant::now();
    while pair.photograph() != before {
        assert!(begun.elapsed() < LONG, "{}\nwas\n{before}", pair.photograph());
    }
    // And a new host finds the device free.
    let link = pair.within(open);
    pair.within(|| drop(link));
    assert_eq!(pair.photograph(), before);
}

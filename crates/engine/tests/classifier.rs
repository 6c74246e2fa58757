//! Checks the XDP program of `link` against the wire format of `proto`, which do not depend on each other.
//! [`Header::write`] writes the packets, and the program in the kernel classifies them (`BPF_PROG_TEST_RUN`),
//! without a device.

#[path = "support/frame.rs"]
mod frame;

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use frame::frame;
use punctual_analysis::Instant;
use punctual_link::xdp::{ClassifierOptions, Program, Tag, Verdict};
use punctual_link::{Filter, PathKey, Stream};
use punctual_proto::Nanos;
use punctual_proto::ids::{ChannelNumber, Cookie, Epoch, NodeId, PathId};
use punctual_proto::limits::HEADER_BYTES;
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CapabilitySet, capabilities};

const DATA: u16 = 7_001;
const SIGNALLING: u16 = 7_000;
const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 1));
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 2, 0, 2));
/// Ethernet, IPv4 and UDP.
const HEADROOM: usize = 14 + 20 + 8;
const SEED: u64 = 8;

struct Bench {
    program: Program,
    _sockets: [OwnedFd; 4],
}

impl Bench {
    /// `None`, with a message, if programs cannot be loaded.
    fn new(filter: &Filter) -> Option<Self> {
        let rights = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
        if !capabilities(None).is_ok_and(|sets| sets.effective.contains(rights)) {
            punctual_skip::skipped!("XDP programs need CAP_SYS_ADMIN and CAP_NET_ADMIN");
            return None;
        }
        let options = ClassifierOptions::new("lo", LOCAL, PEER, DATA, SIGNALLING);
        let mut program = Program::load(&options).expect("to load");
        program.set_filter(filter).expect("to set the filter");
        let sockets = Stream::ALL.map(|stream| {
            let socket = socket(AddressFamily::XDP, SocketType::RAW, None).expect("an AF_XDP socket");
            program.register(0, stream, socket.as_fd()).expect("to register");
            socket
        });
        Some(Self { program, _sockets: sockets })
    }

    /// The stream to which a data packet is steered; `None` if it is dropped. Its buffer is released at once.
    fn judge(&mut self, packet: &[u8]) -> Option<Stream> {
        let mut frame = frame(DATA, packet);
        let (verdict, _) = self.program.run(&mut frame, 1).expect("to run");
        assert_ne!(verdict, Verdict::Pass, "a packet to our port");
        if verdict == Verdict::Drop {
            return None;
        }
        let tag = Tag::read(&frame).expect("a tag");
        assert_eq!((tag.offset as usize, tag.bytes as usize), (HEADROOM, packet.len()));
        let accounts = self.program.accounts();
        let is_full = |stream: &Stream| accounts.free(0, *stream) == full_less_one(*stream);
        let stream = Stream::ALL.into_iter().find(is_full).expect("one stream has taken it");
        let charge = accounts.received(0, stream, &tag);
        accounts.returns().give_back(charge);
        Some(stream)
    }

    fn malformed(&self) -> u64 {
        self.program.drops().malformed
    }
}

fn full_less_one(stream: Stream) -> u32 {
    ClassifierOptions::new("lo", LOCAL, PEER, DATA, SIGNALLING).buffers[stream as usize] - 1
}

fn header(payload_bytes: u32) -> Header {
    Header {
        kind: Kind::Guaranteed,
        demoted: false,
        unpromised: false,
        path: PathId {
            node: NodeId(0x0102_0304),
            channel: ChannelNumber(0x0506_0708),
            epoch: Epoch(0x1112_1314_1516_1718),
        },
        cookie: Cookie(0x2122_2324),
        message: 0x3132_3334_3536_3738,
        fragment: 0,
        fragments: 1,
        message_bytes: payload_bytes,
        slack_ns: -5,
        logical_arrival: Instant(0x4142_4344_4546_4748),
        age: Age::NONE,
        payload_bytes,
        clock_error: ClockError::NONE,
        destination: NodeId(0),
    }
}

fn filter() -> Filter {
    let Header { path, cookie, .. } = header(0);
    Filter {
        path: PathKey { node: path.node.0, channel: path.channel.0, epoch: path.epoch.0 },
        cookie: cookie.0,
        stream: Stream::LowLatency,
        packet_bytes_max: 1_464,
        burst_packets: 1_000_000,
        interval_ns: 1,
        buffers: 16,
        slack_ns_min: Some(-5),
    }
}

fn packet(header: &Header) -> Vec<u8> {
    let mut packet = vec![0xaa; HEADER_BYTES + header.payload_bytes as usize];
    header.write(&mut packet);
    packet
}

/// Each field that the program reads is where `proto` writes it.
#[test]
fn every_field_is_where_the_writer_puts_it() {
    let Some(mut bench) = Bench::new(&filter()) else { return };
    let good = header(100);
    assert_eq!(bench.judge(&packet(&good)), Some(Stream::LowLatency));
    assert_eq!(bench.judge(&packet(&Header { demoted: true, ..good })), Some(Stream::BestEffort));
    let unpromised = Header { demoted: true, unpromised: true, ..good };
    assert_eq!(bench.judge(&packet(&unpromised)), Some(Stream::BestEffort));
    let unsure =
        Header { age: Age::of(Nanos(u64::from(u32::MAX))), clock_error: ClockError::UNKNOWN, ..good };
    assert_eq!(bench.judge(&packet(&unsure)), Some(Stream::LowLatency));
    let best_effort = Header { kind: Kind::BestEffort, destination: NodeId(3), ..good };
    assert_eq!(bench.judge(&packet(&best_effort)), Some(Stream::BestEffort));
    let last = Header { fragment: 2, fragments: 3, message_bytes: 300, ..good };
    assert_eq!(bench.judge(&packet(&last)), Some(Stream::LowLatency));

    let path = good.path;
    let dropped = [
        Header { path: PathId { node: NodeId(path.node.0 ^ 1), ..path }, ..good },
        Header { path: PathId { channel: ChannelNumber(path.channel.0 ^ 1 << 24), ..path }, ..good },
        Header { path: PathId { epoch: Epoch(path.epoch.0 ^ 1 << 56), ..path }, ..good },
        Header { cookie: Cookie(good.cookie.0 ^ 1 << 16), ..good },
        Header { slack_ns: -6, ..good },
        Header { slack_ns: i64::MIN, ..good },
        Header { kind: Kind::BestEffort, ..good },
        Header { fragment: 3, fragments: 3, ..good },
        Header { message_bytes: 99, ..good },
    ];
    for (case, header) in dropped.iter().enumerate() {
        assert_eq!(bench.judge(&packet(header)), None, "case {case}");
    }
    let drops = bench.program.drops();
    assert_eq!((drops.unknown, drops.wrong_cookie, drops.expired, drops.malformed), (3, 1, 2, 3));
}

/// Whatever `proto` would take is steered, and whatever the program calls malformed `proto` would refuse.
#[test]
fn the_program_refuses_nothing_that_the_parser_takes() {
    let Some(mut bench) = Bench::new(&filter()) else { return };
    let mut random = SmallRng::seed_from_u64(SEED);
    let (mut taken, mut refused) = (0, 0);
    for number in 0..5_000 {
        let mut bytes = packet(&random_header(&mut random));
        for _ in 0..random.random_range(0..3) {
            let at = random.random_range(0..HEADER_BYTES);
            bytes[at] = if random.random() { random.random() } else { bytes[at] ^ 1 };
        }
        // The path of the packet does not matter here, only its form.
        let before = bench.malformed();
        let verdict = bench.judge(&bytes);
        let is_malformed = bench.malformed() > before;
        match Header::parse(&bytes) {
            Ok((header, _)) => {
                assert!(!is_malformed, "seed {SEED} packet {number}: {header:?}");
                if header.kind == Kind::BestEffort {
                    assert_eq!(verdict, Some(Stream::BestEffort), "seed {SEED} packet {number}");
                }
                taken += 1;
            }
            Err(_) => refused += u32::from(is_malformed),
        }
    }
    assert!(taken > 1_000 && refused > 500, "{taken} taken, {refused} refused by both");
}

fn random_header(random: &mut SmallRng) -> Header {
    let size: u32 = random.random_range(1..400);
    let fragments: u16 = random.random_range(1..6);
    let fragment = random.random_range(0..fragments);
    let last: u32 = random.random_range(1..=size);
    let is_last = fragment + 1 == fragments;
    let best_effort = random.random();
    Header {
        kind: if best_effort { Kind::BestEffort } else { Kind::Guaranteed },
        demoted: !best_effort && random.random(),
        unpromised: false,
        fragment,
        fragments,
        message_bytes: size * u32::from(fragments - 1) + last,
        payload_bytes: if is_last { last } else { size },
        slack_ns: random.random_range(-5..1_000_000),
        clock_error: ClockError::NONE,
        destination: NodeId(if best_effort { random.random_range(1..9) } else { 0 }),
        ..header(0)
    }
}

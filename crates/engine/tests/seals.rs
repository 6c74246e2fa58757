//! The XDP program distinguishes the neighbour's signalling from that of other senders by the seal that
//! `proto` writes (`BPF_PROG_TEST_RUN`, without a device).

#[path = "support/frame.rs"]
mod frame;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

use frame::frame;
use punctual_link::xdp::{ClassifierOptions, Program, Rate, Tag, Verdict};
use punctual_link::{SealKey, Stream};
use punctual_proto::seal;
use punctual_proto::signalling::{self, RTCOP_VERSION};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{CapabilitySet, capabilities};

const DATA: u16 = 7_001;
const SIGNALLING: u16 = 7_000;
/// Buffers of the signalling stream.
const BUFFERS: u32 = 128;
/// Packets that strangers may send.
const UNKNOWN_SENDERS: u64 = 4;
/// The most that the program remembers of numbers that came.
const WINDOW: u64 = 64;

const KEY: signalling::SealKey = signalling::SealKey(*b"sixteen bytes ok");

struct Bench {
    program: Program,
    _socket: OwnedFd,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Steered(Tag),
    Policed,
    Replayed,
    NoBuffer,
}

impl Bench {
    /// `None`, with a message, if programs cannot be loaded.
    fn new(unknown_senders: Option<u32>) -> Option<Self> {
        let rights = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
        if !capabilities(None).is_ok_and(|sets| sets.effective.contains(rights)) {
            punctual_skip::skipped!("XDP programs need CAP_SYS_ADMIN and CAP_NET_ADMIN");
            return None;
        }
        let [local, peer] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 2, 0, last)));
        // The kernel's clock advances between two runs: no token may come back, however long a test takes.
        let unknown_senders_rate =
            unknown_senders.map(|burst_packets| Rate { packets_per_second: 0, burst_packets });
        let mut options = ClassifierOptions {
            unknown_senders_rate,
            ..ClassifierOptions::new("lo", local, peer, DATA, SIGNALLING)
        };
        options.buffers[Stream::Signalling as usize] = BUFFERS;
        let mut program = Program::load(&options).expect("to load");
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None).expect("an AF_XDP socket");
        program.register(0, Stream::Signalling, socket.as_fd()).expect("to register");
        Some(Self { program, _socket: socket })
    }

    /// A bench whose program has the neighbour's key.
    fn met(unknown_senders: u32) -> Option<Self> {
        let mut bench = Self::new(Some(unknown_senders))?;
        bench.meet(KEY);
        Some(bench)
    }

    fn meet(&mut self, key: signalling::SealKey) {
        self.program.set_neighbour(SealKey(key.0)).expect("accepted");
    }

    /// What is steered keeps its buffer.
    fn hold(&mut self, packet: &[u8]) -> Fate {
        let before = self.program.drops();
        let mut frame = frame(SIGNALLING, packet);
        let (verdict, _) = self.program.run(&mut frame, 1).expect("to run");
        let after = self.program.drops();
        let dropped = [
            (after.policed - before.policed, Fate::Policed),
            (after.replayed - before.replayed, Fate::Replayed),
            (after.no_buffer - before.no_buffer, Fate::NoBuffer),
        ];
        match verdict {
            Verdict::Steer => Fate::Steered(Tag::read(&frame).expect("a tag")),
            Verdict::Drop => dropped.into_iter().find(|(times, _)| *times == 1).expect("for one reason").1,
            Verdict::Pass => panic!("a packet to our port"),
        }
    }

    fn judge(&mut self, packet: &[u8]) -> Fate {
        let fate = self.hold(packet);
        if let Fate::Steered(tag) = fate {
            self.release(&tag);
        }
        fate
    }

    fn release(&mut self, tag: &Tag) {
        let accounts = self.program.accounts();
        let charge = accounts.received(0, Stream::Signalling, tag);
        accounts.returns().give_back(charge);
    }

    fn is_let_in(&mut self, packet: &[u8]) -> bool {
        matches!(self.judge(packet), Fate::Steered(_))
    }
}

/// A packet of `bytes` bytes, with the parts that a driver reads.
fn sealed(key: signalling::SealKey, number: u64, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; bytes];
    packet[0] = RTCOP_VERSION;
    packet[seal::NUMBER_OFFSET..seal::SEAL_OFFSET].copy_from_slice(&number.to_le_bytes());
    let word = key.seal(number, bytes).to_le_bytes();
    packet[seal::SEAL_OFFSET..seal::ENVELOPE_BYTES].copy_from_slice(&word);
    packet
}

#[test]
fn a_forger_spends_the_part_for_unknown_senders_and_nothing_of_the_neighbours() {
    let Some(mut bench) = Bench::met(UNKNOWN_SENDERS as u32) else { return };
    for number in 0..10_000 {
        let forged = sealed(signalling::SealKey([7; 16]), number, 100);
        assert_eq!(bench.is_let_in(&forged), number < UNKNOWN_SENDERS, "{number}");
        assert!(bench.is_let_in(&sealed(KEY, number, 100)), "{number}");
    }
}

#[test]
fn a_changed_packet_counts_as_from_an_unknown_sender() {
    // A limit of one unsealed packet: all others pass only with a seal.
    let Some(mut bench) = Bench::met(1) else { return };
    assert!(bench.is_let_in(&[1; 100]), "the one packet that strangers have");
    let sent = sealed(KEY, 5, 100);
    for byte in seal::NUMBER_OFFSET..seal::ENVELOPE_BYTES {
        let mut forged = sent.clone();
        forged[byte] ^= 0x10;
        assert_eq!(bench.judge(&forged), Fate::Policed, "byte {byte}");
    }
    let longer = [sent.as_slice(), &[0]].concat();
    let other = [&[RTCOP_VERSION + 1], &sent[1..]].concat();
    for forged in [&sent[..99], &sent[..seal::ENVELOPE_BYTES - 1], &longer, &other] {
        assert_eq!(bench.judge(forged), Fate::Policed);
    }
    assert!(bench.is_let_in(&sent));
}

#[test]
fn each_number_comes_in_once_in_any_order() {
    let Some(mut bench) = Bench::met(1) else { return };
    let mut judge = |number| bench.judge(&sealed(KEY, number, 64));
    for number in [0, 3, 1, 2, 1_000, 1_000 - (WINDOW - 1)] {
        assert!(matches!(judge(number), Fate::Steered(_)), "{number}");
        assert_eq!(judge(number), Fate::Replayed, "{number} again");
    }
    assert_eq!([judge(3), judge(1_000 - WINDOW)], [Fate::Replayed; 2], "too old to tell");
    assert!(matches!(judge(999), Fate::Steered(_)));
    let last = u64::MAX - 1;
    assert!(matches!(judge(last), Fate::Steered(_)));
    assert_eq!(judge(last), Fate::Replayed);
}

#[test]
fn a_repeated_key_keeps_its_numbers_and_a_new_session_begins_again() {
    let Some(mut bench) = Bench::met(1) else { return };
    assert!(bench.is_let_in(&sealed(KEY, 9, 64)));
    bench.meet(KEY);
    assert_eq!(bench.judge(&sealed(KEY, 9, 64)), Fate::Replayed);
    let next = signalling::SealKey([1; 16]);
    bench.meet(next);
    assert!(bench.is_let_in(&sealed(next, 9, 64)));
    // The seal of the former life is not valid any more: one packet with it counts as the first of an unknown
    // sender.
    assert!(bench.is_let_in(&sealed(KEY, 10, 64)));
    assert_eq!(bench.judge(&sealed(KEY, 11, 64)), Fate::Policed);
}

#[test]
fn unknown_senders_take_at_most_half_of_the_buffers() {
    let Some(mut bench) = Bench::met(1_000) else { return };
    let held: Vec<Fate> = (0..BUFFERS).map(|_| bench.hold(&[1; 100])).collect();
    let steered = |fate: &&Fate| matches!(fate, Fate::Steered(_));
    assert_eq!(held.iter().filter(steered).count(), BUFFERS as usize / 2);
    assert_eq!(held.last(), Some(&Fate::NoBuffer));
    let own: Vec<Fate> = (0..u64::from(BUFFERS)).map(|number| bench.hold(&sealed(KEY, number, 64))).collect();
    assert_eq!(own.iter().filter(steered).count(), BUFFERS as usize / 2, "the other half");
    for fate in held.iter().chain(&own) {
        if let Fate::Steered(tag) = fate {
            bench.release(tag);
        }
    }
    assert!(bench.is_let_in(&[1; 100]));
}

#[test]
fn before_the_neighbour_is_known_all_senders_are_unknown() {
    let Some(mut bench) = Bench::new(Some(1)) else { return };
    assert!(bench.is_let_in(&sealed(KEY, 1, 64)));
    assert_eq!(bench.judge(&sealed(KEY, 2, 64)), Fate::Policed);
}

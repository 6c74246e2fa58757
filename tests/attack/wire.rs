//! An attacker on the cable before the sink, with all rights there but without the domain's key: it sends frames as the relay
//! would send them, as fast as they go. Its control sends the same frames to an unused port.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_host::config::{DATA_PORT_DEFAULT, SIGNALLING_PORT_DEFAULT};
use punctual_proto::signalling::RTCOP_VERSION;
use punctual_proto::wire;

use crate::attacker::{Mechanism, Place};
use crate::common::PATIENCE;
use crate::field::{Field, channel, exchange, repeat, threads};
use crate::judge::{Bounds, Losses};
use crate::world::{PERIOD, RELAY, SINK, Setup, TO_SINK};

const SEALED: &str = "signalling is authenticated, and taken within its budget";
const SEALED_IN_DRIVER: &str = "signalling is sealed for the driver";
const COOKIE: &str = "cookies of channels, checked at every hop";
const EDGE: &str = "packets are checked once, at the edge";
const ONCE: &str = "each packet number is taken once in a life";
const ERRORS: &str = "ICMP messages about a path change nothing";

/// Who is not heard for 250 ms is taken for dead: a flood that drowns HELLOs ends the channel in a short run.
const UDP: Setup = Setup { hello: "50ms", ..Setup::DEFAULT };
const XDP: Setup = Setup { driver: "xdp", ..UDP };
const TWICE: Bounds = Bounds { losses: Losses::TwiceControl, ..Bounds::DEFAULT };

/// An unused ethertype.
const EXPERIMENT: u16 = 0x88b5;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const UDP_NUMBER: u8 = 17;
const ICMP_NUMBER: u8 = 1;
const DISCARD: u16 = 9;
const MORE_FRAGMENTS: u16 = 0x2000;

const fn forger(name: &'static str, guards: &'static str, setup: Setup, run: fn(&Field)) -> Mechanism {
    Mechanism { place: Place::Cable(RELAY), setup, bounds: TWICE, ..Mechanism::new(name, guards, run) }
}

pub const MECHANISMS: &[Mechanism] = &[
    forger("forged-signalling-udp", SEALED, UDP, forge_signalling),
    forger("forged-signalling-xdp", SEALED_IN_DRIVER, XDP, forge_signalling),
    forger("wrong-cookies-udp", COOKIE, UDP, change_cookies),
    forger("wrong-cookies-xdp", COOKIE, XDP, guess_cookies),
    forger("smallest-packets-udp", EDGE, UDP, send_smallest),
    forger("smallest-packets-xdp", EDGE, XDP, send_smallest),
    forger("fragments", EDGE, UDP, send_fragments),
    forger("fragments-xdp", EDGE, XDP, send_fragments),
    forger("tagged-frames-xdp", EDGE, XDP, send_tagged),
    forger("strange-neighbours", EDGE, UDP, send_arp),
    forger("hellos-again", ONCE, UDP, repeat_signalling),
    forger("renumbered-recordings", SEALED, UDP, renumber),
    forger("data-again", "a message is taken once, within the contract", UDP, repeat_data),
    forger("changed-recordings", SEALED, UDP, change_recordings),
    Mechanism { place: Place::Cable(SINK), ..forger("errors-about-paths", ERRORS, UDP, send_errors) },
    Mechanism { place: Place::Cable(SINK), ..forger("errors-about-paths-xdp", ERRORS, XDP, send_errors) },
];

/// A raw socket at one end of the cable, and who is where.
struct Wire {
    socket: OwnedFd,
    macs: [[u8; 6]; 2],
    addresses: [Ipv4Addr; 2],
    own: bool,
}

impl Wire {
    /// At `end` of the cable between relay and sink.
    fn at(end: usize, own: bool) -> Self {
        let device = TO_SINK.device(end);
        let addresses = [end, 1 - end].map(|end| TO_SINK.address(end).parse().expect("an address"));
        // SAFETY: a fresh descriptor.
        let socket = unsafe {
            let every = i32::from(0x0003_u16.to_be());
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, every);
            assert!(socket >= 0, "a raw socket");
            OwnedFd::from_raw_fd(socket)
        };
        let (index, mac) = device_of(&socket, &device);
        bind(&socket, index);
        Self { socket, macs: [mac, mac_of(addresses[1])], addresses, own }
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: a frame of the caller's. One that finds no room is lost.
        unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    }

    /// Of one kind, or, in the control, of none that is known.
    fn frame(&self, kind: u16, payload: &[u8]) -> Vec<u8> {
        let kind = if self.own { EXPERIMENT } else { kind };
        [self.macs[1].as_slice(), &self.macs[0], &kind.to_be_bytes(), payload].concat()
    }

    fn ip(&self, protocol: u8, number: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let bytes = (payload.len() + 20) as u16;
        let mut header = vec![0x45, 0];
        header.extend(bytes.to_be_bytes());
        header.extend(number.to_be_bytes());
        header.extend(fragment.to_be_bytes());
        header.extend([64, protocol, 0, 0]);
        self.addresses.iter().for_each(|address| header.extend(address.octets()));
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header.extend(payload);
        header
    }

    /// Without a checksum, which IPv4 allows; in the control to an unused port.
    fn udp(&self, port: u16, payload: &[u8]) -> Vec<u8> {
        let to = if self.own { DISCARD } else { port };
        let datagram = datagram([port, to], payload);
        [self.macs[1].as_slice(), &self.macs[0], &IPV4.to_be_bytes(), &self.ip(UDP_NUMBER, 0, 0, &datagram)]
            .concat()
    }

    /// What passes to `port` for a while, as it is on the cable.
    fn record(&self, port: u16) -> Vec<Vec<u8>> {
        let (mut frames, begin) = (Vec::new(), Instant::now());
        let mut buffer = [0_u8; 2_000];
        while frames.len() < 5 && begin.elapsed() < PATIENCE {
            // SAFETY: a buffer of this function's.
            let read = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if read < 43 {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let frame = &buffer[..read as usize];
            if frame[..6] == self.macs[1] && frame[12..14] == [8, 0] && frame[36..38] == port.to_be_bytes() {
                frames.push(frame.to_vec());
            }
        }
        assert!(!frames.is_empty(), "nothing to {port} was seen");
        frames
    }

    /// In the control it goes to an unused port.
    fn send_again(&self, frame: &[u8]) {
        let mut frame = frame.to_vec();
        if self.own {
            frame[36..38].copy_from_slice(&DISCARD.to_be_bytes());
        }
        // The kernel may have left the checksum to the device.
        frame[40..42].copy_from_slice(&[0, 0]);
        self.send(&frame);
    }
}

fn datagram(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let bytes = (payload.len() + 8) as u16;
    let header = [ports[0].to_be_bytes(), ports[1].to_be_bytes(), bytes.to_be_bytes(), [0, 0]].concat();
    [header.as_slice(), payload].concat()
}

fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Index and hardware address of a device.
fn device_of(socket: &OwnedFd, name: &str) -> (i32, [u8; 6]) {
    // SAFETY: a structure of the size that these calls expect.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        assert_eq!(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFINDEX, &raw mut request), 0, "{name}");
        let index = request.ifr_ifru.ifru_ifindex;
        assert_eq!(libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request), 0, "{name}");
        let address = request.ifr_ifru.ifru_hwaddr.sa_data;
        (index, std::array::from_fn(|at| address[at] as u8))
    }
}

fn bind(socket: &OwnedFd, index: i32) {
    // SAFETY: the structure has the size that is passed.
    unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = 0x0003_u16.to_be();
        address.sll_ifindex = index;
        let bytes = size_of::<libc::sockaddr_ll>() as u32;
        assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes), 0, "bound");
    }
}

/// Of the host at the other end, as the kernel has learned it.
fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let until = Instant::now() + PATIENCE;
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    loop {
        // Makes the kernel ask.
        let _ = socket.send_to(&[0], (address, DISCARD));
        let table = std::fs::read_to_string("/proc/net/arp").expect("the kernel's table");
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(&address.to_string()));
        let text = line.and_then(|line| line.split_whitespace().nth(3)).unwrap_or_default();
        let mac: Vec<u8> = text.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        if let Ok(mac) = <[u8; 6]>::try_from(mac)
            && mac != [0; 6]
        {
            return mac;
        }
        assert!(Instant::now() < until, "no neighbour has {address}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends what `make` makes of a number, without end.
fn flood(wire: Wire, make: fn(&Wire, u64) -> Vec<u8>) {
    threads(1, move |_| {
        for number in 0.. {
            wire.send(&make(&wire, number));
        }
    });
}

/// Whose turn is it of `count`, without an order.
fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17
}

fn forge_signalling(field: &Field) {
    flood(Wire::at(0, field.own), |wire, number| {
        let mut packet = [RTCOP_VERSION; 60];
        packet[1..9].copy_from_slice(&scatter(number).to_le_bytes());
        wire.udp(SIGNALLING_PORT_DEFAULT, &packet)
    });
}

fn guess_cookies(field: &Field) {
    flood(Wire::at(0, field.own), |wire, number| {
        let mut packet = [0; 64 + 100];
        packet[..2].copy_from_slice(&[wire::VERSION, 1]);
        // The source's id, and its first channels.
        packet[4] = 3;
        packet[8] = (number % 4) as u8;
        packet[12..16].copy_from_slice(&(scatter(number) as u32).to_le_bytes());
        packet[34] = 1;
        packet[36] = 100;
        packet[56] = 100;
        wire.udp(DATA_PORT_DEFAULT, &packet)
    });
}

/// Packets of the witness itself with other cookies and with messages that are yet to come. No host sees those over `xdp`
/// before they are on the cable: there the path is guessed, too.
fn change_cookies(field: &Field) {
    let own = field.own;
    std::thread::spawn(move || {
        let wire = Wire::at(0, own);
        // The witness begins when the attack has.
        let frames = wire.record(DATA_PORT_DEFAULT);
        for number in 0.. {
            let mut frame = frames[number as usize % frames.len()].clone();
            let packet = &mut frame[42..];
            packet[12..16].copy_from_slice(&(scatter(number) as u32).to_le_bytes());
            packet[25] = packet[25].wrapping_add(1 + (number % 3) as u8);
            wire.send_again(&frame);
        }
    });
}

fn send_smallest(field: &Field) {
    flood(Wire::at(0, field.own), |wire, number| {
        let port = if number % 2 == 0 { DATA_PORT_DEFAULT } else { SIGNALLING_PORT_DEFAULT };
        wire.udp(port, &[number as u8])
    });
}

/// First parts of packets whose other parts never come.
fn send_fragments(field: &Field) {
    flood(Wire::at(0, field.own), |wire, number| {
        let part = datagram([DATA_PORT_DEFAULT; 2], &[0; 200]);
        wire.frame(IPV4, &wire.ip(UDP_NUMBER, number as u16, MORE_FRAGMENTS, &part))
    });
}

fn send_tagged(field: &Field) {
    flood(Wire::at(0, field.own), |wire, number| {
        let packet = wire.ip(UDP_NUMBER, 0, 0, &datagram([DATA_PORT_DEFAULT; 2], &[0; 100]));
        let tag = [(number as u16 & 0xfff).to_be_bytes(), IPV4.to_be_bytes()].concat();
        wire.frame(VLAN, &[tag, packet].concat())
    });
}

/// Questions and answers of hosts that are not there.
fn send_arp(field: &Field) {
    flood(Wire::at(0, field.own), |wire, number| {
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1 + (number % 2) as u8];
        let [.., c, d] = scatter(number).to_be_bytes();
        body.extend([2, 0, 0, 0, c, d]);
        body.extend([10, 98, c, d | 4]);
        body.extend([0; 6]);
        body.extend(wire.addresses[1].octets());
        wire.frame(ARP, &body)
    });
}

fn again(wire: Wire, frames: Vec<Vec<u8>>) {
    threads(1, move |_| frames.iter().for_each(|frame| wire.send_again(frame)));
}

fn repeat_signalling(field: &Field) {
    let wire = Wire::at(0, field.own);
    let frames = wire.record(SIGNALLING_PORT_DEFAULT);
    again(wire, frames);
}

/// Recorded signalling under the greatest number that there is: a host that accepted it would accept nothing that comes after it.
fn renumber(field: &Field) {
    /// Of the packet's number in a frame: behind 42 B of headers, version, epoch and session.
    const NUMBER: std::ops::Range<usize> = 55..63;
    let wire = Wire::at(0, field.own);
    let mut frames = wire.record(SIGNALLING_PORT_DEFAULT);
    frames.iter_mut().for_each(|frame| frame[NUMBER].copy_from_slice(&u64::MAX.to_le_bytes()));
    again(wire, frames);
}

/// Packets of a channel that is not the witness': recorded packets can use up that channel's contract, and no other.
fn repeat_data(field: &Field) {
    let wire = Wire::at(0, field.own);
    let mut other = channel();
    repeat(PERIOD, move || exchange(&mut other));
    let frames = wire.record(DATA_PORT_DEFAULT);
    again(wire, frames);
}

/// One bit is another one.
fn change_recordings(field: &Field) {
    let wire = Wire::at(0, field.own);
    let frames = wire.record(SIGNALLING_PORT_DEFAULT);
    let mut number = 0;
    std::thread::spawn(move || {
        loop {
            for frame in &frames {
                let mut frame = frame.clone();
                let bit = scatter(number) as usize % ((frame.len() - 42) * 8);
                frame[42 + bit / 8] ^= 1 << (bit % 8);
                wire.send_again(&frame);
                number += 1;
            }
        }
    });
}

/// From the sink's end to the relay: its packets were too long, or the port is closed.
fn send_errors(field: &Field) {
    flood(Wire::at(1, field.own), |wire, number| {
        let port = if number % 2 == 0 { DATA_PORT_DEFAULT } else { SIGNALLING_PORT_DEFAULT };
        // A packet of the relay's is quoted.
        let addresses = [wire.addresses[1], wire.addresses[0]];
        let quoted = Wire { socket: wire.socket.try_clone().expect("a descriptor"), addresses, ..*wire };
        let quoted = quoted.ip(UDP_NUMBER, 0, 0x4000, &datagram([port; 2], &[0; 20]));
        let code = [4, 3, 1, 0][number as usize / 2 % 4];
        let mut message = vec![3, code, 0, 0, 0, 0, 0, if code == 4 { 68 } else { 0 }];
        message.extend(quoted);
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        wire.frame(IPV4, &wire.ip(ICMP_NUMBER, 0, 0, &message))
    });
}

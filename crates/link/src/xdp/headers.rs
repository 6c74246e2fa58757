//! Ethernet, IPv4 or IPv6, and UDP in front of our header, written from a template.
//!
//! A link has one pair of addresses, so all but lengths and checksums is the same in every packet of a port.
//! The IPv4 checksum is computed from that of the template and the length (RFC 1624). A UDP checksum is 0
//! (none) over IPv4, as RFC 768 permits: the frame's own check sequence protects every hop, and reading the
//! payload would cost a pass over it. Over IPv6 it is required (RFC 8200, 8.1) and is computed. The program
//! checks received headers, but not UDP checksums, for the same reason, and because a virtual device passes
//! packets whose checksum was left to hardware.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ClassifierOptions;
use crate::kernel::Mac;
use crate::{NextHop, Port};

/// Ethernet.
pub(super) const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP_PROTOCOL: u8 = 17;
/// Routers on the way, at most.
const TIME_TO_LIVE: u8 = 64;
/// Maximum number of bytes in front of our header.
pub const HEADER_BYTES_MAX: usize = ETHERNET_BYTES + IPV6_BYTES + UDP_BYTES;
/// Value in [`Addresses`] for an address that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The Ethernet addresses of a link's two ends, which may change while it works: a handle that any thread may set.
#[derive(Clone, Debug)]
pub struct Addresses {
    ends: Arc<[AtomicU64; 2]>,
}

impl Addresses {
    /// Our device's address and the next hop's. While the latter is not known, packets are lost and counted as send
    /// errors.
    pub fn new(source: Mac, peer: Option<Mac>) -> Self {
        let addresses = Self { ends: Arc::new([AtomicU64::new(UNKNOWN), AtomicU64::new(UNKNOWN)]) };
        addresses.set_source(source);
        addresses.set_peer(peer);
        addresses
    }

    /// Our device has got this address.
    pub fn set_source(&self, source: Mac) {
        self.ends[0].store(source.to_number(), Ordering::Relaxed);
    }

    /// The next hop is reached at this address, or is not (`None`).
    pub fn set_peer(&self, peer: Option<Mac>) {
        self.ends[1].store(peer.map_or(UNKNOWN, Mac::to_number), Ordering::Relaxed);
    }

    /// Our device's address.
    pub(super) fn source(&self) -> Mac {
        Mac::from_number(self.ends[0].load(Ordering::Relaxed))
    }

    /// Destination and source as a packet begins with them; `None` while the next hop is not known.
    fn leading(&self) -> Option<(Mac, Mac)> {
        let [source, peer] = [0, 1].map(|end| self.ends[end].load(Ordering::Relaxed));
        (peer != UNKNOWN).then(|| (Mac::from_number(peer), Mac::from_number(source)))
    }
}

/// Our port and the neighbour's.
const fn ports(ends: &ClassifierOptions, port: Port) -> (u16, u16) {
    match port {
        Port::Data => (ends.data_port, ends.peer_data_port),
        Port::Signalling => (ends.signalling_port, ends.peer_signalling_port),
    }
}

/// Writes the headers of one link.
pub(super) struct Headers {
    is_ipv4: bool,
    bytes: usize,
    /// Templates of data and of signalling packets: everything except lengths, checksums and Ethernet
    /// addresses.
    templates: [[u8; HEADER_BYTES_MAX]; 2],
    /// For each template: the sum of the IPv4 header's words, or of the IPv6 pseudo-header's and the ports.
    sums: [u64; 2],
}

impl Headers {
    /// Headers from our address and ports to the neighbour's.
    pub(super) fn new(ends: &ClassifierOptions) -> Self {
        let bytes = match ends.local {
            IpAddr::V4(_) => ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES,
            IpAddr::V6(_) => HEADER_BYTES_MAX,
        };
        let templates = [Port::Data, Port::Signalling].map(|port| template(ends, port));
        let sums = templates.map(|template| match ends.local {
            IpAddr::V4(_) => sum(&template[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES]),
            // Both addresses, the ports and the protocol's number; the length comes twice, with the packet.
            IpAddr::V6(_) => sum(&template[22..58]) + u64::from(UDP_PROTOCOL),
        });
        Self { is_ipv4: ends.local.is_ipv4(), bytes, templates, sums }
    }

    /// Bytes that the headers take in front of ours.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the headers over the first [`Headers::bytes`] of `packet`, whose rest is ours; `false` while
    /// the next hop's address is not known. A packet is shorter than 64 KiB.
    pub(super) fn write(&self, port: Port, addresses: &Addresses, packet: &mut [u8]) -> bool {
        let Some((destination, source)) = addresses.leading() else { return false };
        let (headers, payload) = packet.split_at_mut(self.bytes);
        headers.copy_from_slice(&self.templates[port as usize][..self.bytes]);
        headers[..6].copy_from_slice(&destination.0);
        headers[6..12].copy_from_slice(&source.0);
        let udp_bytes = (UDP_BYTES + payload.len()) as u16;
        let fixed = self.sums[port as usize];
        if self.is_ipv4 {
            let total = udp_bytes + IPV4_BYTES as u16;
            headers[16..18].copy_from_slice(&total.to_be_bytes());
            headers[24..26].copy_from_slice(&(!fold(fixed + u64::from(total))).to_be_bytes());
            headers[38..40].copy_from_slice(&udp_bytes.to_be_bytes());
        } else {
            headers[18..20].copy_from_slice(&udp_bytes.to_be_bytes());
            headers[58..60].copy_from_slice(&udp_bytes.to_be_bytes());
            let checksum = !fold(fixed + 2 * u64::from(udp_bytes) + sum(payload));
            // Zero would mean that there is no checksum.
            let checksum = if checksum == 0 { u16::MAX } else { checksum };
            headers[60..62].copy_from_slice(&checksum.to_be_bytes());
        }
        true
    }
}

/// Writes Ethernet's header in front of an IP packet to `hop`; `false` while its address is not known.
pub(super) fn write_ethernet(hop: &NextHop, addresses: &Addresses, packet: &mut [u8]) -> bool {
    let Some(destination) = hop.destination() else { return false };
    packet[..6].copy_from_slice(&destination.0);
    packet[6..12].copy_from_slice(&addresses.source().0);
    let is_v6 = packet.get(ETHERNET_BYTES).is_some_and(|first| first >> 4 == 6);
    let ethertype: [u8; 2] = if is_v6 { [0x86, 0xDD] } else { [0x08, 0x00] };
    packet[12..ETHERNET_BYTES].copy_from_slice(&ethertype);
    true
}

fn template(ends: &ClassifierOptions, port: Port) -> [u8; HEADER_BYTES_MAX] {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let (ours, theirs) = ports(ends, port);
    let udp_at = match (ends.local, ends.peer) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => {
            bytes[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
            // Do not fragment: a packet too long for the path is lost, not cut.
            bytes[20..24].copy_from_slice(&[0x40, 0, TIME_TO_LIVE, UDP_PROTOCOL]);
            bytes[26..30].copy_from_slice(&local.octets());
            bytes[30..34].copy_from_slice(&peer.octets());
            34
        }
        (local, peer) => {
            bytes[12..15].copy_from_slice(&[0x86, 0xDD, 0x60]);
            bytes[20..22].copy_from_slice(&[UDP_PROTOCOL, TIME_TO_LIVE]);
            bytes[22..38].copy_from_slice(&octets6(local));
            bytes[38..54].copy_from_slice(&octets6(peer));
            54
        }
    };
    bytes[udp_at..udp_at + 2].copy_from_slice(&ours.to_be_bytes());
    bytes[udp_at + 2..udp_at + 4].copy_from_slice(&theirs.to_be_bytes());
    bytes
}

fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The sum of the 16-bit big-endian words, not folded; an odd last byte is the upper half of a word. In steps of 4
/// bytes, which add up to the same after folding (RFC 1071, 2).
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let whole: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    whole + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits with end-around carry.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    sum as u16
}

/// An address as it lies in a packet; IPv4 in the first word.
pub(super) fn words_of(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()), 0, 0, 0],
        IpAddr::V6(address) => {
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(address.octets().chunks_exact(4)) {
                *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
            words
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ends(local: impl Into<IpAddr>, peer: impl Into<IpAddr>) -> ClassifierOptions {
        ClassifierOptions {
            peer_data_port: 8_000,
            peer_signalling_port: 8_001,
            ..ClassifierOptions::new("none", local.into(), peer.into(), 7_000, 7_001)
        }
    }

    fn both_families() -> [ClassifierOptions; 2] {
        let v6 = |low| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0xFFFF, low);
        [ends(Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(10, 255, 254, 253)), ends(v6(1), v6(2))]
    }

    fn packet(ends: &ClassifierOptions, port: Port, payload: &[u8]) -> Vec<u8> {
        let headers = Headers::new(ends);
        let mut packet = vec![0xAA; headers.bytes()];
        packet.extend_from_slice(payload);
        assert!(headers.write(port, &Addresses::new(OURS, Some(THEIRS)), &mut packet));
        packet
    }

    /// One's complement sum as RFC 1071 defines it: word by word, carry by carry.
    fn by_the_book(bytes: &[u8]) -> u16 {
        bytes.chunks(2).fold(0u16, |sum, pair| {
            let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
            let (sum, carry) = sum.overflowing_add(word);
            sum + u16::from(carry)
        })
    }

    #[test]
    fn a_packet_over_ipv4_is_what_the_rfcs_draw() {
        let [ends, _] = both_families();
        let payload = b"abcde";
        let packet = packet(&ends, Port::Signalling, payload);
        assert_eq!(packet[..14], [&THEIRS.0[..], &OURS.0, &[0x08, 0x00]].concat());
        assert_eq!(packet[14..24], [0x45, 0, 0, 33, 0, 0, 0x40, 0, TIME_TO_LIVE, UDP_PROTOCOL]);
        assert_eq!(packet[26..34], [10, 1, 2, 3, 10, 255, 254, 253]);
        let ports = [7_001u16.to_be_bytes(), 8_001u16.to_be_bytes()].concat();
        assert_eq!(packet[34..], [&ports[..], &[0, 13, 0, 0], payload].concat());
    }

    #[test]
    fn a_packet_over_ipv6_is_what_the_rfcs_draw() {
        let [_, ends] = both_families();
        let packet = packet(&ends, Port::Data, b"abcde");
        assert_eq!(
            packet[..22],
            [&THEIRS.0[..], &OURS.0, &[0x86, 0xDD, 0x60, 0, 0, 0, 0, 13, 17, 64]].concat()
        );
        assert_eq!(packet[22..38], octets6(ends.local));
        assert_eq!(packet[38..54], octets6(ends.peer));
        let ports = [7_000u16.to_be_bytes(), 8_000u16.to_be_bytes()].concat();
        assert_eq!(packet[54..60], [&ports[..], &[0, 13]].concat());
        assert_eq!(packet[62..], *b"abcde");
    }

    #[test]
    fn checksums_are_those_of_the_book() {
        let [v4, v6] = both_families();
        for len in 0..70 {
            let payload: Vec<u8> = (0..len).map(|n| (n * 37) as u8 ^ 0xF0).collect();
            let packet4 = packet(&v4, Port::Data, &payload);
            assert_eq!(by_the_book(&packet4[14..34]), u16::MAX);
            assert_eq!(packet4[40..42], [0, 0], "no UDP checksum over IPv4");
            let packet6 = packet(&v6, Port::Signalling, &payload);
            let pseudo = [&packet6[22..54], &[0, 0], &packet6[18..20], &[0, 0, 0, UDP_PROTOCOL]].concat();
            let all = [&pseudo[..], &packet6[54..]].concat();
            assert_eq!(by_the_book(&all), u16::MAX, "payload of {len} B");
            assert_ne!(packet6[60..62], [0, 0]);
        }
    }

    #[test]
    fn nothing_is_sent_to_an_unknown_next_hop() {
        let [ends, _] = both_families();
        let headers = Headers::new(&ends);
        let addresses = Addresses::new(OURS, None);
        let mut packet = vec![0; headers.bytes()];
        assert!(!headers.write(Port::Data, &addresses, &mut packet));
        addresses.set_peer(Some(THEIRS));
        assert!(headers.write(Port::Data, &addresses, &mut packet));
    }
}

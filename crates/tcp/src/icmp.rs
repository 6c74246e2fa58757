//! ICMP errors that quote a segment of ours. An attacker can forge them, so they are accepted only within the
//! rules of RFC 5927: the quoted number must be in flight, and none of them ends a connection that is open.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet, IpProtocol, Ipv4Packet, Ipv6Packet};

use crate::wire::{Flow, IPV6_BYTES};

/// Report of a router or of the peer's host about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The next hop carries only packets of this many bytes; 0 if the router does not report the size.
    TooBig(u16),
    /// The destination is unreachable: this ends an attempt to connect (RFC 9293 3.9.2.2), and nothing else
    /// (RFC 5927 5.2).
    Unreachable,
    /// The condition may pass: routes change (RFC 9293 3.9.2.2, soft errors). An attempt to connect ends if its SYN left again and got
    /// the same (RFC 5461 4.1).
    Transient,
}

/// An ICMP error about a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The flow of the quoted segment, from this host's point of view.
    pub flow: Flow,
    /// Its sequence number.
    pub seq: u32,
    /// The reported error.
    pub trouble: Trouble,
}

/// Parses an IP packet with an ICMP error; `None` if it is another packet, is malformed, or quotes no TCP.
pub fn parse(packet: &[u8]) -> Option<Quote> {
    match packet.first()? >> 4 {
        4 => parse_v4(packet),
        6 => parse_v6(packet),
        _ => None,
    }
}

fn parse_v4(packet: &[u8]) -> Option<Quote> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    if ip.next_header() != IpProtocol::Icmp
        || ip.frag_offset() != 0
        || ip.more_frags()
        || !ip.verify_checksum()
    {
        return None;
    }
    let icmp = Icmpv4Packet::new_checked(ip.payload()).ok()?;
    if !icmp.verify_checksum() {
        return None;
    }
    let bytes = ip.payload();
    let trouble = match (bytes[0], bytes[1]) {
        (3, 4) => Trouble::TooBig(u16::from_be_bytes([bytes[6], bytes[7]])),
        (3, 2 | 3) => Trouble::Unreachable,
        (3 | 11 | 12, _) => Trouble::Transient,
        _ => return None,
    };
    let quoted = bytes.get(8..)?;
    let header = usize::from(quoted.first()? & 15) * 4;
    let is_tcp = quoted[0] >> 4 == 4 && header >= 20 && *quoted.get(9)? == u8::from(IpProtocol::Tcp);
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 4] = quoted.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(octets).into())
    };
    if is_tcp { quote(address(12)?, address(16)?, quoted.get(header..)?, trouble) } else { None }
}

fn parse_v6(packet: &[u8]) -> Option<Quote> {
    let ip = Ipv6Packet::new_checked(packet).ok()?;
    if ip.next_header() != IpProtocol::Icmpv6 {
        return None;
    }
    let icmp = Icmpv6Packet::new_checked(ip.payload()).ok()?;
    if !icmp.verify_checksum(&ip.src_addr(), &ip.dst_addr()) {
        return None;
    }
    let bytes = ip.payload();
    let word = bytes.get(4..8)?.try_into().map(u32::from_be_bytes).ok()?;
    let trouble = match (bytes[0], bytes[1]) {
        (2, _) => Trouble::TooBig(u16::try_from(word).unwrap_or(u16::MAX)),
        (1, 1 | 4) => Trouble::Unreachable,
        (1 | 3 | 4, _) => Trouble::Transient,
        _ => return None,
    };
    let quoted = bytes.get(8..)?;
    let is_tcp = quoted.first()? >> 4 == 6 && *quoted.get(6)? == u8::from(IpProtocol::Tcp);
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = quoted.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(octets).into())
    };
    if is_tcp { quote(address(8)?, address(24)?, quoted.get(IPV6_BYTES..)?, trouble) } else { None }
}

/// The first eight bytes of a TCP header are always quoted (RFC 792): ports and sequence number.
fn quote(local: IpAddr, remote: IpAddr, tcp: &[u8], trouble: Trouble) -> Option<Quote> {
    let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let seq = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let flow = Flow { local: SocketAddr::new(local, port(0)?), remote: SocketAddr::new(remote, port(2)?) };
    Some(Quote { flow, seq, trouble })
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use smoltcp::wire::{Ipv4Address, Ipv4Repr};

    use super::*;

    /// A router's error about a segment from port 80 to port 5000, changed by `change` before the checksums are computed.
    fn error(kind: u8, code: u8, change: impl FnOnce(&mut Ipv4Packet<&mut [u8]>)) -> Vec<u8> {
        let (ours, theirs, router) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 9]);
        let mut quoted = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        quoted.extend(ours);
        quoted.extend(theirs);
        quoted.extend([0, 80, 0x13, 0x88, 0, 0, 0, 7]);
        let repr = Ipv4Repr {
            src_addr: Ipv4Address::from(router),
            dst_addr: Ipv4Address::from(ours),
            next_header: IpProtocol::Icmp,
            payload_len: 8 + quoted.len(),
            hop_limit: 64,
        };
        let mut packet = vec![0; 20 + repr.payload_len];
        let mut ip = Ipv4Packet::new_unchecked(&mut packet[..]);
        repr.emit(&mut ip, &smoltcp::phy::ChecksumCapabilities::default());
        ip.payload_mut()[..8].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0x05, 0x14]);
        ip.payload_mut()[8..].copy_from_slice(&quoted);
        change(&mut ip);
        Icmpv4Packet::new_unchecked(ip.payload_mut()).fill_checksum();
        ip.fill_checksum();
        packet
    }

    /// RFC 1191 4, RFC 1122 4.2.3.9.
    #[test]
    fn kinds_of_icmp_errors_are_distinguished() {
        let trouble = |kind, code| parse(&error(kind, code, |_| ())).map(|quote| quote.trouble);
        assert_eq!(trouble(3, 4), Some(Trouble::TooBig(1300)));
        assert_eq!(trouble(3, 2), Some(Trouble::Unreachable));
        assert_eq!(trouble(3, 3), Some(Trouble::Unreachable));
        for (kind, code) in [(3, 0), (3, 1), (3, 5), (11, 0), (12, 0)] {
            assert_eq!(trouble(kind, code), Some(Trouble::Transient), "{kind} {code}");
        }
        for kind in [0, 4, 5, 8] {
            assert_eq!(trouble(kind, 0), None, "{kind} is no error of the path");
        }
    }

    #[test]
    fn the_quoted_segment_names_the_flow() {
        let quote = parse(&error(3, 4, |_| ())).expect("an error");
        let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() };
        assert_eq!((quote.flow, quote.seq), (flow, 7));
    }

    #[test]
    fn fragments_and_packets_of_other_protocols_are_no_errors() {
        assert_eq!(parse(&error(3, 4, |ip| ip.set_more_frags(true))), None);
        assert_eq!(parse(&error(3, 4, |ip| ip.set_frag_offset(8))), None);
        assert_eq!(parse(&error(3, 4, |ip| ip.set_next_header(IpProtocol::Udp))), None);
        let quotes_udp = |ip: &mut Ipv4Packet<&mut [u8]>| ip.payload_mut()[8 + 9] = 17;
        assert_eq!(parse(&error(3, 4, quotes_udp)), None);
        for first in [0x44, 0x65] {
            let quotes_other = |ip: &mut Ipv4Packet<&mut [u8]>| ip.payload_mut()[8] = first;
            assert_eq!(parse(&error(3, 4, quotes_other)), None, "{first:#x} begins no header of IPv4");
        }
        let mut packet = error(3, 4, |_| ());
        packet[30] ^= 1;
        assert_eq!(parse(&packet), None, "the checksum is wrong");
    }
}

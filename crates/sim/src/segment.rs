//! TCP segments as the checker reads them: a parser of its own, which shares no code with `punctual-tcp`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const TCP: u8 = 6;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A segment in an IP packet without IP options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Source.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number; meaningful only with the bit.
    pub ack: u32,
    /// Whether a reset.
    pub is_rst: bool,
    /// Whether the sender's end of the stream.
    pub is_fin: bool,
    /// Whether the first segment of a direction.
    pub is_syn: bool,
    /// Whether it acknowledges.
    pub is_ack: bool,
    /// Bytes of data.
    pub data: u32,
    /// The TCP header and the data within the packet.
    pub tcp: Range<usize>,
    /// Whether the checksums of IPv4 and TCP are right.
    pub is_whole: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The sum of RFC 1071 over `bytes`, folded.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut total: u32 = 0;
    for part in parts {
        for pair in part.chunks(2) {
            total += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The checksum of TCP with its pseudo-header: 0xffff if the segment is whole.
fn tcp_sum(addresses: &[u8], tcp: &[u8]) -> u16 {
    let length = (tcp.len() as u32).to_be_bytes();
    sum(&[addresses, &length, &[0, TCP], tcp])
}

/// Reads a packet; `None` if it carries no segment.
pub fn read(packet: &[u8]) -> Option<Seen> {
    let (ends, addresses, tcp, ip_whole) = match packet.first()? >> 4 {
        4 => {
            let length = usize::from(word(packet, 2)?);
            if packet[0] & 15 != 5 || *packet.get(9)? != TCP || length > packet.len() {
                return None;
            }
            let address = |at: usize| Some(IpAddr::from(Ipv4Addr::from(long(packet, at)?)));
            let is_whole = sum(&[packet.get(..IPV4_BYTES)?]) == 0xffff;
            ([address(12)?, address(16)?], 12..20, IPV4_BYTES..length, is_whole)
        }
        6 => {
            let length = IPV6_BYTES + usize::from(word(packet, 4)?);
            if *packet.get(6)? != TCP || length > packet.len() {
                return None;
            }
            let address = |at: usize| {
                let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
                Some(IpAddr::from(Ipv6Addr::from(bytes)))
            };
            ([address(8)?, address(24)?], 8..40, IPV6_BYTES..length, true)
        }
        _ => return None,
    };
    let segment = packet.get(tcp.clone())?;
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let flags = *segment.get(13)?;
    if header < TCP_BYTES || header > segment.len() {
        return None;
    }
    Some(Seen {
        from: SocketAddr::new(ends[0], word(segment, 0)?),
        to: SocketAddr::new(ends[1], word(segment, 2)?),
        seq: long(segment, 4)?,
        ack: long(segment, 8)?,
        is_rst: flags & RST != 0,
        is_fin: flags & FIN != 0,
        is_syn: flags & SYN != 0,
        is_ack: flags & ACK != 0,
        data: (segment.len() - header) as u32,
        is_whole: ip_whole && tcp_sum(&packet[addresses], segment) == 0xffff,
        tcp,
    })
}

/// The reset that a host sends which does not have the connection of `seen` (RFC 9293 3.10.7.1).
pub fn reset(seen: &Seen) -> Option<Vec<u8>> {
    if seen.is_rst {
        return None;
    }
    let (seq, ack, flags) = if seen.is_ack {
        (seen.ack, 0, RST)
    } else {
        let length = seen.data + u32::from(seen.is_syn) + u32::from(seen.is_fin);
        (0, seen.seq.wrapping_add(length), RST | ACK)
    };
    let mut tcp = Vec::with_capacity(TCP_BYTES);
    tcp.extend_from_slice(&seen.to.port().to_be_bytes());
    tcp.extend_from_slice(&seen.from.port().to_be_bytes());
    tcp.extend_from_slice(&seq.to_be_bytes());
    tcp.extend_from_slice(&ack.to_be_bytes());
    tcp.extend_from_slice(&[5 << 4, flags, 0, 0, 0, 0, 0, 0]);
    let (mut packet, addresses) = match (seen.to.ip(), seen.from.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0, 0, (IPV4_BYTES + TCP_BYTES) as u8, 0, 0, 0x40, 0, 64, TCP, 0, 0];
            ip.extend_from_slice(&from.octets());
            ip.extend_from_slice(&to.octets());
            let check = !sum(&[&ip]);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
            (ip, 12..20)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut ip = vec![0x60, 0, 0, 0, 0, TCP_BYTES as u8, TCP, 64];
            ip.extend_from_slice(&from.octets());
            ip.extend_from_slice(&to.octets());
            (ip, 8..40)
        }
        _ => return None,
    };
    let check = !tcp_sum(&packet[addresses], &tcp);
    tcp[16..18].copy_from_slice(&check.to_be_bytes());
    packet.extend_from_slice(&tcp);
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(v6: bool) -> Seen {
        let (from, to): (IpAddr, IpAddr) = match v6 {
            true => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from(77).into()),
            false => ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        };
        Seen {
            from: SocketAddr::new(from, 9),
            to: SocketAddr::new(to, 80),
            seq: 5,
            ack: 0x0102_0304,
            is_rst: false,
            is_fin: false,
            is_syn: true,
            is_ack: false,
            data: 0,
            tcp: 0..0,
            is_whole: true,
        }
    }

    #[test]
    fn a_reset_is_whole_and_answers_what_came() {
        for (v6, is_ack) in [(false, false), (false, true), (true, false), (true, true)] {
            let came = Seen { is_ack, ..seen(v6) };
            let packet = reset(&came).expect("one");
            let back = read(&packet).expect("a segment");
            assert!(back.is_whole && back.is_rst && reset(&back).is_none());
            assert_eq!((back.from, back.to), (came.to, came.from));
            let numbers = if is_ack { (came.ack, false, 0) } else { (0, true, 6) };
            assert_eq!((back.seq, back.is_ack, back.ack), numbers);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_segment_is_seen() {
        let packet = reset(&seen(false)).expect("one");
        let tcp = read(&packet).expect("a segment").tcp;
        for bit in tcp.start * 8..tcp.end * 8 {
            let mut other = packet.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&other).is_none_or(|seen| !seen.is_whole), "bit {bit}");
        }
        assert_eq!(read(&packet[..30]), None);
    }
}

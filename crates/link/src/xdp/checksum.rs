//! TCP checksums that a sender left to hardware.
//!
//! A veth has no hardware, and hands over packets of the other end's kernel (and of containers behind a bridge or router)
//! with the sum of the pseudo-header in the field, folded and not inverted, which is what a NIC would go on from
//! (`CHECKSUM_PARTIAL`). This mark is in the socket buffer, where an XDP program cannot read it. So the field is
//! compared: where it holds that very sum, the checksum is completed here, as the NIC would have done. A packet that came
//! over a wire and was damaged there passes by this with a probability of 2^-16, which is what its checksum promises too.

use super::headers::{fold, sum};

const IPV4_BYTES_MIN: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP: u8 = 6;
/// The checksum in a TCP header.
const FIELD: std::ops::Range<usize> = 16..18;
const TCP_BYTES_MIN: usize = 20;

/// Completes the TCP checksum of an IP packet that has only the pseudo-header's sum; any other packet stays as it is.
pub(super) fn complete(packet: &mut [u8]) {
    let Some((start, pseudo)) = pseudo_header(packet) else { return };
    let segment = &mut packet[start..];
    if segment[FIELD] != fold(pseudo).to_be_bytes() {
        return;
    }
    segment[FIELD].fill(0);
    let checksum = !fold(pseudo + sum(segment));
    segment[FIELD].copy_from_slice(&checksum.to_be_bytes());
}

/// Where the segment begins, and the sum of its pseudo-header (RFC 9293 3.1, RFC 8200 8.1); `None` if there is none.
fn pseudo_header(packet: &[u8]) -> Option<(usize, u64)> {
    let (start, addresses) = match packet.first()? >> 4 {
        4 => {
            let start = usize::from(packet[0] & 15) * 4;
            let is_tcp = start >= IPV4_BYTES_MIN && *packet.get(9)? == TCP;
            (start, is_tcp.then(|| packet.get(12..20))??)
        }
        6 => (IPV6_BYTES, (*packet.get(6)? == TCP).then(|| packet.get(8..IPV6_BYTES))??),
        _ => return None,
    };
    let bytes = packet.len().checked_sub(start).filter(|bytes| *bytes >= TCP_BYTES_MIN)?;
    Some((start, sum(addresses) + u64::from(TCP) + bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet over IPv4 or IPv6 with the checksum field as `field` makes it of the right one and the partial one.
    fn packet(is_v6: bool, payload: usize, field: impl Fn(u16, u16) -> u16) -> Vec<u8> {
        let mut packet: Vec<u8> = if is_v6 {
            let mut header = vec![0x60, 0, 0, 0, 0, (20 + payload) as u8, TCP, 64];
            header.extend((0..32).map(|at| at * 7));
            header
        } else {
            vec![0x45, 0, 0, (40 + payload) as u8, 0, 0, 0x40, 0, 64, TCP, 0, 0, 10, 0, 0, 1, 192, 168, 7, 9]
        };
        let start = packet.len();
        packet.extend((0..20 + payload).map(|at| (at * 31 + 5) as u8));
        packet[start + 16..start + 18].fill(0);
        let (at, pseudo) = pseudo_header(&packet).expect("TCP");
        assert_eq!(at, start);
        let right = !fold(pseudo + sum(&packet[start..]));
        packet[start + 16..start + 18].copy_from_slice(&field(right, fold(pseudo)).to_be_bytes());
        packet
    }

    #[test]
    fn what_was_left_to_hardware_is_completed() {
        for (is_v6, payload) in [(false, 0), (false, 1), (false, 99), (true, 0), (true, 7), (true, 100)] {
            let mut partial = packet(is_v6, payload, |_, partial| partial);
            complete(&mut partial);
            assert_eq!(partial, packet(is_v6, payload, |right, _| right));
            // The receiver's check (RFC 1071): all of it sums up to ones.
            let (start, pseudo) = pseudo_header(&partial).expect("TCP");
            assert_eq!(fold(pseudo + sum(&partial[start..])), u16::MAX);
        }
    }

    #[test]
    fn any_other_field_stays() {
        for is_v6 in [false, true] {
            for change in [0, 1, 0x100, 0x8000] {
                let before = packet(is_v6, 10, |right, _| right ^ change);
                let mut after = before.clone();
                complete(&mut after);
                assert_eq!(after, before);
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_no_tcp_is_not_touched() {
        for is_v6 in [false, true] {
            let whole = packet(is_v6, 10, |_, partial| partial);
            for end in 0..whole.len() - 10 {
                let mut cut = whole[..end].to_vec();
                complete(&mut cut);
                assert_eq!(cut, whole[..end], "{end}");
            }
            let mut udp = whole.clone();
            udp[if is_v6 { 6 } else { 9 }] = 17;
            let before = udp.clone();
            complete(&mut udp);
            assert_eq!(udp, before);
        }
    }
}

//! Changes to packets on their way between the wire and the machine: numbers, timestamps, urgent pointers and
//! checksums. Every packet here was checked or made by us, so its layout is valid; an invalid one is left
//! unchanged.

use alloc::vec::Vec;

use smoltcp::wire::{Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber};

use crate::wire::layout;

/// Length of a timestamp option, and its kind (RFC 7323 3.2).
const TIMESTAMP: (u8, u8) = (8, 10);

/// Changes the TCP header of `packet` by `change`.
pub(crate) fn edit(packet: &mut [u8], change: impl FnOnce(&mut TcpPacket<&mut [u8]>)) {
    if let Ok(layout) = layout(packet) {
        change(&mut TcpPacket::new_unchecked(&mut packet[layout.tcp]));
    }
}

/// Computes the checksums of a leaving packet: the machine computes none.
pub(crate) fn seal(packet: &mut [u8]) {
    let Ok(layout) = layout(packet) else { return };
    if packet[0] >> 4 == 4 {
        Ipv4Packet::new_unchecked(&mut *packet).fill_checksum();
    }
    TcpPacket::new_unchecked(&mut packet[layout.tcp]).fill_checksum(&layout.source, &layout.destination);
}

/// The data that a packet carries, and the sequence number of its first byte; `None` if it carries none.
pub(crate) fn payload(packet: &[u8]) -> Option<(u32, &[u8])> {
    let tcp = TcpPacket::new_unchecked(&packet[layout(packet).ok()?.tcp]);
    (!tcp.payload().is_empty()).then(|| (tcp.seq_number().0 as u32, tcp.payload()))
}

/// Whether a packet ends the stream.
pub(crate) fn has_fin(packet: &[u8]) -> bool {
    layout(packet).is_ok_and(|layout| TcpPacket::new_unchecked(&packet[layout.tcp]).fin())
}

/// Removes so many bytes from the front of a packet's data, all of them if there are fewer.
pub(crate) fn cut_front(packet: &mut Vec<u8>, bytes: usize) {
    let Ok(layout) = layout(packet) else { return };
    let tcp = TcpPacket::new_unchecked(&packet[layout.tcp.clone()]);
    let (start, bytes) = (usize::from(tcp.header_len()), bytes.min(tcp.payload().len()));
    let seq = tcp.seq_number() + bytes;
    let at = layout.tcp.start + start;
    packet.drain(at..at + bytes);
    let (tcp_bytes, total) = (packet.len() - layout.tcp.start, packet.len());
    if packet[0] >> 4 == 4 {
        Ipv4Packet::new_unchecked(&mut packet[..]).set_total_len(total as u16);
    } else {
        Ipv6Packet::new_unchecked(&mut packet[..]).set_payload_len(tcp_bytes as u16);
    }
    TcpPacket::new_unchecked(&mut packet[layout.tcp.start..]).set_seq_number(seq);
}

/// Sets the sequence number.
pub(crate) fn set_seq(tcp: &mut TcpPacket<&mut [u8]>, seq: u32) {
    tcp.set_seq_number(TcpSeqNumber(seq as i32));
}

/// Sets the acknowledgement number.
pub(crate) fn set_ack(tcp: &mut TcpPacket<&mut [u8]>, ack: u32) {
    tcp.set_ack_number(TcpSeqNumber(ack as i32));
}

/// Sets value and echo of the timestamp option, if there is one.
pub(crate) fn set_timestamp(tcp: &mut TcpPacket<&mut [u8]>, value: u32, echo: u32) {
    let options = tcp.options_mut();
    let mut at = 0;
    while at < options.len() {
        let length = match (options[at], options.get(at + 1)) {
            (0, _) | (2.., None) => return,
            (1, _) => 1,
            (kind, Some(&length)) if (kind, length) == TIMESTAMP && at + 10 <= options.len() => {
                options[at + 2..at + 6].copy_from_slice(&value.to_be_bytes());
                options[at + 6..at + 10].copy_from_slice(&echo.to_be_bytes());
                return;
            }
            (_, Some(&length)) => usize::from(length.max(2)),
        };
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::{self, Flow, Segment, bare};

    /// RFC 9293 3.1: options of one byte, options of other kinds, and the end of the list, around a timestamp.
    #[test]
    fn a_timestamp_is_set_wherever_it_is_among_the_options() {
        let stamp = [8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        let set = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        for before in [&[][..], &[1, 1], &[1], &[3, 3, 7, 1], &[2, 4, 5, 180]] {
            for after in [&[][..], &[1, 1], &[0, 8, 10, 0]] {
                let list = |stamp: &[u8]| [before, stamp, after].concat();
                assert_eq!(options_after(&list(&stamp)), list(&set), "{before:?} {after:?}");
            }
        }
        let ended = [&[0][..], &stamp, &[1]].concat();
        assert_eq!(options_after(&ended), ended, "behind the end of the list is no option");
        for cut in [&[1, 1, 1, 1, 1, 1, 8, 10][..], &[1, 1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(options_after(cut), cut, "an option that is cut short");
        }
        assert_eq!(options_after(&[1, 1, 1, 8]), [1, 1, 1, 8], "a kind without a length");
    }

    /// A packet is complete without the bytes that were cut off: lengths, number and checksums.
    #[test]
    fn what_is_cut_off_a_packet_leaves_a_whole_segment() {
        for ends in [["10.0.0.1:80", "10.0.0.2:5000"], ["[fd00::1]:80", "[fd00::2]:5000"]] {
            let [local, remote] = ends.map(|end| end.parse().expect("an address"));
            let segment = Segment { seq: 100, ack: Some(7), ..bare(Flow { local, remote }) };
            for (cut, rest) in [(0, &b"0123456789"[..]), (4, b"456789"), (10, b""), (99, b"")] {
                let mut packet = Vec::new();
                wire::write_with(&segment, b"0123456789", 64, true, &mut packet);
                cut_front(&mut packet, cut);
                seal(&mut packet);
                let seq = 110 - rest.len() as u32;
                let parsed = wire::parse(&packet).expect("a segment");
                assert_eq!((parsed.seq, parsed.ack), (seq, Some(7)), "{local}, {cut}");
                assert_eq!(payload(&packet), (!rest.is_empty()).then_some((seq, rest)), "{local}, {cut}");
            }
        }
    }

    /// The options of a header after `set_timestamp` with the bytes 1 to 8.
    fn options_after(options: &[u8]) -> Vec<u8> {
        let padded = options.len().next_multiple_of(4);
        let mut header = vec![0; 20 + padded];
        header[12] = (((20 + padded) / 4) << 4) as u8;
        header[20..20 + options.len()].copy_from_slice(options);
        set_timestamp(&mut TcpPacket::new_unchecked(&mut header[..]), 0x0102_0304, 0x0506_0708);
        assert_eq!(header[20 + options.len()..], vec![0; padded - options.len()]);
        header[20..20 + options.len()].to_vec()
    }
}

//! Changes to packets on their way between the wire and the machine: numbers, timestamps, urgent pointers and
//! checksums. Every packet here was checked or made by us, so its layout is valid; an invalid one is left
//! unchanged.

use smoltcp::wire::{Ipv4Packet, TcpPacket, TcpSeqNumber};

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

/// The sequence number of the first byte of data that a packet carries; `None` if it carries none.
pub(crate) fn first_byte(packet: &[u8]) -> Option<u32> {
    let tcp = TcpPacket::new_unchecked(&packet[layout(packet).ok()?.tcp]);
    (!tcp.payload().is_empty()).then(|| tcp.seq_number().0 as u32)
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

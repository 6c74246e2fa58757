//! Copies packets that leave and arrive, for an operator. Other programs cannot see packets that the kernel does not process.
//!
//! The processor copies packets into the capture's ring, and never waits for it. A packet that finds no room is missing in the
//! capture; the number of the next packet shows that. At most one capture runs. While none runs, it costs one comparison a packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use punctual_proto::Instant;
use punctual_proto::api::{CAPTURE_HEAD_BYTES, CaptureHead, CapturedKind};
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::memory::{Inbox, MessageInfo, MessageWrite};
use thiserror::Error;

/// Which packets to copy: those that match all fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureFilter {
    /// Only packets of this link.
    pub link: Option<LinkId>,
    /// Only TCP segments of one connection: this host's address and port, and the peer's.
    pub ends: Option<[SocketAddr; 2]>,
    /// Only TCP segments with this port at either end.
    pub port: Option<u16>,
}

/// Source and destination of a TCP segment. `None` if the packet is not a TCP segment, or if the TCP header is not the first
/// header after that of IP.
fn ends_of(packet: &[u8]) -> Option<[SocketAddr; 2]> {
    const TCP: u8 = 6;
    let (ips, ports): ([IpAddr; 2], usize) = match packet.first()? >> 4 {
        4 if *packet.get(9)? == TCP => {
            let at =
                |from: usize| packet.get(from..from + 4)?.first_chunk::<4>().copied().map(Ipv4Addr::from);
            ([at(12)?.into(), at(16)?.into()], usize::from(packet[0] & 0xf) * 4)
        }
        6 if *packet.get(6)? == TCP => {
            let at =
                |from: usize| packet.get(from..from + 16)?.first_chunk::<16>().copied().map(Ipv6Addr::from);
            ([at(8)?.into(), at(24)?.into()], 40)
        }
        _ => return None,
    };
    let &[a, b, c, d] = packet.get(ports..)?.first_chunk()?;
    Some([
        SocketAddr::new(ips[0], u16::from_be_bytes([a, b])),
        SocketAddr::new(ips[1], u16::from_be_bytes([c, d])),
    ])
}

impl CaptureFilter {
    fn takes(&self, head: &CaptureHead, packet: &[u8]) -> bool {
        if self.link.is_some_and(|link| link != head.link) {
            return false;
        }
        if self.ends.is_none() && self.port.is_none() {
            return true;
        }
        let ends = (head.kind == CapturedKind::Ip).then(|| ends_of(packet)).flatten();
        let Some([source, destination]) = ends else { return false };
        let ours = if head.is_sent { [source, destination] } else { [destination, source] };
        self.ends.is_none_or(|ends| ends == ours)
            && self.port.is_none_or(|port| port == source.port() || port == destination.port())
    }
}

/// The running capture.
pub(crate) struct Capture<I> {
    id: ChannelId,
    filter: CaptureFilter,
    inbox: I,
    /// Size of one message of the ring, in bytes.
    message_bytes: u32,
    /// Packets so far, including those that found no room in the ring.
    number: u64,
}

impl<I: Inbox> Capture<I> {
    pub fn new(id: ChannelId, filter: CaptureFilter, (inbox, message_bytes): (I, u32)) -> Self {
        Self { id, filter, inbox, message_bytes, number: 0 }
    }

    /// Handle of the capture.
    pub const fn id(&self) -> ChannelId {
        self.id
    }

    /// What is to be dropped by a thread that may close descriptors.
    pub fn into_inbox(self) -> I {
        self.inbox
    }

    /// Copies a packet if it matches the filter and the ring has room.
    pub fn packet(&mut self, head: (CapturedKind, bool, LinkId), packet: &[u8], at: Instant) {
        let (kind, is_sent, link) = head;
        let head =
            CaptureHead { kind, is_sent, link, bytes: u32::try_from(packet.len()).unwrap_or(u32::MAX) };
        if !self.filter.takes(&head, packet) {
            return;
        }
        let number = self.number;
        self.number += 1;
        let Some(mut slot) = self.inbox.reserve() else { return };
        slot.copy_from(0, &head.to_bytes());
        slot.copy_from(CAPTURE_HEAD_BYTES as u32, packet);
        let len = head.bytes.saturating_add(CAPTURE_HEAD_BYTES as u32).min(self.message_bytes);
        let info = MessageInfo { number, len, delivered: at, ..MessageInfo::default() };
        self.inbox.publish(slot, info);
    }
}

/// Another capture is running already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("another capture is running: end it first, a host runs one at a time")]
pub struct CaptureBusy;

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(source: [u8; 4], ports: [u16; 2], destination: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[9]) = (0x45, 6);
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&destination);
        packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
        packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
        packet
    }

    const fn head(kind: CapturedKind, is_sent: bool, link: u16) -> CaptureHead {
        CaptureHead { kind, is_sent, link: LinkId(link), bytes: 40 }
    }

    #[test]
    fn a_filter_takes_both_directions_of_its_connection_alone() {
        let ends = ["10.0.0.1:80", "10.0.0.2:4000"].map(|end| end.parse().expect(end));
        let filter = CaptureFilter { ends: Some(ends), ..CaptureFilter::default() };
        let out = segment([10, 0, 0, 1], [80, 4_000], [10, 0, 0, 2]);
        let back = segment([10, 0, 0, 2], [4_000, 80], [10, 0, 0, 1]);
        assert!(filter.takes(&head(CapturedKind::Ip, true, 0), &out));
        assert!(filter.takes(&head(CapturedKind::Ip, false, 0), &back));
        assert!(!filter.takes(&head(CapturedKind::Ip, false, 0), &out), "it would come from this host");
        let other = segment([10, 0, 0, 2], [4_001, 80], [10, 0, 0, 1]);
        assert!(!filter.takes(&head(CapturedKind::Ip, false, 0), &other));
        assert!(!filter.takes(&head(CapturedKind::Data, true, 0), &out), "a channel's packet");
    }

    #[test]
    fn a_filter_takes_its_port_and_its_link() {
        let packet = segment([10, 0, 0, 1], [80, 4_000], [10, 0, 0, 2]);
        let port = |port| CaptureFilter { port: Some(port), ..CaptureFilter::default() };
        assert!([80, 4_000].iter().all(|at| port(*at).takes(&head(CapturedKind::Ip, false, 0), &packet)));
        assert!(!port(81).takes(&head(CapturedKind::Ip, false, 0), &packet));
        let link = CaptureFilter { link: Some(LinkId(1)), ..CaptureFilter::default() };
        assert!(link.takes(&head(CapturedKind::Signalling, false, 1), &[]));
        assert!(!link.takes(&head(CapturedKind::Signalling, false, 0), &[]));
    }

    /// Packets from outside may be of any length and content.
    #[test]
    fn no_packet_is_read_beyond_its_end() {
        let mut packet = segment([10, 0, 0, 1], [80, 4_000], [10, 0, 0, 2]);
        for bytes in 0..packet.len() {
            assert_eq!(ends_of(&packet[..bytes]).is_some(), bytes >= 24, "{bytes}");
        }
        packet[0] = 0x4f;
        assert_eq!(ends_of(&packet), None, "the header would be longer than the packet");
        packet[0] = 0x65;
        assert_eq!(ends_of(&packet), None, "no segment over IPv6");
    }
}

//! Ethernet frames as a neighbour would send them, and as it would not.

use std::net::IpAddr;

use punctual_link::PathKey;

/// Addresses and ports of the link under test.
pub const DATA: u16 = 7_001;
pub const SIGNALLING: u16 = 7_000;
pub const PEER_DATA: u16 = 8_001;
pub const PEER_SIGNALLING: u16 = 8_000;
/// Bytes of our header.
pub const HEADER_BYTES: usize = 64;
pub const PATH: PathKey = PathKey { node: 7, channel: 3, epoch: 0x1122_3344_5566_7788 };
pub const COOKIE: u32 = 0xfeed_beef;

/// Both ends, of one family.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub local: IpAddr,
    pub peer: IpAddr,
}

pub const FAMILIES: [fn() -> Ends; 2] = [ipv4, ipv6];

pub fn ipv4() -> Ends {
    Ends { local: [10, 1, 0, 1].into(), peer: [10, 1, 0, 2].into() }
}

pub fn ipv6() -> Ends {
    Ends { local: [0xfd00, 0, 0, 1, 0, 0, 0, 1].into(), peer: [0xfd00, 0, 0, 1, 0, 0, 0, 2].into() }
}

/// A UDP packet in an Ethernet frame.
#[derive(Clone, Debug)]
pub struct Udp {
    pub ends: Ends,
    pub ports: (u16, u16),
    pub payload: Vec<u8>,
}

impl Udp {
    pub fn data(ends: Ends, payload: Vec<u8>) -> Self {
        Self { ends, ports: (PEER_DATA, DATA), payload }
    }

    pub fn signalling(ends: Ends, payload: Vec<u8>) -> Self {
        Self { ends, ports: (PEER_SIGNALLING, SIGNALLING), payload }
    }

    /// Offset of the payload in the frame.
    pub fn offset(&self) -> usize {
        if self.ends.local.is_ipv4() { 14 + 20 + 8 } else { 14 + 40 + 8 }
    }

    pub fn frame(&self) -> Vec<u8> {
        let udp_bytes = (self.payload.len() + 8) as u16;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        match (self.ends.local, self.ends.peer) {
            (IpAddr::V4(local), IpAddr::V4(peer)) => {
                frame.extend([0x08, 0x00, 0x45, 0]);
                frame.extend((udp_bytes + 20).to_be_bytes());
                frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
                frame.extend(peer.octets());
                frame.extend(local.octets());
            }
            (IpAddr::V6(local), IpAddr::V6(peer)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(udp_bytes.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(peer.octets());
                frame.extend(local.octets());
            }
            _ => unreachable!("one family"),
        }
        frame.extend(self.ports.0.to_be_bytes());
        frame.extend(self.ports.1.to_be_bytes());
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(&self.payload);
        frame
    }
}

/// A data packet from our header on; the fields that the program reads.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    pub version: u8,
    pub kind: u8,
    pub flags: u16,
    pub path: PathKey,
    pub cookie: u32,
    pub fragment: u16,
    pub fragments: u16,
    pub message_bytes: u32,
    pub slack_ns: i64,
    pub payload_bytes: u32,
    /// Destination of best effort; of a channel its clock error.
    pub destination: u32,
}

impl Data {
    pub fn guaranteed(payload_bytes: u32) -> Self {
        Self {
            version: 2,
            kind: 1,
            flags: 0,
            path: PATH,
            cookie: COOKIE,
            fragment: 0,
            fragments: 1,
            message_bytes: payload_bytes,
            slack_ns: 0,
            payload_bytes,
            destination: 0,
        }
    }

    pub fn best_effort(payload_bytes: u32) -> Self {
        Self { kind: 2, destination: 9, ..Self::guaranteed(payload_bytes) }
    }

    pub fn packet(&self) -> Vec<u8> {
        let mut packet = vec![self.version, self.kind];
        packet.extend(self.flags.to_le_bytes());
        packet.extend(self.path.node.to_le_bytes());
        packet.extend(self.path.channel.to_le_bytes());
        packet.extend(self.cookie.to_le_bytes());
        packet.extend(self.path.epoch.to_le_bytes());
        packet.extend(1_u64.to_le_bytes());
        packet.extend(self.fragment.to_le_bytes());
        packet.extend(self.fragments.to_le_bytes());
        packet.extend(self.message_bytes.to_le_bytes());
        packet.extend(self.slack_ns.to_le_bytes());
        packet.extend(2_u64.to_le_bytes());
        packet.extend((self.payload_bytes as u16).to_le_bytes());
        packet.extend(3_u16.to_le_bytes());
        packet.extend(self.destination.to_le_bytes());
        assert_eq!(packet.len(), HEADER_BYTES);
        packet.extend((0..self.payload_bytes).map(|i| i as u8));
        packet
    }

    pub fn frame(&self, ends: Ends) -> Vec<u8> {
        Udp::data(ends, self.packet()).frame()
    }
}

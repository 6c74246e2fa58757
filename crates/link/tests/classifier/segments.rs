//! Ethernet frames with TCP segments, their fragments, and ICMP errors about them.

use std::net::{IpAddr, SocketAddr};

use punctual_link::FlowKey;

/// A connection of this host in either family, with a host that is no neighbour.
pub fn flows() -> [FlowKey; 2] {
    let end = |text: &str| -> SocketAddr { text.parse().expect("an end") };
    [
        FlowKey { local: end("10.1.0.1:49152"), remote: end("192.0.2.9:80") },
        FlowKey { local: end("[fd00:0:0:1::1]:49152"), remote: end("[2001:db8::9]:80") },
    ]
}

/// A segment from `remote` to `local`.
#[derive(Clone, Debug)]
pub struct Tcp {
    pub flow: FlowKey,
    /// Options of IPv4, a multiple of 4 bytes.
    pub options: Vec<u8>,
    /// Extension headers of IPv6: what each is, and its bytes.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// Fragment field of IPv4, in host order.
    pub fragment: u16,
    pub payload: Vec<u8>,
}

pub const HOP_BY_HOP: u8 = 0;
pub const FRAGMENT: u8 = 44;
pub const DESTINATION: u8 = 60;

impl Tcp {
    pub fn of(flow: FlowKey) -> Self {
        Self { flow, options: Vec::new(), extensions: Vec::new(), fragment: 0x4000, payload: vec![7; 10] }
    }

    /// An extension header of 8 bytes.
    pub fn extended(mut self, kind: u8) -> Self {
        self.extensions.push((kind, vec![0, 0, 1, 4, 0, 0, 0, 0]));
        self
    }

    /// The fragment that begins `at`, of 8 bytes each, and whether more follow.
    pub fn fragment(mut self, at: u16, more: bool) -> Self {
        if self.flow.local.is_ipv4() {
            self.fragment = at | u16::from(more) << 13;
        } else {
            let [high, low] = (at << 3 | u16::from(more)).to_be_bytes();
            self.extensions.push((FRAGMENT, vec![0, 0, high, low, 0, 0, 0, 9]));
        }
        self
    }

    pub fn segment(&self) -> Vec<u8> {
        let mut segment = ports(self.flow.remote, self.flow.local).to_vec();
        segment.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
        segment.extend(&self.payload);
        segment
    }

    pub fn frame(&self) -> Vec<u8> {
        let FlowKey { local, remote } = self.flow;
        packet(remote.ip(), local.ip(), 6, &self.segment(), self)
    }
}

fn ports(from: SocketAddr, to: SocketAddr) -> [u8; 4] {
    let ([a, b], [c, d]) = (from.port().to_be_bytes(), to.port().to_be_bytes());
    [a, b, c, d]
}

/// An IP packet in a frame, with the options, extensions and fragment of `how`.
fn packet(from: IpAddr, to: IpAddr, protocol: u8, content: &[u8], how: &Tcp) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(if from.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] });
    frame.extend(ip(from, to, protocol, content, how));
    frame
}

fn ip(from: IpAddr, to: IpAddr, protocol: u8, content: &[u8], how: &Tcp) -> Vec<u8> {
    let mut bytes = Vec::new();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let words = (20 + how.options.len()) / 4;
            bytes.extend([0x40 | words as u8, 0]);
            bytes.extend(((words * 4 + content.len()) as u16).to_be_bytes());
            bytes.extend([0, 1]);
            bytes.extend(how.fragment.to_be_bytes());
            bytes.extend([64, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            bytes.extend(&how.options);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let extensions: usize = how.extensions.iter().map(|(_, bytes)| bytes.len()).sum();
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend(((extensions + content.len()) as u16).to_be_bytes());
            let next = |after: usize| how.extensions.get(after).map_or(protocol, |(kind, _)| *kind);
            bytes.extend([next(0), 64]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            for (number, (_, extension)) in how.extensions.iter().enumerate() {
                bytes.push(next(number + 1));
                bytes.extend(&extension[1..]);
            }
        }
        _ => unreachable!("one family"),
    }
    bytes.extend(content);
    bytes
}

/// An ICMP error from a router, of `kind`, about a segment that this host sent; `options` are those of the quoted header.
pub fn error(flow: FlowKey, kind: u8, options: usize) -> Vec<u8> {
    let FlowKey { local, remote } = flow;
    let plain = Tcp::of(flow);
    let sent = Tcp { options: vec![1; options], ..Tcp::of(FlowKey { local: remote, remote: local }) };
    let quoted = ip(local.ip(), remote.ip(), 6, &sent.segment()[..8], &sent);
    let mut icmp = vec![kind, 0, 0, 0, 0, 0, 5, 0];
    icmp.extend(quoted);
    let (router, protocol): (IpAddr, u8) = if local.is_ipv4() {
        ([198, 51, 100, 1].into(), 1)
    } else {
        ("2001:db8:1::1".parse().expect("it"), 58)
    };
    packet(router, local.ip(), protocol, &icmp, &plain)
}

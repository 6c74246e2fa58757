//! Hosts and cables for tests: network namespaces and veth pairs, made by the test and removed with it.

// Each test binary uses its part.
#![allow(dead_code)]

use std::net::IpAddr;

use punctual_link::kernel::Mac;
use punctual_link::xdp::{Addresses, XdpOptions};
use punctual_link::{Link, UdpOptions};

pub use crate::host::{Host, privileged};

/// Ports of every host.
pub const DATA_PORT: u16 = 7_075;
pub const SIGNALLING_PORT: u16 = 7_076;

/// Which version of IP a link uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// A veth pair between two hosts: network `number`, device `vNUMBER` at both ends.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    pub number: u8,
}

impl Cable {
    pub fn lay(number: u8, mtu: u32, ends: [&Host; 2]) -> Self {
        let cable = Self { number };
        let device = cable.device();
        ends[0].run(&format!(
            "ip link add {device} mtu {mtu} type veth peer name {device} mtu {mtu} netns {}",
            ends[1].name()
        ));
        for (end, host) in ends.iter().enumerate() {
            let (v4, v6) = (cable.address(Family::V4, end), cable.address(Family::V6, end));
            let script = format!(
                "link set {device} address {}\nlink set {device} up\naddress add {v4}/30 dev {device}\n\
                 address add {v6}/64 dev {device} nodad\n",
                cable.mac(end)
            );
            host.ip_batch(&script);
        }
        for host in ends {
            host.await_up(&device);
        }
        cable
    }

    pub fn device(self) -> String {
        format!("v{}", self.number)
    }

    /// The address of end 0 or 1.
    pub fn mac(self, end: usize) -> Mac {
        Mac([2, 0x70, 0x75, 0, self.number, end as u8 + 1])
    }

    pub fn address(self, family: Family, end: usize) -> IpAddr {
        let text = match family {
            Family::V4 => format!("10.98.{}.{}", self.number, end + 1),
            Family::V6 => format!("fd00:98:{}::{}", self.number, end + 1),
        };
        text.parse().expect("an address")
    }

    /// A link over XDP at one end.
    pub fn xdp(self, family: Family, end: usize) -> XdpOptions {
        let (local, peer) = (self.address(family, end), self.address(family, 1 - end));
        let options = XdpOptions::new(&self.device(), local, peer, DATA_PORT, SIGNALLING_PORT);
        XdpOptions { addresses: Some(Addresses::new(self.mac(end), Some(self.mac(1 - end)))), ..options }
    }

    /// A link over kernel sockets at one end.
    pub fn udp(self, family: Family, end: usize) -> UdpOptions {
        let (local, peer) = (self.address(family, end), self.address(family, 1 - end));
        UdpOptions::new(local, peer, DATA_PORT, SIGNALLING_PORT)
    }
}

/// Two hosts and a cable.
pub fn pair(mtu: u32) -> ([Host; 2], Cable) {
    let hosts = [Host::new(), Host::new()];
    let cable = Cable::lay(1, mtu, [&hosts[0], &hosts[1]]);
    (hosts, cable)
}

/// The header of a packet of best effort, as the classifier wants it, over the first 64 bytes.
pub fn best_effort(packet: &mut [u8]) {
    header(packet, 2, 0, 1, 2);
}

/// The header of a packet of channel `channel` of node 1.
pub fn of_channel(packet: &mut [u8], channel: u32) {
    header(packet, 1, channel, 1, 0);
}

/// What all packets here carry.
pub const COOKIE: u32 = 0xC0_0C1E;
pub const EPOCH: u64 = 1;

fn header(packet: &mut [u8], kind: u8, channel: u32, source: u32, destination: u32) {
    let payload = packet.len() as u32 - 64;
    packet[..64].fill(0);
    (packet[0], packet[1]) = (2, kind);
    let words = [(4, source), (8, channel), (12, COOKIE), (36, payload), (56, payload), (60, destination)];
    for (at, word) in words {
        packet[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
    }
    packet[16..24].copy_from_slice(&EPOCH.to_le_bytes());
    // Fragment 0 of 1.
    packet[34] = 1;
}

/// Queues one packet and hands it over.
pub fn send(link: &mut impl Link, port: punctual_link::Port, packet: &[u8]) {
    link.transmit_buffer().expect("room")[..packet.len()].copy_from_slice(packet);
    link.transmit(port, packet.len(), packet.len() as u32).expect("it fits");
    link.flush().expect("works");
    link.completed();
}

/// Waits until `done` returns `true`; for events that must happen.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = punctual_os::clock::monotonic_ns() + 20_000_000_000;
    while !done() {
        assert!(punctual_os::clock::monotonic_ns() < until, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

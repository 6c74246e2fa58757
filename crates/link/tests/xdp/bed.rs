//! Hosts and cables for tests: network namespaces and veth pairs, made by the test and removed with it.

// Each test binary uses its part.
#![allow(dead_code)]

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use punctual_link::kernel::Mac;
use punctual_link::xdp::{Addresses, XdpOptions};
use punctual_link::{Link, UdpOptions};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Ports of every host.
pub const DATA_PORT: u16 = 7_075;
pub const SIGNALLING_PORT: u16 = 7_076;

/// Whether hosts can be made here; says so where not.
pub fn privileged() -> bool {
    let made = rustix::process::getuid().is_root() && try_run("unshare --net true", "").is_ok();
    if !made {
        eprintln!("SKIPPED: network namespaces and XDP need root");
    }
    made
}

/// A network namespace.
pub struct Host {
    name: String,
}

impl Host {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let host = Self { name: format!("punctual-{}-x{number}", std::process::id()) };
        run(&format!("ip netns add {}", host.name), "");
        host.run("ip link set lo up");
        host
    }

    /// Runs a command inside; returns what it printed.
    pub fn run(&self, line: &str) -> String {
        run(&format!("nsenter --net=/run/netns/{} {line}", self.name), "")
    }

    /// Runs `work` on a thread of its own inside.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let file = File::open(format!("/run/netns/{}", self.name)).expect("the namespace");
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter");
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = try_run(&format!("ip netns delete {}", self.name), "") {
            eprintln!("warning: namespace {} stays behind: {error}", self.name);
        }
    }
}

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
            ends[1].name
        ));
        for (end, host) in ends.iter().enumerate() {
            let (v4, v6) = (cable.address(Family::V4, end), cable.address(Family::V6, end));
            let script = format!(
                "link set {device} address {}\nlink set {device} up\naddress add {v4}/30 dev {device}\n\
                 address add {v6}/64 dev {device} nodad\n",
                cable.mac(end)
            );
            run(&format!("nsenter --net=/run/netns/{} ip -batch -", host.name), &script);
        }
        cable
    }

    pub fn device(self) -> String {
        format!("v{}", self.number)
    }

    /// Of end 0 or 1.
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
    (packet[0], packet[1]) = (1, kind);
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

/// Waits until `done` says so; for what must happen.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = punctual_link::clock::monotonic_ns() + 20_000_000_000;
    while !done() {
        assert!(punctual_link::clock::monotonic_ns() < until, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

pub fn run(line: &str, input: &str) -> String {
    try_run(line, input).unwrap_or_else(|error| panic!("{error}"))
}

fn try_run(line: &str, input: &str) -> Result<String, String> {
    let failed = |what: &dyn std::fmt::Display| format!("{line}: {what}");
    let mut child = Command::new("sh")
        .args(["-c", line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    stdin.write_all(input.as_bytes()).map_err(|error| failed(&error))?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(&String::from_utf8_lossy(&output.stderr).trim()))
}

//! Hosts and cables: `a` runs TCP of its own on `va`, `b` is at the other end, `c` is behind `b`.

use std::net::IpAddr;

pub use crate::host::{Host, privileged};

/// Addresses of `a` and `b`, and of `c` behind `b`; IPv4 and IPv6.
pub const A: [&str; 2] = ["10.97.0.1", "fd00:97::1"];
pub const B: [&str; 2] = ["10.97.0.2", "fd00:97::2"];
pub const C: [&str; 2] = ["10.97.1.2", "fd00:97:1::2"];

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub struct Network {
    pub a: Host,
    pub b: Host,
    pub c: Option<Host>,
    queues: u32,
}

impl Network {
    /// Two hosts on one cable, whose end at `a` has `queues` receive queues.
    pub fn with_queues(queues: u32) -> Self {
        let network = Self { a: Host::new(), b: Host::new(), c: None, queues };
        network.lay();
        network
    }

    /// Lays the cable between `a` and `b`, also once more after it was gone.
    pub fn lay(&self) {
        let Self { a, b, queues, .. } = self;
        a.run(&format!(
            "ip link add va numrxqueues {queues} numtxqueues {queues} type veth peer name vb numrxqueues {queues} \
             numtxqueues {queues} netns {}",
            b.name()
        ));
        up(a, "va", A, [30, 64]);
        up(b, "vb", B, [30, 64]);
        a.await_up("va");
        b.await_up("vb");
    }

    pub fn new() -> Self {
        Self::with_queues(1)
    }

    /// `b` is a router, with `c` behind it.
    pub fn with_router() -> Self {
        let (network, c) = (Self::new(), Host::new());
        network.b.run(&format!("ip link add vr type veth peer name vc netns {}", c.name()));
        up(&network.b, "vr", ["10.97.1.1", "fd00:97:1::1"], [24, 64]);
        up(&c, "vc", C, [24, 64]);
        network.b.await_up("vr");
        c.await_up("vc");
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            // Not by sysctl, which a minimal Debian does not have.
            network.b.run(&format!("sh -c 'echo 1 > /proc/sys/net/{key}'"));
        }
        c.ip_batch("route add default via 10.97.1.1\nroute add default via fd00:97:1::1\n");
        let [v4, v6] = B;
        network.a.ip_batch(&format!("route add 10.97.1.0/24 via {v4}\nroute add fd00:97:1::/64 via {v6}\n"));
        Self { c: Some(c), ..network }
    }

    pub fn c(&self) -> &Host {
        self.c.as_ref().expect("a network with a router")
    }
}

/// Devices, by the last number of their link-local addresses.
const ORDER: [&str; 4] = ["va", "vb", "vr", "vc"];

fn up(host: &Host, device: &str, addresses: [&str; 2], bits: [u8; 2]) {
    let ([v4, v6], [bits4, bits6]) = (addresses, bits);
    host.ip_batch(&format!(
        "link set {device} addrgenmode none\nlink set {device} up\naddress add {v4}/{bits4} dev {device}\n\
         address add {v6}/{bits6} dev {device} nodad\naddress add fe80::{:x}/64 dev {device} nodad\n",
        // Which the kernel makes by itself elsewhere, when it has time: it asks for neighbours from there.
        1 + ORDER.iter().position(|known| *known == device).expect("a device of this network")
    ));
}

/// Resets that the kernel of a host has sent and received.
pub fn resets(host: &Host) -> u64 {
    let text = host.run("cat /proc/net/snmp");
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("Tcp: ")).map(|line| line.split(' ').collect()).collect();
    let of = |name: &str| -> u64 {
        let at = rows[0].iter().position(|column| *column == name).expect("the counter");
        rows[1][at].parse().expect("a number")
    };
    of("OutRsts") + of("EstabResets")
}

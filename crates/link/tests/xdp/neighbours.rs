//! Hosts with `udp` and hosts with `xdp` exchange packets.

use punctual_link::xdp::{XdpLink, XdpMemory, XdpOptions};
use punctual_link::{Link, Port, Received, UdpLink};

use crate::bed::{Family, best_effort, pair, privileged, wait_for};

/// Every size and both ports, one after the other.
fn talk(from: &mut impl Link, to: &mut impl Link) {
    let mut out: Vec<Received> = Vec::with_capacity(8);
    for (number, len) in [64, 65, 66, 67, 500, 999, 1_463, 1_464].into_iter().cycle().take(64).enumerate() {
        let port = if number % 3 == 0 { Port::Signalling } else { Port::Data };
        let mut packet: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
        best_effort(&mut packet);
        crate::bed::send(from, port, &packet);
        wait_for("the packet", || to.receive(&mut out, 8).expect("works") > 0);
        assert_eq!(out.len(), 1);
        let received = out.remove(0);
        assert_eq!((received.port, received.frame.as_ref()), (port, &packet[..]));
    }
}

/// The checksum errors that the kernel's UDP has counted on the host of this thread.
fn checksum_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters")
        + &std::fs::read_to_string("/proc/thread-self/net/snmp6").expect("counters");
    let udp4: Vec<Vec<&str>> =
        text.lines().filter(|line| line.starts_with("Udp: ")).map(|line| line.split(' ').collect()).collect();
    let at = udp4[0].iter().position(|name| *name == "InCsumErrors").expect("the counter");
    let udp6 = text.lines().find(|line| line.starts_with("Udp6InCsumErrors")).expect("the counter");
    let udp6 = udp6.split_whitespace().last().expect("a number");
    udp4[1][at].parse::<u64>().expect("a number") + udp6.parse::<u64>().expect("a number")
}

fn talk_both_ways(family: Family) {
    if !privileged() {
        return;
    }
    let (hosts, cable) = pair(1_520);
    for validate in ["on", "off"] {
        // Off: the kernel trusts no checksum offload and verifies every packet itself.
        hosts[1].run(&format!("ethtool -K {} rx {validate}", cable.device()));
        let options = XdpOptions { addresses: None, ..cable.xdp(family, 0) };
        let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
        let mut xdp = None;
        // Two fresh hosts take a second or two until they answer for their addresses.
        wait_for("the neighbour's hardware address", || {
            xdp = hosts[0].within(|| XdpLink::open(&options, &memory)).ok();
            xdp.is_some()
        });
        let mut xdp = xdp.expect("a link over xdp");
        let mut udp = hosts[1].within(|| UdpLink::open(&cable.udp(family, 1))).expect("a link over udp");
        talk(&mut xdp, &mut udp);
        talk(&mut udp, &mut xdp);
        assert_eq!(hosts[1].within(checksum_errors), 0);
        assert_eq!((xdp.statistics().packets_in, udp.statistics().packets_in), (64, 64));
    }
}

#[test]
fn xdp_and_udp_talk() {
    talk_both_ways(Family::V4);
}

#[test]
fn xdp_and_udp_talk_over_ipv6() {
    talk_both_ways(Family::V6);
}

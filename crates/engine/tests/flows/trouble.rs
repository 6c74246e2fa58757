//! Floods, narrow paths, fragments, devices that vanish, and what cannot be set up.

use std::net::{IpAddr, SocketAddr, TcpListener};

use punctual_link::kernel::{HopState, PortHold};
use punctual_link::{FlowFilter, FlowKey, Inlet, IpTarget, Link, Stream};
use punctual_tcp::{Flags, Flow, Segment, wire};
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketType, sendto, socket};

use crate::kernel::{accept, exchange};
use crate::native::{FLOWS_MAX, Native, WIDE};
use crate::network::{A, B, C, Host, Network, ip, privileged, resets};

const PORT: u16 = 8_080;
const BYTES: u64 = 2_000_000;

/// Sends IPv4 packets as they are, from the host of this thread.
struct Raw(std::os::fd::OwnedFd);

impl Raw {
    fn open() -> Self {
        let kind = Protocol::from_raw(rustix::net::RawProtocol::new(255).expect("a number"));
        Self(socket(AddressFamily::INET, SocketType::RAW, Some(kind)).expect("a raw socket"))
    }

    fn send(&self, to: IpAddr, packet: &[u8]) {
        let sent = sendto(&self.0, packet, SendFlags::empty(), &SocketAddr::new(to, 0)).expect("to send");
        assert_eq!(sent, packet.len());
    }
}

/// A SYN from `remote`.
fn syn(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let flags = Flags { syn: true, ..Flags::default() };
    let segment = Segment { seq: 1, flags, window: 1_000, ..wire::bare(Flow { local, remote }) };
    let mut packet = Vec::new();
    wire::write(&segment, 64, false, &mut packet);
    packet
}

/// A flood of SYNs from many ports costs what the listener's bucket lets in; a connection beside it loses nothing.
#[test]
fn a_flood_of_syns_is_bounded_by_the_listeners_bucket() {
    const FLOOD: u64 = 3_000;
    const BURST: u32 = 40;
    if !privileged() {
        return;
    }
    let network = Network::new();
    let local: SocketAddr = (ip(A[0]), PORT).into();
    let listener = network.b.within(|| TcpListener::bind((ip(B[0]), PORT))).expect("a listener");
    std::thread::scope(|scope| {
        let server = scope.spawn(|| exchange(&accept(&listener).0, 1, BYTES));
        network.a.within(|| {
            let mut native = Native::open();
            // One more in a thousand seconds: none while this runs.
            let stream = Stream::BestEffort;
            let interval_ns = 1_000_000_000_000;
            native.listen(local, Inlet { stream, burst_packets: BURST, interval_ns, buffers: 64 });
            let id = native.connect((ip(B[0]), PORT).into());
            network.b.within(|| {
                let raw = Raw::open();
                // No host has this address, so no answer comes.
                let unused_address = ip("203.0.113.9");
                for number in 0..FLOOD {
                    raw.send(local.ip(), &syn(local, (unused_address, 10_000 + number as u16).into()));
                }
            });
            native.exchange(id, 0, BYTES);
            native.until("the flood's end", |native| {
                let received_count = native.seen.get(&IpTarget::Listener(0)).copied().unwrap_or(0);
                received_count + native.link.stream_drops().policed == FLOOD
            });
            assert_eq!(native.seen[&IpTarget::Listener(0)], BURST.into());
            assert_eq!(native.link.stream_drops().no_buffer, 0);
            native.end(id);
        });
        server.join().expect("the kernel's end");
    });
}

/// A router on the route carries less, and reports it: the error is ours, and the connection goes on in smaller segments.
#[test]
fn a_router_reports_the_mtu_of_a_narrow_path() {
    if !privileged() {
        return;
    }
    for address in C {
        let network = Network::with_router();
        network.b.run("ip link set vr mtu 1300");
        let listener = network.c().within(|| TcpListener::bind((ip(address), PORT))).expect("a listener");
        std::thread::scope(|scope| {
            let server = scope.spawn(|| exchange(&accept(&listener).0, 1, BYTES));
            network.a.within(|| {
                let mut native = Native::open();
                let id = native.connect((ip(address), PORT).into());
                native.exchange(id, 0, BYTES);
                assert_eq!(native.at(id).path_mtu_bytes(), 1_300);
                native.end(id);
                assert!(native.seen[&IpTarget::Error] >= 1, "{:?}", native.seen);
            });
            server.join().expect("the kernel's end");
        });
        assert_eq!([&network.a, network.c()].map(resets), [0, 0]);
    }
}

/// Fragments of a segment: the first is dropped and counted, the kernel gets no whole, and answers nothing.
#[test]
fn fragments_of_a_flow_are_dropped() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let key = FlowKey { local: (ip(A[0]), 50_000).into(), remote: (ip(B[0]), PORT).into() };
    network.a.within(|| {
        let mut native = Native::open();
        native.link.set_flow(&FlowFilter { key, index: 3, inlet: WIDE }).expect("room");
        let mut segment = syn(key.local, key.remote);
        segment.resize(20 + 64, 1);
        let fragment = |at: usize, end: usize, more: bool| {
            let mut packet = segment[..20].to_vec();
            packet.extend(&segment[20 + at..20 + end]);
            let (bytes, field) = (packet.len() as u16, (at / 8) as u16 | u16::from(more) << 13);
            packet[2..4].copy_from_slice(&bytes.to_be_bytes());
            packet[4..6].copy_from_slice(&[7, 7]);
            packet[6..8].copy_from_slice(&field.to_be_bytes());
            packet
        };
        network.b.within(|| {
            let raw = Raw::open();
            raw.send(key.local.ip(), &fragment(0, 32, true));
            raw.send(key.local.ip(), &fragment(32, 64, false));
        });
        native.until("the first fragment", |native| native.link.stream_drops().fragmented == 1);
        // Whole, it is ours, and comes after whatever the fragments could have become.
        network.b.within(|| Raw::open().send(key.local.ip(), &syn(key.local, key.remote)));
        let mut out = Vec::with_capacity(4);
        let begun = std::time::Instant::now();
        while native.link.receive(&mut out, 4).expect("works") == 0 {
            assert!(begun.elapsed() < crate::kernel::LONG, "{:?}", native.link.stream_drops());
        }
        assert_eq!(out.first().and_then(|received| received.ip).map(|ip| ip.to), Some(IpTarget::Flow(3)));
    });
    assert_eq!([&network.a, &network.b].map(resets), [0, 0]);
}

/// The device is made again while a connection is idle: flow, next hop and connection are as before.
#[test]
fn a_connection_outlives_its_device() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    let listener = network.b.within(|| TcpListener::bind((ip(B[0]), PORT))).expect("a listener");
    let (ready, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let stream = accept(&listener).0;
            begins.recv().expect("the other end works");
            exchange(&stream, 1, BYTES);
        });
        network.a.within(|| {
            let mut native = Native::open();
            let id = native.connect((ip(B[0]), PORT).into());
            native.until("the connection", |native| native.at(id).writable_bytes() > 0);
            network.a.run("ip link del va");
            native.until("its end", |native| !native.link.is_open());
            network.lay();
            native.until("a new device", |native| native.link.is_open());
            native.route(ip(B[0]));
            ready.send(()).expect("the other end waits");
            native.exchange(id, 0, BYTES);
            native.end(id);
        });
        server.join().expect("the kernel's end");
    });
    assert_eq!([&network.a, &network.b].map(resets), [0, 0]);
}

fn refused(host: &Host, work: impl FnOnce(&mut Native) -> String + Send) -> String {
    host.within(|| work(&mut Native::open()))
}

#[test]
fn several_receive_queues_and_generic_mode_are_refused_with_the_fix() {
    if !privileged() {
        return;
    }
    let network = Network::with_queues(2);
    let key = FlowKey { local: (ip(A[0]), 50_000).into(), remote: (ip(B[0]), PORT).into() };
    let flow = FlowFilter { key, index: 0, inlet: WIDE };
    let why = refused(&network.a, |native| native.link.set_flow(&flow).expect_err("two queues").to_string());
    assert!(why.contains("va") && why.contains("2 receive queues"), "{why}");
    let fix = why.split("ethtool").nth(1).expect("the fix");
    assert!(fix.starts_with(" -L va"), "{why}");
    network.a.within(|| {
        let why = Native::open_generic().link.set_flow(&flow).expect_err("generic").to_string();
        assert!(why.contains("va") && why.contains("xdp_mode = \"native\""), "{why}");
    });
    // The fix that it names works; a veth wants the other end to send on no more queues than that.
    network.b.run("ethtool -L vb tx 1");
    network.a.run("ethtool -L va rx 1");
    network.a.within(|| Native::open().link.set_flow(&flow).expect("one queue"));
}

#[test]
fn destinations_elsewhere_and_indices_beyond_are_refused() {
    if !privileged() {
        return;
    }
    let network = Network::new();
    for (remote, message) in
        [("127.0.0.1", "not by va"), ("203.0.113.1", "ip route add"), (A[0], "not by va")]
    {
        let why = refused(&network.a, |native| {
            let hop = native.hop(ip(remote));
            let mut why = None;
            native.until("a refusal", |_| {
                if let Some(HopState::Refused(text)) = hop.state() {
                    why = Some(text);
                }
                why.is_some()
            });
            why.expect("refused")
        });
        assert!(why.contains(remote) && why.contains(message), "{why}");
    }
    let key = FlowKey { local: (ip(A[0]), 50_000).into(), remote: (ip(B[0]), PORT).into() };
    let flow = FlowFilter { key, index: FLOWS_MAX, inlet: WIDE };
    let why = refused(&network.a, |native| native.link.set_flow(&flow).expect_err("beyond").to_string());
    assert!(why.contains("flows_max"), "{why}");
    network.a.within(|| {
        let taken = TcpListener::bind((ip(A[0]), PORT)).expect("a port");
        let why = PortHold::take((ip(A[0]), PORT).into()).expect_err("taken").to_string();
        assert!(why.contains("8080 is in use"), "{why}");
        drop(taken);
    });
}

//! Every driver passes the same suite; what only sockets can do is below it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::conformance::{Settings, check_all};
use crate::{Link, LinkError, MemoryLink, MemoryOptions, Port, UdpLink, UdpOptions};

/// A loopback address that no other process of these tests uses.
fn own_address() -> IpAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low.clamp(1, 254)).into()
}

/// The options of two ends that are connected: one address, four ports of their own.
fn ends_at(address: IpAddr) -> (UdpOptions, UdpOptions) {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let base = NEXT.fetch_add(4, Ordering::Relaxed);
    let end = |data: u16, peer: u16| UdpOptions {
        peer_data_port: peer,
        peer_signalling_port: peer + 1,
        ..UdpOptions::new(address, address, data, data + 1)
    };
    (end(base, base + 2), end(base + 2, base))
}

fn open_pair((a, b): (UdpOptions, UdpOptions)) -> (UdpLink, UdpLink) {
    let open = |options| UdpLink::open(&options).expect("loopback sockets");
    (open(a), open(b))
}

fn with(settings: Settings, options: UdpOptions) -> UdpOptions {
    UdpOptions {
        packet_bytes_max: settings.packet_bytes_max,
        frames: settings.frames,
        // The kernel charges its own bookkeeping too: about half as much again for long packets, more for short.
        socket_buffer_bytes: settings.queue_packets * (settings.packet_bytes_max + 1_024),
        ..options
    }
}

#[test]
fn memory_conforms() {
    check_all(|settings| {
        let options = MemoryOptions {
            packet_bytes_max: settings.packet_bytes_max,
            ring_packets: settings.queue_packets,
            frames: settings.frames,
            wake: true,
        };
        MemoryLink::pair(options).expect("a pair")
    });
}

#[test]
fn udp_conforms() {
    check_all(|settings| {
        let (a, b) = ends_at(own_address());
        open_pair((with(settings, a), with(settings, b)))
    });
}

#[test]
fn udp_conforms_over_ipv6() {
    check_all(|settings| {
        let (a, b) = ends_at(Ipv6Addr::LOCALHOST.into());
        open_pair((with(settings, a), with(settings, b)))
    });
}

#[test]
fn a_memory_link_without_descriptors_still_carries() {
    let (mut a, mut b) =
        MemoryLink::pair(MemoryOptions { wake: false, ..Default::default() }).expect("a pair");
    assert!(a.descriptors().is_empty());
    a.transmit_buffer().expect("room")[..3].copy_from_slice(b"abc");
    a.transmit(Port::Data, 3, 69).expect("it fits");
    let mut out = Vec::new();
    assert_eq!(b.receive(&mut out, 1).expect("works"), 0, "nothing before a flush");
    a.flush().expect("works");
    assert_eq!(b.receive(&mut out, 1).expect("works"), 1);
    assert_eq!(out[0].frame.as_ref(), b"abc");
}

#[test]
fn only_packets_of_the_configured_peer_are_received() {
    let address = own_address();
    let (a, b) = ends_at(address);
    let (data_port, peer_port) = (b.data_port, a.data_port);
    let (mut a, mut b) = open_pair((a, b));
    let foreign_socket = UdpSocket::bind((address, 0)).expect("a socket");
    // Refused at once or dropped silently: in both cases the packet does not arrive.
    let _ = foreign_socket.send_to(b"forged", (address, data_port));
    assert_ne!(foreign_socket.local_addr().expect("bound").port(), peer_port);
    a.transmit_buffer().expect("room")[..4].copy_from_slice(b"true");
    a.transmit(Port::Data, 4, 70).expect("it fits");
    a.flush().expect("works");
    let mut out = Vec::new();
    while out.is_empty() {
        b.receive(&mut out, 8).expect("works");
    }
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].frame.as_ref(), b"true");
}

#[test]
fn a_packet_longer_than_the_frames_is_dropped_and_counted() {
    let (a, b) = ends_at(own_address());
    let (mut a, mut b) = open_pair((UdpOptions { packet_bytes_max: 2_000, ..a }, b));
    for (len, first) in [(1_465, 1), (1_464, 2)] {
        a.transmit_buffer().expect("room")[0] = first;
        a.transmit(Port::Data, len, len as u32).expect("it fits");
    }
    a.flush().expect("works");
    let mut out = Vec::new();
    while out.is_empty() {
        b.receive(&mut out, 8).expect("works");
    }
    assert_eq!((out[0].frame.as_ref().len(), out[0].frame.as_ref()[0]), (1_464, 2));
    assert_eq!((b.statistics().truncated, b.statistics().packets_in), (1, 1));
}

#[test]
fn the_error_of_a_failed_open_names_the_fix() {
    let (options, _) = ends_at(own_address());
    let fails = |options: &UdpOptions| UdpLink::open(options).err().expect("refused").to_string();
    let cases = [
        (UdpOptions { peer: Ipv6Addr::LOCALHOST.into(), ..options.clone() }, "different families"),
        (UdpOptions { packet_bytes_max: 65_508, ..options.clone() }, "65507"),
        (UdpOptions { socket_buffer_bytes: 1 << 31, ..options.clone() }, "at most"),
        (UdpOptions { signalling_port: options.data_port, ..options.clone() }, "two ports"),
        (UdpOptions { device: Some("no-such-device".into()), ..options.clone() }, "no-such-device"),
        (
            UdpOptions { local: Ipv4Addr::new(192, 0, 2, 1).into(), ..options.clone() },
            "is the address this host's",
        ),
        (
            UdpOptions { socket_buffer_bytes: 1 << 30, socket_buffer_required: true, ..options.clone() },
            "smaller socket_buffer",
        ),
    ];
    for (options, message) in cases {
        let text = fails(&options);
        assert!(text.contains(message) && !text.contains('\n'), "{message}: {text}");
    }
}

#[test]
fn a_port_is_taken_once_unless_it_is_shared() {
    let (first, _) = ends_at(own_address());
    let second = UdpOptions { peer_data_port: 9, peer_signalling_port: 10, ..first.clone() };
    let held = UdpLink::open(&first).expect("free ports");
    let refused = UdpLink::open(&second).err().expect("taken");
    assert!(
        matches!(&refused, LinkError::Os { error, .. } if error.raw_os_error() == Some(libc::EADDRINUSE))
    );
    drop(held);
    let shared = |options: UdpOptions| UdpOptions { shared_port: true, ..options };
    let both = (UdpLink::open(&shared(first)), UdpLink::open(&shared(second)));
    assert!(both.0.is_ok() && both.1.is_ok());
}

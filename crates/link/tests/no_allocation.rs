//! Passing packets causes no allocation, whatever the driver.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

#[path = "xdp/bed.rs"]
mod bed;
#[path = "common/host.rs"]
mod host;

use punctual_link::xdp::{XdpLink, XdpMemory, XdpOptions};
use punctual_link::{
    FlowFilter, FlowKey, Inlet, IpTarget, Link, MemoryLink, MemoryOptions, NextHop, Port, Received, Stream,
    UdpLink, UdpOptions,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `packets` packets pass.
fn allocations_of(a: &mut impl Link, b: &mut impl Link, packets: u64) -> u64 {
    let mut out = Vec::with_capacity(32);
    let before = ALLOCATIONS.with(Cell::get);
    let mut received = 0;
    for number in 0..packets {
        let port = if number % 4 == 0 { Port::Signalling } else { Port::Data };
        bed::best_effort(&mut a.transmit_buffer().expect("room")[..1_000]);
        a.transmit(port, 1_000, 1_066).expect("it fits");
        a.flush().expect("works");
        received += b.receive(&mut out, 32).expect("works") as u64;
        out.clear();
        a.completed();
    }
    while received < packets {
        received += b.receive(&mut out, 32).expect("works") as u64;
        out.clear();
    }
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn memory_allocates_nothing() {
    let (mut a, mut b) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    assert_eq!(allocations_of(&mut a, &mut b, 5_000), 0);
}

#[test]
fn udp_allocates_nothing() {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = IpAddr::from(Ipv4Addr::new(127, 64 | (high & 63), middle, low.clamp(1, 254)));
    let end = |data: u16, peer: u16| UdpOptions {
        peer_data_port: peer,
        peer_signalling_port: peer + 1,
        ..UdpOptions::new(address, address, data, data + 1)
    };
    let open = |options| UdpLink::open(&options).expect("loopback sockets");
    let (mut a, mut b) = (open(end(30_000, 30_002)), open(end(30_002, 30_000)));
    assert_eq!(allocations_of(&mut a, &mut b, 5_000), 0);
}

#[test]
fn xdp_allocates_nothing() {
    if !bed::privileged() {
        return;
    }
    let (hosts, cable) = bed::pair(1_500);
    let open = |end: usize| {
        let options = cable.xdp(bed::Family::V4, end);
        let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
        hosts[end].within(|| XdpLink::open(&options, &memory)).expect("a link")
    };
    let (mut a, mut b) = (open(0), open(1));
    assert_eq!(allocations_of(&mut a, &mut b, 5_000), 0);
}

/// IP packets of a flow, from one driver to the other.
#[test]
fn flows_allocate_nothing() {
    if !bed::privileged() {
        return;
    }
    let (hosts, cable) = bed::pair(1_500);
    let open = |end: usize| {
        let mut options = cable.xdp(bed::Family::V4, end);
        options.classifier.flows_max = 4;
        let memory = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
        hosts[end].within(|| XdpLink::open(&options, &memory)).expect("a link")
    };
    let (mut a, mut b) = (open(0), open(1));
    let [local, remote] = [1, 0].map(|end| SocketAddr::new(cable.address(bed::Family::V4, end), 5_000));
    let key = FlowKey { local, remote };
    let inlet = Inlet { stream: Stream::LowLatency, burst_packets: 9_999, interval_ns: 1, buffers: 64 };
    b.set_flow(&FlowFilter { key, index: 3, inlet }).expect("room");
    let hop = NextHop::fixed(cable.mac(1));
    let packet = segment(key, 1_460);
    let mut out: Vec<Received> = Vec::with_capacity(32);
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..3_000 {
        a.transmit_ip_buffer().expect("room")[..packet.len()].copy_from_slice(&packet);
        a.transmit_ip(&hop, packet.len(), packet.len() as u32 + 38).expect("it fits");
        a.flush().expect("works");
        while b.receive(&mut out, 32).expect("works") == 0 {}
        assert_eq!(out[0].frame.as_ref(), packet);
        let ip = out[0].ip.expect("an IP packet");
        assert_eq!((ip.to, ip.sender, out[0].stream), (IpTarget::Flow(3), cable.mac(0), Stream::LowLatency));
        out.clear();
        a.completed();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

/// An IP packet with a segment to the flow's local end, as far as a driver reads it.
fn segment(key: FlowKey, payload: usize) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (key.remote.ip(), key.local.ip()) else { unreachable!("IPv4") };
    let mut packet = vec![0x45, 0];
    packet.extend((40 + payload as u16).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0]);
    packet.extend([from.octets(), to.octets()].concat());
    packet.extend([key.remote.port().to_be_bytes(), key.local.port().to_be_bytes()].concat());
    packet.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0xbe, 0xef, 0, 0]);
    packet.resize(40 + payload, 7);
    packet
}

#[test]
fn forwarding_in_place_allocates_nothing() {
    if !bed::privileged() {
        return;
    }
    let hosts = [bed::Host::new(), bed::Host::new(), bed::Host::new()];
    let first = bed::Cable::lay(1, 1_500, [&hosts[0], &hosts[1]]);
    let second = bed::Cable::lay(2, 1_500, [&hosts[1], &hosts[2]]);
    let ends = [first.xdp(bed::Family::V4, 1), second.xdp(bed::Family::V4, 0)];
    let memory = XdpMemory::new(ends.iter().map(XdpOptions::frames_needed).sum(), 2_048).expect("memory");
    let open = |host: usize, options: &XdpOptions, memory: &XdpMemory| {
        hosts[host].within(|| XdpLink::open(options, memory)).expect("a link")
    };
    let [mut left, mut right] = ends.map(|options| open(1, &options, &memory));
    let options = first.xdp(bed::Family::V4, 0);
    let own = XdpMemory::new(options.frames_needed(), 2_048).expect("memory");
    let mut source = open(0, &options, &own);
    let mut packet = vec![0; 500];
    bed::best_effort(&mut packet);
    let mut batch: Vec<Received> = Vec::with_capacity(32);
    let before = ALLOCATIONS.with(Cell::get);
    let mut forwarded = 0;
    while forwarded < 5_000 {
        bed::send(&mut source, Port::Data, &packet);
        forwarded += left.receive(&mut batch, 32).expect("works");
        for received in batch.drain(..) {
            right.transmit_frame(received.port, received.frame, 566).expect("in place");
        }
        right.flush().expect("works");
        right.completed();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

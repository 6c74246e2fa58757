//! Packets on their way allocate nothing, whatever the driver.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};

use punctual_link::{Link, MemoryLink, MemoryOptions, Port, UdpLink, UdpOptions};

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
        a.transmit_buffer().expect("room")[..8].copy_from_slice(&number.to_le_bytes());
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

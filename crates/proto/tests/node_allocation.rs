//! Steady state: no heap allocation for a message on its way through source, forwarder and sink (design 1).

#![allow(unsafe_code)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{World, pattern};
use punctual_proto::{BitRate, Contract, Nanos, Rate};

struct Counting;

static COUNTED: AtomicU64 = AtomicU64::new(0);
static COUNTING: AtomicBool = AtomicBool::new(false);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(Ordering::Relaxed) {
            COUNTED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends `messages` and counts the allocations of all three nodes meanwhile.
fn allocations(
    world: &mut World,
    open: &common::Open,
    contract: Contract,
    messages: u64,
    send: &[u8],
) -> u64 {
    COUNTED.store(0, Ordering::Relaxed);
    COUNTING.store(true, Ordering::Relaxed);
    let mut received = 0;
    for _ in 0..messages {
        assert!(open.outbox.send(send, world.now));
        world.nodes[0].handle_outbox(open.source, world.now);
        world.run_for(contract.interval());
        while open.inbox.recv(|_, _| received += 1) {}
    }
    COUNTING.store(false, Ordering::Relaxed);
    assert!(received >= messages - 1);
    COUNTED.load(Ordering::Relaxed)
}

#[test]
fn a_message_on_its_way_allocates_nothing() {
    let mut world = World::line(3, BitRate(400_000_000));
    let deadline = Nanos::from_millis(8);
    let contract = Contract::new(10_000, Rate::per_second(200).unwrap(), 2, deadline).unwrap();
    let open = world.open(0, 2, contract).unwrap();
    let send = pattern(1, 1, 10_000);
    allocations(&mut world, &open, contract, 50, &send);
    // HELLOs and refreshes are not messages on their way: the quietest of three stretches of 100 ms counts.
    let quietest = (0..5).map(|_| allocations(&mut world, &open, contract, 20, &send)).min().unwrap();
    assert_eq!(quietest, 0);
}

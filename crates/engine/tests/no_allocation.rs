//! Messages that pass two processors cause no allocation.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use punctual_os::now;
use punctual_proto::{Contract, Nanos, Rate};

use support::{Handle, PATIENCE, open, over_memory};

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

const MESSAGE_BYTES: usize = 4_000;
const WARM_UP: usize = 64;
const MEASURED: usize = 400;

/// Allocations of the processor's thread until now, those of this question not among them.
fn allocations(handle: &Handle) -> u64 {
    handle.call(|_, _| ALLOCATIONS.with(Cell::get)).expect("it runs")
}

#[test]
fn messages_allocate_nothing_on_their_way() {
    let (a, b) = over_memory();
    let rate = Rate::per_second(500).expect("a rate");
    let contract = Contract::new(MESSAGE_BYTES as u32, rate, 4, Nanos::from_millis(50)).expect("a contract");
    let (open, doorbell) = open(&a, &b, contract);
    let message = [7; MESSAGE_BYTES];
    let send = |count: usize| {
        for _ in 0..count {
            assert!(open.outbox.send(&message, now()), "the ring has room");
        }
        doorbell.ring();
        open.inbox.wait(count, PATIENCE);
        while open.inbox.recv(|bytes, _| assert_eq!(bytes, message)) {}
    };
    send(WARM_UP);
    let before = (allocations(&a), allocations(&b));
    send(MEASURED);
    let after = (allocations(&a), allocations(&b));
    // HELLOs and refreshes are sent beside the messages and may allocate: a few each second, and none per
    // message.
    let (source, sink) = (after.0 - before.0, after.1 - before.1);
    assert!(source < MEASURED as u64 / 4 && sink < MEASURED as u64 / 4, "{source} and {sink}");
}

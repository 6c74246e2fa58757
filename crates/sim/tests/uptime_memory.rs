//! Hosts with long uptime, by allocated memory: neither nodes nor the record of the run keep state of closed
//! channels.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_analysis::Nanos;
use punctual_sim::resident::{READINGS, before_and_after};
use punctual_sim::{FaultKinds, Options, SizeChoice, Traffic, run};

struct Counting;

static IN_USE_BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// With the permanent reservations included, one percent would hide an hour's leak: the record of one attempt
/// took 1.4 KB, and some 250 are made between the compared quarters.
const GROWTH_BYTES_MAX: u64 = 128 << 10;

/// An hour here; `punctual sim --seed 1 --size small --uptime-h 24` judges a whole day by resident memory.
#[test]
fn memory_stays_flat_while_channels_come_and_go() {
    let options = Options {
        sizes: SizeChoice::Small,
        traffic: Traffic::Uptime(Nanos::from_secs(3_600)),
        memory: Some(|| IN_USE_BYTES.load(Ordering::Relaxed)),
        ..Options::default().with_faults(FaultKinds::NONE)
    };
    let outcome = run(1, &options).expect("runs");
    assert!(outcome.violations.is_empty(), "{:#?}", outcome.violations);
    assert_eq!(outcome.memory.len() as u64, READINGS);
    assert!(outcome.admitted > 500, "{} channels", outcome.admitted);
    let [before, after] = before_and_after(&outcome.memory).expect("enough readings");
    let grown = after.bytes.saturating_sub(before.bytes);
    println!("{} B, then {grown} B more", before.bytes);
    assert!(grown < GROWTH_BYTES_MAX, "grown by {grown} B: {:#?}", outcome.memory);
}

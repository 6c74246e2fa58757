//! Calling a handler on the engine's own thread, and its replies, allocate nothing there.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use punctual::{Channel, Consent, Contract, Endsystem, Nanos, Rate, Receiver};
use support::{PATIENCE, pair};

thread_local! {
    /// Whether this thread has run a handler: it is an engine's.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: everything is handed to the system's allocator as it is; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn open(from: &Endsystem, to: &Endsystem, name: &str) -> (Channel, Receiver) {
    let listener = to.listen_direct(name, Nanos::from_micros(100), |_| Consent::Accept).expect("a listener");
    let rate = Rate::per_second(500).expect("a rate");
    let contract = Contract::new(64, rate, 8, Nanos::from_secs(1)).expect("a contract");
    let channel = from.open(&format!("{name}@{}", to.host()), contract).expect("a channel");
    let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
    (channel, receiver)
}

#[test]
fn a_round_trip_through_two_handlers_allocates_nothing() {
    let (a, b) = pair();
    let (mut there, at_b) = open(&a, &b, "ping");
    let (mut back, at_a) = open(&b, &a, "pong");
    let echo = at_b
        .on_message(move |message, _, reply| {
            COUNTED.with(|counted| counted.set(true));
            reply.send(&mut back, message).expect("room");
        })
        .expect("a handler");
    let answers = Arc::new(AtomicU64::new(0));
    let delivered = Arc::clone(&answers);
    let end = at_a
        .on_message(move |_, _, _| {
            COUNTED.with(|counted| counted.set(true));
            delivered.fetch_add(1, Ordering::Release);
        })
        .expect("a handler");
    let mut sent = 0;
    let mut stretch = |messages: u64| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..messages {
            there.send(b"sixty-four bytes would do as well").expect("sent");
            sent += 1;
            let until = Instant::now() + PATIENCE;
            while answers.load(Ordering::Acquire) < sent {
                assert!(Instant::now() < until, "{sent} messages were sent, the last was not answered");
                std::thread::yield_now();
            }
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    stretch(50);
    // HELLOs and refreshes allocate now and then, and are no messages: the quietest of ten stretches counts.
    let quietest = (0..10).map(|_| stretch(20)).min();
    assert_eq!(quietest, Some(0));
    assert_eq!((echo.calls(), end.calls()), (250, 250));
}

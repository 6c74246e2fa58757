//! The processor's own heap, under threads that free what it has allocated and the other way round, and under
//! a filter that ends this process if the thread of the heap requests memory from the kernel.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use punctual_os::calls::{Forbidden, ThreadKind, confine};
use punctual_os::heap::{self, Allocator, Lease, Sizes};
use punctual_os::realtime::SchedulingClass;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

const SIZES: Sizes = Sizes { small: 1 << 20, large: 4 << 20 };

/// There is one heap.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lease() -> std::io::Result<Lease> {
    let mut lease = Lease::claim(SchedulingClass::BestEffortHost, Forbidden::End)?;
    lease.begin(SIZES)?;
    Ok(lease)
}

/// Runs `work` on a thread with the heap, confined to a processor's system calls. The lease outlives the
/// thread, as a processor's does.
fn with_heap<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::spawn(|| {
        let lease = lease().expect("the heap");
        confine(ThreadKind::Processor, Forbidden::End).expect("this kernel has filters");
        (work(), lease)
    });
    let (result, lease) = thread.join().expect("no panic");
    drop(lease);
    result
}

fn filled(bytes: usize, value: u8) -> Vec<u8> {
    let mut block = Vec::with_capacity(bytes);
    block.resize(bytes, value);
    block
}

fn check(block: &[u8]) {
    assert!(block.iter().all(|byte| *byte == block[0]), "{} bytes belong to another block", block.len());
}

/// Takes blocks, keeps some, grows and frees others, and gives away its own.
fn deal(mut random: SmallRng, rounds: usize, to: &Sender<Vec<u8>>, from: &Receiver<Vec<u8>>) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for _ in 0..rounds {
        let bytes = 1_usize << random.random_range(0..18);
        let block = filled(random.random_range(bytes..2 * bytes), random.random());
        match random.random_range(0..4) {
            0 => kept.push(block),
            1 => drop(block),
            // A thread that has ended takes no more blocks.
            _ => drop(to.send(block)),
        }
        kept.extend(from.try_iter());
        while kept.len() > 40 {
            let mut block = kept.swap_remove(random.random_range(0..kept.len()));
            check(&block);
            // Grows a block that another thread allocated.
            let value = block[0];
            block.resize(block.len() + 100, value);
            check(&block);
        }
    }
    kept.iter().for_each(|block| check(block));
}

#[test]
fn blocks_move_between_threads_without_system_calls() {
    const ROUNDS: usize = 20_000;
    let _alone = alone();
    let (to_heap, at_heap) = channel();
    let (to_other, at_other) = channel();
    let other = std::thread::spawn(move || deal(SmallRng::seed_from_u64(1), ROUNDS, &to_heap, &at_other));
    with_heap(move || deal(SmallRng::seed_from_u64(2), ROUNDS, &to_other, &at_heap));
    other.join().expect("no panic");
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4_096
}

/// The keeper runs asynchronously.
fn eventually(what: &str, so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !so() {
        assert!(Instant::now() < until, "it never came to this: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn memory_of_large_blocks_returns_to_the_kernel() {
    const BLOCKS: usize = 600;
    const BLOCK_BYTES: usize = 100 << 10;
    let _alone = alone();
    let (sender, receiver) = channel();
    let (go, wait) = channel();
    let heap = std::thread::spawn(move || {
        with_heap(move || {
            let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|number| filled(BLOCK_BYTES, number as u8)).collect();
            blocks.iter().for_each(|block| check(block));
            sender.send(()).expect("the test waits");
            wait.recv().expect("the test goes on");
            drop(blocks);
            sender.send(()).expect("the test waits");
            wait.recv().expect("the test goes on");
        });
    });
    receiver.recv().expect("the blocks are there");
    let full = resident();
    assert!(full > BLOCKS * BLOCK_BYTES);
    go.send(()).expect("it waits");
    receiver.recv().expect("the blocks are gone");
    let kept_max = 3 * SIZES.large;
    eventually("its memory is given back", || resident() + BLOCKS * BLOCK_BYTES < full + kept_max);
    go.send(()).expect("it waits");
    heap.join().expect("no panic");
}

/// In a process of its own: pools that a test before has left, or gives back at this moment, are no fresh heap.
#[test]
fn what_is_ready_is_enough_for_a_first_large_piece_and_more_is_waited_for() {
    const EXACT: &str = "--exact";
    if !std::env::args().any(|argument| argument == EXACT) {
        let name = "what_is_ready_is_enough_for_a_first_large_piece_and_more_is_waited_for";
        let program = std::env::current_exe().expect("this program");
        let run = std::process::Command::new(program).args([EXACT, name]).output().expect("it runs");
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let _alone = alone();
    let waited = with_heap(|| {
        let before = heap::waits();
        let first = filled(3 << 20, 1);
        let between = heap::waits();
        let second = filled(50 << 20, 2);
        check(&first);
        check(&second);
        (between - before, heap::waits() - between)
    });
    assert_eq!(waited, (0, 1));
}

#[test]
fn what_is_expected_is_ready_and_goes_when_it_is_expected_no_more() {
    const RUN_BYTES: usize = 66 << 10;
    const RUNS: usize = 1_000;
    let _alone = alone();
    let (sender, receiver) = channel();
    let (go, wait) = channel::<()>();
    let heap = std::thread::spawn(move || {
        with_heap(move || {
            sender.send(0).expect("the test waits");
            wait.recv().expect("it is ready");
            let before = heap::waits();
            let runs: Vec<Vec<u8>> = (0..RUNS).map(|number| filled(RUN_BYTES, number as u8)).collect();
            sender.send(heap::waits() - before).expect("the test waits");
            wait.recv().expect("the test goes on");
            drop(runs);
            sender.send(0).expect("the test waits");
            wait.recv().expect("the test goes on");
            // The next operation gives back the pools that became empty before.
            drop(filled(1, 1));
            sender.send(0).expect("the test waits");
            wait.recv().expect("the test goes on");
        });
    });
    receiver.recv().expect("the heap is there");
    heap::expect(RUNS * RUN_BYTES);
    go.send(()).expect("it waits");
    assert_eq!(receiver.recv(), Ok(0), "waits for memory that was expected");
    // With the blocks. Before them there may have been memory of the test before, which they take.
    let full = resident();
    go.send(()).expect("it waits");
    receiver.recv().expect("the blocks are gone");
    assert!(resident() + RUNS * RUN_BYTES / 2 > full, "it is still expected");
    heap::expect(0);
    go.send(()).expect("it waits");
    receiver.recv().expect("something was done");
    eventually("its memory is given back", || resident() + RUNS * RUN_BYTES < full + 3 * SIZES.large);
    go.send(()).expect("it waits");
    heap.join().expect("no panic");
}

#[test]
fn one_thread_at_a_time_has_the_heap() {
    let _alone = alone();
    let held = std::thread::spawn(lease).join().expect("no panic").expect("the heap");
    let refused = lease().expect_err("it is held");
    assert!(refused.to_string().contains("another processor"), "{refused}");
    drop(held);
    drop(lease().expect("it is free"));
}

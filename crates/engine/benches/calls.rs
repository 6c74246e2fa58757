//! The cost of a filter of system calls per call of a processor's thread: threads with and without a filter
//! take turns.
//! `cargo bench -p punctual-engine --bench calls`

use std::time::Instant;

use punctual_os::calls::{Forbidden, ThreadKind, confine};
use punctual_os::wait::{Doorbell, Waiter};
use punctual_proto::Nanos;

const ROUNDS: usize = 41;
const CALLS: u32 = 20_000;

/// Measures the nanoseconds of a call of each kind on a thread of its own.
fn slice(forbidden: Forbidden) -> [f64; 2] {
    let thread = std::thread::spawn(move || {
        let mut waiter = Waiter::new().expect("descriptors");
        let bell = Doorbell::new().expect("an eventfd");
        confine(ThreadKind::ProcessorOnSharedHeap, forbidden).expect("this kernel has filters");
        let each = |call: &mut dyn FnMut()| {
            let begin = Instant::now();
            (0..CALLS).for_each(|_| call());
            begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        let waits = each(&mut || assert_eq!(waiter.wait(Some(Nanos::ZERO)).expect("a look"), 0));
        let writes = each(&mut || bell.ring());
        // The filter permits no close, so leak the descriptors.
        std::mem::forget((waiter, bell));
        [waits, writes]
    });
    thread.join().expect("no panic")
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() {
    let rounds: Vec<_> =
        (0..ROUNDS).map(|_| [Forbidden::Allow, Forbidden::Refuse, Forbidden::Allow].map(slice)).collect();
    let names = ["epoll_pwait2, allowed whatever its arguments", "write, of 8 bytes only"];
    for (call, name) in names.iter().enumerate() {
        let [free, confined, again] =
            [0, 1, 2].map(|kind| median(rounds.iter().map(|round| round[kind][call]).collect()));
        println!("{name}: without a filter {free:.0} ns, again {again:.0} ns, with one {confined:.0} ns");
    }
}

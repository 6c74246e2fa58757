//! Something above a daemon's processor that takes its CPU again and again. Needs root.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use punctual::Nanos;
use punctual_os::now;

use super::witness::{enter_fifo, sleep_until};

/// Above the priority of any processor.
const PRIORITY: u8 = 90;

/// Ends when the test drops it.
pub struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    /// Is busy for `busy` in each `every` on a CPU.
    pub fn start(cpu: u32, busy: Nanos, every: Nanos) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            assert!(enter_fifo(PRIORITY, Some(cpu)), "a hog in real time on CPU {cpu}");
            let mut due = now();
            while !stopping.load(Ordering::Relaxed) {
                sleep_until(due);
                let until = now() + busy;
                while now() < until {}
                due = due + every;
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

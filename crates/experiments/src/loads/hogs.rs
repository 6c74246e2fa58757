//! Ordinary threads that take all the CPU they get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Running hogs; they end when dropped.
pub struct Hogs {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    /// Starts `count`.
    ///
    /// # Errors
    /// If a thread cannot start.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut hogs = Self { stop, threads: Vec::with_capacity(count) };
        for number in 0..count {
            let stop = Arc::clone(&hogs.stop);
            let hog = std::thread::Builder::new().name(format!("hog-{number}")).spawn(move || burn(&stop))?;
            hogs.threads.push(hog);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A hog cannot panic.
            let _ = thread.join();
        }
    }
}

fn burn(stop: &AtomicBool) {
    let sink = AtomicU64::new(0);
    while !stop.load(Ordering::Relaxed) {
        for round in 0..1_000 {
            sink.fetch_add(round, Ordering::Relaxed);
        }
    }
}

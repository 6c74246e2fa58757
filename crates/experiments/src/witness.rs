//! Watches for platform holes: one `SCHED_FIFO` 98 thread per CPU wakes every millisecond and records what it
//! missed (GUARANTEES, Assumptions).
//!
//! Lateness that the thread spent runnable in the kernel's run queue is not a hole: it waited there for RT
//! throttling to end or for a thread inside the kernel, which are our own doing. The kernel counts that time
//! (`/proc/thread-self/schedstat`, second field) and it is taken off. A stolen CPU delivers its timer interrupt
//! late, so the thread was not even runnable.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

use punctual_analysis::{Instant, Nanos};
use punctual_os::clock::{now, sleep_until};
use punctual_os::{cpus, realtime};

use crate::excuse::{Hole, WatcherRecords, merge};

/// Time between two checks.
const PERIOD: Nanos = Nanos::from_millis(1);
/// Less than a missed wake-up is ordinary latency of a virtual CPU, never an excuse.
const HOLE_MIN: Nanos = Nanos::from_millis(1);
/// Above all other threads of ours (the daemons' processors run at 50).
const PRIORITY: u8 = 98;

/// Running watchers. Dropping them stops them.
pub struct Witness {
    stop: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<()>>,
    reports: Receiver<Hole>,
    seen: Vec<Hole>,
    since: Instant,
    cpus: u64,
}

impl Witness {
    /// Starts a watcher on every CPU that this process may use.
    ///
    /// # Errors
    /// If the real-time class is refused (not root, or a user namespace) or a thread cannot start.
    pub fn start() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, reports) = channel();
        let cpus = cpus::usable()?;
        let mut witness = Self {
            stop,
            watchers: Vec::new(),
            reports,
            seen: Vec::new(),
            since: now(),
            cpus: cpus.len() as u64,
        };
        for cpu in cpus {
            let (stop, sender) = (Arc::clone(&witness.stop), sender.clone());
            let (ready, started) = sync_channel(1);
            let watcher = std::thread::Builder::new().name(format!("witness-{cpu}")).spawn(move || {
                let prepared = realtime::enter_fifo(PRIORITY, Some(cpu)).map_err(io::Error::other);
                let watching = prepared.is_ok();
                // The starter waits for this, so sending cannot fail.
                let _ = ready.send(prepared);
                if watching {
                    watch(&stop, &sender);
                }
            })?;
            witness.watchers.push(watcher);
            started.recv().map_err(io::Error::other)??;
        }
        Ok(witness)
    }

    /// The result until now.
    pub fn so_far(&mut self) -> WatcherRecords {
        self.seen.extend(self.reports.try_iter());
        let taken = self.seen.iter().map(Hole::length).sum();
        let cpu_time = now().since(self.since) * self.cpus;
        WatcherRecords { holes: merge(self.seen.clone()), cpu_time, taken }
    }

    /// Stops and returns the result.
    pub fn stop(mut self) -> WatcherRecords {
        self.stop.store(true, Ordering::Relaxed);
        for watcher in self.watchers.drain(..) {
            // A watcher does nothing that can panic.
            let _ = watcher.join();
        }
        self.so_far()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn watch(stop: &AtomicBool, report: &Sender<Hole>) {
    let mut run_queue = RunQueueClock::open();
    let mut due = now() + PERIOD;
    run_queue.waited();
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due);
        let woke = now();
        let waited = run_queue.waited();
        if let Some(hole) = hole_of(due, woke, waited) {
            // The receiver is gone only when the witness is about to stop.
            let _ = report.send(hole);
        }
        due = due.max(woke) + PERIOD;
    }
}

/// The hole in a wake-up that was due at `due`, came at `woke`, and waited `waited` in the run queue.
fn hole_of(due: Instant, woke: Instant, waited: Nanos) -> Option<Hole> {
    let end = woke - waited;
    (end.since(due) >= HOLE_MIN).then_some(Hole { start: due, end })
}

/// How long this thread was runnable and not running since the last question.
struct RunQueueClock {
    file: Option<File>,
    total: u64,
}

impl RunQueueClock {
    fn open() -> Self {
        Self { file: File::open("/proc/thread-self/schedstat").ok(), total: 0 }
    }

    /// Zero if the kernel does not count it.
    fn waited(&mut self) -> Nanos {
        let mut text = [0; 96];
        let read = self.file.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let total = parse_run_delay(&text[..read]).unwrap_or(self.total);
        let waited = total.saturating_sub(self.total);
        self.total = total;
        Nanos(waited)
    }
}

fn parse_run_delay(schedstat: &[u8]) -> Option<u64> {
    std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_timer_is_a_hole_and_a_long_run_queue_is_none() {
        let due = Instant(1_000_000);
        let woke = Instant(9_000_000);
        assert_eq!(hole_of(due, woke, Nanos::ZERO), Some(Hole { start: due, end: woke }));
        assert_eq!(hole_of(due, woke, Nanos(7_900_000)), None, "throttled, not stolen");
        let part = hole_of(due, woke, Nanos(3_000_000)).expect("the rest was stolen");
        assert_eq!(part.length(), Nanos(5_000_000));
        assert_eq!(hole_of(due, Instant(1_100_000), Nanos::ZERO), None, "an ordinary wake-up");
    }

    #[test]
    fn schedstat_is_read() {
        assert_eq!(parse_run_delay(b"382220 17 2\n"), Some(17));
        assert_eq!(parse_run_delay(b""), None);
    }
}

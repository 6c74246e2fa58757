//! A real-time class for threads of a test, and a witness for platform holes: a `SCHED_FIFO` 98 thread per CPU that wakes
//! every millisecond (GUARANTEES, Assumptions; the rule is that of the experiments).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual::Nanos;
use punctual_os::now;
use punctual_os::realtime::{self, RealTime, SchedulingClass};
use punctual_proto::{Instant, Ppm};

const PERIOD: Nanos = Nanos::from_millis(1);
/// Above all other threads of ours.
const PRIORITY: u8 = 98;

/// Moves the calling thread to `SCHED_FIFO`; `false` if it is not permitted.
pub fn enter_fifo(priority: u8, cpu: Option<u32>) -> bool {
    let class = SchedulingClass::Fifo { priority };
    realtime::apply(&RealTime { class, cpu, lock_memory: false }).is_ok()
}

/// Whether daemons may run in their real-time class here; prints a message if not.
pub fn may_be_real_time() -> bool {
    let may = std::thread::spawn(|| enter_fifo(50, None)).join().expect("no panic");
    if !may {
        punctual_skip::skipped!("the real-time class (needs CAP_SYS_NICE); daemons run as best-effort hosts");
    }
    may
}

/// Lets the time until `due` pass.
pub fn sleep_until(due: Instant) {
    let time = rustix::time::Timespec {
        tv_sec: (due.0 / 1_000_000_000) as _,
        tv_nsec: (due.0 % 1_000_000_000) as _,
    };
    let clock = rustix::thread::ClockId::Monotonic;
    while rustix::thread::clock_nanosleep_absolute(clock, &time).is_err() {}
}

/// A span in which the platform gave a CPU no time.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    pub start: Instant,
    pub end: Instant,
}

/// Watchers of all CPUs.
pub struct Witness {
    stop: Arc<AtomicBool>,
    watchers: Vec<JoinHandle<()>>,
    reports: mpsc::Receiver<Hole>,
    since: Instant,
}

impl Witness {
    pub fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (report, reports) = mpsc::channel();
        let cpus = rustix::thread::sched_getaffinity(None).expect("the CPUs of this process");
        let usable = (0..1_024_u32).filter(|cpu| cpus.is_set(*cpu as usize));
        let watchers = usable.map(|cpu| {
            let (stop, report) = (Arc::clone(&stop), report.clone());
            std::thread::spawn(move || {
                assert!(enter_fifo(PRIORITY, Some(cpu)), "a witness in real time on CPU {cpu}");
                watch(&stop, &report);
            })
        });
        Self { watchers: watchers.collect(), stop, reports, since: now() }
    }

    /// Stops, and returns the result.
    pub fn stop(self) -> WatcherRecords {
        self.stop.store(true, Ordering::Relaxed);
        let cpus = self.watchers.len() as u64;
        for watcher in self.watchers {
            watcher.join().expect("a watcher saw all");
        }
        WatcherRecords::new(self.reports.try_iter().collect(), now().since(self.since) * cpus)
    }
}

fn watch(stop: &AtomicBool, report: &mpsc::Sender<Hole>) {
    let run_queue = File::open("/proc/thread-self/schedstat").expect("what the kernel counts of this thread");
    let waited_ns = || {
        let mut text = [0; 96];
        let read = run_queue.read_at(&mut text, 0).unwrap_or(0);
        let text = std::str::from_utf8(&text[..read]).unwrap_or("");
        text.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0_u64)
    };
    let (mut due, mut before) = (now() + PERIOD, waited_ns());
    while !stop.load(Ordering::Relaxed) {
        sleep_until(due);
        let (woke, waited) = (now(), waited_ns());
        // Time in the run queue is throttling or a thread inside the kernel: our own doing, no hole.
        let end = woke - Nanos(waited.saturating_sub(before));
        if end.since(due) >= PERIOD {
            let _ = report.send(Hole { start: due, end });
        }
        (before, due) = (waited, due.max(woke) + PERIOD);
    }
}

/// The result of a witness.
pub struct WatcherRecords {
    /// The holes, in the order of their beginning.
    holes: Vec<Hole>,
    taken: Nanos,
    cpu_time: Nanos,
}

impl WatcherRecords {
    /// Makes the result from holes and the time of all CPUs.
    pub fn new(mut holes: Vec<Hole>, cpu_time: Nanos) -> Self {
        holes.sort_by_key(|hole| hole.start);
        let taken = holes.iter().map(|hole| hole.end.since(hole.start)).sum();
        Self { holes, taken, cpu_time }
    }

    /// Whether a hole is between `from` and `to`, or its backlog still drained at `from`. The backlog drains
    /// for the hole's length times g / (1 - g), with g the guaranteed load.
    pub fn excuses(&self, from: Instant, to: Instant, load: Ppm) -> bool {
        let per_mille = u64::from(load.0) / (1_000_000 - u64::from(load.0).min(999_999)).div_ceil(1_000);
        self.holes.iter().any(|hole| {
            let drained = hole.end + hole.end.since(hole.start) * per_mille.min(1_000_000) / 1_000;
            hole.start <= to && from <= drained
        })
    }

    /// Share of the time of all CPUs that holes took.
    pub fn share(&self) -> f64 {
        self.taken.0 as f64 / self.cpu_time.0.max(1) as f64
    }

    pub fn longest(&self) -> Duration {
        let longest = self.holes.iter().map(|hole| hole.end.since(hole.start)).max();
        Duration::from_nanos(longest.unwrap_or_default().0)
    }

    pub fn count(&self) -> usize {
        self.holes.len()
    }
}

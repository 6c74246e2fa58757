//! CPU time of a whole exchange: this process and the kernel threads that receive for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use punctual_analysis::Nanos;

use punctual_os::clock::process_cpu;

/// Kernel threads that do network work: soft interrupts that were put off, and threaded NAPI.
const KERNEL_THREADS: [&str; 2] = ["ksoftirqd/", "napi/"];

/// CPU time of this process and of each of the kernel's network threads at one moment. Soft interrupts that run inside a
/// system call are charged to its caller.
#[derive(Debug)]
pub struct Used {
    process: Nanos,
    kernel_threads: BTreeMap<u32, Nanos>,
}

impl Used {
    /// The CPU time until now.
    pub fn now() -> Self {
        Self { process: process_cpu(), kernel_threads: kernel_threads().collect() }
    }

    /// The CPU time since `earlier`. The time of a kernel thread that has ended in between is missing; the
    /// times of the others are complete.
    pub fn since(&self, earlier: &Self) -> Nanos {
        let before = |thread: &u32| earlier.kernel_threads.get(thread).copied().unwrap_or(Nanos::ZERO);
        let of_kernel = self.kernel_threads.iter().map(|(thread, used)| *used - before(thread));
        of_kernel.fold(self.process - earlier.process, |sum, used| sum + used)
    }
}

fn kernel_threads() -> impl Iterator<Item = (u32, Nanos)> {
    let of = |directory: PathBuf| -> Option<(u32, Nanos)> {
        let name = fs::read_to_string(directory.join("comm")).ok()?;
        if !KERNEL_THREADS.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let thread = directory.file_name()?.to_str()?.parse().ok()?;
        Some((thread, of_process(thread)?))
    };
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(move |entry| of(entry.path()))
}

/// CPU time that the thread `tid` of this process has used.
pub fn of_thread(tid: u32) -> Option<Nanos> {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Nanos)
}

/// CPU time that the process `pid`, or the kernel thread of that number, has used.
pub fn of_process(pid: u32) -> Option<Nanos> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let before = Used::now();
        let mut sum = 0u64;
        for round in 0.. {
            assert!(round < 1_000_000, "work is not seen");
            sum = (1..10_000u64).fold(sum, |sum, n| sum.wrapping_add(std::hint::black_box(n * n)));
            // Other threads of this process work, too: it may be enough at once.
            if Used::now().since(&before) >= Nanos::from_millis(5) {
                break;
            }
        }
        assert!(sum > 0);
    }

    #[test]
    fn a_thread_that_has_ended_takes_nothing_of_others_away() {
        let moment = |process, threads: &[(u32, u64)]| Used {
            process: Nanos(process),
            kernel_threads: threads.iter().map(|(thread, used)| (*thread, Nanos(*used))).collect(),
        };
        let earlier = moment(100, &[(1, 50), (2, 900)]);
        assert_eq!(moment(130, &[(1, 57), (3, 5)]).since(&earlier), Nanos(42), "one has ended and one begun");
    }

    #[test]
    fn threads_are_distinguished() {
        assert!(of_thread(std::process::id()).is_some());
        assert_eq!(of_thread(0), None);
    }
}

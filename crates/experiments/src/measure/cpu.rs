//! CPU time of a whole exchange: this process and the kernel threads that receive for it.

use std::fs;

use punctual_analysis::Nanos;

use crate::clock::process_cpu;

/// Kernel threads that do network work: soft interrupts that were put off, and threaded NAPI.
const KERNEL_THREADS: [&str; 2] = ["ksoftirqd/", "napi/"];

/// CPU time that this process and the kernel's network threads have used until now. Soft interrupts that run inside a
/// system call are charged to its caller.
pub fn used() -> Nanos {
    process_cpu() + Nanos(kernel_threads())
}

fn kernel_threads() -> u64 {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let of = |directory: std::path::PathBuf| -> Option<u64> {
        let name = fs::read_to_string(directory.join("comm")).ok()?;
        if !KERNEL_THREADS.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        fs::read_to_string(directory.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    processes.filter_map(Result::ok).filter_map(|entry| of(entry.path())).sum()
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
        let before = used();
        let mut sum = 0u64;
        // What kernel threads of others used goes with them when they end.
        for round in 0.. {
            if used() - before >= Nanos::from_millis(5) {
                break;
            }
            assert!(round < 1_000_000, "work is not seen");
            sum = (0..10_000u64).fold(sum, |sum, n| sum.wrapping_add(std::hint::black_box(n * n)));
        }
        assert!(sum > 0);
    }

    #[test]
    fn threads_are_told_apart() {
        assert!(of_thread(std::process::id()).is_some());
        assert_eq!(of_thread(0), None);
    }
}

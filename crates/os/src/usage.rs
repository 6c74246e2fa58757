//! What a thread took of the time that passed, and a process of the memory.

use std::io;

use punctual_analysis::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The resources that the calling thread has used since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time: without the time that a more urgent thread took, and without stolen time if the hypervisor
    /// reports it to the kernel.
    pub cpu: Nanos,
    /// Times at which it gave the CPU away itself: it slept, or waited for something.
    pub waits: u64,
}

impl ThreadUsage {
    /// Reads the resources that the calling thread has used until now. This takes two system calls, about 0.5
    /// us.
    ///
    /// # Errors
    /// Linux documents no error for these arguments.
    pub fn of_this_thread() -> io::Result<Self> {
        // SAFETY: plain numbers, for which all zeroes is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a valid place for the whole call, and the kernel keeps no pointer to it.
        if unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Nanos(cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64);
        Ok(Self { cpu, waits: usage.ru_nvcsw as u64 })
    }

    /// The part of `passed`, the time between `before` and this, that the thread itself took: all of it if
    /// the thread waited.
    pub fn own_since(&self, before: &Self, passed: Nanos) -> Nanos {
        if self.waits == before.waits { passed.min(self.cpu - before.cpu) } else { passed }
    }
}

/// Memory of this process that is resident, in bytes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn resident_bytes() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm has no second number"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Memory of the machine that programs may still take, in bytes.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn available_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no MemAvailable");
    Ok(kib.ok_or_else(missing)? * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_took_of_the_cpu_is_not_its_own_and_what_it_slept_is() {
        let usage = |cpu_us, waits| ThreadUsage { cpu: Nanos::from_micros(cpu_us), waits };
        let passed = Nanos::from_micros(900);
        assert_eq!(usage(108, 3).own_since(&usage(100, 3), passed), Nanos::from_micros(8));
        assert_eq!(usage(108, 4).own_since(&usage(100, 3), passed), passed);
    }

    #[test]
    fn memory_that_was_written_is_resident() {
        const BYTES: usize = 64 << 20;
        let before = resident_bytes().expect("resident memory");
        let memory = std::hint::black_box(vec![1_u8; BYTES]);
        let after = resident_bytes().expect("resident memory");
        assert!(after >= before + BYTES as u64 / 2, "{before} and {after}");
        drop(memory);
        assert!(available_bytes().expect("memory") > BYTES as u64, "this test has just had as much");
    }

    #[test]
    fn a_thread_that_computes_uses_its_cpu_and_a_blocked_one_waits() {
        let begun = ThreadUsage::of_this_thread().expect("usage");
        let mut used = begun;
        while used.cpu == begun.cpu {
            used = ThreadUsage::of_this_thread().expect("usage");
        }
        // Sleep for a millisecond, which no other thread can cut short.
        let span = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = rustix::thread::clock_nanosleep_relative(rustix::thread::ClockId::Monotonic, &span);
        let slept = ThreadUsage::of_this_thread().expect("usage");
        assert!(slept.waits > used.waits, "{slept:?} after {used:?}");
    }
}

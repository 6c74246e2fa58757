//! CPUs of threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may run on.
///
/// # Errors
/// The kernel's error.
pub fn usable() -> std::io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    Ok(cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// If there is no such CPU or it may not be used.
pub fn pin(cpu: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Pins another thread to one CPU.
///
/// # Errors
/// If there is no such thread or CPU, or it may not be moved.
pub fn pin_thread(thread: u32, cpu: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    let pid = i32::try_from(thread).ok().and_then(rustix::thread::Pid::from_raw);
    Ok(sched_setaffinity(Some(pid.ok_or(rustix::io::Errno::SRCH)?), &set)?)
}

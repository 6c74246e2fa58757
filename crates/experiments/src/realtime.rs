//! Real-time class and CPU of the calling thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use punctual_engine::os::realtime::{RealTime, RealTimeError, SchedulingClass, apply};

/// The CPUs that this process may run on.
///
/// # Errors
/// What the kernel says.
pub fn usable_cpus() -> std::io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    Ok(cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// Where there is no such CPU or it may not be used.
pub fn pin(cpu: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

/// Pins another thread to one CPU.
///
/// # Errors
/// Where there is no such thread or CPU, or it may not be moved.
pub fn pin_thread(thread: u32, cpu: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    let pid = i32::try_from(thread).ok().and_then(rustix::thread::Pid::from_raw);
    Ok(sched_setaffinity(Some(pid.ok_or(rustix::io::Errno::SRCH)?), &set)?)
}

/// Puts the calling thread into `SCHED_FIFO` at `priority` (1 to 99), on one CPU or on any.
///
/// # Errors
/// Where the class or the CPU is refused, with the fix.
pub fn enter_fifo(priority: u8, cpu: Option<u32>) -> Result<(), RealTimeError> {
    apply(&RealTime { class: SchedulingClass::Fifo { priority }, cpu, lock_memory: false })
}

/// Whether this process may enter real-time classes at all; tried on a thread of its own.
pub fn available() -> bool {
    std::thread::spawn(|| enter_fifo(1, None).is_ok()).join().unwrap_or(false)
}

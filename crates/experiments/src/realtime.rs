//! Real-time class and CPU of the calling thread.
//!
//! The class is set by `chrt` (util-linux): it happens a few times per run, and this crate holds no unsafe code.

use std::io;
use std::process::Command;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

/// The CPUs that this process may run on.
///
/// # Errors
/// What the kernel says.
pub fn usable_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Binds the calling thread to `cpu`.
///
/// # Errors
/// Where there is no such CPU or it is not ours.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Puts the calling thread into `SCHED_FIFO` at `priority` (1 to 99).
///
/// # Errors
/// Where `chrt` is missing or the class is refused: real-time classes need root, CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn enter_fifo(priority: u8) -> io::Result<()> {
    let thread = gettid().as_raw_nonzero().to_string();
    let output = Command::new("chrt").args(["-f", "-p", &priority.to_string(), &thread]).output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("SCHED_FIFO {priority} refused: {why}")))
}

/// Whether this process may enter real-time classes at all; tried on a thread of its own.
pub fn available() -> bool {
    std::thread::spawn(|| enter_fifo(1).is_ok()).join().unwrap_or(false)
}

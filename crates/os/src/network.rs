//! A network of a thread's own.

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Puts the calling thread, and what it starts from now on, into a new and empty network namespace. It goes when the
/// last socket and thread in it are gone, however they end.
///
/// # Errors
/// If the process does not have `CAP_SYS_ADMIN`.
pub fn enter_private_network() -> io::Result<()> {
    // SAFETY: a network namespace is the kernel's view of this thread; memory, descriptors and signals stay shared.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

//! A network of a thread's own.

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread, and those that it starts from now on, into a new and empty network namespace.
/// The kernel removes it when its last socket and thread are gone, however they end.
///
/// # Errors
/// If the process does not have `CAP_SYS_ADMIN`.
pub fn enter_private_network() -> io::Result<()> {
    // SAFETY: a network namespace is the kernel's view of this thread; memory, descriptors and signals stay shared.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

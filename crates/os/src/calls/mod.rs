//! The system calls that the threads of a host may make. Each kind of thread has a list, with a reason beside
//! each call. A thread installs a seccomp filter for itself once its setup is done (docs/adr/0034). A filter
//! cannot be removed again.
//!
//! The list of the processor equals that in SECURITY.md; a test compares them. A thread of an embedding
//! program gets a filter only if its host requests one, as `punctuald` does.

mod filter;
mod refused;
mod tables;

use std::fmt;
use std::io;
use std::sync::OnceLock;

use serde::Deserialize;

pub use self::refused::refused;
pub use self::tables::{Call, calls};

/// Kinds of thread, by their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// Drives the node and its links, with a heap of its own.
    Processor,
    /// Drives the node and its links on the C library's heap, which other threads use as well.
    ProcessorOnSharedHeap,
    /// Serves programs on the API socket, and ends the host.
    Service,
    /// Decides on admission.
    Admission,
    /// Keeps the processor's heap filled.
    Heap,
    /// Rings the bells of one user. The service starts it, so the service's filter applies to it too.
    Ringer,
    /// Opens links over AF_XDP and follows their devices.
    Links,
    /// Watches and shapes the links' devices.
    Devices,
    /// Begins TCP connections of the host's own, and drops what they leave behind.
    Tcp,
}

impl ThreadKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Processor,
        Self::ProcessorOnSharedHeap,
        Self::Service,
        Self::Admission,
        Self::Heap,
        Self::Ringer,
        Self::Links,
        Self::Devices,
        Self::Tcp,
    ];
}

impl fmt::Display for ThreadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Processor | Self::ProcessorOnSharedHeap => "processor",
            Self::Service => "service",
            Self::Admission => "admission",
            Self::Heap => "heap",
            Self::Ringer => "ringer",
            Self::Links => "links",
            Self::Devices => "devices",
            Self::Tcp => "tcp",
        })
    }
}

/// What happens at a system call that is not in the list of its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forbidden {
    /// The call fails with `EPERM`, is counted, and is reported on standard error once.
    #[default]
    Refuse,
    /// The kernel ends the process (SIGSYS).
    End,
    /// The call is made: no thread has a filter.
    Allow,
}

/// Makes the C library issue the system calls early that it would otherwise issue once per process, in the
/// middle of a thread's work: glibc opens `/proc/sys/vm/overcommit_memory` when a heap that is not the first
/// thread's shrinks for the first time. Call this before memory is locked: the memory that it touches would
/// otherwise stay resident.
///
/// # Errors
/// If threads run out.
pub fn prepare() -> io::Result<()> {
    // Allocate more than is free in a heap, in pieces that are too small for a mapping of their own.
    const PIECES: usize = 80;
    const PIECE_BYTES: usize = 100 << 10;
    static ONCE: OnceLock<()> = OnceLock::new();
    if ONCE.set(()).is_ok() {
        let thread = std::thread::Builder::new().name("punctual-libc".into());
        let thread = thread.spawn(|| drop([(); PIECES].map(|()| Vec::<u8>::with_capacity(PIECE_BYTES))))?;
        // The thread does nothing that can panic.
        let _ = thread.join();
    }
    Ok(())
}

/// Installs the filter of `kind` on the calling thread, and on those that it starts from now on, permanently,
/// and sets `NO_NEW_PRIVS`. Signal handlers do not run on the thread any more, only on that of the service.
///
/// # Errors
/// If this kernel or this architecture has no such filters; nothing is changed then.
pub fn confine(kind: ThreadKind, forbidden: Forbidden) -> io::Result<()> {
    if forbidden == Forbidden::Allow {
        return Ok(());
    }
    let filter = filter::compile(kind, forbidden)?;
    if forbidden == Forbidden::Refuse {
        refused::prepare(kind)?;
    }
    if kind != ThreadKind::Service {
        refused::leave_signals_to_others()?;
    }
    filter::install(&filter)
}

#[cfg(test)]
mod tests;

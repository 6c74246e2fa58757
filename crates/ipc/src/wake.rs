//! Wake-ups between two processes that share a ring.
//!
//! A side that finds nothing to do *arms* its sleep flag, looks once more, and only then sleeps. The other side
//! publishes, then takes the flag down, and makes a system call only where it was up. Why no wake-up is lost: both
//! exchange the flag, and of two exchanges one comes first. If the sleeper's does, the waker finds the flag up; if the
//! waker's does, the sleeper has read what it left (or what came after) and so sees the position (`fuzz/models` tries
//! every order of both). An exchange of a line that is at hand takes 5 ns, a fence between a store and a load 20.
//!
//! Neither side can block the other:
//! - [`Doorbell`] (application to daemon) is an eventfd. The daemon waits for it edge-triggered and never reads
//!   it, since the application could turn off `O_NONBLOCK`, which belongs to the file and not to the descriptor.
//! - [`Bell`] (daemon to application) is a pipe whose two processes have files of their own, so the daemon's
//!   writes stay non-blocking whatever the application does to its end. The application holds a writing end too:
//!   it rings its own bell to keep the descriptor readable while something waits.

mod flag;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

pub use flag::{arm, is_armed, must_wake};

/// Tells one thread of this process that something needs to be looked at. Clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<OwnedFd>);

impl Alarm {
    /// A new one.
    ///
    /// # Errors
    /// Where descriptors run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Rings; never blocks.
    pub fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Takes all rings out.
    pub fn hush(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The application's way to wake the daemon.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// Two descriptors of one eventfd: for the application and for the daemon.
    ///
    /// # Errors
    /// Where descriptors run out.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let ours = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let theirs = ours.try_clone()?;
        Ok((ours, theirs))
    }

    /// Around the application's descriptor.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Rings. A full counter means that it rings already.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// The daemon's end of a bell.
#[derive(Debug)]
pub struct BellRope(OwnedFd);

impl BellRope {
    /// Rings; never blocks. A full pipe rings already, a closed one has nobody to hear it.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &[1]);
    }
}

/// The application's end of a bell: readable while something waits for the application.
#[derive(Debug)]
pub struct Bell {
    hear: OwnedFd,
    ring: OwnedFd,
}

impl Bell {
    /// A bell, and what the daemon rings it with.
    ///
    /// # Errors
    /// Where descriptors run out or `/proc` is not mounted.
    pub fn pair() -> io::Result<(Self, BellRope)> {
        let (hear, ring) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // One page is plenty, and an idle channel stays small. Refusal only costs memory.
        let _ = rustix::pipe::fcntl_setpipe_size(&ring, 4096);
        let path = format!("/proc/self/fd/{}", ring.as_raw_fd());
        let own = rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        Ok((Self { hear, ring: own }, BellRope(ring)))
    }

    /// From the descriptors that came over the socket.
    pub fn from_parts(hear: OwnedFd, ring: OwnedFd) -> Self {
        Self { hear, ring }
    }

    /// The descriptors, to be sent.
    pub fn into_parts(self) -> (OwnedFd, OwnedFd) {
        (self.hear, self.ring)
    }

    /// Another handle of the application's own rope, for whoever must wake it from within the process.
    ///
    /// # Errors
    /// Where descriptors run out.
    pub fn own_rope(&self) -> io::Result<BellRope> {
        Ok(BellRope(self.ring.try_clone()?))
    }

    /// Rings from within the application.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.ring, &[1]);
    }

    /// Takes all rings out.
    pub fn hush(&self) {
        let mut sink = [0_u8; 64];
        while matches!(rustix::io::read(&self.hear, &mut sink), Ok(n) if n == sink.len()) {}
    }

    /// Sleeps until it rings or `until`; `false` when that came first.
    ///
    /// # Errors
    /// Where `poll` fails other than by a signal.
    pub fn wait(&self, until: Option<Instant>) -> io::Result<bool> {
        wait_readable(self.hear.as_fd(), until)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hear.as_fd()
    }
}

/// Sleeps until `descriptor` is readable or hung up, or until `until`; `false` when that came first.
///
/// # Errors
/// Where `poll` fails other than by a signal.
pub fn wait_readable(descriptor: BorrowedFd<'_>, until: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map(timespec);
        let mut set = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut set, timeout.as_ref()) {
            Ok(0) if left.is_some_and(|left| left.is_zero()) => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A span as the kernel wants it.
pub fn timespec(span: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

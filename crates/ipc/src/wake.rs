//! Wake-ups between two processes that share a ring.
//!
//! A side that finds no work takes a *ticket* (it increments a counter in its own memory), checks once more,
//! and only then sleeps. The other side publishes, then reads the ticket, and makes a system call only if it
//! has not answered that ticket yet. Why no wake-up is lost: publishing, taking a ticket and reading either
//! are sequentially consistent, so one of "I have published" and "I am about to sleep" comes first. If the
//! ticket does, the waker finds it. If the publication does, the sleeper sees it (`fuzz/models` tries every
//! order of both). Each word has one writer, so that each side can map the other's words for reading only. A
//! sequentially consistent store takes 5 ns.
//!
//! Neither side can block the other (ADR 0031):
//! - [`Doorbell`] (application to daemon) is a pair of sockets, one for each side; the application rings by
//!   shutting its end down, once more each time: that wakes the thread that waits at the daemon's end, puts
//!   no byte into it and never waits. The daemon waits for its end edge-triggered, and does not read. Only
//!   the daemon can wait there: an application cannot make that list longer, as it can with an eventfd, which
//!   both would hold.
//! - [`Bell`] (daemon to application) is an eventfd. The processor does not write it, because the write would
//!   walk all waiters. It requests that from the user's [`Ringer`]. It rings the bell itself only if program
//!   and engine are one process, or the program is as trusted as the daemon ([`RingPath::Direct`]).

mod bell_list;
mod flag;
mod ringer;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_trial::{Defence, holds};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use self::bell_list::BellNode;
pub use self::flag::{Answered, arm};
pub use self::ringer::{Bells, Rank, RingMemory, Ringer};

/// Notifies one thread of this process that it must check some state. Clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Alarm(Arc<OwnedFd>);

impl Alarm {
    /// A new one.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Rings; never blocks.
    pub fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Takes all rings out.
    pub fn clear(&self) {
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
pub struct Doorbell(Option<OwnedFd>);

impl Doorbell {
    /// The daemon's end, which becomes readable at each ring anew, and the application's.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // From here on this end receives neither bytes nor descriptors, whose closing might wait for other
        // processes.
        shutdown(&ours, Shutdown::Read)?;
        Ok((ours, theirs))
    }

    /// Another handle of the same doorbell.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.as_ref().map(OwnedFd::try_clone).transpose().map(Self)
    }

    /// Checks that this kernel wakes the waiter at each ring: POSIX does not specify the shutdown of a socket
    /// that is shut down already.
    ///
    /// # Errors
    /// If it does not, or descriptors run out.
    pub fn check() -> io::Result<()> {
        use rustix::event::epoll;
        let (ours, theirs) = Self::pair()?;
        let (bell, waiter) = (Self::new(theirs), epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(
            &waiter,
            &ours,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN | epoll::EventFlags::ET,
        )?;
        let mut ready_events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        let mut poll_now = || epoll::wait(&waiter, &mut ready_events[..], Some(&timespec(Duration::ZERO)));
        poll_now()?;
        for _ in 0..2 {
            bell.ring();
            if poll_now()? != 1 {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this kernel does not report a second shutdown of a socket, so doorbells would not work: \
                     use a kernel that this version was tested with (docs/adr/0031)",
                ));
            }
        }
        Ok(())
    }

    /// A doorbell on the application's descriptor.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Some(descriptor))
    }

    /// The doorbell of a ring whose reader is in this process, and is told of messages in another way.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Rings; never blocks. Has no effect if the daemon is gone.
    pub fn ring(&self) {
        if let Some(descriptor) = &self.0 {
            let _ = shutdown(descriptor, Shutdown::Write);
        }
    }
}

/// How bells that are made are rung.
#[derive(Clone, Debug)]
pub enum RingPath {
    /// The notifying thread rings the bell itself: program and engine are one process, or the process at the
    /// other end is trusted not to delay this thread.
    Direct,
    /// The ringer of the bells' user.
    Ringer(Arc<Bells>),
}

/// The daemon's end of a bell.
#[derive(Debug)]
pub struct BellHandle {
    node: Arc<BellNode<Arc<OwnedFd>>>,
    ring_path: RingPath,
}

impl BellHandle {
    /// Rings, now or soon; neither waits nor allocates.
    pub fn ring(&self) {
        match &self.ring_path {
            RingPath::Ringer(bells) if holds(Defence::Ringer) => bells.want(&self.node),
            RingPath::Direct | RingPath::Ringer(_) => {
                let _ = rustix::io::write(&*self.node.bell, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// The application's end of a bell: readable while something waits for the application. Clones are the same end, for threads of this
/// process that must wake the application.
#[derive(Clone, Debug)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// A bell's descriptor, for the application, and the handle with which the daemon rings it.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn pair(ring_path: &RingPath) -> io::Result<(OwnedFd, BellHandle)> {
        let (theirs, bell) = if holds(Defence::EventfdBells) {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            (bell.try_clone()?, bell)
        } else {
            use rustix::pipe::{PipeFlags, pipe_with};
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?
        };
        let node = Arc::new(BellNode::new(Arc::new(bell)));
        Ok((theirs, BellHandle { node, ring_path: ring_path.clone() }))
    }

    /// A bell whose application is this process: both ends have one descriptor.
    ///
    /// # Errors
    /// If descriptors run out.
    pub fn within() -> io::Result<(Self, BellHandle)> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let node = Arc::new(BellNode::new(Arc::clone(&bell)));
        Ok((Self(bell), BellHandle { node, ring_path: RingPath::Direct }))
    }

    /// A bell on the descriptor that came over the socket.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(Arc::new(descriptor))
    }

    /// Rings from within the application.
    pub fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Takes all rings out.
    pub fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }

    /// Sleeps until it rings or `until`; `false` when that came first.
    ///
    /// # Errors
    /// If `poll` fails other than by a signal.
    pub fn wait(&self, until: Option<Instant>) -> io::Result<bool> {
        wait_readable(self.0.as_fd(), until)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until `descriptor` is readable or hung up, or until `until`; `false` when that came first.
///
/// # Errors
/// If `poll` fails other than by a signal.
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

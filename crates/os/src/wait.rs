//! Sleeping until a descriptor or a time, with a resolution of nanoseconds.
//!
//! Every descriptor is watched edge-triggered and never read: that is one system call per wake-up, and the
//! process that rings it (an application) can neither make this thread block on it nor keep it awake by
//! leaving it readable.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use punctual_analysis::Nanos;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// Descriptors reported by one wake-up.
const READY_MAX: usize = 64;
/// The token of our own timer.
const TIMER: u64 = u64::MAX;

/// An eventfd that wakes a thread.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new one.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }
    /// Wakes the thread that watches it.
    pub fn ring(&self) {
        // EAGAIN means that the counter is at its limit: it was rung.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
    /// Makes it unreadable again.
    pub fn reset(&self) {
        // EAGAIN means that it was not rung.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits for descriptors and time, on one thread.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    /// For kernels without `epoll_pwait2` (before 5.11).
    timer: Option<OwnedFd>,
    ready: Box<[libc::epoll_event]>,
}

impl Waiter {
    /// A waiter without watched descriptors.
    ///
    /// # Errors
    /// If the process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        let ready = vec![libc::epoll_event { events: 0, u64: 0 }; READY_MAX].into();
        let mut waiter = Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, timer: None, ready };
        if matches!(waiter.wait_precisely(Some(Nanos::ZERO)), Err(e) if e.raw_os_error() == Some(libc::ENOSYS))
        {
            waiter.use_timer()?;
        }
        Ok(waiter)
    }

    fn use_timer(&mut self) -> io::Result<()> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        self.watch(timer.as_fd(), TIMER)?;
        self.timer = Some(timer);
        Ok(())
    }

    /// Reports `token` (anything but `u64::MAX`) whenever `descriptor` becomes readable, and once if it is
    /// readable now.
    ///
    /// # Errors
    /// If the descriptor cannot be watched.
    pub fn watch(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token), flags)?)
    }

    /// Stops watching. When the descriptor is watched again, it is reported at once if it was ready
    /// meanwhile. Call this before the descriptor is closed: other processes may hold copies of it.
    pub fn unwatch(&self, descriptor: BorrowedFd<'_>) {
        // ENOENT means that it was not watched.
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleeps until something is ready or `span` is over (`None`: no time); returns how many tokens to
    /// [`Waiter::token`] are ready, 0 when the time was over.
    ///
    /// # Errors
    /// Never for a signal, which ends the wait early; else if the kernel refuses.
    pub fn wait(&mut self, span: Option<Nanos>) -> io::Result<usize> {
        let waited = if self.timer.is_some() { self.wait_by_timer(span) } else { self.wait_precisely(span) };
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            waited => waited,
        }
    }

    /// The `n`th of the ready tokens; `None` for our own timer.
    pub fn token(&self, n: usize) -> Option<u64> {
        Some(self.ready[n].u64).filter(|token| *token != TIMER)
    }

    fn wait_precisely(&mut self, span: Option<Nanos>) -> io::Result<usize> {
        let timeout = span.map(|span| libc::timespec {
            tv_sec: (span.0 / 1_000_000_000) as libc::time_t,
            tv_nsec: (span.0 % 1_000_000_000) as libc::c_long,
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `ready` is ours and `READY_MAX` long; the timeout is null or valid until the call returns;
        // a null signal mask is permitted.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.ready.as_mut_ptr(),
                READY_MAX as libc::c_int,
                timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
    }

    fn wait_by_timer(&mut self, span: Option<Nanos>) -> io::Result<usize> {
        let Some(timer) = &self.timer else { return Err(io::ErrorKind::Unsupported.into()) };
        let milliseconds = match span {
            None => -1,
            Some(Nanos::ZERO) => 0,
            Some(span) => {
                let value = Timespec {
                    tv_sec: (span.0 / 1_000_000_000) as i64,
                    tv_nsec: (span.0 % 1_000_000_000) as _,
                };
                let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
                timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
                -1
            }
        };
        // SAFETY: `ready` is ours and `READY_MAX` long.
        let count = unsafe {
            libc::epoll_wait(
                self.epoll.as_raw_fd(),
                self.ready.as_mut_ptr(),
                READY_MAX as libc::c_int,
                milliseconds,
            )
        };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now;

    const SPAN: Nanos = Nanos::from_micros(300);

    fn both() -> [Waiter; 2] {
        let mut by_timer = Waiter::new().expect("descriptors");
        by_timer.use_timer().expect("a timer");
        [Waiter::new().expect("descriptors"), by_timer]
    }

    #[test]
    fn a_wait_lasts_at_least_its_span() {
        for mut waiter in both() {
            let before = now();
            let ready = waiter.wait(Some(SPAN)).expect("a wait");
            assert!(now().since(before) >= SPAN);
            assert!((0..ready).all(|n| waiter.token(n).is_none()));
        }
    }

    #[test]
    fn events_while_unwatched_are_reported_when_watching_resumes() {
        for mut waiter in both() {
            let bell = Doorbell::new().expect("an eventfd");
            waiter.watch(bell.as_fd(), 7).expect("watched");
            waiter.unwatch(bell.as_fd());
            bell.ring();
            assert_eq!(waiter.wait(Some(Nanos::ZERO)).expect("a look"), 0);
            waiter.watch(bell.as_fd(), 7).expect("heard");
            assert_eq!(waiter.wait(Some(Nanos::ZERO)).expect("a look"), 1);
            assert_eq!(waiter.token(0), Some(7));
        }
    }

    #[test]
    fn a_doorbell_is_reported_once_for_each_ring_and_never_read() {
        for mut waiter in both() {
            let bell = Doorbell::new().expect("an eventfd");
            waiter.watch(bell.as_fd(), 7).expect("watched");
            for _ in 0..2 {
                bell.ring();
                assert_eq!(waiter.wait(Some(Nanos::from_secs(5))).expect("a wait"), 1);
                assert_eq!(waiter.token(0), Some(7));
                assert_eq!(waiter.wait(Some(Nanos::ZERO)).expect("a wait"), 0);
            }
            waiter.unwatch(bell.as_fd());
            bell.ring();
            assert_eq!(waiter.wait(Some(Nanos::ZERO)).expect("a wait"), 0);
        }
    }
}

//! The scheduling attributes of threads: `sched_setattr` and `sched_getattr`, for which the C library has no functions.

use std::io;

use punctual_analysis::Nanos;

/// The calling thread.
pub const SELF: u32 = 0;

/// How a thread is scheduled. Threads that it creates have default scheduling (`RESET_ON_FORK`) unless this
/// is the default itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attributes {
    /// `SCHED_FIFO`, 1 to 99.
    Fifo {
        /// The priority.
        priority: u8,
    },
    /// `SCHED_DEADLINE`; the thread may also use the part of the CPU's share that others do not need
    /// (`RECLAIM`).
    Deadline {
        /// CPU time in each period.
        runtime: Nanos,
        /// Length of the period, and its deadline.
        period: Nanos,
    },
    /// Anything else, to be put back as it was.
    Else {
        /// The kernel's number of the class.
        policy: u32,
        /// The nice value.
        nice: i32,
        /// The priority, of classes that have one.
        priority: u32,
        /// `SCHED_FLAG_*`.
        flags: u64,
    },
}

impl Attributes {
    /// An ordinary thread.
    pub const ORDINARY: Self =
        Self::Else { policy: libc::SCHED_OTHER as u32, nice: 0, priority: 0, flags: 0 };

    fn raw(self) -> libc::sched_attr {
        // SAFETY: plain numbers, for which all zeroes is valid.
        let mut raw: libc::sched_attr = unsafe { std::mem::zeroed() };
        raw.size = size_of::<libc::sched_attr>() as u32;
        raw.sched_flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        match self {
            Self::Fifo { priority } => {
                raw.sched_policy = libc::SCHED_FIFO as u32;
                raw.sched_priority = u32::from(priority);
            }
            Self::Deadline { runtime, period } => {
                raw.sched_policy = libc::SCHED_DEADLINE as u32;
                raw.sched_flags |= libc::SCHED_FLAG_RECLAIM as u64;
                (raw.sched_runtime, raw.sched_deadline, raw.sched_period) = (runtime.0, period.0, period.0);
            }
            Self::Else { policy, nice, priority, flags } => {
                raw.sched_policy = policy;
                raw.sched_nice = nice;
                raw.sched_priority = priority;
                raw.sched_flags = flags;
            }
        }
        raw
    }

    fn of_raw(raw: &libc::sched_attr) -> Self {
        let resets = raw.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0;
        match raw.sched_policy as i32 {
            libc::SCHED_FIFO if resets => Self::Fifo { priority: raw.sched_priority as u8 },
            libc::SCHED_DEADLINE if resets => {
                Self::Deadline { runtime: Nanos(raw.sched_runtime), period: Nanos(raw.sched_period) }
            }
            _ => Self::Else {
                policy: raw.sched_policy,
                nice: raw.sched_nice,
                priority: raw.sched_priority,
                flags: raw.sched_flags,
            },
        }
    }
}

/// How a thread is scheduled now.
///
/// # Errors
/// If there is no such thread.
pub fn attributes(thread: u32) -> io::Result<Attributes> {
    // SAFETY: plain numbers, for which all zeroes is valid.
    let mut raw: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: the structure is ours, and the kernel writes at most the size that it receives.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut raw, size, 0) };
    if done == 0 { Ok(Attributes::of_raw(&raw)) } else { Err(io::Error::last_os_error()) }
}

/// Restores a thread's former scheduling. Without `CAP_SYS_NICE` the threads that it creates keep default
/// scheduling.
///
/// # Errors
/// See [`set_attributes`].
pub fn restore(thread: u32, before: Attributes) -> io::Result<()> {
    set_attributes(thread, before).or_else(|error| match before {
        Attributes::Else { policy, nice, priority, flags } => {
            let flags = flags | libc::SCHED_FLAG_RESET_ON_FORK as u64;
            set_attributes(thread, Attributes::Else { policy, nice, priority, flags })
        }
        _ => Err(error),
    })
}

/// Sets how a thread is scheduled from now on.
///
/// # Errors
/// The kernel's error: `EPERM` without the right, `EBUSY` if the CPUs have no such share left, `EINVAL` for
/// what does not exist, `ESRCH` if there is no such thread.
pub fn set_attributes(thread: u32, wanted: Attributes) -> io::Result<()> {
    let raw = wanted.raw();
    // SAFETY: the structure is ours and only read.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const raw, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

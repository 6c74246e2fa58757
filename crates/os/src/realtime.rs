//! The scheduling class of the processor thread, its CPU and its memory. All of it fails closed: a setting
//! that was requested and not obtained is an error that includes the fix.

use std::io;

use punctual_analysis::{Nanos, Ppm};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;

use super::attributes::{Attributes, SELF, set_attributes};

/// A processor that spins for at least this long never sleeps in effect, because RT throttling counts within
/// a second.
const SPIN_BOUNDED: Nanos = Nanos::from_millis(100);

/// Fraction of the admitted utilisation that is added for costs that were not measured.
const RUNTIME_MARGIN: Ppm = Ppm(50_000);
/// An idle node's share: HELLOs, requests, wake-ups; one slice of work in a period of a millisecond is half of it.
const RUNTIME_MIN: Ppm = Ppm(100_000);
/// Most that the kernel gives to one thread (`sched_rt_runtime_us` of `sched_rt_period_us`, unless changed).
pub const RUNTIME_MAX: Ppm = Ppm(950_000);
/// The periods that the kernel takes (`sched_deadline_period_{min,max}_us`).
pub const PERIODS: [Nanos; 2] = [Nanos::from_micros(100), Nanos::from_millis(4_194)];

/// Runtime in each `period` of a processor whose admission has granted `utilisation`, interference included.
pub fn runtime(utilisation: Ppm, period: Nanos) -> Nanos {
    let share = utilisation.0.saturating_add(RUNTIME_MARGIN.0).clamp(RUNTIME_MIN.0, RUNTIME_MAX.0);
    Nanos((u128::from(period.0) * u128::from(share) / 1_000_000) as u64)
}

/// Gives the calling thread, which is scheduled by deadline, this runtime in each period.
///
/// # Errors
/// If the kernel's admission, or the right, is missing.
pub fn set_runtime(runtime: Nanos, period: Nanos) -> Result<(), RealTimeError> {
    set_attributes(SELF, Attributes::Deadline { runtime, period }).map_err(|error| RealTimeError::Deadline {
        runtime,
        period,
        fix: deadline_fix(&error),
        error,
    })
}

fn deadline_fix(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "the CPUs have no such share left: stop other deadline threads, use fewer or lighter channels, or \
             [processor] class = \"fifo\""
        }
        Some(libc::EPERM) => {
            "run as root or grant CAP_SYS_NICE, and do not confine the process to some of the CPUs (taskset): an \
             exclusive cpuset does that; or start with --best-effort-host"
        }
        _ => "give [processor] deadline_period within /proc/sys/kernel/sched_deadline_period_{min,max}_us",
    }
}

/// The nice value of a thread whose answers applications wait for, even beside hogs.
const NICE_FIRST: i32 = -20;

/// Raises the calling thread, an ordinary one, above other ordinary threads if the processor has a real-time
/// `class`. If the process may have that class and no better nice value (`RLIMIT_RTPRIO` alone), the thread
/// stays as it is: no guarantee depends on it.
///
/// # Errors
/// The kernel's error, unless only a right is missing.
pub fn go_before_ordinary_threads(class: SchedulingClass) -> io::Result<()> {
    if class == SchedulingClass::BestEffortHost {
        return Ok(());
    }
    let first =
        Attributes::Else { policy: libc::SCHED_OTHER as u32, nice: NICE_FIRST, priority: 0, flags: 0 };
    set_attributes(SELF, first).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Ok(()),
        _ => Err(error),
    })
}

/// Raises the calling thread above all ordinary threads, but below all other real-time threads, if the
/// processor has a real-time `class`, because the processor may wait for it. A nice value is not enough: with
/// `sched_autogroup_enabled` it counts within a session only, and hogs in sessions of their own kept such a
/// thread, and the processor, waiting for 641 ms.
///
/// # Errors
/// The kernel's error, unless only a right is missing.
pub fn go_behind_the_processor(class: SchedulingClass) -> io::Result<()> {
    if class == SchedulingClass::BestEffortHost {
        return Ok(());
    }
    set_attributes(SELF, Attributes::Fifo { priority: FIFO_LAST }).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => go_before_ordinary_threads(class),
        _ => Err(error),
    })
}

/// The least priority of the class.
const FIFO_LAST: u8 = 1;

/// How the processor is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulingClass {
    /// `SCHED_FIFO` at 1 to 99.
    Fifo {
        /// The priority.
        priority: u8,
    },
    /// `SCHED_DEADLINE`, with the runtime that admission has given away.
    Deadline {
        /// Period of the runtime, and its deadline.
        period: Nanos,
    },
    /// An ordinary thread: the host guarantees nothing, and reports that.
    BestEffortHost,
}

/// The system settings that the processor thread requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTime {
    /// Scheduling class of the thread.
    pub class: SchedulingClass,
    /// The CPU that it is pinned to.
    pub cpu: Option<u32>,
    /// Whether the whole process' memory is locked, so that no page fault can delay it.
    pub lock_memory: bool,
}

impl RealTime {
    /// An ordinary thread on any CPU.
    pub const BEST_EFFORT_HOST: Self =
        Self { class: SchedulingClass::BestEffortHost, cpu: None, lock_memory: false };
}

/// A setting that the host refused, with the fix.
#[derive(Debug, Error)]
pub enum RealTimeError {
    /// The priority does not exist.
    #[error("SCHED_FIFO priority {priority} is out of range: use {min} to {max}")]
    Priority {
        /// The requested priority.
        priority: u8,
        /// Smallest.
        min: i32,
        /// Largest.
        max: i32,
    },
    /// The class was refused.
    #[error(
        "SCHED_FIFO priority {priority} was refused ({error}): run as root, or grant CAP_SYS_NICE or RLIMIT_RTPRIO, \
         or start with --best-effort-host"
    )]
    Class {
        /// The requested priority.
        priority: u8,
        /// The system's answer.
        error: io::Error,
    },
    /// The runtime was refused.
    #[error("SCHED_DEADLINE with {runtime} every {period} was refused ({error}): {fix}")]
    Deadline {
        /// Wanted of each period.
        runtime: Nanos,
        /// The period.
        period: Nanos,
        /// The system's answer.
        error: io::Error,
        /// The fix.
        fix: &'static str,
    },
    /// The thread is pinned, and is to be scheduled by deadline.
    #[error(
        "a thread that is pinned cannot be scheduled by deadline: leave [processor] cpu = {cpu} out and start the \
         daemon in an exclusive cpuset, or use class = \"fifo\""
    )]
    PinnedDeadline {
        /// The requested CPU.
        cpu: u32,
    },
    /// The thread would never sleep, and waste its runtime.
    #[error(
        "a processor that never sleeps uses up its SCHED_DEADLINE runtime without doing work: give a shorter \
         spin, or class = \"fifo\""
    )]
    SpinningDeadline,
    /// The thread would spin, and be throttled.
    #[error(
        "a processor that never sleeps in a real-time class loses 50 ms of every second to RT throttling: pin it to an \
         isolated CPU ([processor] cpu, kernel parameter isolcpus), or sysctl kernel.sched_rt_runtime_us=-1, or give a \
         shorter spin"
    )]
    Throttled,
    /// Locking was refused.
    #[error(
        "memory cannot be locked ({error}): run as root, or grant CAP_IPC_LOCK or a larger RLIMIT_MEMLOCK, \
         or start with --best-effort-host"
    )]
    Memory {
        /// The system's answer.
        error: io::Error,
    },
    /// No such CPU, or not ours.
    #[error(
        "the processor cannot be pinned to CPU {cpu} ({error}): choose one of /sys/fs/cgroup/cpuset.cpus.effective or leave \"cpu\" out"
    )]
    Cpu {
        /// The requested CPU.
        cpu: u32,
        /// The system's answer.
        error: io::Error,
    },
}

/// Applies `wanted` to the calling thread; on an error some of it may be in effect already. Threads that it
/// starts while in a real-time class are ordinary ones.
///
/// # Errors
/// The first setting that the host refused.
pub fn apply(wanted: &RealTime) -> Result<(), RealTimeError> {
    if let Some(cpu) = wanted.cpu {
        if matches!(wanted.class, SchedulingClass::Deadline { .. }) {
            return Err(RealTimeError::PinnedDeadline { cpu });
        }
        pin(cpu)?;
    }
    if wanted.lock_memory {
        mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
            .map_err(|error| RealTimeError::Memory { error: error.into() })?;
    }
    match wanted.class {
        SchedulingClass::Fifo { priority } => set_fifo(priority),
        // Admission has granted nothing yet; the processor follows it from here on.
        SchedulingClass::Deadline { period } => set_runtime(runtime(Ppm(0), period), period),
        SchedulingClass::BestEffortHost => {
            TimerSlack::LEAST.set();
            Ok(())
        }
    }
}

/// Whether a processor of the class may poll its rings for `spin` before it sleeps. A thread that never
/// sleeps in a real-time class loses 50 ms of every second to RT throttling (`sched_rt_runtime_us`), unless
/// that is off or no ordinary thread ever runs on its CPU.
///
/// # Errors
/// If it would be throttled.
pub fn check_spin(real_time: &RealTime, spin: Nanos) -> Result<(), RealTimeError> {
    let always = spin >= SPIN_BOUNDED;
    if !always || real_time.class == SchedulingClass::BestEffortHost {
        return Ok(());
    }
    if matches!(real_time.class, SchedulingClass::Deadline { .. }) {
        return Err(RealTimeError::SpinningDeadline);
    }
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let throttled = read("/proc/sys/kernel/sched_rt_runtime_us").trim() != "-1";
    let isolated = read("/sys/devices/system/cpu/isolated");
    let has_own_core = real_time.cpu.is_some_and(|cpu| is_listed(cpu, isolated.trim()));
    if throttled && !has_own_core { Err(RealTimeError::Throttled) } else { Ok(()) }
}

/// Whether a list like "1,4-7" names a CPU.
fn is_listed(cpu: u32, list: &str) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((first.parse::<u32>(), last.parse::<u32>()), (Ok(first), Ok(last)) if (first..=last).contains(&cpu))
    })
}

/// Pins the calling thread.
///
/// # Errors
/// [`RealTimeError::Cpu`].
pub fn pin(cpu: u32) -> Result<(), RealTimeError> {
    let fail = |error| RealTimeError::Cpu { cpu, error };
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(fail(io::ErrorKind::InvalidInput.into()));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).map_err(|error| fail(error.into()))
}

fn set_fifo(priority: u8) -> Result<(), RealTimeError> {
    // SAFETY: both only read their argument.
    let (min, max) = unsafe {
        (libc::sched_get_priority_min(libc::SCHED_FIFO), libc::sched_get_priority_max(libc::SCHED_FIFO))
    };
    if !(min..=max).contains(&i32::from(priority)) {
        return Err(RealTimeError::Priority { priority, min, max });
    }
    set_attributes(SELF, Attributes::Fifo { priority })
        .map_err(|error| RealTimeError::Class { priority, error })
}

/// Longest delay of the calling thread's timers that the kernel may add, in nanoseconds: 50,000 unless
/// configured otherwise. The kernel never delays the timers of threads in real-time classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerSlack(libc::c_ulong);

impl TimerSlack {
    const LEAST: Self = Self(1);

    /// Reads the slack of the calling thread.
    pub fn read() -> Self {
        // SAFETY: PR_GET_TIMERSLACK has no arguments and does not access memory. It cannot fail.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        Self(libc::c_ulong::from(slack.unsigned_abs()))
    }

    /// Sets the slack of the calling thread from now on.
    pub fn set(self) {
        // SAFETY: PR_SET_TIMERSLACK takes one number and touches no memory. It cannot fail.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.0) };
    }
}

/// Puts the calling thread into `SCHED_FIFO` at `priority` (1 to 99), on one CPU or on any.
///
/// # Errors
/// If the class or the CPU is refused, with the fix.
pub fn enter_fifo(priority: u8, cpu: Option<u32>) -> Result<(), RealTimeError> {
    apply(&RealTime { class: SchedulingClass::Fifo { priority }, cpu, lock_memory: false })
}

/// Whether this process may enter real-time classes; tried on a thread of its own.
pub fn available() -> bool {
    std::thread::spawn(|| enter_fifo(1, None).is_ok()).join().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies on a thread of its own, which then ends.
    fn apply_aside(wanted: RealTime) -> Result<(), String> {
        std::thread::spawn(move || apply(&wanted).map_err(|error| error.to_string()))
            .join()
            .expect("no panic")
    }

    #[test]
    fn an_impossible_priority_is_refused_with_the_range() {
        let class = SchedulingClass::Fifo { priority: 200 };
        let refusal = apply_aside(RealTime { class, ..RealTime::BEST_EFFORT_HOST });
        assert_eq!(refusal, Err("SCHED_FIFO priority 200 is out of range: use 1 to 99".into()));
    }

    #[test]
    fn an_impossible_cpu_is_refused() {
        for cpu in [1_000, u32::MAX] {
            let refusal = apply_aside(RealTime { cpu: Some(cpu), ..RealTime::BEST_EFFORT_HOST });
            assert!(refusal.is_err_and(|text| text.contains(&format!("CPU {cpu} ")) && !text.contains('\n')));
        }
    }

    #[test]
    fn a_list_of_cpus_is_read_as_the_kernel_writes_it() {
        for (cpu, list, listed) in [(3, "1,3", true), (5, "1,4-7", true), (8, "1,4-7", false), (0, "", false)]
        {
            assert_eq!(is_listed(cpu, list), listed, "{cpu} in \"{list}\"");
        }
    }

    #[test]
    fn a_thread_that_may_be_throttled_may_not_spin_for_ever() {
        let fifo = RealTime { class: SchedulingClass::Fifo { priority: 5 }, ..RealTime::BEST_EFFORT_HOST };
        assert!(check_spin(&RealTime::BEST_EFFORT_HOST, Nanos::MAX).is_ok());
        assert!(check_spin(&fifo, Nanos::from_micros(50)).is_ok());
        let throttled = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").expect("Linux");
        assert_eq!(check_spin(&fifo, Nanos::MAX).is_err(), throttled.trim() != "-1");
    }

    #[test]
    fn an_ordinary_thread_needs_no_privilege() {
        assert_eq!(apply_aside(RealTime::BEST_EFFORT_HOST), Ok(()));
    }

    /// If the privilege is missing, the class is refused, and the error includes the fix. Only the thread
    /// gives up its capabilities; the limit applies to the process, but no other test here depends on it.
    #[test]
    fn without_privilege_fifo_is_refused_with_the_fix() {
        let refusal = std::thread::spawn(|| {
            drop_privileges_of_this_thread();
            apply(&RealTime { class: SchedulingClass::Fifo { priority: 50 }, ..RealTime::BEST_EFFORT_HOST })
        })
        .join()
        .expect("no panic");
        let text = refusal.expect_err("refused").to_string();
        assert!(text.contains("CAP_SYS_NICE") && text.contains("--best-effort-host"), "{text}");
    }

    fn drop_privileges_of_this_thread() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
        let limit = Rlimit { current: Some(0), ..getrlimit(Resource::Rtprio) };
        setrlimit(Resource::Rtprio, limit).expect("a limit can be lowered");
        let none = CapabilitySet::empty();
        let mine = capabilities(None).expect("capabilities can be read");
        let permitted = mine.permitted - CapabilitySet::SYS_NICE;
        let sets = CapabilitySets { effective: none, permitted, inheritable: none };
        set_capabilities(None, sets).expect("capabilities can be given up");
    }
}

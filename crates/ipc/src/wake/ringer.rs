//! Rings the bells of one user, on a thread of its own: the processor never accesses an object that a client
//! holds.
//!
//! A write to an eventfd walks all its waiters with its lock held. A program that holds a copy can make that
//! list a million entries long, and can make the write itself wait. So the processor only records which bell
//! is to be rung ([`BellList`]) and wakes this thread by an eventfd of the daemon's own. Thus a user's
//! actions on its bells delay its own bells only. The same thread closes and unmaps what a user's rings leave
//! behind.
//!
//! The thread runs in a real-time class below the processor's as long as that costs little. If a user's bells
//! cost more than [`SHARE`] of a CPU, the thread becomes an ordinary thread until that has been made good,
//! longer each time. It also rests between two bells, so that they still take no more than that share: a
//! write that walks many waiters runs with interrupts off, in whatever class. Only such a user's own bells
//! are late. The thread stays on the processor's CPU, where it runs as soon as the processor sleeps: a
//! wake-up on a halted CPU takes ten times as long. It leaves that CPU if the processor keeps it waiting
//! there, and while it is an ordinary thread.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::bell_list::{BellList, BellNode};
use super::{Alarm, wait_readable};

/// Divisor of a CPU: this part of it is a user's in the real-time class.
const SHARE: i64 = 20;
/// Longest time in the real-time class that a user may take at once, in nanoseconds.
const BURST_NS: i64 = 500_000;
/// Ringing that took less elapsed time than this, in nanoseconds, counts as this much. The thread's CPU time,
/// which costs a system call, is read only if the ringing took longer (it may have waited for another
/// thread).
const QUICK_NS: u64 = 20_000;
/// The time to make good beyond the overrun, in nanoseconds, doubled each time up to [`STRIKES_MAX`] times.
const PENALTY_NS: i64 = 50_000_000;
const STRIKES_MAX: u32 = 6;
/// Longest rest between two bells of an ordinary thread.
const REST_MAX: Duration = Duration::from_secs(1);
/// A user that has kept to its share for this time, in nanoseconds, begins anew.
const FORGIVEN_NS: u64 = 300_000_000_000;
/// A ringer that waits this long, in nanoseconds, leaves the CPU for [`ROAM_NS`], if there is another one.
const LAG_NS: u64 = 100_000;
const ROAM_NS: u64 = 10_000_000;
/// Value for no CPU.
const NOWHERE: u32 = u32::MAX;
/// Interval between two checks of a ring of which the engine still holds a part.
const RELEASE_CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes of the ringer's stack, which is locked memory.
const STACK_BYTES: usize = 128 * 1024;

/// How the calling thread is scheduled.
pub trait Rank: Send {
    /// Prepares the calling thread, once and before anything else.
    ///
    /// # Errors
    /// Why the thread cannot get its scheduling class: it ends then.
    fn begin(&mut self) -> io::Result<()>;
    /// Raises the thread, because other threads wait for its work.
    fn raise(&mut self);
    /// Schedules the thread as an ordinary one.
    fn lower(&mut self);
    /// Whether the thread is to stay on the CPU of the thread that wakes it: a thread that sleeps soon.
    fn follows(&self) -> bool;
}

/// The remains of a ring: dropped here once they have no other holder.
pub trait RingMemory: Send {
    /// Whether no other holder of any part is left.
    fn is_alone(&self) -> bool;
    /// Bytes of memory that it holds. They stop counting as the user's when it is dropped.
    fn bytes(&self) -> u64;
    /// Descriptors that are closed with it. They stop counting as the user's, too.
    fn descriptors(&self) -> u64;
}

/// The list of one user's bells, with what wakes its ringer.
#[derive(Debug)]
pub struct Bells {
    line: BellList<Arc<OwnedFd>>,
    /// Blocking; no other process holds it.
    wake: OwnedFd,
    ends: AtomicBool,
    /// CPU on which, and time (of the monotonic clock) at which, the thread was last woken.
    woken_on: AtomicU32,
    woken_at_ns: AtomicU64,
    /// Bytes of memory of remains that were freed.
    freed_bytes: AtomicU64,
    freed_descriptors: AtomicU64,
}

impl Bells {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Has `node` rung soon.
    pub(super) fn want(&self, node: &Arc<BellNode<Arc<OwnedFd>>>) {
        if self.line.put(node) {
            self.woken_on.store(u32::try_from(sched_getcpu()).unwrap_or(NOWHERE), Ordering::Relaxed);
            self.woken_at_ns.store(now_ns(), Ordering::Relaxed);
            self.wake();
        }
    }
}

/// A user's ringer. Its thread ends some time after this is dropped, when all remains that it got are freed.
#[derive(Debug)]
pub struct Ringer {
    bells: Arc<Bells>,
    remains: Sender<Box<dyn RingMemory>>,
}

impl Ringer {
    /// Starts the thread. `freed` rings when memory has been given back.
    ///
    /// # Errors
    /// If threads or descriptors run out, or the thread cannot begin.
    pub fn start(mut rank: Box<dyn Rank>, freed: Alarm) -> io::Result<Self> {
        let bells = Arc::new(Bells {
            line: BellList::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC)?,
            ends: AtomicBool::new(false),
            woken_on: AtomicU32::new(NOWHERE),
            woken_at_ns: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
            freed_descriptors: AtomicU64::new(0),
        });
        let (remains, left) = channel();
        let theirs = Arc::clone(&bells);
        let (began, begun) = channel();
        std::thread::Builder::new().name("punctual-bell".into()).stack_size(STACK_BYTES).spawn(
            move || {
                let done = rank.begin();
                let goes_on = done.is_ok();
                // The caller that starts the thread waits for this.
                let _ = began.send(done);
                if goes_on {
                    Ringing::new(theirs, left, freed, rank).run();
                }
            },
        )?;
        begun.recv().map_err(io::Error::other)??;
        Ok(Self { bells, remains })
    }

    /// The list by which new bells are rung.
    pub fn bells(&self) -> Arc<Bells> {
        Arc::clone(&self.bells)
    }

    /// Leaves the remains of a ring to the thread.
    pub fn release(&self, remains: Box<dyn RingMemory>) {
        // Sending cannot fail: the thread runs as long as `self` exists.
        let _ = self.remains.send(remains);
        self.bells.wake();
    }

    /// Bytes and descriptors of remains that were freed since the last call.
    pub fn take_freed(&self) -> (u64, u64) {
        let Bells { freed_bytes, freed_descriptors, .. } = &*self.bells;
        (freed_bytes.swap(0, Ordering::AcqRel), freed_descriptors.swap(0, Ordering::AcqRel))
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.bells.ends.store(true, Ordering::Release);
        self.bells.wake();
    }
}

/// The thread.
struct Ringing {
    bells: Arc<Bells>,
    left: Receiver<Box<dyn RingMemory>>,
    freed: Alarm,
    unreleased: Vec<Box<dyn RingMemory>>,
    raising: Raising,
    place: Place,
}

/// The CPUs on which the thread runs.
struct Place {
    /// The CPUs on which it may run; `None`: no restriction of its own.
    all: Option<CpuSet>,
    /// The CPU that it stays on.
    on: u32,
    /// The CPU that it stays away from.
    not_on: u32,
    roams_until_ns: u64,
}

impl Place {
    /// The place of the calling thread.
    fn new(follows: bool) -> Self {
        let all = if follows { sched_getaffinity(None).ok() } else { None };
        Self { all, on: NOWHERE, not_on: NOWHERE, roams_until_ns: 0 }
    }

    /// Moves the thread to the CPU of the thread that woke it, unless it waits too long there.
    fn follow(&mut self, on: u32, lag_ns: u64, now_ns: u64) {
        let Some(all) = &self.all else { return };
        if lag_ns > LAG_NS {
            self.roams_until_ns = now_ns.saturating_add(ROAM_NS);
        }
        if now_ns < self.roams_until_ns {
            if (self.on, self.not_on) != (NOWHERE, NOWHERE) && sched_setaffinity(None, all).is_ok() {
                (self.on, self.not_on) = (NOWHERE, NOWHERE);
            }
        } else if self.on != on && (on as usize) < CpuSet::MAX_CPU && all.is_set(on as usize) {
            let mut only = CpuSet::new();
            only.set(on as usize);
            if sched_setaffinity(None, &only).is_ok() {
                (self.on, self.not_on) = (on, NOWHERE);
            }
        }
    }

    /// Moves the thread away from the CPU of the thread that woke it, if there is another CPU.
    fn avoid(&mut self, on: u32) {
        let Some(all) = &self.all else { return };
        if self.not_on == on || on as usize >= CpuSet::MAX_CPU {
            return;
        }
        let mut others = *all;
        others.unset(on as usize);
        let others = if others.count() == 0 { all } else { &others };
        if sched_setaffinity(None, others).is_ok() {
            (self.on, self.not_on) = (NOWHERE, on);
        }
    }
}

impl Ringing {
    /// Creates the state of a ringer, on its own thread.
    fn new(
        bells: Arc<Bells>,
        left: Receiver<Box<dyn RingMemory>>,
        freed: Alarm,
        rank: Box<dyn Rank>,
    ) -> Self {
        let place = Place::new(rank.follows());
        Self { bells, left, freed, unreleased: Vec::new(), raising: Raising::new(rank), place }
    }

    fn run(mut self) {
        self.raising.start();
        let mut woken = false;
        loop {
            let begun_ns = now_ns();
            let rung = self.bells.line.take(|node| {
                // A full counter rings already.
                let _ = rustix::io::write(&node.bell, &1_u64.to_ne_bytes());
            });
            if rung > 0 {
                let rest = self.raising.worked(begun_ns, now_ns());
                self.place(woken, begun_ns);
                // Bells that are requested meanwhile are rung together.
                std::thread::sleep(rest);
            }
            self.unreleased.extend(self.left.try_iter());
            self.release();
            if self.bells.ends.load(Ordering::Acquire) && self.unreleased.is_empty() {
                return;
            }
            woken = self.bells.line.may_sleep();
            if woken {
                self.sleep();
            }
            self.bells.line.woken();
        }
    }

    /// Chooses the CPU for the next time; it last ran at `begun_ns`.
    fn place(&mut self, woken: bool, begun_ns: u64) {
        let on = self.bells.woken_on.load(Ordering::Relaxed);
        if !self.raising.raised {
            return self.place.avoid(on);
        }
        let lag = begun_ns.saturating_sub(self.bells.woken_at_ns.load(Ordering::Relaxed));
        self.place.follow(on, if woken { lag } else { 0 }, begun_ns);
    }

    fn release(&mut self) {
        if !self.unreleased.iter().any(|remains| remains.is_alone()) {
            return;
        }
        // Closing and unmapping takes as long as the ring is large.
        self.raising.lower();
        let (mut bytes, mut descriptors) = (0, 0);
        self.unreleased.retain(|remains| {
            let alone = remains.is_alone();
            if alone {
                (bytes, descriptors) = (bytes + remains.bytes(), descriptors + remains.descriptors());
            }
            !alone
        });
        self.bells.freed_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.bells.freed_descriptors.fetch_add(descriptors, Ordering::AcqRel);
        self.freed.ring();
    }

    fn sleep(&self) {
        let woken = self.unreleased.is_empty()
            || wait_readable(self.bells.wake.as_fd(), Instant::now().checked_add(RELEASE_CHECK_INTERVAL))
                .unwrap_or(false);
        if woken {
            let _ = rustix::io::read(&self.bells.wake, &mut [0_u8; 8]);
        }
    }
}

/// The class in which the thread runs.
struct Raising {
    rank: Box<dyn Rank>,
    raised: bool,
    budget: Budget,
    /// The thread's CPU time when it was last read.
    cpu_ns: u64,
}

impl Raising {
    fn new(rank: Box<dyn Rank>) -> Self {
        Self { rank, raised: false, budget: Budget::default(), cpu_ns: 0 }
    }

    fn start(&mut self) {
        self.budget = Budget { left_ns: BURST_NS, at_ns: now_ns(), ..Budget::default() };
        self.cpu_ns = clock_ns(ClockId::ThreadCPUTime);
        self.raise();
    }

    fn raise(&mut self) {
        if !self.raised {
            self.rank.raise();
            self.raised = true;
        }
    }

    fn lower(&mut self) {
        if self.raised {
            self.rank.lower();
            self.raised = false;
        }
    }

    /// Records that bells were rung from `begun_ns` to `now_ns`. Returns how long the thread must rest before
    /// it rings again.
    fn worked(&mut self, begun_ns: u64, now_ns: u64) -> Duration {
        let mut spent_ns = now_ns.saturating_sub(begun_ns);
        if spent_ns > QUICK_NS {
            let cpu_ns = clock_ns(ClockId::ThreadCPUTime);
            spent_ns = spent_ns.min(cpu_ns.saturating_sub(self.cpu_ns));
            self.cpu_ns = cpu_ns;
        }
        self.budget.spend(if self.raised { spent_ns } else { 0 }, now_ns);
        if self.budget.left_ns <= 0 {
            if self.raised {
                self.budget.add_penalty();
            }
            self.lower();
        } else if self.budget.left_ns >= BURST_NS / 2 {
            self.raise();
        }
        if self.raised { Duration::ZERO } else { rest_after(spent_ns) }
    }
}

/// Rest after which bells that took `spent_ns` have taken [`SHARE`] of a CPU and no more.
fn rest_after(spent_ns: u64) -> Duration {
    if spent_ns <= QUICK_NS {
        return Duration::ZERO;
    }
    Duration::from_nanos(spent_ns.saturating_mul(SHARE.unsigned_abs())).min(REST_MAX)
}

/// Time in the real-time class that is left.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    left_ns: i64,
    at_ns: u64,
    /// How often it was used up, and when last.
    strikes: u32,
    struck_at_ns: u64,
}

impl Budget {
    /// Notes that `spent_ns` was spent until `now_ns`.
    fn spend(&mut self, spent_ns: u64, now_ns: u64) {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let earned = signed(now_ns.saturating_sub(self.at_ns)) / SHARE;
        self.left_ns = self.left_ns.saturating_add(earned).saturating_sub(signed(spent_ns)).min(BURST_NS);
        self.at_ns = now_ns;
    }

    /// Adds the penalty for a user whose budget is used up.
    fn add_penalty(&mut self) {
        if self.at_ns.saturating_sub(self.struck_at_ns) > FORGIVEN_NS {
            self.strikes = 0;
        }
        self.left_ns -= PENALTY_NS << self.strikes;
        self.strikes = (self.strikes + 1).min(STRIKES_MAX);
        self.struck_at_ns = self.at_ns;
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_thread_rests_so_long_that_its_share_is_kept() {
        assert_eq!(rest_after(QUICK_NS), Duration::ZERO, "no thread waits there");
        assert_eq!(rest_after(1_000_000), Duration::from_millis(20));
        assert_eq!(rest_after(80_000_000), REST_MAX);
    }

    #[test]
    fn a_user_over_its_share_waits_until_it_is_within_it_again() {
        let mut budget = Budget { left_ns: BURST_NS, ..Budget::default() };
        // 3 us each 100 us: less than a twentieth.
        for step in 1..10_000 {
            budget.spend(3_000, step * 100_000);
        }
        assert_eq!(budget.left_ns, BURST_NS);
        let now = budget.at_ns;
        // Many waiters: 80 ms for one bell.
        budget.spend(80_000_000, now + 80_000_000);
        assert!(budget.left_ns < -75_000_000);
        let spent = budget.left_ns;
        for times in [1, 2, 4] {
            let before = budget.left_ns;
            budget.add_penalty();
            assert_eq!(budget.left_ns, before - times * PENALTY_NS, "longer each time");
        }
        budget.at_ns += FORGIVEN_NS + 1;
        budget.left_ns = spent;
        budget.add_penalty();
        assert_eq!(budget.left_ns, spent - PENALTY_NS, "forgiven");
        (budget.at_ns, budget.left_ns) = (now + 80_000_000, spent);
        // The time that it takes as an ordinary thread is not counted; 20 times the overrun makes it good.
        budget.spend(0, now + 1_000_000_000);
        assert!(budget.left_ns < 0);
        budget.spend(0, now + 1_700_000_000);
        assert_eq!(budget.left_ns, BURST_NS);
    }
}

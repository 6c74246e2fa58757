//! Ringing the bells of one user, on a thread of its own: the processor never touches an object that a client holds.
//!
//! A write to an eventfd walks all who wait for it, with its lock held; whoever holds a copy can make that a million
//! entries, and can make the write itself wait. So the processor only says which bell is to be rung ([`Line`]) and wakes
//! this thread by an eventfd of the daemon's own; what a user does to its bells delays its own bells. The same thread
//! closes and unmaps what a user's rings leave behind.
//!
//! It runs in a real-time class below the processor's for as long as that costs little: who spends more than
//! [`SHARE`] of a CPU on one user's bells is an ordinary thread until that has been made good.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};

use super::line::{Line, Pull};
use super::{Alarm, wait_readable};

/// One part in so many of a CPU is a user's in the real-time class.
const SHARE: i64 = 20;
/// So much of it at once, in nanoseconds.
const BURST_NS: i64 = 500_000;
/// Between two looks at a ring of which the engine still holds a part.
const LOOK: Duration = Duration::from_millis(10);
/// Its stack is locked memory.
const STACK_BYTES: usize = 128 * 1024;

/// How the calling thread is scheduled.
pub trait Rank: Send {
    /// As one whose work others wait for.
    fn raise(&mut self);
    /// As any other.
    fn lower(&mut self);
}

/// What is left of a ring: dropped here once nobody else holds it.
pub trait Remains: Send {
    /// Nobody else holds any of it.
    fn is_alone(&self) -> bool;
    /// Of memory, which then counts as the user's no longer.
    fn bytes(&self) -> u64;
}

/// The list of one user's bells, with what wakes its ringer.
#[derive(Debug)]
pub struct Bells {
    line: Line<OwnedFd>,
    /// Blocking, and known to nobody else.
    wake: OwnedFd,
    ends: AtomicBool,
    /// Of remains that are gone.
    freed_bytes: AtomicU64,
}

impl Bells {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Has `pull` rung soon.
    pub(super) fn want(&self, pull: &Arc<Pull<OwnedFd>>) {
        if self.line.put(pull) {
            self.wake();
        }
    }
}

/// A user's ringer. Its thread ends some time after this is dropped, when all that it was given is gone.
#[derive(Debug)]
pub struct Ringer {
    bells: Arc<Bells>,
    remains: Sender<Box<dyn Remains>>,
}

impl Ringer {
    /// Starts the thread. `freed` rings when memory has been given back.
    ///
    /// # Errors
    /// Where threads or descriptors run out.
    pub fn start(rank: Box<dyn Rank>, freed: Alarm) -> io::Result<Self> {
        let bells = Arc::new(Bells {
            line: Line::default(),
            wake: eventfd(0, EventfdFlags::CLOEXEC)?,
            ends: AtomicBool::new(false),
            freed_bytes: AtomicU64::new(0),
        });
        let (remains, left) = channel();
        let theirs = Arc::clone(&bells);
        std::thread::Builder::new().name("punctual-bell".into()).stack_size(STACK_BYTES).spawn(
            move || Ringing { bells: theirs, left, freed, dying: Vec::new(), pace: Pace::new(rank) }.run(),
        )?;
        Ok(Self { bells, remains })
    }

    /// What new bells are rung with.
    pub fn bells(&self) -> Arc<Bells> {
        Arc::clone(&self.bells)
    }

    /// Leaves to the thread what remains of a ring.
    pub fn bury(&self, remains: Box<dyn Remains>) {
        // The thread lives for as long as this does.
        let _ = self.remains.send(remains);
        self.bells.wake();
    }

    /// Bytes of remains that are gone since this was asked last.
    pub fn take_freed(&self) -> u64 {
        self.bells.freed_bytes.swap(0, Ordering::AcqRel)
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
    left: Receiver<Box<dyn Remains>>,
    freed: Alarm,
    dying: Vec<Box<dyn Remains>>,
    pace: Pace,
}

impl Ringing {
    fn run(mut self) {
        self.pace.start();
        loop {
            let rung = self.bells.line.take(|pull| {
                // A full counter rings already.
                let _ = rustix::io::write(&pull.bell, &1_u64.to_ne_bytes());
            });
            if rung > 0 {
                self.pace.worked();
            }
            self.dying.extend(self.left.try_iter());
            self.bury();
            if self.bells.ends.load(Ordering::Acquire) && self.dying.is_empty() {
                return;
            }
            if self.bells.line.may_sleep() {
                self.sleep();
            }
            self.bells.line.woken();
        }
    }

    fn bury(&mut self) {
        if !self.dying.iter().any(|remains| remains.is_alone()) {
            return;
        }
        // Closing and unmapping takes as long as the ring is large.
        self.pace.lower();
        let mut bytes = 0;
        self.dying.retain(|remains| {
            let alone = remains.is_alone();
            bytes += if alone { remains.bytes() } else { 0 };
            !alone
        });
        self.bells.freed_bytes.fetch_add(bytes, Ordering::AcqRel);
        self.freed.ring();
    }

    fn sleep(&self) {
        let woken = self.dying.is_empty()
            || wait_readable(self.bells.wake.as_fd(), Instant::now().checked_add(LOOK)).unwrap_or(false);
        if woken {
            let _ = rustix::io::read(&self.bells.wake, &mut [0_u8; 8]);
        }
    }
}

/// In which class the thread runs.
struct Pace {
    rank: Box<dyn Rank>,
    raised: bool,
    budget: Budget,
}

impl Pace {
    fn new(rank: Box<dyn Rank>) -> Self {
        Self { rank, raised: false, budget: Budget::default() }
    }

    fn start(&mut self) {
        self.budget = Budget { left_ns: BURST_NS, cpu_ns: clock_ns(ClockId::ThreadCPUTime), at_ns: now_ns() };
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

    /// Some bells were rung.
    fn worked(&mut self) {
        self.budget.spend(clock_ns(ClockId::ThreadCPUTime), now_ns(), self.raised);
        if self.budget.left_ns <= 0 {
            self.lower();
        } else if self.budget.left_ns >= BURST_NS / 2 {
            self.raise();
        }
    }
}

/// Time in the real-time class that is left.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    left_ns: i64,
    cpu_ns: u64,
    at_ns: u64,
}

impl Budget {
    /// The thread has used `cpu_ns` since its start, and it is `now_ns`.
    fn spend(&mut self, cpu_ns: u64, now_ns: u64, raised: bool) {
        let since = |now: u64, before: u64| i64::try_from(now.saturating_sub(before)).unwrap_or(i64::MAX);
        let spent = if raised { since(cpu_ns, self.cpu_ns) } else { 0 };
        let earned = since(now_ns, self.at_ns) / SHARE;
        self.left_ns = self.left_ns.saturating_add(earned).saturating_sub(spent).min(BURST_NS);
        (self.cpu_ns, self.at_ns) = (cpu_ns, now_ns);
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
    fn who_spends_more_than_its_share_waits_until_that_is_made_good() {
        let mut budget = Budget { left_ns: BURST_NS, ..Budget::default() };
        // 3 us each 100 us: less than a twentieth.
        for step in 1..10_000 {
            budget.spend(step * 3_000, step * 100_000, true);
        }
        assert_eq!(budget.left_ns, BURST_NS);
        let (cpu, now) = (budget.cpu_ns, budget.at_ns);
        // A crowd: 80 ms for one bell.
        budget.spend(cpu + 80_000_000, now + 80_000_000, true);
        assert!(budget.left_ns < -75_000_000);
        // What it does as an ordinary thread is not counted, and 20 times as long as it took makes it good.
        budget.spend(cpu + 160_000_000, now + 1_000_000_000, false);
        assert!(budget.left_ns < 0);
        budget.spend(cpu + 160_000_000, now + 1_700_000_000, false);
        assert_eq!(budget.left_ns, BURST_NS);
    }
}

//! The wall clock of the machine is stepped, and nothing notices. Alone in its program: every test that runs meanwhile would
//! see the steps too.

mod common;

use common::hosts::{Hosts, Wanted};
use common::program::folder;
use punctual::MessageInfo;

/// The wall clock of this machine, stepped; put back where it would be when this is dropped.
struct SteppedClock {
    wall_ns: i128,
    since: std::time::Instant,
}

impl SteppedClock {
    /// `None` where this process may not set the clock.
    fn take() -> Option<Self> {
        let clock = Self { wall_ns: wall_ns(), since: std::time::Instant::now() };
        clock.step(0).then_some(clock)
    }

    /// Sets the wall clock to what it would show by itself, and `by_ms` more.
    fn step(&self, by_ms: i128) -> bool {
        let ns = self.wall_ns + self.since.elapsed().as_nanos() as i128 + by_ms * 1_000_000;
        let time =
            rustix::time::Timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        rustix::time::clock_settime(rustix::time::ClockId::Realtime, time).is_ok()
    }
}

impl Drop for SteppedClock {
    fn drop(&mut self) {
        if !self.step(0) {
            eprintln!("warning: the wall clock is not what it was");
        }
    }
}

fn wall_ns() -> i128 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Less than any step; more than what the hosts are wrong by about each other's clocks, which here are one.
const NOTICED_NS: i128 = 100_000_000;

/// From its logical arrival, as the source's host sees it, to its deadline, as the receiver's does.
fn allowed_ns(info: &MessageInfo) -> i128 {
    i128::from(info.deadline.0) - i128::from(info.logical_arrival.0)
}

/// Who sets it lets this program step the clock of the machine, which is nobody's alone: `make test` does.
const MAY_STEP: &str = "PUNCTUAL_TEST_WALL_CLOCK";

/// Channels know `CLOCK_MONOTONIC` alone; the kernel's receive stamps are of the wall clock. Needs CAP_SYS_TIME: steps the
/// clock of the machine by less than half a second, and back.
#[test]
fn steps_of_the_wall_clock_are_not_noticed() {
    if std::env::var_os(MAY_STEP).is_none() {
        eprintln!("SKIPPED: it steps the wall clock of this machine: set {MAY_STEP}=1, as make test does");
        return;
    }
    let Some(clock) = SteppedClock::take() else {
        eprintln!("SKIPPED: no right to set the clock (CAP_SYS_TIME)");
        return;
    };
    let folder = folder("clock");
    // No message is late because the machine is busy.
    let wanted = Wanted { deadline_ms: 5_000, ..Wanted::default() };
    let mut hosts = Hosts::start(&folder, 0, &wanted, str::to_owned);
    let allowed = allowed_ns(&hosts.are_undisturbed());
    for by_ms in [400, -400, 300, -300, 0] {
        let (before, began) = (wall_ns(), std::time::Instant::now());
        assert!(clock.step(by_ms), "stepped by {by_ms} ms");
        let mut took = i128::MAX;
        for _ in 0..5 {
            let info = hosts.are_undisturbed();
            let shift = allowed_ns(&info) - allowed;
            assert!(shift.abs() < NOTICED_NS, "stepped by {by_ms} ms, the times of a message by {shift} ns");
            // Both hosts have this machine's clock.
            took = took.min(i128::from(info.delivered.0) - i128::from(info.logical_arrival.0));
        }
        assert!(took < NOTICED_NS, "stepped by {by_ms} ms, no message took less than {took} ns");
        let moved = wall_ns() - before - began.elapsed().as_nanos() as i128;
        assert!(by_ms == 0 || moved.abs() > 2 * NOTICED_NS, "the wall clock did not move: {moved} ns");
    }
    drop(clock);
    let state = hosts.receiver.state().expect("a state");
    assert_eq!((state.misses, state.status.counters.demoted), (0, 0), "{state:?}");
    let drops = hosts.a.connect().status().expect("status").node.drops;
    assert_eq!(drops.replayed, 0, "{drops:?}");
    std::fs::remove_dir_all(folder).expect("removed");
}

//! The wall clock of the machine is stepped, with no effect on channels. It is the only test of its program:
//! every test that runs meanwhile would see the steps too.

mod common;

use common::harm::{SteppedClock, wall_ns};
use common::hosts::{Hosts, Wanted};
use common::program::folder;
use punctual::MessageInfo;

/// Less than any step, and more than the hosts' error about each other's clocks, which are the same clock
/// here.
const NOTICED_NS: i128 = 100_000_000;

/// Time from the logical arrival, on the source's clock, to the deadline, on the receiver's clock.
fn allowed_ns(info: &MessageInfo) -> i128 {
    i128::from(info.deadline.0) - i128::from(info.logical_arrival.0)
}

/// Channels use only `CLOCK_MONOTONIC`; the kernel's receive stamps are of the wall clock. Needs
/// CAP_SYS_TIME: it steps the clock of the machine by less than half a second, and back.
#[test]
fn steps_of_the_wall_clock_are_not_noticed() {
    let Some(clock) = SteppedClock::take() else { return };
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

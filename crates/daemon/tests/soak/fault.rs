//! The faults of the soak test, and their times.

use punctual::Nanos;
use punctual_os::now;
use rustix::process::Signal;

use crate::common::harm;
use crate::common::program::Program;
use crate::common::witness::sleep_until;
use crate::stage::{Stage, TO_B};

/// Draws; every run prints its seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Waits up to this many milliseconds: the next fault then comes at an arbitrary moment of the traffic.
    pub fn moment(&mut self, most_ms: u64) {
        sleep_until(now() + Nanos::from_micros(self.below(most_ms * 1_000)));
    }
}

/// A fault of `b`, its cable, or the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Nothing,
    Kill,
    Stop,
    CutAtA,
    CutAtB,
    StepClock,
    FullDisk,
    Starved,
    Crowd,
}

pub const FAULTS: [Fault; 9] = [
    Fault::Nothing,
    Fault::Kill,
    Fault::Stop,
    Fault::CutAtA,
    Fault::CutAtB,
    Fault::StepClock,
    Fault::FullDisk,
    Fault::Starved,
    Fault::Crowd,
];

impl Fault {
    /// Starts and ends the fault at random moments. `on_b` is the daemon of `b` afterwards: a killed daemon
    /// is started again.
    pub fn happen(self, stage: &Stage, on_b: &mut Program, dice: &mut Dice) {
        dice.moment(300);
        match self {
            Self::Nothing => {}
            Self::Kill => {
                on_b.signal(Signal::KILL);
                on_b.wait();
                dice.moment(300);
                *on_b = stage.start(1);
            }
            Self::Stop => {
                on_b.freeze();
                // Neighbours consider it down after half a second.
                dice.moment(1_000);
                on_b.signal(Signal::CONT);
            }
            Self::CutAtA | Self::CutAtB => {
                let end = usize::from(self == Self::CutAtB);
                stage.network.switch(TO_B, end, "down");
                dice.moment(1_000);
                stage.network.switch(TO_B, end, "up");
            }
            Self::StepClock => {
                let Some(clock) = &stage.clock else { return };
                assert!(clock.step(i128::from(dice.below(800)) - 400), "stepped");
                dice.moment(300);
                assert!(clock.step(0), "and back");
            }
            Self::FullDisk => {
                stage.disk.fill(&stage.log);
                dice.moment(300);
                on_b.signal(Signal::KILL);
                on_b.wait();
                stage.refuses_to_start();
                // Without an epoch file it needs no disk.
                *on_b = stage.start(1);
                dice.moment(300);
                stage.disk.free();
            }
            Self::Starved => harm::starve(&stage.socket(usize::from(dice.below(2) == 0)), "cam@b"),
            Self::Crowd => {
                let served = harm::crowd(&stage.socket(0), 10, 20);
                assert_eq!(served, 200, "all are served by the one that nothing happens to");
            }
        }
    }
}

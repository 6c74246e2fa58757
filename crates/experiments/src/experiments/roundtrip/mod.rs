//! Round trips by how programs wait: Punctual in the program and through the daemon, against the kernel that waits the same way.
//! Over channels (`rio-roundtrip`) and over TCP (`rtu-roundtrip`).

pub mod channels;
pub mod tcp;

use super::Conditions;
use super::contest::Contest;
use crate::loads::{Caller, Class};
use crate::measure::Side;
use crate::testbed::{Contender, Pair, PairSetup};

/// How a world calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    /// The kernel.
    Kernel,
    /// The same again: the difference between two equal worlds.
    Again,
    /// The drivers alone: the floor of whatever is built on them. Only of channels.
    Bare,
    /// The client's thread does its engine's work: one thread a host, as with the kernel.
    Leading,
    /// The engine wakes the client. With TCP, the other one wakes the server, too.
    Woken,
    /// Engines in separate processes.
    Daemon,
}

/// Worlds that are called in turns, with their measurements.
struct Group<'a> {
    /// The kinds of the contenders, in their order.
    worlds: Vec<World>,
    contest: Contest<'a>,
}

impl<'a> Group<'a> {
    /// A group without worlds; each will have hosts like `setup`, and `loads` different loads.
    const fn new(setup: PairSetup, loads: usize, conditions: &'a Conditions) -> Self {
        Self { worlds: Vec::new(), contest: Contest::new(setup, loads, conditions) }
    }

    fn join(
        &mut self,
        (name, world): (&'static str, World),
        class: Class,
        caller: Box<dyn Caller>,
        pair: Pair,
    ) {
        self.worlds.push(world);
        self.contest.join(name, class, caller, pair);
    }

    fn find(&self, world: World) -> Option<&Contender> {
        let at = self.worlds.iter().position(|&other| other == world)?;
        self.contest.contenders.get(at)
    }

    /// The side of a world that runs under every load, of one load.
    fn side(&self, world: World, load: usize) -> &Side {
        &self.find(world).expect("all but the bare drivers are always called").sides[load]
    }
}

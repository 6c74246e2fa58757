//! Whole networks of real [`Node`](punctual_proto::node::Node)s in virtual time.
//!
//! A run is made from a seed: a topology, hosts with drifting clocks and processors that take time, links that
//! serialise and delay, applications that send at the very edge of their contracts or beyond it, and faults.
//! A checker that trusts no node watches all of it: no admitted, conforming message is late, lost, altered,
//! doubled, demoted or misdelivered while no fault touches it; reservations equal what is in use; nothing is
//! left after teardown. The same seed and options give the same run to the bit, which its digest shows.
//!
//! | module | owns |
//! |---|---|
//! | [`scenario`], [`topology`], [`faults`] | the plan, drawn from the seed before anything runs |
//! | `world` | the run: event loop, applications, network, comparisons |
//! | [`ledger`], [`silence`] | the checker's own reckoning of what was promised |
//! | [`processor`], [`adapter`], [`bucket`] | what the hardware really does, within the configured bounds |
//! | [`memory`] | rings and frames, counted slot by slot |
//! | [`batch`], [`campaign`] | many seeds on many cores, in pieces that add up |
//! | [`trace`] | what happened, for people |
//! | [`minimise`](mod@minimise), [`cut`], [`case`] | the smallest plan that goes wrong, and how it is written down |
//! | [`resident`] | what a run has in memory while it goes on |
//! | [`scale`] | large networks: what channels cost by their number |

pub mod adapter;
pub mod batch;
pub mod bucket;
pub mod campaign;
pub mod case;
pub mod cut;
pub mod dice;
mod entry;
pub mod faults;
pub mod filters;
mod journal;
pub mod ledger;
pub mod memory;
pub mod minimise;
pub mod options;
pub mod outcome;
pub mod processor;
pub mod queue;
pub mod ranges;
pub mod resident;
pub mod scale;
pub mod scenario;
pub mod sender;
pub mod silence;
pub mod time;
mod timeliness;
pub mod topology;
pub mod trace;
mod world;

pub use batch::run_many;
pub use faults::{Fault, FaultKind, FaultKinds};
pub use options::{
    Class, FaultChoice, Faults, Options, Sabotage, ScheduleChoice, SizeChoice, Traffic, Versions,
};
pub use outcome::{Outcome, Report, TimelinessCounts, Violation};
pub use scenario::{Scenario, ScenarioError};
pub use topology::{Topology, TopologyError};
pub use trace::Timeline;

/// Runs one seed to its end.
///
/// # Errors
/// If the given topology, or a configuration made from it, cannot be used.
pub fn run(seed: u64, options: &Options) -> Result<Outcome, ScenarioError> {
    run_scenario(seed, Scenario::draw(seed, options)?, options)
}

/// Runs a plan that may differ from what `seed` draws, to find out which part of it matters; the dice of the run
/// are those of `seed`. Of `options` only sabotage and trace count.
///
/// # Errors
/// If a configuration cannot be used.
pub fn run_scenario(seed: u64, scenario: Scenario, options: &Options) -> Result<Outcome, ScenarioError> {
    Ok(world::World::new(seed, scenario, options)?.run())
}

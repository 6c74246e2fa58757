//! Whole networks of real [`Node`](punctual_proto::node::Node)s in virtual time.
//!
//! A run is derived from a seed: a topology, hosts with drifting clocks and processors that take time, links
//! that serialise and delay, applications that send at the limit of their contracts or beyond it, and faults.
//! A checker that trusts no node observes all of it: no admitted, conforming message is late, lost, altered,
//! duplicated, demoted or misdelivered while no fault touches it; reservations equal what is in use; nothing
//! is left after teardown. The same seed and options give the same run bit by bit, which its digest proves.
//!
//! | module | owns |
//! |---|---|
//! | [`scenario`], [`topology`], [`faults`] | the plan, drawn from the seed before anything runs |
//! | `world` | the run: event loop, applications, network, comparisons |
//! | [`ledger`], [`silence`] | the checker's independent computation of promises |
//! | [`stream`], [`segment`] | the same for TCP connections: every byte, and segments on the wire |
//! | [`processor`], [`adapter`], [`bucket`] | the true behaviour of the hardware, within the configured bounds |
//! | [`memory`] | rings and frames, counted slot by slot |
//! | [`batch`], [`campaign`] | many seeds on many cores, in pieces that are added up |
//! | [`trace`] | a readable record of a run |
//! | [`minimise`](mod@minimise), [`cut`], [`case`] | the smallest plan that fails, and its recorded form |
//! | [`resident`] | the memory of a run over time |
//! | [`scale`] | large networks: the cost of channels by their number |

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
mod packets;
pub mod processor;
pub mod queue;
pub mod ranges;
pub mod resident;
pub mod scale;
pub mod scenario;
pub mod segment;
pub mod sender;
pub mod silence;
pub mod stream;
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
pub use scenario::{ChannelPlan, Scenario, ScenarioError};
pub use topology::{Arrivals, Topology, TopologyError};
pub use trace::Timeline;

/// Runs one seed to its end.
///
/// # Errors
/// If the given topology, or a configuration made from it, cannot be used.
pub fn run(seed: u64, options: &Options) -> Result<Outcome, ScenarioError> {
    run_scenario(seed, Scenario::draw(seed, options)?, options)
}

/// Runs a plan that may differ from the one that `seed` draws, to find the part of it that matters; the dice
/// of the run are those of `seed`. Of `options` only sabotage and trace are used.
///
/// # Errors
/// If a configuration cannot be used.
pub fn run_scenario(seed: u64, scenario: Scenario, options: &Options) -> Result<Outcome, ScenarioError> {
    Ok(world::World::new(seed, scenario, options)?.run())
}

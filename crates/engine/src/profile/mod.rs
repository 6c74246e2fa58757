//! The execution profile (ADR 0013, CLIPS 6): what protocol work costs on this machine, measured, versioned and read
//! by admission.
//!
//! [`measure`] drives three real nodes (source, forwarder, sink) on one thread over real drivers and takes the time
//! of each step. [`Profile`] is the file. Costs are *unit* costs: see [`Summary::block_ns`] for the rule.

mod file;
mod machine;
mod measure;
mod summary;
mod units;

pub use file::{Costs, PROFILE_VERSION, Profile, ProfileError};
pub use machine::Machine;
pub use measure::{MeasureError, PathSamples, Plan, Rings, Series, Wires, measure, udp_wires, xdp_wires};
pub use summary::{BLOCK_UNITS, HOLE_NS, Summary};
pub use units::{OtherCosts, QUANTUM_MAX, quantum_that_fits, too_short};

use punctual_proto::api::RtuCost;
use punctual_proto::config::CpuCosts;
use punctual_proto::{Nanos, Ppm};

/// What is added to every measured cost unless `profile_margin` sets another margin. Of five profiles in a
/// row the lowest fell 13 % short of the middle one; the rest is for caches that are colder, and clocks that
/// are slower, than while measuring (ADR 0013).
pub const MARGIN_DEFAULT: Ppm = Ppm(250_000);

/// `cost` with `margin` added.
pub fn with_margin(cost: Nanos, margin: Ppm) -> Nanos {
    cost + margin.of(cost)
}

/// Every cost with `margin` added.
pub fn costs_with_margin(costs: &CpuCosts, margin: Ppm) -> CpuCosts {
    let with = |cost| with_margin(cost, margin);
    CpuCosts {
        send_message: with(costs.send_message),
        send_packet: with(costs.send_packet),
        send_packet_later: with(costs.send_packet_later),
        forward_packet: with(costs.forward_packet),
        receive_packet: with(costs.receive_packet),
        deliver_message: with(costs.deliver_message),
        copy_kib: with(costs.copy_kib),
        cold_start: with(costs.cold_start),
    }
}

/// The cost of a segment with `margin` added.
pub fn segment_with_margin(cost: RtuCost, margin: Ppm) -> RtuCost {
    RtuCost { run: with_margin(cost.run, margin), unit: with_margin(cost.unit, margin) }
}

/// A profile of path costs alone.
pub fn profile_of(samples: &PathSamples, driver: &str, measured: &str, short: bool) -> Profile {
    let summaries = samples.series().map(|(series, times)| (series.name().to_owned(), Summary::of(times)));
    Profile {
        version: PROFILE_VERSION,
        measured: measured.into(),
        short,
        machine: Machine::here(driver),
        costs: samples.costs(),
        turn_ns: Summary::of(samples.of(Series::Turn)).block_ns,
        wake_up_ns: 0,
        measurements: summaries.collect(),
    }
}

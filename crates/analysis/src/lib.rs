//! Contracts, stages, response times and admission: the pure arithmetic of guaranteed channels.
//!
//! No clock, no I/O, no randomness: `now` and seeds are arguments. Everything here is exact integer
//! arithmetic in nanoseconds; sums saturate, so hostile input ends in a refusal and never in a panic.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod activation;
pub mod admission;
pub mod arrival;
pub mod buffers;
mod chernoff;
pub mod clip;
pub mod contract;
pub mod following;
pub mod multiset;
pub mod mutation;
pub mod ordered;
pub mod path;
pub mod plan;
pub mod policies;
pub mod policy;
pub mod rta;
pub mod sharing;
pub mod stage;
pub mod statistical;
pub mod suggest;
pub mod units;

pub use activation::{Activation, ActivationError, FlowName, Late, Service};
pub use admission::{Admission, Policy, RunPolicy};
pub use arrival::{
    Arrival, ArrivalTerms, ArrivalsWithin, CATCH_UP, EffectiveArrivals, LogicalArrivals, SourceVerdict,
    Verdict,
};
pub use clip::ClipParameters;
pub use contract::{Contract, ContractError, Delivery, Guarantee, Horizon, Policing};
pub use policies::{UnknownPolicy, one_of, pairs_text, policy_by_name};
pub use policy::{
    AdmissionPolicy, Class, Demand, Explanation, Offer, Refusal, RefusalReason, StageKey, Urgency,
};
pub use stage::{Blocking, CostParts, Cpu, Interference, Link, Pacing, PathCosts, StageModel};
pub use statistical::{Ppb, Soft, Statistical, StatisticalError};
pub use units::{BitRate, Instant, Nanos, Ppm, Rate};

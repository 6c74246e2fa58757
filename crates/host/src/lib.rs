//! What runs a host for others: an engine, and the service that gives programs its channels.
//!
//! [`service`] joins requests of programs and events of the node, for one owner thread. [`EngineHost`] puts it around an
//! engine of this process. `punctuald` adds a socket that programs connect to; an embedding program has an [`EmbeddedHost`],
//! whose one connection is its own.

mod calibration;
pub mod config;
mod embedded;
pub mod finding;
mod journal;
mod nominal_rate;
pub mod priorities;
pub mod profile_rings;
mod ringer_rank;
mod running;
pub mod service;

pub use calibration::{CalibrationError, calibrate};
pub use config::{GivenCosts, Mismatch, ProfileSettings};
pub use embedded::EmbeddedHost;
pub use nominal_rate::nominal_rate;
pub use running::{EngineHost, HostError, Prepared, quotas};

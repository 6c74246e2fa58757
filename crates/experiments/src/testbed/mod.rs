//! Hosts to run on: network namespaces joined by emulated links of fixed rate.
//!
//! Who owns what: a [`Network`] owns its namespaces and removes them when dropped; [`Daemons`] owns the
//! processes in them and must be dropped first. What a killed run left behind is removed by the next one
//! ([`namespaces::remove_stale`]).

pub mod configuration;
pub mod daemons;
pub mod driver;
pub mod embedded;
pub mod network;
pub mod priority;
pub mod privilege;
pub mod scratch;

pub use configuration::Options;
pub use daemons::Daemons;
pub use embedded::Embedded;
pub use network::{LinkSpec, Network, NetworkSpec, Wire};
pub use privilege::Privilege;

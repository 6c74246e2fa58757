//! What runs a host for others: an engine, and the service that gives programs its channels.
//!
//! [`service`] joins requests of programs and events of the node, for one owner thread. [`EngineHost`] puts it around an
//! engine of this process. `punctuald` adds a socket that programs connect to; an embedding program has an [`EmbeddedHost`],
//! whose one connection is its own.

pub mod config;
mod embedded;
pub mod finding;
mod journal;
mod plate;
pub mod priorities;
mod ranks;
pub mod rings;
mod running;
pub mod service;
mod settle;

pub use config::{GivenCosts, Mismatch, ProfileSettings};
pub use embedded::EmbeddedHost;
pub use plate::name_plate;
pub use running::{EngineHost, HostError, Prepared, quotas};
pub use settle::{SettleError, settle};

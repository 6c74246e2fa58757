//! Runs one host: a processor thread that drives one [`Node`](punctual_proto::node::Node) and all its links.
//!
//! Sans-I/O protocol on one side, drivers on the other; this crate brings the clock, the real-time class, the
//! waiting and the thread. [`Engine::start`] gives an [`EngineHandle`], through which a daemon or an embedding
//! program talks to the node on its thread. Nothing here allocates for a message on its way.

mod body;
mod command;
mod config;
mod decider;
pub mod direct;
mod error;
mod events;
mod handle;
mod memory;
mod processor;
pub mod profile;
mod statistics;
mod upcall;

pub use body::{Body, Progress};
pub use config::EngineConfig;
pub use error::{EngineError, EngineGone};
pub use events::Events;
pub use handle::{CallError, Engine, EngineHandle, WatchError};
pub use memory::HostMemory;
pub use processor::WORK_SLICE;
pub use processor::lead::{Lead, LeadError};
pub use punctual_os::realtime::{RealTime, RealTimeError, SchedulingClass};
pub use statistics::{EngineStatistics, LinkReport};
pub use upcall::Upcall;

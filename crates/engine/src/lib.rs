//! Runs one host: a processor thread that drives one [`Node`](punctual_proto::node::Node) and all its links.
//!
//! The protocol is sans-I/O, and drivers do the I/O. This crate provides the clock, the real-time class, the
//! waiting and the thread. [`Engine::start`] returns an [`EngineHandle`], through which a daemon or an
//! embedding program calls the node on the processor's thread. Processing a message allocates no memory.

mod body;
pub mod capture;
mod captures;
mod command;
mod config;
mod connections;
mod decider;
pub mod direct;
mod error;
mod events;
mod handle;
mod memory;
mod processor;
pub mod profile;
mod ready;
mod statistics;
pub mod tcp;
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

//! A test rig for a bare [`Node`](punctual_proto::node::Node): no driver, no real clock and no thread, only memory.
//!
//! - [`TestOutbox`], [`TestInbox`] and [`Pool`] are an application's rings and a driver's frames. [`RemoteOutbox`] and
//!   [`RemoteInbox`] are the same rings for an application on another thread than its node: those of an engine's tests.
//! - [`World`] is hosts in a line in virtual time: perfect links with a fixed propagation, free processors, one common clock.
//!   A test can listen to packets, change and lose them ([`World::tap`]), slow a link down or stop a processor.
//!
//! A test configures a host with [`line_config`], builds a [`World`] of such hosts, and opens channels with [`World::open`].
//! The simulator (crate `sim`) does not use this crate: its links, clocks, rings and checkers are its own.
#![forbid(unsafe_code)]

mod audit;
mod line;
mod rings;
mod slow;
mod tape;
mod world;

pub use audit::Audit;
pub use line::{START, line_config, name};
pub use rings::{
    Buffer, Frame, OtherThread, Pool, RemoteInbox, RemoteOutbox, Ring, SameThread, Share, Shown, State,
    TestInbox, TestMemory, TestOutbox,
};
pub use slow::Slow;
pub use tape::trimmed;
pub use world::{Open, PROPAGATION, Tap, World, pattern};

//! A test rig for a bare [`Node`](punctual_proto::node::Node), in memory: no driver, no real clock and no thread.
//!
//! - [`TestOutbox`], [`TestInbox`] and [`Pool`] are an application's rings and a driver's frames. [`RemoteOutbox`] and
//!   [`RemoteInbox`] are the same rings for an application on another thread than its node, for the tests of the engine.
//! - [`World`] is hosts in a line in virtual time: perfect links with a fixed propagation, free processors, one common clock.
//!   A test can see packets, change and lose them ([`World::tap`]), slow a link down or stop a processor.
//! - [`handlers::Bench`] is one host with programs' handlers, whose calls take virtual time.
//!
//! A test configures a host with [`line_config`], builds a [`World`] of such hosts, and opens channels with [`World::open`].
//! The simulator (crate `sim`) does not use this crate: its links, clocks, rings and checkers are its own.
#![forbid(unsafe_code)]

mod audit;
pub mod handlers;
mod line;
mod rings;
mod share;
mod slow;
mod tape;
mod world;

pub use audit::Audit;
pub use line::{START, line_config, name};
pub use rings::{
    Buffer, Frame, Pool, RemoteInbox, RemoteOutbox, Ring, SHOWN_AT_ONCE, TestInbox, TestMemory, TestOutbox,
};
pub use share::{OtherThread, SameThread, Share, Shown, State};
pub use slow::Slow;
pub use tape::trimmed;
pub use world::{Open, PROPAGATION, Tap, World, pattern};

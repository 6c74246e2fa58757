//! A run of an experiment: the same streams through two systems, in alternating slices.
//!
//! A [`World`] is a system under test on a test bed of its own. A [`Track`] holds the streams of one world: their
//! sinks run from opening to the end, their sources only in slices. [`Track::finish`] gives the logs;
//! [`crate::measure`] judges them.

pub mod stream;
pub mod track;
pub mod world;

pub use stream::StreamSpec;
pub use track::{Finished, Track};
pub use world::{System, World};

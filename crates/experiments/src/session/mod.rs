//! A run of an experiment: the same streams through two systems, in alternating slices.
//!
//! A [`World`] is a system under test on a test bed of its own. A [`Track`] holds the streams of one world: their
//! sinks run from opening to the end, their sources only in slices. [`Track::finish`] gives the logs;
//! [`crate::measure`] judges them.
//!
//! The experiments of two hosts a - b use a [`Pair`]: a is here, b obeys [`Order`]s, in a namespace of this machine or
//! on another machine.

pub mod adapter;
pub mod bare;
pub mod contender;
pub mod echo;
pub mod nodes;
pub mod orders;
pub mod pair;
pub mod place;
pub mod receive;
pub mod roles;
pub mod stream;
pub mod track;
pub mod world;

pub use contender::{Block, Contender, rounds};
pub use nodes::Nodes;
pub use orders::{Answer, Hosting, Order, RoleId, SPIN, Through, Wait};
pub use pair::{Bed, Pair};
pub use place::Place;
pub use roles::{Engine, Roles};
pub use stream::StreamSpec;
pub use track::{Finished, Track};
pub use world::{System, World};

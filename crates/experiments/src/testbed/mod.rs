//! Hosts to run on, and runs of the same streams through two systems on them, in alternating slices.
//!
//! Hosts are network namespaces joined by emulated links of fixed rate. A [`Network`] owns its namespaces and removes them
//! when dropped; [`Daemons`] owns the processes in them and must be dropped first. What a killed run left behind is removed
//! by the next one (`namespaces::remove_stale`).
//!
//! A [`World`] is a system under test on hosts of its own. A [`Track`] holds the streams of one world: their
//! sinks run from opening to the end, their sources only in slices. [`Track::finish`] gives the logs;
//! [`crate::measure`] judges them.
//!
//! The experiments of two hosts a - b use a [`Pair`]: a is here, b executes [`Order`]s, in a namespace of
//! this machine or on another machine.

pub mod adapter;
pub mod bare;
pub mod bare_tcp;
pub mod conditions;
pub mod configuration;
pub mod contender;
pub mod daemons;
pub mod driver;
pub mod echo;
pub mod embedded;
pub mod forwarder;
pub mod network;
pub mod nodes;
pub mod one_way;
pub mod orders;
pub mod pair;
pub mod peer;
pub mod priority;
pub mod privilege;
pub mod receive;
pub mod roles;
pub mod scratch;
pub mod stream;
pub mod tcp;
pub mod track;
pub mod world;

pub use crate::loads::{Place, SPIN, Wait};
pub use conditions::{Conditions, Peer, Wanted};
pub use configuration::Options;
pub use contender::{Block, Contender};
pub use daemons::Daemons;
pub use embedded::Embedded;
pub use forwarder::Distance;
pub use network::{LinkSpec, Network, NetworkSpec, Wire};
pub use nodes::Nodes;
pub use orders::{Answer, Hosting, Order, RoleId, Through};
pub use pair::{Pair, PairSetup};
pub use privilege::Privilege;
pub use roles::{Engine, Roles};
pub use stream::StreamSpec;
pub use tcp::{TcpPlan, TcpStack, TcpWorld};
pub use track::{Finished, Track};
pub use world::{System, World};

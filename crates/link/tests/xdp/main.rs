//! The `xdp` driver between hosts that the tests make: network namespaces joined by veth pairs. Needs root.

#[path = "../common/host.rs"]
mod host;

mod bed;
mod conform;
mod forward;
mod life;
mod neighbours;
mod streams;

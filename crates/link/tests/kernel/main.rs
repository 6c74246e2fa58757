//! What links ask of the kernel, on devices of namespaces that the tests make (needs root).

#[path = "../common/host.rs"]
mod host;

mod care;
mod facts;
mod follow;
mod hops;
mod namespaces;

//! The kernel settings and reports that links use, on devices of namespaces that the tests make (needs root).

#[path = "../common/host.rs"]
mod host;

mod care;
mod facts;
mod follow;
mod hops;
mod namespaces;

//! One host's protocol engine: wire, signalling, handlers and link schedulers joined, without I/O.
//!
//! Four kinds of method: `handle_*` take what came in, `poll_*` give what is to be done, the rest are
//! requests of applications (`open`, `listen`, ...) and getters.

pub mod api;
pub mod config;

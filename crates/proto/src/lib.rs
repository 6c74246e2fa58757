//! The pure protocol core of Punctual: wire format, RTCOP signalling, handlers, link scheduler, and the
//! [`Node`](node) that joins them behind `handle_*` and `poll_*`.
//!
//! No clock, no I/O, no randomness: `now`, frames and seeds are arguments.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod api;
pub mod breach;
pub mod config;
pub mod fragment;
pub mod ids;
mod interned;
pub mod latencies;
pub mod lateness;
pub mod limiter;
pub mod limits;
pub mod linksched;
pub mod memory;
pub mod node;
mod rate_sample;
pub mod sched;
pub mod seal;
pub mod signalling;
mod slab;
mod table;
pub mod text;
mod times;
pub mod wire;
pub mod words;

pub use punctual_analysis::{
    Activation, BitRate, Contract, Delivery, FlowName, Horizon, Instant, Late, Nanos, Policing, Ppm, Rate,
};

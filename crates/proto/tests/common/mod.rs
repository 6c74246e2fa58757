//! What tests of `Node` share beside the rig.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod handler;
pub mod hops;
pub mod link;
pub mod rate;
pub mod script;
pub mod story;
pub mod written;

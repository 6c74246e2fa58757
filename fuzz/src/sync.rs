//! Where the rings' atomics come from here.

pub use std::sync::{Arc, atomic};

/// Between two looks: whoever is to write is on this thread.
pub fn pause(_: u32) {}

//! Where the rings' atomics come from here.

pub use std::sync::{Arc, atomic};

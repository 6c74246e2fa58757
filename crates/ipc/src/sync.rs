//! Where this crate's atomics come from: `fuzz/models` compiles the rings over ones that try every order.

pub use std::sync::{Arc, atomic};

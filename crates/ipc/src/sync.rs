//! Where this crate's atomics come from: `fuzz/models` compiles the rings over ones that try every order.

use std::time::Duration;

pub use std::sync::{Arc, atomic};

/// Looks that are made at once.
const SPINS: u32 = 64;
/// Between two looks after these.
const PAUSE: Duration = Duration::from_micros(20);

/// Between two looks at what another thread is about to do; `looks`: so many were made.
pub fn pause(looks: u32) {
    if looks < SPINS { std::hint::spin_loop() } else { std::thread::sleep(PAUSE) }
}

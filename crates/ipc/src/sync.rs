//! The atomics of this crate: `fuzz/models` compiles the rings with atomics that try every order.

use std::time::Duration;

pub use std::sync::{Arc, atomic};

/// Number of checks without a pause.
const SPINS: u32 = 64;
/// Sleep between two checks after these.
const PAUSE: Duration = Duration::from_micros(20);

/// Waits between two checks of what another thread is about to do; `looks` is the number of checks so far.
pub fn pause(attempts: u32) {
    if attempts < SPINS { std::hint::spin_loop() } else { std::thread::sleep(PAUSE) }
}

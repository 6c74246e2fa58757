//! What the engine asks of Linux: the clock, the class of a thread, waiting. The engine's only unsafe code.

pub mod attributes;
pub mod calls;
pub mod heap;
pub mod network;
pub mod realtime;
pub mod usage;
pub mod wait;

use std::io::{self, Read};

use punctual_proto::Instant;

/// This host's time: `CLOCK_MONOTONIC`.
pub fn now() -> Instant {
    Instant(punctual_link::clock::monotonic_ns())
}

/// 64 bits that nobody can guess.
///
/// # Errors
/// Where the system has no random source.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

//! The parts of Linux that a host uses: clocks, scheduling classes, waiting, memory, filters of system calls.
//! Also those that the tools around a host use: network namespaces, commands, Ctrl-C, whole frames.

pub mod attributes;
pub mod calls;
pub mod clock;
pub mod command;
pub mod cpus;
pub mod descriptors;
pub mod frames;
pub mod heap;
pub mod interrupt;
pub mod namespaces;
pub mod network;
pub mod realtime;
pub mod usage;
pub mod wait;

use std::io::{self, Read};

pub use clock::now;

/// 64 unpredictable random bits.
///
/// # Errors
/// If the system has no random source.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

//! The rings and wake-ups of `ipc` and `link` over loom: every order of a few steps of two threads.
//!
//! The modules `ring`, `flag`, `packets`, `pool` and `wake_flag` *are* the sources of those crates, compiled
//! once more. Their imports come from this crate: atomics and cells from loom (`sync`), shared memory whose
//! payload detects races (`shm`), and descriptors that are conditions of loom (`wake`). A lost wake-up is a
//! deadlock here, a slot that two threads access a race, and loom finds both in any order that the memory
//! model permits.

#![allow(dead_code, unused_imports, reason = "the shared sources offer more than the scenarios need")]

#[path = "../../../crates/link/src/ring.rs"]
mod packets;
#[path = "../../../crates/link/src/pool.rs"]
mod pool;
#[path = "../../../crates/ipc/src/ring/mod.rs"]
mod ring;
pub mod scenarios;
mod shm;
mod sync;
mod wake;
#[path = "../../../crates/link/src/wake_flag.rs"]
mod wake_flag;

//! The rings and wake-ups of `ipc` and `link` over loom: every order of a few steps of two threads.
//!
//! The modules `ring`, `flag`, `packets`, `pool` and `wake_flag` *are* the sources of those crates, compiled once more; what
//! they import from their crate comes from here: atomics and cells from loom (`sync`), shared memory whose payload
//! notices races (`shm`), and descriptors that are conditions of loom (`wake`). A wake-up that is lost is a deadlock
//! here, a slot that two threads touch a race, and loom finds both in any order that the memory model allows.

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

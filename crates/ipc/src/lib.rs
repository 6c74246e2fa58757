//! What an application and the daemon share: API messages over a Unix socket, message rings in shared memory,
//! and wake-ups that cost nothing while the other side is awake.
//!
//! Who trusts whom: the daemon trusts nothing that an application can write. Every index and length in shared
//! memory is read once and checked; a violation breaks that one ring ([`ring::OutboxReader::is_broken`]) and
//! nothing else. An application trusts its daemon, but checks what it would otherwise index with.
//!
//! - [`shm`]: a sealed memory file and raw copies in and out of it
//! - [`ring`]: the outgoing and the incoming message ring
//! - [`wake`]: sleep flags, doorbell and bell
//! - [`api`], [`socket`]: requests, answers, pushes, and how they travel with descriptors

pub mod api;
pub mod ring;
pub mod shm;
pub mod socket;
mod sync;
pub mod wake;

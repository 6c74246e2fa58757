//! The interface between an application and the daemon: API messages over a Unix socket, message rings in
//! shared memory, and wake-ups that cost nothing while the other side is awake.
//!
//! Trust: the daemon trusts no data that an application can write. It reads every index and length in shared
//! memory once, and checks it. A violation breaks that one ring ([`ring::OutboxReader::is_broken`]) and has
//! no other effect. An application trusts its daemon, but checks each value before it uses it as an index.
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

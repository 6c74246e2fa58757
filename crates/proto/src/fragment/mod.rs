//! Fragmentation of messages at the source ([`Fragmentation`]) and reassembly at the sink ([`Reassembly`]).
//!
//! Neither holds payload: the source copies a fragment into a frame only when the link scheduler picks it,
//! the sink copies it straight to index times fragment size of a slot of the receiver's ring.

mod arithmetic;
mod reassembly;
mod window;

pub use arithmetic::{Extent, Fragmentation, packet_wire_bytes};
pub use reassembly::{Outcome, Reassembly, Rejection};

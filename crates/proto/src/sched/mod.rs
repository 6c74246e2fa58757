//! Handlers and the executor that orders them (CLIPS 4.3, HARTS 5.2.2, RTU 3).
//!
//! - A handler does the protocol work of one clip, one PDU at a time. The caller owns the work; the executor
//!   owns the order: `pick`, process, set the new head by `ready`, `idle` or `block`, then `finished`.
//! - A handler is cooperative: after its quantum it checks `yield_request`.
//! - Work beyond a budget runs in the background, below all other work.
//! - The executor reads no clock and takes no lock; it allocates only in `add`. Each call is O(log handlers),
//!   with a bounded number of moves.

mod budget;
mod caps;
mod executor;
mod heap;
mod order;
mod parameters;

pub use crate::ids::HandlerId;
pub(crate) use caps::Bucket;
pub use executor::Executor;
pub use parameters::{Activation, Budget, Class, HandlerParameters, Trigger};

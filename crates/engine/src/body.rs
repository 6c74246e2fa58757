//! The code that a program's handler runs.

pub use punctual_proto::api::RtuProgress as Progress;

/// The body of a handler: it is given the number of PDUs that it may process in this call. It runs on the processor's thread
/// at its priority, and everything else waits meanwhile.
pub type Body = Box<dyn FnMut(u32) -> Progress + Send>;

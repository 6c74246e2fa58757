//! The code that a program's handler runs.

/// The result of one call of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Data units (PDUs) that it processed: at most as many as it was given, or it has ignored the request to yield.
    pub units: u32,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// The body of a handler: it is given the number of PDUs that it may process in this call. It runs on the processor's thread
/// at its priority, and everything else waits meanwhile.
pub type Body = Box<dyn FnMut(u32) -> Progress + Send>;

//! What goes over a connection must go on: the rest of a message that one side has begun, and a reply that the other side
//! is to take.

use std::time::{Duration, Instant};

use crate::limits::PROGRESS_BYTES;
use crate::transport::Deadline;

/// How far what is owed has come.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// Since when only `bytes` have moved. Nothing while nothing is owed.
    since: Option<Instant>,
    bytes: usize,
}

impl Owed {
    /// So many bytes have moved.
    pub fn progress(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Nothing is owed any more.
    pub fn is_paid(&mut self) {
        self.since = None;
    }

    /// By when more must have moved, if `time` is allowed for each [`PROGRESS_BYTES`]: from the first time on that it is
    /// asked.
    pub fn until(&mut self, time: Option<Duration>) -> Deadline {
        if self.since.is_none() || self.bytes >= PROGRESS_BYTES {
            self.since = Some(Instant::now());
            self.bytes = 0;
        }
        Some(self.since? + time?)
    }
}

//! The event log: every step enters the digest, and a timeline on request.

use crate::entry::Entry;
use crate::time::SimTime;
use crate::trace::{Flight, Timeline};

/// Bytes of records that are digested at once.
const RECORDS_BYTES: usize = 48 << 8;

/// The log of one run.
#[derive(Debug)]
pub struct Journal {
    hasher: blake3::Hasher,
    /// Records that are not in `hasher` yet: hashing many at once is four times as fast.
    records: Vec<u8>,
    trace: Option<Timeline>,
}

impl Journal {
    /// An empty log for hosts of these names.
    pub fn new(names: Vec<String>, trace: bool) -> Self {
        let records = Vec::with_capacity(RECORDS_BYTES);
        Self { hasher: blake3::Hasher::new(), records, trace: trace.then(|| Timeline::new(names)) }
    }

    /// Logs an event on `host` at `at`.
    pub fn note(&mut self, at: SimTime, host: usize, entry: Entry) {
        let [a, b, c, d] = entry.words();
        for word in [at.0, host as u64, a, b, c, d] {
            self.records.extend_from_slice(&word.to_le_bytes());
        }
        if self.records.len() >= RECORDS_BYTES {
            self.digest_records();
        }
        if let Some(trace) = &mut self.trace {
            trace.note(at, host, entry);
        }
    }

    /// Adds text, of violations, to the digest and the timeline.
    pub fn remark(&mut self, at: SimTime, text: &str) {
        self.records.extend_from_slice(text.as_bytes());
        if let Some(trace) = &mut self.trace {
            trace.violation(at, text);
        }
    }

    fn digest_records(&mut self) {
        self.hasher.update(&self.records);
        self.records.clear();
    }

    /// Adds an explanation to the timeline.
    pub fn explain(&mut self, words: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.explain(words());
        }
    }

    /// Adds the flight of a frame to the timeline.
    pub fn fly(&mut self, flight: impl FnOnce() -> Flight) {
        if let Some(trace) = &mut self.trace {
            trace.fly(flight());
        }
    }

    /// Digest and timeline.
    pub fn finish(mut self) -> ([u8; 32], Timeline) {
        self.digest_records();
        (*self.hasher.finalize().as_bytes(), self.trace.unwrap_or_default())
    }
}

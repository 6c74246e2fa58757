//! The running figures of a stream, shared between its two ends and whoever shows them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use punctual_analysis::{Instant, Nanos};

use super::Latencies;
use super::latency::LatencySummary;
use crate::excuse::Excuses;
use crate::loads::{Sent, Stamp};

/// Figures so far. What is final comes from the logs ([`super::stream`]), not from here.
#[derive(Debug, Default)]
pub struct Live {
    deadline: Option<Nanos>,
    refused: AtomicU64,
    delivered_bytes: AtomicU64,
    damaged: AtomicU64,
    judged: Mutex<Judged>,
}

#[derive(Debug, Default)]
struct Judged {
    latencies: Latencies,
    /// (logical arrival, delivery) of every late message.
    late: Vec<(Instant, Instant)>,
}

/// A look at them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveView {
    /// Messages that were not taken: policed, or met a full queue.
    pub refused: u64,
    /// Payload bytes delivered.
    pub delivered_bytes: u64,
    /// Messages delivered after their bound.
    pub late: u64,
    /// Of these excused by a hole.
    pub excused: u64,
    /// Messages that were not the ones sent.
    pub damaged: u64,
    /// From the logical arrival.
    pub latencies: LatencySummary,
}

impl Live {
    /// Of a stream with that promise, if any.
    pub fn new(deadline: Option<Nanos>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// The sender's end.
    pub fn offered(&self, sent: &Sent) {
        if !sent.taken {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The receiver's end.
    pub fn received(&self, stamp: &Stamp, delivered: Instant, bytes: u32, intact: bool) {
        let latency = delivered.since(stamp.logical);
        self.delivered_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        if !intact {
            self.damaged();
        }
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.latencies.record(latency);
        if self.deadline.is_some_and(|deadline| latency > deadline) {
            judged.late.push((stamp.logical, delivered));
        }
    }

    /// A message that nobody sent.
    pub fn damaged(&self) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures now.
    pub fn view(&self, excuses: &Excuses) -> LiveView {
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let excused = judged.late.iter().filter(|(logical, delivered)| excuses.covers(*logical, *delivered));
        LiveView {
            refused: self.refused.load(Ordering::Relaxed),
            delivered_bytes: self.delivered_bytes.load(Ordering::Relaxed),
            late: judged.late.len() as u64,
            excused: excused.count() as u64,
            damaged: self.damaged.load(Ordering::Relaxed),
            latencies: judged.latencies.summary(),
        }
    }
}

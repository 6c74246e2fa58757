//! The running figures of a stream, shared between its two ends and the thread that shows them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use punctual_analysis::{Instant, Nanos};

use super::latency::LatencySummary;
use super::{Latencies, Sent, Stamp};
use crate::excuse::Excuses;

/// Figures so far. Final figures come from the logs ([`super::stream`]), not from here.
#[derive(Debug, Default)]
pub struct Live {
    deadline: Option<Nanos>,
    /// Whether latencies count from sending.
    from_sending: bool,
    refused: AtomicU64,
    delivered_bytes: AtomicU64,
    judged: Mutex<Judged>,
}

#[derive(Debug, Default)]
struct Judged {
    latencies: Latencies,
    /// (logical arrival, delivery) of every late message.
    late: Vec<(Instant, Instant)>,
}

/// A reading of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveView {
    /// Messages that were not taken: policed, or met a full queue.
    pub refused: u64,
    /// Payload bytes delivered.
    pub delivered_bytes: u64,
    /// Messages delivered after their bound that no hole seen so far excuses.
    pub late: u64,
    /// Messages delivered after their bound that a hole excuses.
    pub excused: u64,
    /// Latencies from the logical arrival, or from sending ([`Live::from_sending`]).
    pub latencies: LatencySummary,
}

impl Live {
    /// Makes the figures of a stream with that promise, if any.
    pub fn new(deadline: Option<Nanos>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// The same for a system without promises that sends at once: its latencies count from sending.
    #[must_use]
    pub fn from_sending(self) -> Self {
        Self { from_sending: true, ..self }
    }

    /// The sender's end.
    pub fn offered(&self, sent: &Sent) {
        if !sent.taken {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The receiver's end.
    pub fn received(&self, stamp: &Stamp, delivered: Instant, bytes: u32) {
        let latency = delivered.since(stamp.logical);
        self.delivered_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        judged.latencies.record(if self.from_sending { delivered.since(stamp.sent) } else { latency });
        if self.deadline.is_some_and(|deadline| latency > deadline) {
            judged.late.push((stamp.logical, delivered));
        }
    }

    /// The figures now.
    pub fn view(&self, excuses: &Excuses) -> LiveView {
        let judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_excused = |(logical, delivered): &&(Instant, Instant)| excuses.covers(*logical, *delivered);
        let excused = judged.late.iter().filter(is_excused).count();
        LiveView {
            refused: self.refused.load(Ordering::Relaxed),
            delivered_bytes: self.delivered_bytes.load(Ordering::Relaxed),
            late: (judged.late.len() - excused) as u64,
            excused: excused as u64,
            latencies: judged.latencies.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_analysis::Ppm;

    use super::*;
    use crate::excuse::Hole;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_a_hole_excuses_is_no_miss_while_it_runs() {
        let live = Live::new(Some(Nanos(10 * MS)));
        for (logical, delivered) in [(100, 105), (100, 130), (200, 230)] {
            let logical = Instant(logical * MS);
            let stamp = Stamp { stream: 0, sequence: 0, sent: logical, logical };
            live.received(&stamp, Instant(delivered * MS), 100);
        }
        let hole = Hole { start: Instant(101 * MS), end: Instant(125 * MS) };
        let view = live.view(&Excuses::new(&[hole], Ppm(0)));
        assert_eq!((view.late, view.excused, view.latencies.samples), (1, 1, 3));
        let unseen = live.view(&Excuses::new(&[], Ppm(0)));
        assert_eq!((unseen.late, unseen.excused), (2, 0));
    }
}

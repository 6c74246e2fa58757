//! The counters of a channel, in memory that its program reads without a request (ADR 0032): behind the
//! header of the daemon's file of its ring, which the program maps for reading only.
//!
//! ```text
//! 0 number of changes of the rest of the status   64 a record (see [`sequence`]): counters | latencies
//! ```
//!
//! Only the incoming ring has latencies. The processor writes the record at the end of each turn in which the
//! channel was active: some 25 words, and the changed words of the histogram. It makes no system call,
//! allocates nothing and never reads the record back.

use punctual_analysis::Nanos;
use punctual_proto::api::ChannelCounters;
use punctual_proto::latencies::{BUCKETS, Latencies, Observation};

use super::sequence::{self, Writer, bytes_of};
use super::{HEADER_BYTES, LINE_BYTES};
use crate::shm::{Region, View};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, pause};

/// Words of [`ChannelCounters`].
const COUNTERS: usize = 20;
/// Words that summarise the latencies, in addition to their buckets.
const SUMMARY: usize = 5;
/// Two buckets a word.
const BUCKET_WORDS: usize = BUCKETS / 2;
const WORDS: usize = COUNTERS + SUMMARY + BUCKET_WORDS;
/// Words of buckets that are written one by one in a turn; where more have changed, all are.
const CHANGED_MAX: usize = 8;
const OUTDATED: usize = HEADER_BYTES;
const RECORD: usize = HEADER_BYTES + LINE_BYTES;
/// Bytes of the page behind the header.
const COUNTERS_BYTES: usize = (LINE_BYTES + bytes_of(WORDS)).next_multiple_of(LINE_BYTES);
/// Bytes of the daemon's file before the first entry, in whole cache lines.
pub(super) const DAEMON_HEADER_BYTES: usize = HEADER_BYTES + COUNTERS_BYTES;
/// Maximum number of times that a reader checks for the end of the current turn: 64 times without a pause,
/// then with pauses, for 100 ms or more in all.
const LOOKS_MAX: u32 = 2_000;

const _: () = assert!(
    BUCKETS.is_multiple_of(2) && BUCKET_WORDS <= 256 && DAEMON_HEADER_BYTES <= super::PAGE_BYTES as usize
);

/// The daemon's side.
#[derive(Debug)]
pub(super) struct CountersWriter {
    record: Writer,
    outdated: u64,
    /// Words of buckets that have changed since they were written, and how many have: more than fit here, perhaps.
    changed: [u8; CHANGED_MAX],
    changes: usize,
}

impl CountersWriter {
    pub const fn new() -> Self {
        Self { record: Writer::new(RECORD, WORDS), outdated: 0, changed: [0; CHANGED_MAX], changes: 0 }
    }

    /// See [`Outbox::touch`](punctual_proto::memory::Outbox::touch).
    pub fn touch(&mut self, region: &Region) -> bool {
        self.record.touch(region)
    }

    /// The other state of the channel has changed.
    pub fn outdate(&mut self, region: &Region) {
        self.outdated += 1;
        region.word(OUTDATED).store(self.outdated, Ordering::Release);
    }

    pub fn show(&mut self, region: &Region, counters: &ChannelCounters) {
        self.record.write(region, &words_of(counters), std::iter::empty());
    }

    /// A message was counted in bucket `index`.
    pub fn observe(&mut self, index: usize) {
        let word = (index / 2) as u8;
        let known = &self.changed[..self.changes.min(CHANGED_MAX)];
        if self.changes <= CHANGED_MAX && !known.contains(&word) {
            if let Some(place) = self.changed.get_mut(self.changes) {
                *place = word;
            }
            self.changes += 1;
        }
    }

    /// Does what [`Self::show`] does for a ring with latencies.
    pub fn show_with(&mut self, region: &Region, counters: &ChannelCounters, latencies: &Latencies) {
        let mut words = [0; COUNTERS + SUMMARY];
        words[..COUNTERS].copy_from_slice(&words_of(counters));
        words[COUNTERS..].copy_from_slice(&summary_of(latencies));
        let all = self.changes > CHANGED_MAX;
        let some = self.changed.into_iter().take(if all { 0 } else { self.changes }).map(usize::from);
        let indices = (0..if all { BUCKET_WORDS } else { 0 }).chain(some);
        let buckets = latencies.buckets();
        let more = indices.map(|word| {
            let pair = u64::from(buckets[word * 2]) | u64::from(buckets[word * 2 + 1]) << 32;
            (COUNTERS + SUMMARY + word, pair)
        });
        self.record.write(region, &words, more);
        self.changes = 0;
    }
}

/// The counters of a channel, all from the same time.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Counters of the channel.
    pub counters: ChannelCounters,
    /// Latencies at a sink; `None` elsewhere.
    pub latencies: Option<Latencies>,
}

/// The program's side. Clones read the same.
#[derive(Clone, Debug)]
pub struct CountersReader {
    daemon: Arc<View>,
    gone: Arc<AtomicBool>,
    has_latencies: bool,
}

impl CountersReader {
    pub(super) fn new(daemon: &Arc<View>, gone: &Arc<AtomicBool>, has_latencies: bool) -> Self {
        Self { daemon: Arc::clone(daemon), gone: Arc::clone(gone), has_latencies }
    }

    /// Whether the ring is closed: the channel has ended, or the daemon is gone.
    pub fn is_closed(&self) -> bool {
        super::Other(&self.daemon).is_closed() || self.gone.load(Ordering::SeqCst)
    }

    /// How often the rest of the channel's status has changed since the ring was made.
    pub fn outdated(&self) -> u64 {
        self.daemon.word(OUTDATED, Ordering::Acquire)
    }

    /// The counters of the channel. If the processor is in a turn that may have had a visible effect already,
    /// and `waits` is set, this waits until the turn is over, for some 100 ms at most. After that, or if
    /// `waits` is not set, it returns the counters as of the end of the turn before. `None` if the counters
    /// were written during every check.
    pub fn read(&self, waits: bool) -> Option<Counted> {
        let mut words = [0; 1 + WORDS];
        let wanted = 1 + if self.has_latencies { WORDS } else { COUNTERS };
        let is_whole = sequence::read(&self.daemon, RECORD, &mut words[..wanted], |attempts| {
            let again = waits && attempts < LOOKS_MAX && !self.is_closed();
            if again {
                pause(attempts);
            }
            again
        });
        let latencies = || self.has_latencies.then(|| latencies_of(&words[1 + COUNTERS..]));
        is_whole.then(|| Counted {
            counters: counters_of(words[1..].first_chunk().expect("a record has them")),
            latencies: latencies(),
        })
    }
}

/// The words of a record in their order: the numbers, then the two other values.
macro_rules! record {
    ($($number:ident)*) => {
        fn words_of(counters: &ChannelCounters) -> [u64; COUNTERS] {
            let ChannelCounters { $($number,)* latency_max, occupancy_max } = *counters;
            [$($number,)* latency_max.0, u64::from(occupancy_max)]
        }

        fn counters_of(words: &[u64; COUNTERS]) -> ChannelCounters {
            let [$($number,)* latency_max, occupancy_max] = *words;
            let occupancy_max = u32::try_from(occupancy_max).unwrap_or(u32::MAX);
            ChannelCounters { $($number,)* latency_max: Nanos(latency_max), occupancy_max }
        }
    };
}

record! {
    messages_in messages_out bytes_out delayed dropped demoted misses perhaps_late unmeasured late_arrivals lost incomplete
    overruns overflows demoted_dropped packets_in packets_out expired
}

fn summary_of(latencies: &Latencies) -> [u64; SUMMARY] {
    let (last, max) = (latencies.last(), latencies.max());
    [latencies.count(), last.latency.0, last.error.0, max.latency.0, max.error.0]
}

fn latencies_of(words: &[u64]) -> Latencies {
    let (summary, pairs) = words.split_at(SUMMARY);
    let observation = |at: usize| Observation { latency: Nanos(summary[at]), error: Nanos(summary[at + 1]) };
    let mut buckets = [0; BUCKETS];
    for (two, pair) in buckets.chunks_exact_mut(2).zip(pairs) {
        two.copy_from_slice(&[*pair as u32, (*pair >> 32) as u32]);
    }
    Latencies::of(buckets, summary[0], observation(1), observation(3))
}

#[cfg(test)]
mod tests;

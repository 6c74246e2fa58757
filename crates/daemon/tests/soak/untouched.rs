//! The channel that no fault touches: its sender, its receiver, and the verdict over its messages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use punctual::{Channel, Nanos, Receiver, RecvError};
use punctual_os::now;
use punctual_proto::Ppm;

use crate::common::witness::{WatcherRecords, enter_fifo, sleep_until};

/// The untouched channel: messages of several packets, one every 10 ms, each due within 40 ms.
pub const BYTES: u32 = 4_000;
pub const PER_SECOND: u64 = 100;
pub const DEADLINE_MS: u64 = 40;
/// Above ordinary threads, below the daemons' processors.
pub const PRIORITY: u8 = 45;

/// One message of the untouched channel as its receiver got it, or as its sender did not get rid of it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub from: punctual_proto::Instant,
    pub to: punctual_proto::Instant,
    pub kept: bool,
}

/// Ends the untouched channel, also if the test fails.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends by the clock, without waiting for any result; returns the messages that the channel did not take,
/// and how many it took.
pub fn send_by_the_clock(channel: &mut Channel, over: &AtomicBool) -> (Vec<Sample>, u64) {
    enter_fifo(PRIORITY, None);
    let interval = Nanos(1_000_000_000 / PER_SECOND);
    let (mut due, mut lost, mut sent) = (now(), Vec::new(), 0_u64);
    let mut message = [7; BYTES as usize];
    while !over.load(Ordering::Relaxed) {
        sleep_until(due);
        message[..8].copy_from_slice(&sent.to_le_bytes());
        match channel.try_send(&message) {
            Ok(()) => sent += 1,
            Err(_) => lost.push(Sample { from: due, to: now(), kept: false }),
        }
        // A sender that was stalled skips the missed ticks and sends no burst.
        due = (due + interval).max(now() - interval);
    }
    (lost, sent)
}

/// Receives until no more messages come after the sender's end.
pub fn receive(receiver: &mut Receiver, over: &AtomicBool) -> Vec<Sample> {
    enter_fifo(PRIORITY, None);
    let (mut samples, mut next) = (Vec::new(), 0);
    // Numbers that were skipped, with their position among the samples.
    let mut missing = HashMap::new();
    let mut buffer = [0; BYTES as usize];
    loop {
        let info = match receiver.recv_timeout(&mut buffer, Duration::from_millis(500)) {
            Ok(info) => info,
            Err(RecvError::TimedOut) if over.load(Ordering::Relaxed) => return samples,
            Err(RecvError::TimedOut) => continue,
            Err(error) => panic!("the untouched channel ended: {error}"),
        };
        let number = u64::from_le_bytes(buffer[..8].try_into().expect("eight bytes"));
        assert!(buffer[8..] == [7; BYTES as usize - 8], "number {number} is altered");
        let (from, to) = (info.logical_arrival, info.delivered);
        if number < next {
            let place: usize =
                missing.remove(&number).unwrap_or_else(|| panic!("number {number} came twice"));
            assert!(info.demoted, "number {number} keeps its contract and was overtaken");
            samples[place] = Sample { from, to, kept: false };
            continue;
        }
        // Missing messages were sent after the previous one came.
        let since = samples.last().map_or(from, |sample: &Sample| sample.from);
        for passed in next..number {
            missing.insert(passed, samples.len());
            samples.push(Sample { from: since, to, kept: false });
        }
        samples.push(Sample { from, to, kept: !info.demoted && to <= info.deadline });
        next = number + 1;
    }
}

/// The verdict over the untouched channel.
pub struct Verdict {
    pub line: String,
    pub broken_outside: usize,
    pub inconclusive: bool,
}

pub fn judge(mut samples: Vec<Sample>, witness: &WatcherRecords, load: Ppm) -> Verdict {
    let broken: Vec<Sample> = samples.iter().copied().filter(|sample| !sample.kept).collect();
    let outside = broken.iter().filter(|sample| !witness.excuses(sample.from, sample.to, load)).count();
    samples.sort_by_key(|sample| sample.to.since(sample.from));
    let at = |share: f64| {
        let place = (samples.len() as f64 * share) as usize;
        samples[place.min(samples.len() - 1)]
            .to
            .since(samples[place.min(samples.len() - 1)].from)
            .as_millis_f64()
    };
    let excused = broken.len() - outside;
    let line = format!(
        "{} messages of {BYTES} B, D {DEADLINE_MS} ms: p50 {:.2} ms, p99.9 {:.2} ms, at most {:.2} ms; late or lost: {} in \
         all, {outside} outside holes; {} holes, {:.3} % of the CPUs' time, the longest {:?}",
        samples.len(),
        at(0.5),
        at(0.999),
        at(1.0),
        broken.len(),
        witness.count(),
        witness.share() * 100.0,
        witness.longest(),
    );
    let inconclusive = witness.share() > 0.02 || excused * 100 > samples.len();
    Verdict { line, broken_outside: outside, inconclusive }
}

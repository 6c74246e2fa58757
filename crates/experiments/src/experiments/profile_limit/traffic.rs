//! The load: every channel sends a message each interval, all in step. Records the results.
//!
//! All work is admitted. Messages end in handlers on the sink's processor, with a declared time. The sender
//! is a thread above the source's processor: it has sent on all channels before the processor sees the first,
//! which is the worst that applications may do. Its time is declared as interference there.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use punctual::{Channel, Handler, Instant, MessageInfo, Nanos, Ppm, Receiver, SendError};
use punctual_os::clock::{now, sleep_until, thread_cpu};
use punctual_os::{cpus, realtime};
use serde::Serialize;

use super::evidence::Evidence;
use super::log::{FailedMessage, Log};
use super::pair::{Ends, Pair};
use super::{DEADLINE, INTERVAL, MESSAGE_BYTES};
use crate::excuse::Excuses;
use crate::excuse::WatcherRecords;
use crate::measure::cpu::of_thread;
use crate::witness::Witness;

/// Above the processors' priority.
const SENDER_PRIORITY: u8 = 60;
/// Late messages, and refused ones, that are remembered one by one.
const NOTED_MAX: usize = 1 << 18;
/// How far a sender may be ahead of its contract: jitter of its wake-ups.
const AHEAD_MAX: Nanos = Nanos::from_micros(250);
/// Groups of misses that are reported.
const CLUSTERS_MAX: usize = 8;
/// The processors' threads.
const PROCESSOR_THREAD: &str = "punctual-cpu";

/// The results of the messages.
pub(super) struct Carried {
    /// Messages that conformed: sent, or refused.
    pub messages: u64,
    /// Delivered late, lost or refused at the sender.
    pub late: u64,
    /// Late messages that no hole excuses.
    pub unexcused: u64,
    /// Messages that were taken and never came.
    pub missing: u64,
    /// Refused at the sender without a hole's excuse.
    pub refused_unexcused: u64,
    pub latency_max: Nanos,
    pub sender: Sender,
    /// Handlers that were taken off the processor's thread for overrunning their declared time.
    pub handlers_demoted: usize,
    pub testimony: WatcherRecords,
    /// The hosts' counters.
    pub evidence: Evidence,
    /// The unexcused misses, in words.
    pub unexcused_when: Vec<String>,
}

/// The sending application.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sender {
    #[serde(skip)]
    sent: u64,
    /// Messages that were not sent since the contract did not allow them yet: after a hole in the sender.
    pub skipped: u64,
    /// Conforming messages that found the channel's ring full.
    pub would_block: u64,
    /// Load of its CPU, in percent.
    pub busy_percent: f64,
    /// Longest time for one message on each channel: the burst of its interference.
    pub burst_max_us: u64,
    /// Load of the CPU of the busier processor, in percent.
    pub processor_busy_percent: f64,
}

/// The observations of handlers and sender; each only adds.
struct Seen {
    messages: AtomicU64,
    late: Log,
    refused: Log,
    latency_max_ns: AtomicU64,
}

impl Seen {
    fn new() -> Self {
        Self {
            messages: AtomicU64::new(0),
            late: Log::new(NOTED_MAX),
            refused: Log::new(NOTED_MAX),
            latency_max_ns: AtomicU64::new(0),
        }
    }
}

impl Carried {
    pub const fn is_clean(&self) -> bool {
        self.unexcused == 0
    }

    /// The stage that caused the misses, in words; empty if there are none.
    pub fn blame(&self) -> String {
        if self.is_clean() {
            return String::new();
        }
        let evidence = &self.evidence;
        let (source, sink) = (&evidence.source, &evidence.sink);
        let seen = [
            (self.sender.would_block, "the sender found rings full"),
            (evidence.overflows[0], "packets dropped at the source"),
            (evidence.came_late, "packets late from the source's CPU"),
            (source.no_room + sink.no_room, "drivers without room"),
            (evidence.sink_missed, "messages late at the sink's CPU"),
            (evidence.overflows[1], "packets dropped at the sink"),
            (evidence.inbox_full, "messages without room at the receiver"),
            (self.handlers_demoted as u64, "handlers off the sink's CPU"),
        ];
        let words: Vec<String> = seen
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        words.join(", ")
    }
}

/// All channels send for `span`, in step.
pub(super) fn carry(pair: &Pair, ends: Ends, span: Nanos) -> anyhow::Result<Carried> {
    let (channels, receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let witness = Witness::start().context("witness")?;
    let seen = Arc::new(Seen::new());
    let handlers = receivers
        .into_iter()
        .map(|receiver| handle(receiver, Arc::clone(&seen)))
        .collect::<Result<Vec<_>, _>>()?;
    let busy_before = processors();
    let sending = send(channels, span, Arc::clone(&seen))?;
    let (mut sender, channels) =
        sending.join().map_err(|_| anyhow!("the sending thread of the experiment failed"))??;
    sender.processor_busy_percent = busiest(&busy_before, span);
    // Messages in transit arrive within D; a message that takes much longer is lost.
    sleep_until(now() + DEADLINE * 20);
    let handlers_demoted = handlers.iter().filter(|handler| !handler.is_direct()).count();
    let testimony = witness.stop();
    let carried = count(&seen, sender, handlers_demoted, testimony, pair)?;
    drop((channels, handlers));
    Ok(carried)
}

fn count(
    seen: &Seen,
    sender: Sender,
    handlers_demoted: usize,
    testimony: WatcherRecords,
    pair: &Pair,
) -> anyhow::Result<Carried> {
    // g: the actual share of the tighter processor that the guaranteed load takes, including the sender's
    // part.
    let load = Ppm(((sender.processor_busy_percent + sender.busy_percent) * 1e4) as u32).min(Ppm(950_000));
    let excuses = Excuses::new(&testimony.holes, load);
    // A message that never came counts as late, and no hole excuses it.
    let arrived = seen.messages.load(Ordering::Relaxed);
    anyhow::ensure!(arrived > 0, "no message came through: {:?}", pair.source.status()?.node.drops);
    let missing = sender.sent.saturating_sub(arrived);
    let (late_unexcused, mut uncovered) = unexcused(&seen.late, &excuses);
    let (refused_unexcused, refused) = unexcused(&seen.refused, &excuses);
    uncovered.extend(refused);
    Ok(Carried {
        messages: sender.sent + sender.would_block,
        late: seen.late.len() + missing + seen.refused.len(),
        unexcused: late_unexcused + missing + refused_unexcused,
        missing,
        refused_unexcused,
        latency_max: Nanos(seen.latency_max_ns.load(Ordering::Relaxed)),
        sender,
        handlers_demoted,
        unexcused_when: clusters(&uncovered, &excuses),
        evidence: pair.evidence()?,
        testimony,
    })
}

/// How many of a log no hole excuses, and those of them that are remembered.
fn unexcused(log: &Log, excuses: &Excuses) -> (u64, Vec<FailedMessage>) {
    let mut noted = log.read();
    let remembered = noted.len() as u64;
    noted.retain(|(logical, at)| !excuses.covers(*logical, *at));
    (log.len() - remembered + noted.len() as u64, noted)
}

/// Groups of misses close to one another, one line each, with the last hole before: the reader judges the
/// excuses by this.
fn clusters(late: &[FailedMessage], excuses: &Excuses) -> Vec<String> {
    let mut late = late.to_vec();
    late.sort_unstable();
    let close = |one: &FailedMessage, next: &FailedMessage| next.0.since(one.0) < DEADLINE;
    late.chunk_by(close)
        .take(CLUSTERS_MAX)
        .map(|cluster| {
            let (first, last) = (cluster[0].0, cluster[cluster.len() - 1].0);
            let worst = cluster
                .iter()
                .map(|(logical, delivered)| delivered.since(*logical))
                .max()
                .unwrap_or_default();
            let hole = excuses.last_before(last).map_or("no hole before".into(), |hole| {
                format!("the last hole lasted {} and ended {} before", hole.length(), first.since(hole.end))
            });
            format!(
                "{} late by their D, or refused, within {}, at most {worst} under way; {hole}",
                cluster.len(),
                last.since(first)
            )
        })
        .collect()
}

/// Makes the sink's processor check each message's times.
fn handle(receiver: Receiver, seen: Arc<Seen>) -> anyhow::Result<Handler> {
    let inspect = move |_: &[u8], info: &MessageInfo, _: &mut punctual::Reply<'_>| {
        let logical = info.deadline - DEADLINE;
        seen.messages.fetch_add(1, Ordering::Relaxed);
        seen.latency_max_ns.fetch_max(info.delivered.since(logical).0, Ordering::Relaxed);
        if info.delivered > info.deadline {
            seen.late.note((logical, info.delivered));
        }
    };
    Ok(receiver.on_message(inspect)?)
}

type Sending = JoinHandle<anyhow::Result<(Sender, Vec<Channel>)>>;

/// Every interval one message on each channel.
fn send(mut channels: Vec<Channel>, span: Nanos, seen: Arc<Seen>) -> std::io::Result<Sending> {
    std::thread::Builder::new().name("limit-send".into()).spawn(move || {
        realtime::enter_fifo(SENDER_PRIORITY, cpus::usable()?.first().copied())?;
        let message = vec![0x5a; MESSAGE_BYTES as usize];
        let mut sender = Sender::default();
        let mut logical = vec![Instant::ZERO; channels.len()];
        let cpu_before = thread_cpu();
        let mut due = now() + INTERVAL;
        let until = due + span;
        while due < until {
            sleep_until(due);
            let begun = now();
            for (channel, logical) in channels.iter_mut().zip(&mut logical) {
                // A sender that was late once and continues at the old pace is ahead of its contract from
                // then on.
                let at = now();
                if at + AHEAD_MAX < *logical + INTERVAL {
                    sender.skipped += 1;
                    continue;
                }
                match channel.try_send(&message) {
                    Ok(()) => {
                        sender.sent += 1;
                        *logical = (*logical + INTERVAL).max(at);
                    }
                    Err(SendError::WouldBlock) => {
                        sender.would_block += 1;
                        seen.refused.note((at, at));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let ended = now();
            sender.burst_max_us = sender.burst_max_us.max(ended.since(begun).0 / 1_000);
            // After a hole no messages are made up for: the contract would not carry them.
            due = (due + INTERVAL).max(begun);
        }
        sender.busy_percent = percent(thread_cpu() - cpu_before, span);
        Ok((sender, channels))
    })
}

fn percent(part: Nanos, whole: Nanos) -> f64 {
    part.0 as f64 * 100.0 / whole.0.max(1) as f64
}

/// The processors' threads with the CPU time that they have used.
fn processors() -> Vec<(u32, Nanos)> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let of = |task: fs::DirEntry| -> Option<(u32, Nanos)> {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        (name.trim_end() == PROCESSOR_THREAD).then_some((tid, of_thread(tid)?))
    };
    tasks.filter_map(|task| of(task.ok()?)).collect()
}

/// The share of a CPU that the busiest of them took of `span`.
fn busiest(before: &[(u32, Nanos)], span: Nanos) -> f64 {
    let taken = |(tid, before): &(u32, Nanos)| of_thread(*tid).map_or(Nanos::ZERO, |after| after - *before);
    percent(before.iter().map(taken).max().unwrap_or(Nanos::ZERO), span)
}

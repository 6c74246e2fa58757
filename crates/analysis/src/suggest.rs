//! Derives the contracts that would carry a recorded stream, and simulates the stream under a given contract.

pub mod ffprobe;
mod trace;

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

pub use trace::{Frame, Trace, TraceError};

use crate::arrival::{LogicalArrivals, SourceVerdict};
use crate::buffers;
use crate::contract::{BURST_MESSAGES_MAX, Contract, INTERVAL_MIN, Policing};
use crate::units::{Nanos, Rate};

/// Bytes that packets add to the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Payload of a packet, in bytes.
    pub fragment_bytes: u32,
    /// Bytes on the wire that each packet adds: our header, UDP, IP, Ethernet, preamble, gap.
    pub overhead_bytes: u32,
}

impl Default for Packets {
    /// 1,400 B of payload, 64 B of our header and 66 B of UDP over IPv4 over Ethernet.
    fn default() -> Self {
        Self { fragment_bytes: 1_400, overhead_bytes: 130 }
    }
}

/// The resources that a contract reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// Rate that is reserved on every link, headers included, in bit/s.
    pub bits_per_second: u64,
    /// Bytes of buffers at the source, if its bound were all of D.
    pub source_buffer_bytes: u64,
    /// Bytes of buffers at the sink.
    pub sink_buffer_bytes: u64,
}

/// The result for a stream under a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContractOutcome {
    /// Frames of the stream.
    pub frames: u64,
    /// Messages of the stream: a frame larger than S is sent as several.
    pub messages: u64,
    /// Frames that are larger than S.
    pub frames_split: u64,
    /// Messages that policing delays: those that break "at most B + R·t".
    pub messages_delayed: u64,
    /// The longest that a message waits for its logical arrival, conforming or not.
    pub wait_max: Nanos,
    /// The largest time from a frame's sending until it is complete at the receiver: the wait and D.
    pub latency_max: Nanos,
    /// Messages lost if policing were `drop`.
    pub messages_dropped: u64,
    /// Frames that lose at least one message then.
    pub frames_damaged: u64,
}

/// A method of carrying the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Each frame is a message at the rate of frames: reserves the peak, no waiting.
    Peak,
    /// Frames cut into messages that wait up to half of D for their logical arrival.
    SmoothedHalf,
    /// Frames cut into messages that wait up to three quarters of D: cheaper than half of D, but with tighter
    /// bounds for every stage.
    SmoothedThreeQuarters,
    /// Little more than the mean rate, and a burst that takes any backlog: a large frame waits for its own
    /// burst, so it may be complete long after D.
    Burst,
}

/// A contract for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The method.
    pub kind: Kind,
    /// The contract. Its deadline is the requested one less the time for smoothing.
    pub contract: Contract,
    /// The resources that the contract reserves.
    pub reserves: Reservation,
    /// The result for the stream under the contract.
    pub fare: ContractOutcome,
}

/// The resources that `contract` reserves.
pub fn reservation(contract: &Contract, packets: &Packets) -> Reservation {
    let period = contract.policed_interval();
    let bytes = u64::from(contract.message_bytes_max);
    let count = u64::from(contract.packets_max(packets.fragment_bytes));
    let wire_bits = u128::from(bytes + count * u64::from(packets.overhead_bytes)) * 8;
    let per_second = (wire_bits * 1_000_000_000).div_ceil(u128::from(period.0.max(1)));
    let of = |messages: u64| messages.saturating_mul(bytes);
    Reservation {
        bits_per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
        source_buffer_bytes: of(buffers::source(contract.burst_messages_max, contract.deadline, period)),
        sink_buffer_bytes: of(buffers::cumulative(Nanos::ZERO, contract.deadline, Nanos::ZERO, period)),
    }
}

/// Smoothing over less than the time between frames costs more than the peak, so such a choice is left out.
fn cheaper_only(mut choices: Vec<Choice>, next: Choice) -> Vec<Choice> {
    let cheapest = choices.last().map_or(u64::MAX, |last| last.reserves.bits_per_second);
    if next.reserves.bits_per_second < cheapest {
        choices.push(next);
    }
    choices
}

/// Messages of a frame.
fn messages_of(frame: &Frame, message_bytes_max: u32) -> u32 {
    frame.bytes.div_ceil(message_bytes_max.max(1)).max(1)
}

/// The result for the stream under `contract`, with policing `delay` and with `drop`.
pub fn fare(trace: &Trace, contract: &Contract) -> ContractOutcome {
    let (mut delaying, mut dropping) = (LogicalArrivals::of(contract), LogicalArrivals::of(contract));
    let mut fare = ContractOutcome {
        frames: trace.frames().len() as u64,
        messages: 0,
        frames_split: 0,
        messages_delayed: 0,
        wait_max: Nanos::ZERO,
        latency_max: Nanos::ZERO,
        messages_dropped: 0,
        frames_damaged: 0,
    };
    for frame in trace.frames() {
        let messages = messages_of(frame, contract.message_bytes_max);
        fare.messages += u64::from(messages);
        fare.frames_split += u64::from(messages > 1);
        let mut dropped = 0;
        for _ in 0..messages {
            fare.wait_max = fare.wait_max.max(delaying.peek(frame.sent).since(frame.sent));
            let delayed =
                matches!(delaying.accept(frame.sent, Policing::Delay), SourceVerdict::Delayed { .. });
            fare.messages_delayed += u64::from(delayed);
            dropped += u64::from(dropping.accept(frame.sent, Policing::Drop) == SourceVerdict::Dropped);
        }
        fare.messages_dropped += dropped;
        fare.frames_damaged += u64::from(dropped > 0);
    }
    fare.latency_max = fare.wait_max + contract.deadline;
    fare
}

/// Contracts for the stream when a frame must be complete `deadline` after it was sent, the most expensive
/// first. Only [`Kind::Burst`] may take longer; its `fare.latency_max` has the time.
pub fn choices(trace: &Trace, deadline: Nanos, packets: &Packets) -> Vec<Choice> {
    let choice = |kind, contract: Contract| Choice {
        kind,
        contract,
        reserves: reservation(&contract, packets),
        fare: fare(trace, &contract),
    };
    let smoothed = |kind, wait: Nanos| {
        let candidates = message_sizes(trace, packets)
            .filter_map(|bytes| Some(choice(kind, smoothed_contract(trace, bytes, wait, deadline - wait)?)));
        candidates.min_by_key(|choice| choice.reserves.bits_per_second)
    };
    let burst = || {
        let candidates = message_sizes(trace, packets)
            .filter_map(|bytes| Some(choice(Kind::Burst, mean_contract(trace, bytes, deadline)?)));
        candidates.min_by_key(|choice| choice.reserves.bits_per_second)
    };
    [
        peak_contract(trace, deadline).map(|contract| choice(Kind::Peak, contract)),
        smoothed(Kind::SmoothedHalf, deadline / 2),
        smoothed(Kind::SmoothedThreeQuarters, deadline - deadline / 4),
        burst(),
    ]
    .into_iter()
    .flatten()
    .fold(Vec::new(), cheaper_only)
}

/// Message sizes worth trying: a packet, two, four, ... up to the largest frame.
fn message_sizes(trace: &Trace, packets: &Packets) -> impl Iterator<Item = u32> + use<> {
    let (largest, fragment) = (trace.bytes_max(), packets.fragment_bytes.max(1));
    (0..16)
        .map(move |doublings| fragment.saturating_mul(1 << doublings))
        .take_while(move |&bytes| bytes < largest.max(2))
}

fn peak_contract(trace: &Trace, deadline: Nanos) -> Option<Contract> {
    let gap = trace.gap_min().max(INTERVAL_MIN);
    // Frames sent at the same time are a burst.
    let burst = burst_for(trace, trace.bytes_max(), gap)?;
    Contract::new(trace.bytes_max(), Rate::every(gap)?, burst, deadline).ok()
}

/// The lowest rate at which no message waits longer than `wait`.
fn smoothed_contract(trace: &Trace, bytes: u32, wait: Nanos, deadline: Nanos) -> Option<Contract> {
    let fits = |interval| wait_max(trace, bytes, interval) <= wait;
    if !fits(INTERVAL_MIN) {
        return None;
    }
    let (mut fitting, mut too_long) = (INTERVAL_MIN, trace.duration().max(INTERVAL_MIN * 2));
    while too_long.0 - fitting.0 > 1 {
        let middle = Nanos(fitting.0 + (too_long.0 - fitting.0) / 2);
        if fits(middle) { fitting = middle } else { too_long = middle }
    }
    let burst = burst_for(trace, bytes, fitting)?;
    Contract::new(bytes, Rate::every(fitting)?, burst, deadline).ok()
}

/// 5 % above the mean rate of messages.
fn mean_contract(trace: &Trace, bytes: u32, deadline: Nanos) -> Option<Contract> {
    let messages: u64 = trace.frames().iter().map(|frame| u64::from(messages_of(frame, bytes))).sum();
    let interval = Nanos(trace.duration().0 / messages * 100 / 105).max(INTERVAL_MIN);
    let burst = burst_for(trace, bytes, interval)?;
    Contract::new(bytes, Rate::every(interval)?, burst, deadline).ok()
}

/// The longest wait for a logical arrival when frames are cut into messages of at most `bytes`.
fn wait_max(trace: &Trace, bytes: u32, interval: Nanos) -> Nanos {
    let mut free = Nanos::ZERO;
    let mut worst = Nanos::ZERO;
    for frame in trace.frames() {
        let sent = Nanos(frame.sent.0);
        let first = free.max(sent);
        let last = first + interval * u64::from(messages_of(frame, bytes) - 1);
        worst = worst.max(last - sent);
        free = last + interval;
    }
    worst
}

/// The smallest burst with which policing delays nothing; `None` if it would be too large.
fn burst_for(trace: &Trace, bytes: u32, interval: Nanos) -> Option<u32> {
    let ahead = wait_max(trace, bytes, interval).div_ceil(interval).saturating_add(1);
    u32::try_from(ahead).ok().filter(|&burst| burst <= BURST_MESSAGES_MAX)
}

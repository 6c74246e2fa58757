//! Arrivals at the edge of the contracts.

use rand::Rng;
use rand::rngs::SmallRng;

use crate::Channel;

/// Messages arrive for so long.
const ARRIVALS_NS: u64 = 300_000_000;
/// When everything is released at once.
pub const CRITICAL_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub channel: usize,
    pub ready_ns: u64,
    pub deadline_ns: u64,
    pub bytes: u32,
}

/// As dense as the contract allows, each message ready as early as it may be, the first (and what would be ready
/// before it) as late.
fn densest(index: usize, channel: &Channel, ready_first_ns: u64) -> Vec<Message> {
    let Channel { demand, bound, message_bytes_max: bytes, .. } = channel;
    let first_ns = ready_first_ns - demand.release_latency.0;
    (first_ns..first_ns + ARRIVALS_NS)
        .step_by(demand.period.0 as usize)
        .map(|effective_ns| Message {
            channel: index,
            ready_ns: (effective_ns - demand.early.0).max(ready_first_ns),
            deadline_ns: effective_ns + bound.0,
            bytes: *bytes,
        })
        .collect()
}

/// All channels at once, when a unit of `blocker` (or of best effort) has just begun.
pub fn critical_instant(channels: &[Channel], blocker: Option<usize>) -> Vec<Message> {
    let of = |(index, channel)| densest(index, channel, CRITICAL_NS - u64::from(blocker == Some(index)));
    channels.iter().enumerate().flat_map(of).collect()
}

/// All channels, each with an offset of its own.
pub fn periodic(channels: &[Channel], rng: &mut SmallRng) -> Vec<Message> {
    let mut of = |(index, channel): (usize, &Channel)| {
        densest(index, channel, CRITICAL_NS + rng.random_range(0..channel.demand.period.0))
    };
    channels.iter().enumerate().flat_map(&mut of).collect()
}

/// Pauses now and then, messages of all sizes, each ready some time between as early and as late as it may be.
pub fn jittered(channels: &[Channel], rng: &mut SmallRng) -> Vec<Message> {
    let mut messages = Vec::new();
    for (index, Channel { demand, bound, message_bytes_max, .. }) in channels.iter().enumerate() {
        let mut effective_ns = CRITICAL_NS + rng.random_range(0..demand.period.0);
        let mut latest_ns = 0;
        while effective_ns < CRITICAL_NS + ARRIVALS_NS {
            let anywhere = effective_ns - demand.early.0..=effective_ns + demand.release_latency.0;
            // In order within a channel.
            latest_ns = rng.random_range(anywhere).max(latest_ns);
            let deadline_ns = effective_ns + bound.0;
            let whole = rng.random_bool(0.7);
            let bytes = if whole { *message_bytes_max } else { rng.random_range(1..=*message_bytes_max) };
            messages.push(Message { channel: index, ready_ns: latest_ns, deadline_ns, bytes });
            let pause_ns = if rng.random_bool(0.3) { rng.random_range(0..demand.period.0) } else { 0 };
            effective_ns += demand.period.0 + pause_ns;
        }
    }
    messages
}

//! Cost of the link scheduler alone, by the number of its channels.

use std::hint::black_box;

use punctual_analysis::{BitRate, Instant, Nanos, Ppm};
use punctual_proto::config::{Interference, Pacing};
use punctual_proto::linksched::{Guaranteed, LinkParameters, LinkScheduler};

use super::CpuClock;
use crate::dice::Dice;
use crate::scenario::ScenarioError;

/// Interval between two packets.
const STEP: Nanos = Nanos(100);
/// Packets queued at any time, of channels in a random order.
const QUEUED: usize = 1_000;
const WIRE_BYTES: u32 = 900;

/// Nanoseconds of one core to queue a packet and to pick one, in steady state, with `channels` channels on
/// the link, at least one.
///
/// # Errors
/// If a packet is not taken, or none comes out: then the measurement is invalid.
pub fn scheduler_ns(channels: usize, packets: u64, cpu: CpuClock) -> Result<f64, ScenarioError> {
    let mut scheduler = LinkScheduler::new(LinkParameters {
        rate: BitRate(1 << 50),
        mtu_wire_bytes: 1_530,
        best_effort_wire_bytes: 1_530,
        pipeline_depth: 2,
        pace: Pacing::Clock,
        interference: Interference::default(),
        best_effort_flow_cap: Ppm::ONE,
        best_effort_cap: Ppm::ONE,
        best_effort_flow_bytes_max: 1 << 20,
        best_effort_flows_max: 64,
        best_effort_packets_max: 64,
    });
    let mut dice = Dice::new(channels as u64, 1);
    let mut flows: Vec<_> =
        (0..channels).map(|_| scheduler.add_channel(slots(channels), Nanos::ZERO)).collect();
    for at in (1..flows.len()).rev() {
        flows.swap(at, dice.between(0, at as u64) as usize);
    }
    let (mut now, mut turn) = (Instant(0), 0);
    let mut enqueue = |scheduler: &mut LinkScheduler<u64>, steady: bool| {
        now = now + STEP;
        turn = (turn + 1) % flows.len();
        let bound = Nanos(dice.between(1, 2 * STEP.0 * QUEUED as u64));
        // One in four waits in queue 3 first; not before the scheduler is polled, or all of them would be due
        // in one call.
        let early = Nanos(if steady && turn % 4 == 0 { STEP.0 * QUEUED as u64 / 4 } else { 0 });
        let effective = now + early;
        let key = Guaranteed { effective, deadline: effective + bound, wire_bytes: WIRE_BYTES };
        let queued = scheduler.enqueue(now, flows[turn], key, turn as u64);
        queued
            .map(|()| now)
            .map_err(|overflow| failed(channels, &format!("overflows: {:?}", overflow.reason)))
    };
    for _ in 0..QUEUED {
        enqueue(&mut scheduler, false)?;
    }
    let began = cpu();
    for _ in 0..packets {
        let now = enqueue(&mut scheduler, true)?;
        if black_box(scheduler.poll(now)).is_none() {
            return Err(failed(channels, "gives no packet though many are queued"));
        }
    }
    Ok((cpu() - began).as_secs_f64() * 1e9 / packets as f64)
}

/// A channel's part of the queued packets, and of those that wait up to three times as long while others are
/// served.
fn slots(channels: usize) -> u32 {
    (4 * QUEUED / channels + 4) as u32
}

fn failed(channels: usize, what: &str) -> ScenarioError {
    ScenarioError(format!("link scheduler of {channels} channels: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock per thread that advances with every reading.
    fn ticking() -> Nanos {
        use std::cell::Cell;
        thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });
        NOW.set(NOW.get() + 1_000_000);
        Nanos(NOW.get())
    }

    #[test]
    fn nothing_overflows_and_something_always_comes_out() {
        for channels in [1, 10, 1_000, 3_000] {
            let found = scheduler_ns(channels, 20_000, ticking);
            assert!(found.as_ref().is_ok_and(|ns| *ns > 0.0), "{found:?}");
        }
    }
}

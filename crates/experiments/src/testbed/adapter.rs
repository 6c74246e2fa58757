//! The bare driver: sends packets through it as fast as it accepts them, with a bound on the packets that it
//! holds.

use std::collections::VecDeque;
use std::path::Path;

use punctual::{Instant, Nanos};
use punctual_link::{Link, Port, Received};
use punctual_os::clock::now;
use punctual_os::interrupt;

use super::Place;
use crate::measure::{Laps, Sample};

/// Without a completion for this long, the driver's remaining packets are considered lost.
const STUCK: Nanos = Nanos::from_millis(200);
/// Ethernet, IP and UDP headers, preamble, checksum and gap.
pub const OVERHEAD_BYTES: usize = 66;
/// Packets between two checks of the other end.
const DRAIN_BATCH: usize = 64;
/// Time between two readings of what a driver that classifies has dropped: a system call each.
const LOOK: Nanos = Nanos::from_micros(500);

/// Bytes of a lap: some milliseconds of the links of the experiments, so that a hole takes few.
pub const LAP_BYTES: u64 = 128 << 10;

/// The packets that went through.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Each packet from its hand-over to its completion.
    pub access: Vec<Sample>,
    /// Payload that came out at the other end, in laps of [`LAP_BYTES`].
    pub laps: Vec<Sample>,
    /// Packets without a completion.
    pub lost: u64,
}

/// The only link of a host's configuration, opened on `place`.
///
/// # Errors
/// If the configuration or the driver refuses.
pub fn open(place: &Place, config: &str) -> anyhow::Result<Box<dyn Link>> {
    place.within(|| {
        let host = punctual_host::config::parse(config, Path::new("bench"))?;
        let mut links = host.open_links()?;
        anyhow::ensure!(links.len() == 1, "one link is expected");
        Ok(links.remove(0))
    })
}

/// Sends packets of `bytes` for `length` with at most `depth` in the adapter; discards the packets that
/// arrive at `sink`.
///
/// # Errors
/// If a driver breaks or the run is interrupted.
pub fn drive(
    source: &mut dyn Link,
    sink: &mut dyn Link,
    bytes: usize,
    depth: usize,
    length: Nanos,
) -> anyhow::Result<Flow> {
    let mut flow = Flow::default();
    let wire = u32::try_from(bytes + OVERHEAD_BYTES)?;
    let mut handed: VecDeque<Instant> = VecDeque::with_capacity(depth);
    let mut received: Vec<Received> = Vec::with_capacity(DRAIN_BATCH);
    let begun = now();
    let (mut credit, mut progress, mut looked) = (0u32, begun, begun);
    let (mut arrived, mut dropped) = (0u64, dropped_at(sink));
    let mut laps = Laps::of(LAP_BYTES);
    while now() < begun + length {
        interrupt::check()?;
        while handed.len() < depth {
            let Some(buffer) = source.transmit_buffer() else { break };
            buffer[..bytes].fill(0);
            handed.push_back(now());
            source.transmit(Port::Data, bytes, wire)?;
            source.flush()?;
        }
        if source.is_pending() {
            source.flush()?;
        }
        credit = credit.saturating_add(source.completed());
        let at = now();
        while credit >= wire {
            let Some(begun) = handed.pop_front() else { break };
            credit -= wire;
            progress = at;
            flow.access.push(Sample { begun, span: at.since(begun) });
        }
        if at.since(progress) > STUCK {
            (credit, progress) = (0, at);
            flow.lost += handed.drain(..).len() as u64;
        }
        arrived += sink.receive(&mut received, DRAIN_BATCH)? as u64;
        received.clear();
        if at.since(looked) >= LOOK {
            let before = std::mem::replace(&mut dropped, dropped_at(sink));
            let came = std::mem::take(&mut arrived) + dropped - before;
            laps.arrived(came * bytes as u64, at);
            looked = at;
        }
    }
    flow.laps = laps.finish();
    Ok(flow)
}

/// Packets that have come and that a driver which classifies has thrown away: ours belong to no channel.
fn dropped_at(sink: &dyn Link) -> u64 {
    let drops = sink.stream_drops();
    drops.policed
        + drops.malformed
        + drops.unknown
        + drops.wrong_cookie
        + drops.no_buffer
        + drops.expired
        + drops.replayed
}

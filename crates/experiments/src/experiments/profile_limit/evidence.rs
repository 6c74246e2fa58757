//! The hosts' counters about themselves in a run: shows which stage missed.

use punctual::Endsystem;
use punctual_proto::api::{ChannelCounters, WorkKind};
use serde::Serialize;

/// One processor.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Processor {
    /// Half of the units took at most this percentage of the time that admission assumes.
    pub p50_percent: u32,
    /// 99 of 100 units did.
    pub p99_percent: u32,
    /// Units that took longer than assumed, per million.
    pub overruns_ppm: u64,
    /// Wake-ups later than the release latency.
    pub wakes_late: u64,
    /// The latest.
    pub wake_late_max_us: u64,
    /// Longest turn.
    pub turn_max_us: u64,
    /// Times without a free frame, or without room in the driver.
    pub no_room: u64,
}

/// Both, and the sums over channels.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Evidence {
    pub source: Processor,
    pub sink: Processor,
    /// Messages that the sink's processor delivered after e + d of its stage.
    pub sink_missed: u64,
    /// Packets that came to the sink later than n + J: the source or the link was late.
    pub came_late: u64,
    /// Messages that waited for their logical arrival at the source.
    pub delayed: u64,
    /// Packets dropped for want of slots or buffers at the source, and at the sink.
    pub overflows: [u64; 2],
    /// Messages that found no room at the receiver.
    pub inbox_full: u64,
}

impl Evidence {
    pub fn of(source: &Endsystem, sink: &Endsystem) -> anyhow::Result<Self> {
        let sum = |host: &Endsystem, what: fn(&ChannelCounters) -> u64| -> anyhow::Result<u64> {
            Ok(host.channels()?.iter().map(|channel| what(&channel.counters)).sum())
        };
        Ok(Self {
            source: Processor::of(source, WorkKind::Send)?,
            sink: Processor::of(sink, WorkKind::Receive)?,
            sink_missed: sum(sink, |counted| counted.misses)?,
            came_late: sum(sink, |counted| counted.demoted)?,
            delayed: sum(source, |counted| counted.delayed)?,
            overflows: [sum(source, |counted| counted.overflows)?, sum(sink, |counted| counted.overflows)?],
            inbox_full: sum(sink, |counted| counted.overruns)?,
        })
    }
}

impl Processor {
    fn of(host: &Endsystem, kind: WorkKind) -> anyhow::Result<Self> {
        let status = host.status()?;
        let mut processor = Self {
            wakes_late: status.node.wakes.late,
            wake_late_max_us: status.node.wakes.late_max.0 / 1_000,
            turn_max_us: status.engine.loop_ns_max / 1_000,
            no_room: status.engine.receive_pool_dry + status.engine.driver_full,
            ..Self::default()
        };
        if let Some(path) = status.node.work.iter().find(|path| path.kind == kind) {
            processor.p50_percent = path.p50_percent;
            processor.p99_percent = path.p99_percent;
            processor.overruns_ppm = path.overruns * 1_000_000 / path.units.max(1);
        }
        Ok(processor)
    }
}

//! What a node shows of itself.

use alloc::string::ToString;
use alloc::vec::Vec;

use punctual_analysis::{Guarantee, Instant};

use super::Node;
use super::api::{ChannelStatus, DropCounters, ForeignVersion, LinkStatus, NodeStatus};
use crate::ids::{ChannelId, LinkId};
use crate::memory::Memory;
use crate::signalling::{ChannelView, RTCOP_VERSION};

impl<M: Memory> Node<M> {
    /// For `status`.
    pub fn status(&self, now: Instant) -> NodeStatus {
        let plane = &self.plane;
        let signalling = self.signalling.counters();
        let drops = plane.drops;
        NodeStatus {
            id: plane.config.id,
            name: plane.config.name.clone(),
            channels: plane.clips.len() as u32,
            channels_soft: plane.clips.iter().filter(|clip| clip.is_soft()).count() as u32,
            cpu_utilisation: plane.stages.cpu_utilisation(),
            buffer_bytes: plane.stages.buffer_bytes(),
            links: (0..plane.lines.len()).map(|link| self.link_status(LinkId(link as u16), now)).collect(),
            drops: DropCounters {
                malformed: drops.malformed + signalling.malformed,
                version: drops.version + signalling.version,
                unauthenticated: signalling.unauthenticated,
                replayed: signalling.replayed,
                ..drops
            },
            overruns: plane.record.overruns(),
            work: plane.record.paths().collect(),
            busy: plane.record.busy(plane.config.cpu.burst()),
            wakes: plane.record.wakes(),
            retransmissions: signalling.retransmissions,
            now,
        }
    }

    fn link_status(&self, link: LinkId, now: Instant) -> LinkStatus {
        let line = self.plane.line(link);
        let neighbour = self.signalling.neighbour(link, now);
        let counters = line.scheduler.counters();
        LinkStatus {
            link,
            name: line.config.name.clone(),
            neighbour: line.config.neighbour,
            alive: neighbour.alive,
            foreign: neighbour.foreign_version.map(|theirs| ForeignVersion { theirs, ours: RTCOP_VERSION }),
            packets_foreign: line.packets_foreign + neighbour.packets_foreign,
            clock_offset_ns: neighbour.clock_offset_ns,
            round_trip_min: neighbour.round_trip_min,
            utilisation: self.plane.stages.link_utilisation(link),
            packets_guaranteed: counters.guaranteed_packets.saturating_sub(line.signal_packets),
            packets_best_effort: counters.best_effort_packets,
            packets_signalling: line.signal_packets,
            wire_bytes: counters.guaranteed_bytes + counters.best_effort_bytes,
            best_effort_dropped: counters.best_effort_overflows,
        }
    }

    /// For `channels`: every guaranteed channel that starts, passes or ends here, by handle. One that has ended and of
    /// which only the sink's word is waited for is none any more: nothing is known of what it has done.
    pub fn channels(&self) -> Vec<ChannelStatus> {
        let lives = self.signalling.channels().filter(|view| !view.has_ended);
        lives.map(|view| self.channel_status(&view)).collect()
    }

    /// One channel; `None` where it is not known here.
    pub fn channel(&self, channel: ChannelId) -> Option<ChannelStatus> {
        self.signalling.channel(channel).map(|view| self.channel_status(&view))
    }

    fn channel_status(&self, view: &ChannelView<'_>) -> ChannelStatus {
        let local = view.local;
        let degraded_by =
            view.degraded.iter().map(|node| self.plane.config.host_name(*node)).collect::<Vec<_>>();
        ChannelStatus {
            channel: local.channel,
            path: local.path,
            role: local.role,
            from: view.from.to_string(),
            to: view.to.clone(),
            contract: *local.contract,
            guarantee: if degraded_by.is_empty() { local.contract.guarantee() } else { Guarantee::Degraded },
            degraded_by,
            stages: self.plane.stages.holding(local),
            state: view.state.into(),
            delivery: local.contract.delivery,
            counters: self
                .plane
                .clips
                .get(local.channel)
                .map(|clip| clip.counters.shown())
                .unwrap_or_default(),
        }
    }
}
